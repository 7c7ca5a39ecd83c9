//! ICMP errors about proxied flows (section 9.3).

use std::io::{Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr, TcpStream};

use anyhow::{Context as _, Result, bail, ensure};
use honk_tests::client::{self, PATIENCE};
use honk_tests::scene::{PROXIED, PROXIED_V6, at, play};
use honk_tests::serve::ECHO;
use honk_tests::{tool, wait};
use socket2::{Domain, Protocol, Socket, Type};

/// What a router says that only lets this much through; also the least of IPv6.
const MTU: u16 = 1280;

#[test]
fn t65_a_too_big_error_reaches_the_accepted_socket_and_nobody_else() {
    play(
        "t65_a_too_big_error_reaches_the_accepted_socket_and_nobody_else",
        |scene| {
            let honk = scene.honk()?;
            let private = honk.private_ns()?;
            for to in [PROXIED, PROXIED_V6] {
                // The stream stays open until its socket at the far end was looked at.
                let (stream, next) = scene.lab.hc1.run(|| open_and_watch(at(to, ECHO)))?;
                let client = stream.local_addr()?;
                scene
                    .lab
                    .hc1
                    .run(|| too_big(at(to, ECHO), client, next))
                    .with_context(|| format!("the error to {to}"))?;
                wait::ok(
                    "the accepted socket with the smaller size",
                    PATIENCE,
                    || {
                        let mut ss = private.command("ss");
                        let filter = format!("dport = :{}", client.port());
                        let text = tool::run(ss.args(["-tinH", "state", "connected", &filter]))?;
                        ensure!(text.contains(&format!("pmtu:{MTU} ")), "{to}: {text}");
                        Ok(())
                    },
                )?;
            }
            ensure!(scene.leaked(PROXIED)? == 0 && scene.leaked(PROXIED_V6)? == 0);
            Ok(())
        },
    );
}

/// A connection that has carried a few bytes, and the number of the next byte its server sends:
/// an error about anything outside of the window is none.
fn open_and_watch(to: SocketAddr) -> Result<(TcpStream, u32)> {
    let domain = Domain::for_address(to);
    let watch = Socket::new(domain, Type::RAW, Some(Protocol::TCP))?;
    watch.set_read_timeout(Some(PATIENCE))?;
    let mut stream = client::connect(to)?;
    stream.write_all(b"ping")?;
    stream.read_exact(&mut [0; 4])?;
    let own = stream.local_addr()?.port();
    let mut buffer = [MaybeUninit::<u8>::uninit(); 2048];
    loop {
        let (length, _) = watch.recv_from(&mut buffer).context("no segment seen")?;
        // SAFETY: the call has initialised the first `length` bytes.
        let packet = unsafe { std::slice::from_raw_parts(buffer.as_ptr().cast::<u8>(), length) };
        // A raw IPv4 socket shows the IP header, a raw IPv6 one does not.
        let head = match to.ip() {
            IpAddr::V4(_) => usize::from(packet[0] & 15) * 4,
            IpAddr::V6(_) => 0,
        };
        let tcp = packet.get(head..).context("a short packet")?;
        let word = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
        let payload = tcp.len() - usize::from(tcp[12] >> 4) * 4;
        if (word(0), word(2)) == (to.port(), own) && payload == 4 {
            let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
            return Ok((stream, sequence.wrapping_add(4)));
        }
    }
}

/// Sends the error that a router before `client` would send to `server`.
fn too_big(server: SocketAddr, client: SocketAddr, next: u32) -> Result<()> {
    let (mut packet, protocol) = match (server.ip(), client.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut error = vec![3, 4, 0, 0, 0, 0];
            error.extend(MTU.to_be_bytes());
            error.extend([0x45, 0, 0x05, 0xdc, 0, 1, 0x40, 0, 63, 6, 0, 0]);
            error.extend(from.octets());
            error.extend(to.octets());
            (error, Protocol::ICMPV4)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let mut error = vec![2, 0, 0, 0, 0, 0];
            error.extend(MTU.to_be_bytes());
            error.extend([0x60, 0, 0, 0, 0x05, 0xb4, 6, 63]);
            error.extend(from.octets());
            error.extend(to.octets());
            (error, Protocol::ICMPV6)
        }
        _ => bail!("two families"),
    };
    packet.extend(server.port().to_be_bytes());
    packet.extend(client.port().to_be_bytes());
    packet.extend(next.to_be_bytes());
    // The rest of a TCP header: IPv6 errors carry as much of the packet as fits.
    packet.extend([0, 0, 0, 0, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    if protocol == Protocol::ICMPV4 {
        // The kernel fills the sum of ICMPv6 only.
        let sum = checksum(&packet);
        packet[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    let socket = Socket::new(Domain::for_address(server), Type::RAW, Some(protocol))?;
    socket.send_to(&packet, &SocketAddr::new(server.ip(), 0).into())?;
    Ok(())
}

fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or_default()));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
