//! Batches of datagrams: `recvmmsg(2)` and `sendmmsg(2)` with control messages.
//!
//! One system call moves up to [`BATCH`] datagrams. The safe surface hands out slices; the
//! raw headers live on the stack of one call and never outlive the buffers they point to.

use std::{
    io,
    mem::{MaybeUninit, zeroed},
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, AsRawFd},
    ptr,
};

/// Datagrams per call.
pub(crate) const BATCH: usize = 64;
/// Room per datagram: no UDP payload is longer, so nothing is ever cut. The memory is
/// touched, and so becomes resident, only as far as datagrams really reach.
const SLOT: usize = 1 << 16;
/// Room for control messages per datagram; the destination record needs at most 48 bytes.
const CONTROL: usize = 128;

#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; CONTROL]);

/// What the kernel said about one received datagram.
#[derive(Clone, Copy)]
struct Received {
    name: libc::sockaddr_storage,
    len: u32,
    flags: i32,
    control: usize,
}

/// Buffers for one receive loop.
pub(crate) struct RecvBatch {
    data: Box<[u8]>,
    control: Box<[Control; BATCH]>,
    received: Vec<Received>,
}

/// One received datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Datagram<'a> {
    pub(crate) payload: &'a [u8],
    /// `None` when the kernel gave no IP address.
    pub(crate) source: Option<SocketAddr>,
    /// Longer than the buffer: must not be forwarded.
    pub(crate) cut: bool,
    /// Control bytes did not fit.
    pub(crate) control_cut: bool,
    pub(crate) control: &'a [u8],
}

impl RecvBatch {
    pub(crate) fn new() -> Self {
        Self {
            data: vec![0; BATCH * SLOT].into_boxed_slice(),
            control: Box::new([Control([0; CONTROL]); BATCH]),
            received: Vec::with_capacity(BATCH),
        }
    }

    /// Receives what is waiting, without blocking; the count is at least 1.
    pub(crate) fn recv(&mut self, socket: &impl AsFd) -> io::Result<usize> {
        self.received.clear();
        // SAFETY: all of these are plain C structs for which zeroes are a valid value.
        let mut names: [libc::sockaddr_storage; BATCH] = unsafe { zeroed() };
        // SAFETY: as above.
        let mut vecs: [libc::iovec; BATCH] = unsafe { zeroed() };
        // SAFETY: as above.
        let mut heads: [libc::mmsghdr; BATCH] = unsafe { zeroed() };
        for (i, (slot, control)) in self
            .data
            .chunks_exact_mut(SLOT)
            .zip(self.control.iter_mut())
            .enumerate()
        {
            vecs[i].iov_base = slot.as_mut_ptr().cast();
            vecs[i].iov_len = SLOT;
            let head = &mut heads[i].msg_hdr;
            head.msg_name = ptr::from_mut(&mut names[i]).cast();
            head.msg_namelen = size_of::<libc::sockaddr_storage>() as u32;
            head.msg_iov = &raw mut vecs[i];
            head.msg_iovlen = 1;
            head.msg_control = control.0.as_mut_ptr().cast();
            head.msg_controllen = CONTROL;
        }
        // SAFETY: every header points to a name, a vector and buffers that live until after
        // the call, and their lengths are those of the buffers.
        let n = unsafe {
            libc::recvmmsg(
                socket.as_fd().as_raw_fd(),
                heads.as_mut_ptr(),
                BATCH as u32,
                libc::MSG_DONTWAIT,
                ptr::null_mut(),
            )
        };
        let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
        for (head, name) in heads.iter().zip(names).take(n) {
            self.received.push(Received {
                name,
                len: head.msg_len,
                flags: head.msg_hdr.msg_flags,
                control: head.msg_hdr.msg_controllen,
            });
        }
        Ok(n)
    }

    /// The datagrams of the last [`recv`](Self::recv).
    pub(crate) fn iter(&self) -> impl Iterator<Item = Datagram<'_>> {
        let buffers = self.data.chunks_exact(SLOT).zip(self.control.iter());
        self.received
            .iter()
            .zip(buffers)
            .map(|(r, (data, control))| Datagram {
                payload: &data[..(r.len as usize).min(SLOT)],
                source: from_storage(&r.name),
                cut: r.flags & libc::MSG_TRUNC != 0,
                control_cut: r.flags & libc::MSG_CTRUNC != 0,
                control: &control.0[..r.control.min(CONTROL)],
            })
    }
}

impl std::fmt::Debug for RecvBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecvBatch")
            .field("received", &self.received.len())
            .finish_non_exhaustive()
    }
}

/// One datagram to send: a header that may be empty, then the payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing<'a> {
    /// `None` on connected sockets.
    pub(crate) to: Option<SocketAddr>,
    /// Source address to use instead of the socket's own; needs a transparent socket when
    /// the address is not local.
    pub(crate) from: Option<IpAddr>,
    pub(crate) header: &'a [u8],
    pub(crate) payload: &'a [u8],
}

/// Sends a batch without blocking: the number of datagrams taken, or the error of the first.
/// At most [`BATCH`] are taken.
pub(crate) fn send(socket: &impl AsFd, batch: &[Outgoing<'_>]) -> io::Result<usize> {
    let count = batch.len().min(BATCH);
    let mut names = [MaybeUninit::<libc::sockaddr_storage>::uninit(); BATCH];
    let mut controls = [MaybeUninit::<Control>::uninit(); BATCH];
    // SAFETY: plain C structs for which zeroes are a valid value.
    let mut vecs: [[libc::iovec; 2]; BATCH] = unsafe { zeroed() };
    // SAFETY: as above.
    let mut heads: [libc::mmsghdr; BATCH] = unsafe { zeroed() };
    for (i, out) in batch.iter().take(count).enumerate() {
        for (vec, part) in vecs[i].iter_mut().zip([out.header, out.payload]) {
            vec.iov_base = part.as_ptr().cast_mut().cast();
            vec.iov_len = part.len();
        }
        let head = &mut heads[i].msg_hdr;
        if let Some(to) = out.to {
            let (name, name_len) = to_storage(to);
            head.msg_name = ptr::from_mut(names[i].write(name)).cast();
            head.msg_namelen = name_len;
        }
        head.msg_iov = vecs[i].as_mut_ptr();
        head.msg_iovlen = 2;
        if let Some(from) = out.from {
            let (control, len) = source_control(from);
            head.msg_control = ptr::from_mut(controls[i].write(control)).cast();
            head.msg_controllen = len;
        }
    }
    // SAFETY: the first `count` headers point to initialised names, vectors and control
    // buffers that live until after the call; the kernel only reads from the payloads.
    let n = unsafe {
        libc::sendmmsg(
            socket.as_fd().as_raw_fd(),
            heads.as_mut_ptr(),
            count as u32,
            libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
        )
    };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Asks for the original destination of every datagram.
pub(crate) fn want_original_dst(socket: &impl AsFd, v6: V6) -> io::Result<()> {
    let (level, name) = match v6 {
        V6::No => (libc::SOL_IP, libc::IP_RECVORIGDSTADDR),
        V6::Yes => (libc::SOL_IPV6, libc::IPV6_RECVORIGDSTADDR),
    };
    let on: libc::c_int = 1;
    // SAFETY: the option value is a c_int that lives over the call, its size is passed.
    let rc = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as u32,
        )
    };
    if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Family of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum V6 {
    No,
    Yes,
}

impl V6 {
    pub(crate) fn of(addr: SocketAddr) -> Self {
        if addr.is_ipv6() { Self::Yes } else { Self::No }
    }
}

/// `IP_PKTINFO` or `IPV6_PKTINFO` with the source address and no interface.
fn source_control(from: IpAddr) -> (Control, usize) {
    let mut control = Control([0; CONTROL]);
    let (level, kind, len) = match from {
        IpAddr::V4(ip) => {
            // ipi_ifindex, then ipi_spec_dst, then ipi_addr.
            control.0[20..24].copy_from_slice(&ip.octets());
            (libc::SOL_IP, libc::IP_PKTINFO, 12)
        }
        IpAddr::V6(ip) => {
            // ipi6_addr, then ipi6_ifindex.
            control.0[16..32].copy_from_slice(&ip.octets());
            (libc::SOL_IPV6, libc::IPV6_PKTINFO, 20)
        }
    };
    let header = size_of::<libc::cmsghdr>();
    control.0[..8].copy_from_slice(&(header + len).to_ne_bytes());
    control.0[8..12].copy_from_slice(&level.to_ne_bytes());
    control.0[12..16].copy_from_slice(&kind.to_ne_bytes());
    let padded = (header + len).next_multiple_of(align_of::<libc::cmsghdr>());
    (control, padded)
}

fn from_storage(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let name = ptr::from_ref(name);
    // SAFETY: a sockaddr_storage is large and aligned enough for every address type, and all
    // its bytes are initialised.
    match i32::from(unsafe { (*name).ss_family }) {
        libc::AF_INET => {
            // SAFETY: the family says which type is stored.
            let v4 = unsafe { *name.cast::<libc::sockaddr_in>() };
            let ip = u32::from_be(v4.sin_addr.s_addr);
            Some((std::net::Ipv4Addr::from(ip), u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the family says which type is stored.
            let v6 = unsafe { *name.cast::<libc::sockaddr_in6>() };
            Some(
                std::net::SocketAddrV6::new(
                    v6.sin6_addr.s6_addr.into(),
                    u16::from_be(v6.sin6_port),
                    0,
                    v6.sin6_scope_id,
                )
                .into(),
            )
        }
        _ => None,
    }
}

fn to_storage(addr: SocketAddr) -> (libc::sockaddr_storage, u32) {
    let addr = socket2::SockAddr::from(addr);
    let len = addr.len();
    // SAFETY: socket2 keeps the address in a storage of this very type.
    let storage = unsafe { *addr.as_ptr().cast::<libc::sockaddr_storage>() };
    (storage, len)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    fn pair(ip: &str) -> (UdpSocket, UdpSocket) {
        let bind = || UdpSocket::bind((ip, 0)).unwrap();
        (bind(), bind())
    }

    #[test]
    fn a_batch_keeps_boundaries_and_sources() {
        for ip in ["127.0.0.1", "::1"] {
            let (a, b) = pair(ip);
            let to = b.local_addr().unwrap();
            let big = vec![7u8; 60_000];
            let payloads: [&[u8]; 4] = [b"one", b"", &big, b"four"];
            let batch = payloads.map(|payload| Outgoing {
                to: Some(to),
                from: None,
                header: b"h:",
                payload,
            });
            assert_eq!(send(&a, &batch).unwrap(), 4);
            let mut recv = RecvBatch::new();
            assert_eq!(recv.recv(&b).unwrap(), 4);
            for (got, sent) in recv.iter().zip(payloads) {
                assert_eq!(got.payload, [b"h:", sent].concat());
                assert_eq!(got.source, Some(a.local_addr().unwrap()));
                assert!(!got.cut && !got.control_cut);
            }
            let empty = recv.recv(&b).unwrap_err();
            assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
        }
    }

    #[test]
    fn the_destination_record_is_found() {
        for (ip, v6) in [("127.0.0.1", V6::No), ("::1", V6::Yes)] {
            let (a, b) = pair(ip);
            want_original_dst(&b, v6).unwrap();
            let to = b.local_addr().unwrap();
            a.send_to(b"x", to).unwrap();
            let mut recv = RecvBatch::new();
            recv.recv(&b).unwrap();
            let got = recv.iter().next().unwrap();
            let dst = super::super::origdst::parse(got.control, got.control_cut);
            assert_eq!(dst, Ok(to));
        }
    }

    #[test]
    fn the_source_address_is_chosen_per_datagram() {
        let a = UdpSocket::bind("0.0.0.0:0").unwrap();
        let b = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sources = ["127.0.0.2", "127.0.0.3"].map(|ip| ip.parse::<IpAddr>().unwrap());
        let batch = sources.map(|from| Outgoing {
            to: Some(b.local_addr().unwrap()),
            from: Some(from),
            header: &[],
            payload: b"x",
        });
        assert_eq!(send(&a, &batch).unwrap(), 2);
        let mut recv = RecvBatch::new();
        recv.recv(&b).unwrap();
        let got: Vec<_> = recv.iter().map(|d| d.source.unwrap().ip()).collect();
        assert_eq!(got, sources);
    }

    #[test]
    fn an_ipv6_source_control_is_accepted() {
        let (a, b) = pair("::1");
        let out = Outgoing {
            to: Some(b.local_addr().unwrap()),
            from: Some("::1".parse().unwrap()),
            header: &[],
            payload: b"x",
        };
        assert_eq!(send(&a, &[out]).unwrap(), 1);
        assert_eq!(RecvBatch::new().recv(&b).unwrap(), 1);
    }

    #[test]
    fn an_address_survives_the_round_trip() {
        for text in ["192.0.2.1:53", "[2001:db8::1]:443"] {
            let addr: SocketAddr = text.parse().unwrap();
            assert_eq!(from_storage(&to_storage(addr).0), Some(addr));
        }
    }
}
