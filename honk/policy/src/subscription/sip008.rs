//! SIP008: Shadowsocks servers as JSON.

use super::{
    Read, UserInfo,
    entry::{self, Entry},
};
use crate::{
    document::Tree,
    node::{Fault, Kind, Proxy, Shadowsocks, UdpOverTcp, link::plugin_text, value},
};

pub(super) fn read(tree: &Tree) -> Read {
    let servers = tree.get("servers").unwrap_or(tree).items();
    let mut read = Read::of(servers.iter().map(|server| {
        let name = entry::text(server, &["remarks", "name"]);
        let result = entry::sized(server).and_then(|()| one(server));
        let tag = match &result {
            Ok(proxy) => entry::shown(name, proxy),
            Err(_) => String::new(),
        };
        Entry::of(&tag, "ss", result.map(|proxy| (proxy, None)))
    }));
    let bytes = |key| tree.text(key).and_then(|text| text.parse::<u64>().ok());
    if let (Some(used), Some(remaining)) = (bytes("bytes_used"), bytes("bytes_remaining")) {
        read.info.user = Some(UserInfo {
            upload: None,
            download: Some(used),
            total: used.checked_add(remaining),
            expire: None,
        });
    }
    read
}

fn one(server: &Tree) -> Result<Proxy, Fault> {
    let cipher = entry::required(server, "method", "the method is missing")?;
    let cipher = value::cipher(cipher)?;
    let password = entry::required(server, "password", "the password is missing")?;
    let plugin = match entry::text(server, &["plugin"]) {
        None => None,
        Some(name) => {
            let options = entry::text(server, &["plugin_opts"]).unwrap_or_default();
            Some(plugin_text(name, options)?)
        }
    };
    let kind = Kind::Shadowsocks(Shadowsocks {
        cipher,
        password: value::password(cipher, password)?,
        plugin,
        uot: UdpOverTcp::Off,
    });
    let proxy = entry::server(server.text("server"), server.text("server_port"), kind)?;
    entry::judged(proxy)
}
