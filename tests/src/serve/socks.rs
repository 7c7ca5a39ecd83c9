//! SOCKS5 of an upstream: user/password login, CONNECT, UDP ASSOCIATE.

use std::collections::HashMap;
use std::io::{Error, ErrorKind, Result};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};

use super::proxy::{Entry, Upstream, relay};
use super::{Fault, dns};

const CONNECT: u8 = 1;
const ASSOCIATE: u8 = 3;
const REFUSED: u8 = 5;

/// Serves one control connection.
pub(super) async fn serve(mut stream: TcpStream, fault: Fault, up: &Upstream) -> Result<()> {
    let user = greet(&mut stream, up).await?;
    let mut head = [0; 3];
    stream.read_exact(&mut head).await?;
    let (asked, target) = read_address(&mut stream).await?;
    let fault = up.faults.towards(target.ip(), fault);
    if fault == Fault::Refuse {
        return reply(&mut stream, REFUSED, unspecified()).await;
    }
    match head[1] {
        CONNECT => match TcpStream::connect(target).await {
            Ok(far) => {
                reply(&mut stream, 0, far.local_addr()?).await?;
                relay("socks5", user, asked, stream, far, fault, up).await
            }
            Err(_) => reply(&mut stream, REFUSED, unspecified()).await,
        },
        ASSOCIATE => associate(stream, user, up).await,
        _ => reply(&mut stream, 7, unspecified()).await,
    }
}

/// Method choice and login; returns the user.
async fn greet(stream: &mut TcpStream, up: &Upstream) -> Result<String> {
    let mut head = [0; 2];
    stream.read_exact(&mut head).await?;
    let mut methods = vec![0; usize::from(head[1])];
    stream.read_exact(&mut methods).await?;
    let Some((user, password)) = &up.login else {
        stream.write_all(&[5, 0]).await?;
        return Ok(String::new());
    };
    if !methods.contains(&2) {
        stream.write_all(&[5, 0xff]).await?;
        return Err(bad("client offers no login"));
    }
    stream.write_all(&[5, 2]).await?;
    let mut version = [0];
    stream.read_exact(&mut version).await?;
    let given_user = read_counted(stream).await?;
    let given_password = read_counted(stream).await?;
    if given_user != user.as_bytes() || given_password != password.as_bytes() {
        stream.write_all(&[1, 1]).await?;
        return Err(bad("wrong login"));
    }
    stream.write_all(&[1, 0]).await?;
    Ok(user.clone())
}

async fn read_counted(stream: &mut TcpStream) -> Result<Vec<u8>> {
    let mut bytes = vec![0; usize::from(stream.read_u8().await?)];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

/// The target as the client wrote it, and its address.
async fn read_address(stream: &mut TcpStream) -> Result<(String, SocketAddr)> {
    let mut asked = None;
    let ip: IpAddr = match stream.read_u8().await? {
        1 => Ipv4Addr::from(stream.read_u32().await?).into(),
        4 => Ipv6Addr::from(stream.read_u128().await?).into(),
        3 => {
            let name = read_counted(stream).await?;
            let name = asked.insert(String::from_utf8_lossy(&name).into_owned());
            dns::resolve(name).ok_or_else(|| bad("unknown name"))?
        }
        _ => return Err(bad("unknown address type")),
    };
    let address = SocketAddr::new(ip, stream.read_u16().await?);
    Ok((written(asked.as_deref(), address), address))
}

fn written(name: Option<&str>, address: SocketAddr) -> String {
    name.map_or_else(
        || address.to_string(),
        |name| format!("{name}:{}", address.port()),
    )
}

async fn reply(stream: &mut TcpStream, code: u8, bound: SocketAddr) -> Result<()> {
    let mut text = vec![5, code, 0];
    push_address(&mut text, bound);
    stream.write_all(&text).await
}

fn push_address(out: &mut Vec<u8>, address: SocketAddr) {
    match address.ip() {
        IpAddr::V4(v4) => {
            out.push(1);
            out.extend(v4.octets());
        }
        IpAddr::V6(v6) => {
            out.push(4);
            out.extend(v6.octets());
        }
    }
    out.extend(address.port().to_be_bytes());
}

/// Relays datagrams while the control connection lives. One outer socket per family sends to
/// every target, so replies from anywhere come back: a full cone.
async fn associate(mut stream: TcpStream, user: String, up: &Upstream) -> Result<()> {
    let inner = UdpSocket::bind((stream.local_addr()?.ip(), 0)).await?;
    let outer4 = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
    let outer6 = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).await?;
    reply(&mut stream, 0, inner.local_addr()?).await?;
    let mut flows: HashMap<SocketAddr, (u64, u64)> = HashMap::new();
    let mut client = None;
    let (mut from_client, mut from4, mut from6) = (vec![0; 65536], vec![0; 65536], vec![0; 65536]);
    let mut control = [0; 16];
    loop {
        tokio::select! {
            end = stream.read(&mut control) => {
                if !matches!(end, Ok(1..)) {
                    break;
                }
            }
            Ok((length, from)) = inner.recv_from(&mut from_client) => {
                client = Some(from);
                let packet = &from_client[..length];
                let Some((asked, target, at)) = datagram_target(packet) else { continue };
                if !flows.contains_key(&target) {
                    up.open(&asked);
                }
                flows.entry(target).or_default().0 += (length - at) as u64;
                let outer = if target.is_ipv4() { &outer4 } else { &outer6 };
                let _ = outer.send_to(&packet[at..], target).await;
            }
            Ok((length, from)) = outer4.recv_from(&mut from4) => {
                flows.entry(from).or_default().1 += length as u64;
                send_back(&inner, client, from, &from4[..length]).await;
            }
            Ok((length, from)) = outer6.recv_from(&mut from6) => {
                flows.entry(from).or_default().1 += length as u64;
                send_back(&inner, client, from, &from6[..length]).await;
            }
        }
    }
    for (target, (sent, received)) in flows {
        up.finish(Entry {
            protocol: "socks5-udp",
            user: user.clone(),
            target: target.to_string(),
            up: sent,
            down: received,
        });
    }
    Ok(())
}

async fn send_back(inner: &UdpSocket, to: Option<SocketAddr>, from: SocketAddr, payload: &[u8]) {
    let Some(to) = to else { return };
    let mut packet = vec![0, 0, 0];
    push_address(&mut packet, from);
    packet.extend(payload);
    let _ = inner.send_to(&packet, to).await;
}

/// Target as written, its address and the payload offset of a client's datagram; fragments are
/// refused.
fn datagram_target(packet: &[u8]) -> Option<(String, SocketAddr, usize)> {
    if *packet.get(2)? != 0 {
        return None;
    }
    let mut asked = None;
    let (ip, at): (IpAddr, usize) = match *packet.get(3)? {
        1 => (<[u8; 4]>::try_from(packet.get(4..8)?).ok()?.into(), 8),
        4 => (<[u8; 16]>::try_from(packet.get(4..20)?).ok()?.into(), 20),
        3 => {
            let end = 5 + usize::from(*packet.get(4)?);
            let name = String::from_utf8_lossy(packet.get(5..end)?).into_owned();
            (dns::resolve(asked.insert(name))?, end)
        }
        _ => return None,
    };
    let port = u16::from_be_bytes([*packet.get(at)?, *packet.get(at + 1)?]);
    let address = SocketAddr::new(ip, port);
    Some((written(asked.as_deref(), address), address, at + 2))
}

fn unspecified() -> SocketAddr {
    SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0)
}

fn bad(why: &'static str) -> Error {
    Error::new(ErrorKind::InvalidData, why)
}
