//! Single facts about the host, from `/proc`, `/sys` and a few calls.

use std::{
    collections::BTreeMap,
    fs,
    net::{SocketAddr, UdpSocket},
    path::Path,
    time::Duration,
};

use honk_wire::dns::{self, Kind};

use crate::socket::{self, Mark};

/// How long a name server gets.
const ANSWER: Duration = Duration::from_secs(2);

/// A file without the white space around its text.
pub(super) fn text(path: impl AsRef<Path>) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// Host settings that matter, by path below `/proc/sys`; absent ones are left out.
pub(super) fn settings(lan: &[String], wan: &[String]) -> BTreeMap<String, String> {
    let mut keys = vec![
        "net/ipv4/ip_forward".to_owned(),
        "net/ipv6/conf/all/forwarding".to_owned(),
        "net/ipv4/conf/all/send_redirects".to_owned(),
        "net/ipv4/conf/all/rp_filter".to_owned(),
        "net/core/bpf_jit_enable".to_owned(),
    ];
    for name in lan {
        keys.push(format!("net/ipv4/conf/{name}/send_redirects"));
        keys.push(format!("net/ipv4/conf/{name}/forwarding"));
    }
    for name in lan.iter().chain(wan) {
        keys.push(format!("net/ipv4/conf/{name}/rp_filter"));
    }
    for name in wan {
        keys.push(format!("net/ipv6/conf/{name}/accept_ra"));
    }
    keys.into_iter()
        .filter_map(|key| Some((key.clone(), text(Path::new("/proc/sys").join(&key))?)))
        .collect()
}

/// Whether a process of the host serves UDP port 53 on an address that clients reach.
pub(super) fn serves_dns() -> bool {
    ["/proc/net/udp", "/proc/net/udp6"].iter().any(|path| {
        let text = fs::read_to_string(path).unwrap_or_default();
        text.lines().skip(1).any(listens_on_53)
    })
}

/// A line of `/proc/net/udp` with an unconnected socket on port 53, loopback left out.
pub(super) fn listens_on_53(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let (local, remote) = (words.nth(1), words.next());
    let loopback = |address: &str| address.len() == 8 && address.ends_with("7F");
    local
        .and_then(|l| l.split_once(':'))
        .is_some_and(|(a, port)| {
            port == "0035" && !loopback(a) && remote.is_some_and(|r| r.ends_with(":0000"))
        })
}

/// Receive queues of an interface, and whether packets are spread over CPUs in software.
pub(super) fn queues(name: &str) -> (usize, bool) {
    let dir = Path::new("/sys/class/net").join(name).join("queues");
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut count = 0;
    let mut spread = false;
    for entry in entries {
        if entry.file_name().to_string_lossy().starts_with("rx-") {
            count += 1;
            let mask = text(entry.path().join("rps_cpus")).unwrap_or_default();
            spread |= mask.chars().any(|c| !matches!(c, '0' | ','));
        }
    }
    (count, spread)
}

/// Free bytes for us where a directory is, or would be made.
pub(super) fn free(dir: &Path) -> Option<u64> {
    let existing = dir.ancestors().find(|d| d.is_dir())?;
    let stat = rustix::fs::statvfs(existing).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Asks a name server for a name as the daemon would: past its own hooks.
pub(super) fn ask(server: SocketAddr, name: &str, mark: u32) -> Result<(), String> {
    let mut question = Vec::new();
    dns::query(0x686e, name, Kind::A, &mut question).map_err(|e| e.to_string())?;
    let exchange = || -> std::io::Result<Vec<u8>> {
        let socket: UdpSocket = socket::open(server, socket::Kind::Datagram, Mark(mark))?.into();
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(Some(ANSWER))?;
        socket.connect(server)?;
        socket.send(&question)?;
        let mut buffer = vec![0; 4096];
        let read = socket.recv(&mut buffer)?;
        buffer.truncate(read);
        Ok(buffer)
    };
    let answer = exchange().map_err(|e| match e.kind() {
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => {
            format!("no answer within {} s", ANSWER.as_secs())
        }
        _ => e.to_string(),
    })?;
    match dns::answer(&question, &answer) {
        Ok(_) | Err(dns::Error::Truncated) => Ok(()),
        Err(e) => Err(e.to_string()),
    }
}
