//! The leak meter: counts packets of one interface by 5-tuple, from a packet socket.
//!
//! Tests assert on these counters and not on log text. [`Meter::settle`] waits until everything
//! the kernel had queued when it was called is counted; a lost packet makes it an error.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, Socket, Type};

use crate::netns::Netns;
use crate::wait;

/// One direction of one flow as seen on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tuple {
    /// IP protocol number.
    pub proto: u8,
    /// Source address.
    pub src: IpAddr,
    /// Source port; 0 without ports or in later fragments.
    pub sport: u16,
    /// Destination address.
    pub dst: IpAddr,
    /// Destination port.
    pub dport: u16,
    /// Whether the packet was a fragment.
    pub fragment: bool,
}

impl Tuple {
    /// Whether one end has this address.
    pub fn touches(&self, ip: impl Into<IpAddr>) -> bool {
        let ip = ip.into();
        self.src == ip || self.dst == ip
    }

    /// Whether one end has this port.
    pub fn port(&self, port: u16) -> bool {
        self.sport == port || self.dport == port
    }
}

#[derive(Debug, Default)]
struct Shared {
    counts: Mutex<BTreeMap<Tuple, u64>>,
    idle_rounds: AtomicU64,
    stop: AtomicBool,
}

/// A running meter; stops when dropped.
#[derive(Debug)]
pub struct Meter {
    shared: Arc<Shared>,
    socket: Arc<Socket>,
    reader: Option<JoinHandle<()>>,
}

impl Meter {
    /// Starts counting on an interface of a namespace.
    pub fn start(ns: &Netns, interface: &str) -> Result<Self> {
        let socket = ns
            .run(|| open(interface))
            .with_context(|| format!("cannot watch {interface} in {}", ns.name()))?;
        let socket = Arc::new(socket);
        let shared = Arc::new(Shared::default());
        let (theirs, reading) = (Arc::clone(&shared), Arc::clone(&socket));
        let reader = std::thread::spawn(move || read_all(&reading, &theirs));
        Ok(Self {
            shared,
            socket,
            reader: Some(reader),
        })
    }

    /// Waits until all packets sent before this call are counted.
    pub fn settle(&self) -> Result<()> {
        let seen = self.shared.idle_rounds.load(Ordering::Acquire);
        // The round under way may have begun before the call; the one after it did not.
        wait::until(
            "the leak meter to become idle",
            Duration::from_secs(10),
            || (self.shared.idle_rounds.load(Ordering::Acquire) >= seen + 2).then_some(()),
        )?;
        let lost = lost_packets(&self.socket)?;
        if lost > 0 {
            bail!("the leak meter lost {lost} packets: its counts prove nothing");
        }
        Ok(())
    }

    /// Packets of all tuples that `wanted` accepts, after settling.
    pub fn count(&self, wanted: impl Fn(&Tuple) -> bool) -> Result<u64> {
        self.settle()?;
        Ok(self
            .lock()
            .iter()
            .filter(|(tuple, _)| wanted(tuple))
            .map(|(_, n)| n)
            .sum())
    }

    /// Tuples that `wanted` accepts with their packets, after settling.
    pub fn seen(&self, wanted: impl Fn(&Tuple) -> bool) -> Result<Vec<(Tuple, u64)>> {
        self.settle()?;
        Ok(self
            .lock()
            .iter()
            .filter(|(t, _)| wanted(t))
            .map(|(t, n)| (*t, *n))
            .collect())
    }

    /// Forgets what was counted.
    pub fn reset(&self) -> Result<()> {
        self.settle()?;
        self.lock().clear();
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Tuple, u64>> {
        self.shared
            .counts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

fn open(interface: &str) -> Result<Socket> {
    let all = (libc::ETH_P_ALL as u16).to_be();
    // Protocol 0 first: nothing is queued from other interfaces before the bind.
    let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(Protocol::from(0)))?;
    let name = std::ffi::CString::new(interface)?;
    // SAFETY: name is a valid C string for the duration of the call.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    if index == 0 {
        bail!("no interface {interface}: {}", Error::last_os_error());
    }
    let bytes: libc::c_int = 64 << 20;
    // SAFETY: the option takes an int, which outlives the call.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVBUFFORCE,
            std::ptr::from_ref(&bytes).cast(),
            size_of_val(&bytes) as libc::socklen_t,
        )
    };
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY: sockaddr_ll fits in the storage and all its bytes are valid for any value.
    let link = unsafe { storage.view_as::<libc::sockaddr_ll>() };
    link.sll_family = libc::AF_PACKET as u16;
    link.sll_protocol = all;
    link.sll_ifindex = i32::try_from(index)?;
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the storage holds a valid sockaddr_ll of that length.
    let address = unsafe { SockAddr::new(storage, length) };
    socket.bind(&address)?;
    socket.set_read_timeout(Some(Duration::from_millis(20)))?;
    Ok(socket)
}

fn read_all(socket: &Socket, shared: &Shared) {
    let mut buffer = [MaybeUninit::<u8>::uninit(); 256];
    while !shared.stop.load(Ordering::Acquire) {
        match socket.recv(&mut buffer) {
            Ok(length) => {
                let length = length.min(buffer.len());
                // SAFETY: recv has initialised the first `length` bytes.
                let packet =
                    unsafe { std::slice::from_raw_parts(buffer.as_ptr().cast::<u8>(), length) };
                if let Some(tuple) = parse(packet) {
                    let mut counts = shared.counts.lock().unwrap_or_else(PoisonError::into_inner);
                    *counts.entry(tuple).or_default() += 1;
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                shared.idle_rounds.fetch_add(1, Ordering::AcqRel);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // The interface is gone or down; what was counted stays.
            Err(_) => std::thread::yield_now(),
        }
    }
}

fn lost_packets(socket: &Socket) -> Result<u32> {
    let mut stats = libc::tpacket_stats {
        tp_packets: 0,
        tp_drops: 0,
    };
    let mut length = size_of_val(&stats) as libc::socklen_t;
    // SAFETY: both pointers are valid and the length is that of the structure.
    let code = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            std::ptr::from_mut(&mut stats).cast(),
            &mut length,
        )
    };
    if code != 0 {
        bail!("cannot read packet statistics: {}", Error::last_os_error());
    }
    Ok(stats.tp_drops)
}

/// Reads the 5-tuple of an IP packet; IPv6 extension headers are walked.
fn parse(packet: &[u8]) -> Option<Tuple> {
    match packet.first()? >> 4 {
        4 => parse_v4(packet),
        6 => parse_v6(packet),
        _ => None,
    }
}

fn parse_v4(packet: &[u8]) -> Option<Tuple> {
    let word = u16::from_be_bytes(packet.get(6..8)?.try_into().ok()?);
    let (offset, more) = (word & 0x1fff, word & 0x2000 != 0);
    let proto = *packet.get(9)?;
    let src: [u8; 4] = packet.get(12..16)?.try_into().ok()?;
    let dst: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
    let head = usize::from(packet[0] & 15) * 4;
    let (sport, dport) = if offset == 0 {
        ports(proto, packet.get(head..)?)
    } else {
        (0, 0)
    };
    Some(Tuple {
        proto,
        src: Ipv4Addr::from(src).into(),
        sport,
        dst: Ipv4Addr::from(dst).into(),
        dport,
        fragment: offset != 0 || more,
    })
}

fn parse_v6(packet: &[u8]) -> Option<Tuple> {
    let src: [u8; 16] = packet.get(8..24)?.try_into().ok()?;
    let dst: [u8; 16] = packet.get(24..40)?.try_into().ok()?;
    let (mut proto, mut at) = (*packet.get(6)?, 40);
    let (mut fragment, mut first) = (false, true);
    while matches!(proto, 0 | 43 | 44 | 60) {
        let next = *packet.get(at)?;
        if proto == 44 {
            fragment = true;
            first = u16::from_be_bytes(packet.get(at + 2..at + 4)?.try_into().ok()?) & 0xfff8 == 0;
            at += 8;
        } else {
            at += (usize::from(*packet.get(at + 1)?) + 1) * 8;
        }
        proto = next;
        if !first {
            break;
        }
    }
    let (sport, dport) = if first {
        ports(proto, packet.get(at..)?)
    } else {
        (0, 0)
    };
    Some(Tuple {
        proto,
        src: Ipv6Addr::from(src).into(),
        sport,
        dst: Ipv6Addr::from(dst).into(),
        dport,
        fragment,
    })
}

fn ports(proto: u8, head: &[u8]) -> (u16, u16) {
    let word = |at: usize| {
        head.get(at..at + 2)
            .map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    };
    if matches!(i32::from(proto), libc::IPPROTO_TCP | libc::IPPROTO_UDP) {
        (word(0), word(2))
    } else {
        (0, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v4_ports_and_fragments() {
        let mut packet = vec![
            0x45, 0, 0, 28, 0, 0, 0x20, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ];
        packet.extend([0x1f, 0x90, 0, 53, 0, 8, 0, 0]);
        let tuple = parse(&packet).expect("a tuple");
        assert_eq!((tuple.sport, tuple.dport, tuple.fragment), (8080, 53, true));
        packet[6..8].copy_from_slice(&[0, 1]);
        let tuple = parse(&packet).expect("a tuple");
        assert_eq!((tuple.sport, tuple.dport, tuple.fragment), (0, 0, true));
    }

    #[test]
    fn v6_extension_headers_are_walked() {
        let mut packet = vec![0x60, 0, 0, 0, 0, 16, 0, 64];
        packet.extend([0_u8; 32]);
        packet.extend([17, 0, 0, 0, 0, 0, 0, 0]);
        packet.extend([0, 7, 0, 9, 0, 8, 0, 0]);
        let tuple = parse(&packet).expect("a tuple");
        assert_eq!((tuple.proto, tuple.sport, tuple.dport), (17, 7, 9));
    }
}
