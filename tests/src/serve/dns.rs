//! Authoritative DNS for `test.`: every name below it has the first origin's addresses,
//! `whoami.test` answers the asker's own address. Everything else is NXDOMAIN.

use std::io::Result;
use std::net::{IpAddr, SocketAddr};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};

use crate::lab::addr;

const TTL: u32 = 60;

/// Answers datagrams for ever.
pub(super) async fn serve_udp(socket: UdpSocket) {
    let mut buffer = [0; 1232];
    loop {
        let Ok((length, from)) = socket.recv_from(&mut buffer).await else {
            continue;
        };
        if let Some(answer) = answer(&buffer[..length], from.ip()) {
            let _ = socket.send_to(&answer, from).await;
        }
    }
}

/// Answers length-prefixed queries until the client closes.
pub(super) async fn serve_tcp(mut stream: TcpStream, peer: SocketAddr) -> Result<()> {
    loop {
        let Ok(length) = stream.read_u16().await else {
            return Ok(());
        };
        let mut query = vec![0; usize::from(length)];
        stream.read_exact(&mut query).await?;
        let Some(answer) = answer(&query, peer.ip()) else {
            return Ok(());
        };
        stream.write_u16(answer.len() as u16).await?;
        stream.write_all(&answer).await?;
    }
}

/// The address of a name as the upstreams see it.
pub(super) fn resolve(name: &str) -> Option<IpAddr> {
    let dotted = format!("{}.", name.trim_end_matches('.').to_lowercase());
    let all = addresses(&dotted, 1, IpAddr::from([0, 0, 0, 0]))?;
    all.first().copied().filter(|ip| !ip.is_unspecified())
}

/// Builds the answer to one question; `None` when it is not a query.
fn answer(query: &[u8], asker: IpAddr) -> Option<Vec<u8>> {
    let (name, end) = question(query)?;
    let kind = u16::from_be_bytes([*query.get(end)?, *query.get(end + 1)?]);
    let addresses = addresses(&name, kind, asker);
    let mut out = Vec::with_capacity(query.len() + 64);
    out.extend(&query[..2]);
    let code = if addresses.is_some() { 0 } else { 3 };
    out.extend([0x85, 0x80 | code, 0, 1]);
    let list = addresses.unwrap_or_default();
    out.extend((list.len() as u16).to_be_bytes());
    out.extend([0; 4]);
    out.extend(query.get(12..end + 4)?);
    for ip in list {
        out.extend([0xc0, 12]);
        out.extend(kind.to_be_bytes());
        out.extend([0, 1]);
        out.extend(TTL.to_be_bytes());
        match ip {
            IpAddr::V4(v4) => {
                out.extend([0, 4]);
                out.extend(v4.octets());
            }
            IpAddr::V6(v6) => {
                out.extend([0, 16]);
                out.extend(v6.octets());
            }
        }
    }
    Some(out)
}

/// The name of the first question and the offset of its type.
fn question(query: &[u8]) -> Option<(String, usize)> {
    if query.get(2)? & 0x80 != 0 {
        return None;
    }
    let mut name = String::new();
    let mut at = 12;
    loop {
        let length = usize::from(*query.get(at)?);
        at += 1;
        if length == 0 {
            return Some((name, at));
        }
        name.push_str(&String::from_utf8_lossy(query.get(at..at + length)?).to_lowercase());
        name.push('.');
        at += length;
    }
}

/// `None` is NXDOMAIN; an empty list is a name without such a record.
fn addresses(name: &str, kind: u16, asker: IpAddr) -> Option<Vec<IpAddr>> {
    let all: Vec<IpAddr> = match name {
        "whoami.test." => vec![asker],
        _ if name == "test." || name.ends_with(".test.") => {
            vec![addr::HO[0], addr::HO_V6[0]]
        }
        _ => return None,
    };
    let wanted = |ip: &IpAddr| (kind == 1 && ip.is_ipv4()) || (kind == 28 && ip.is_ipv6());
    Some(all.into_iter().filter(wanted).collect())
}
