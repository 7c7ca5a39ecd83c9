//! Authoritative DNS for `test.`: every name below it has the first origin's addresses, names
//! below `o1.test` those of the second and below `o2.test` those of the third; `whoami.test`
//! answers the asker's own address. Everything else is NXDOMAIN.
//!
//! The first label may ask for bad manners: `mute` gets no answer, `cut` half of one, `tc` one
//! that says "truncated" over UDP, `forged` wrong ones before the right one.

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
        let Some(mut answer) = answer(&buffer[..length], from.ip()) else {
            continue;
        };
        let manners = answer.get(13..13 + usize::from(answer[12]));
        match manners.map(<[u8]>::to_ascii_lowercase).as_deref() {
            Some(b"mute") => continue,
            Some(b"cut") => answer.truncate(answer.len() - 1),
            Some(b"tc") => {
                answer[2] |= 2;
                answer[7] = 0;
                answer.truncate(answer.len() - 16);
            }
            Some(b"forged") => {
                for forged in forgeries(&answer) {
                    let _ = socket.send_to(&forged, from).await;
                }
            }
            _ => {}
        }
        let _ = socket.send_to(&answer, from).await;
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

/// Answers with another id, and to another question, that lead to the third origin.
fn forgeries(answer: &[u8]) -> [Vec<u8>; 2] {
    let mut led_astray = answer.to_vec();
    if let (Some(last), IpAddr::V4(v4)) = (answer.len().checked_sub(4), addr::HO[2]) {
        led_astray[last..].copy_from_slice(&v4.octets());
    }
    let mut other_id = led_astray.clone();
    other_id[1] ^= 1;
    let mut other_name = led_astray;
    other_name[13] = b'g';
    [other_id, other_name]
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
        _ if name.ends_with(".o1.test.") => vec![addr::HO[1], addr::HO_V6[1]],
        _ if name.ends_with(".o2.test.") => vec![addr::HO[2]],
        _ if name == "test." || name.ends_with(".test.") => {
            vec![addr::HO[0], addr::HO_V6[0]]
        }
        _ => return None,
    };
    let wanted = |ip: &IpAddr| (kind == 1 && ip.is_ipv4()) || (kind == 28 && ip.is_ipv6());
    Some(all.into_iter().filter(wanted).collect())
}
