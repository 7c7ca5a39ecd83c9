//! Settings the kernel changes by itself when forwarding is switched.
//!
//! `ip_forward` and IPv6 `all/forwarding` overwrite the value of every interface and of
//! `default`, and `ip_forward` also `all/accept_redirects`. Called by [`super::sysctl`], which
//! keeps the originals; nothing is written here.

use std::{fs, path::Path};

const FORWARD4: &str = "net/ipv4/ip_forward";
const FORWARD6: &str = "net/ipv6/conf/all/forwarding";

/// Keys that change along when `key` is set to `value`, with what they then hold.
pub(super) fn victims(root: &Path, key: &str, value: &str) -> Vec<(String, String)> {
    let family = match key {
        FORWARD4 => "ipv4",
        FORWARD6 => "ipv6",
        _ => return Vec::new(),
    };
    let mut keys: Vec<(String, String)> = fs::read_dir(root.join(format!("net/{family}/conf")))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|e| e.file_name().into_string().ok())
        .filter(|name| name != "all" && name != super::pair::HOST)
        .map(|name| {
            (
                format!("net/{family}/conf/{name}/forwarding"),
                value.to_owned(),
            )
        })
        .collect();
    keys.sort();
    if key == FORWARD4 {
        let refused = if value == "0" { "1" } else { "0" };
        keys.push((
            "net/ipv4/conf/all/accept_redirects".to_owned(),
            refused.to_owned(),
        ));
    }
    keys
}

/// Whether writing `key` changes `other`.
pub(super) fn is_victim(key: &str, other: &str) -> bool {
    let under = |prefix: &str| other.starts_with(prefix) && other.ends_with("/forwarding");
    match key {
        FORWARD4 => under("net/ipv4/conf/") || other == "net/ipv4/conf/all/accept_redirects",
        FORWARD6 => under("net/ipv6/conf/") && other != FORWARD6,
        _ => false,
    }
}
