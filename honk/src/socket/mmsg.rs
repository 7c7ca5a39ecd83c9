//! Batches of datagrams: `recvmmsg(2)` and `sendmmsg(2)` with control messages.
//!
//! One system call moves up to [`BATCH`] messages. A message is one datagram or several of equal
//! size in one piece, which the kernel joins on receipt ([`want_joined`]) and cuts on the way
//! out ([`Joining`]); users see datagrams only. The safe surface hands out slices; the raw headers
//! live on the stack of one call and never outlive the buffers they point to.

use std::{
    io,
    mem::{MaybeUninit, zeroed},
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, AsRawFd},
    ptr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use super::origdst::record;

/// Messages per call, and most datagrams that are sent by one.
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

    /// The datagrams of the last [`recv`](Self::recv), joined ones one by one.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Datagram<'_>> {
        self.messages().flat_map(|message| {
            let payload = message.payload;
            let size = joined_size(message.control).unwrap_or(payload.len()).max(1);
            // An empty datagram is one, too.
            (0..payload.len().div_ceil(size).max(1)).map(move |n| Datagram {
                payload: &payload[n * size..payload.len().min((n + 1) * size)],
                ..message
            })
        })
    }

    /// How many messages of the last [`recv`](Self::recv) were joined datagrams.
    pub(crate) fn joined(&self) -> usize {
        let joined = |m: &Datagram<'_>| joined_size(m.control).is_some_and(|n| n < m.payload.len());
        self.messages().filter(joined).count()
    }

    fn messages(&self) -> impl Iterator<Item = Datagram<'_>> {
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

/// Whether the datagrams of a socket may leave joined. The kernel or the device may not be able to
/// cut them, which shows only on the first try.
#[derive(Debug, Default)]
pub(crate) struct Joining(AtomicBool);

impl Joining {
    /// Never: every datagram is a message of its own.
    pub(crate) const fn off() -> Self {
        Self(AtomicBool::new(true))
    }

    fn is_off(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// Sends a batch without blocking: the number of datagrams taken, or the error of the first.
/// At most [`BATCH`] are taken.
pub(crate) fn send(
    socket: &impl AsFd,
    batch: &[Outgoing<'_>],
    joining: &Joining,
) -> io::Result<usize> {
    let batch = &batch[..batch.len().min(BATCH)];
    let mut runs = [0; BATCH];
    if joining.is_off() {
        runs.fill(1);
        return send_runs(socket, batch, &runs);
    }
    let count = join(batch, &mut runs);
    match send_runs(socket, batch, &runs[..count]) {
        Err(e) if runs[0] > 1 && cannot_be_cut(&e) => {
            // Too long for this path is true of these datagrams, the rest of the socket.
            if e.raw_os_error() != Some(libc::EMSGSIZE) {
                joining.0.store(true, Relaxed);
            }
            runs.fill(1);
            send_runs(socket, batch, &runs)
        }
        sent => sent,
    }
}

/// Longest datagram that is joined with others: fits into a packet on nearly every path.
const MAX_JOINED: usize = 1452;
/// Bytes of one message.
const MAX_MESSAGE: usize = 60_000;

/// Splits a batch into runs of datagrams that may leave as one message: same ends and equal
/// length, the last one may be shorter. Returns the number of runs.
fn join(batch: &[Outgoing<'_>], runs: &mut [usize; BATCH]) -> usize {
    let mut count = 0;
    let mut rest = batch;
    while let Some(first) = rest.first() {
        let size = first.len();
        let fits = (1..=MAX_JOINED).contains(&size);
        let mut n = 1;
        while fits && n < rest.len() && (n + 1) * size <= MAX_MESSAGE {
            let next = &rest[n];
            if (next.to, next.from) != (first.to, first.from) || next.len() > size {
                break;
            }
            // Nothing may follow a shorter one, and an empty one would not be sent at all.
            if next.len() == 0 {
                break;
            }
            n += 1;
            if next.len() < size {
                break;
            }
        }
        runs[count] = n;
        count += 1;
        rest = &rest[n..];
    }
    count
}

fn cannot_be_cut(error: &io::Error) -> bool {
    let errors = [libc::EIO, libc::EINVAL, libc::EMSGSIZE, libc::EOPNOTSUPP];
    error.raw_os_error().is_some_and(|e| errors.contains(&e))
}

/// Sends runs of datagrams, each as one message.
fn send_runs(socket: &impl AsFd, batch: &[Outgoing<'_>], runs: &[usize]) -> io::Result<usize> {
    let mut names = [MaybeUninit::<libc::sockaddr_storage>::uninit(); BATCH];
    let mut controls = [MaybeUninit::<Control>::uninit(); BATCH];
    // SAFETY: plain C structs for which zeroes are a valid value.
    let mut vecs: [[libc::iovec; 2]; BATCH] = unsafe { zeroed() };
    // SAFETY: as above.
    let mut heads: [libc::mmsghdr; BATCH] = unsafe { zeroed() };
    for (vecs, out) in vecs.iter_mut().zip(batch) {
        for (vec, part) in vecs.iter_mut().zip([out.header, out.payload]) {
            vec.iov_base = part.as_ptr().cast_mut().cast();
            vec.iov_len = part.len();
        }
    }
    let (mut at, mut count) = (0, 0);
    for (i, &run) in runs.iter().enumerate().take(batch.len()) {
        let (Some(out), Some(parts)) = (batch.get(at), vecs.get_mut(at..at + run)) else {
            break;
        };
        let head = &mut heads[i].msg_hdr;
        if let Some(to) = out.to {
            let (name, name_len) = to_storage(to);
            head.msg_name = ptr::from_mut(names[i].write(name)).cast();
            head.msg_namelen = name_len;
        }
        head.msg_iov = parts.as_mut_ptr().cast();
        head.msg_iovlen = 2 * run;
        let (mut control, mut len) = (Control([0; CONTROL]), 0);
        if let Some(from) = out.from {
            len = source_control(from, &mut control);
        }
        if run > 1 {
            len = size_control(out.len(), &mut control, len);
        }
        if len > 0 {
            head.msg_control = ptr::from_mut(controls[i].write(control)).cast();
            head.msg_controllen = len;
        }
        (at, count) = (at + run, i + 1);
    }
    // SAFETY: the first `count` headers point to initialised names, control buffers and vectors,
    // of which a run has two per datagram in one array; all live until after the call, and the
    // kernel only reads from the payloads.
    let n = unsafe {
        libc::sendmmsg(
            socket.as_fd().as_raw_fd(),
            heads.as_mut_ptr(),
            count as u32,
            libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
        )
    };
    let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
    Ok(runs.iter().take(n).sum())
}

impl Outgoing<'_> {
    fn len(&self) -> usize {
        self.header.len() + self.payload.len()
    }
}

/// Lets the kernel hand over datagrams of one flow in one piece. Without it they come one by one.
pub(crate) fn want_joined(socket: &impl AsFd) -> io::Result<()> {
    turn_on(socket, libc::SOL_UDP, libc::UDP_GRO)
}

/// Size of the datagrams in a message.
fn joined_size(mut control: &[u8]) -> Option<usize> {
    while let Some((level, kind, data, total)) = record(control) {
        if (level, kind) == (libc::SOL_UDP, libc::UDP_GRO) {
            let size = i32::from_ne_bytes(data.get(..4)?.try_into().ok()?);
            return usize::try_from(size).ok().filter(|size| *size > 0);
        }
        control = control.get(total..)?;
    }
    None
}

/// Asks for the original destination of every datagram.
pub(crate) fn want_original_dst(socket: &impl AsFd, v6: V6) -> io::Result<()> {
    let (level, name) = match v6 {
        V6::No => (libc::SOL_IP, libc::IP_RECVORIGDSTADDR),
        V6::Yes => (libc::SOL_IPV6, libc::IPV6_RECVORIGDSTADDR),
    };
    turn_on(socket, level, name)
}

fn turn_on(socket: &impl AsFd, level: libc::c_int, name: libc::c_int) -> io::Result<()> {
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

/// `IP_PKTINFO` or `IPV6_PKTINFO` with the source address and no interface; its padded length.
fn source_control(from: IpAddr, control: &mut Control) -> usize {
    let mut info = [0; 20];
    let (level, kind, len) = match from {
        IpAddr::V4(ip) => {
            // ipi_ifindex, then ipi_spec_dst, then ipi_addr.
            info[4..8].copy_from_slice(&ip.octets());
            (libc::SOL_IP, libc::IP_PKTINFO, 12)
        }
        IpAddr::V6(ip) => {
            // ipi6_addr, then ipi6_ifindex.
            info[..16].copy_from_slice(&ip.octets());
            (libc::SOL_IPV6, libc::IPV6_PKTINFO, 20)
        }
    };
    put_record(control, 0, level, kind, &info[..len])
}

/// `UDP_SEGMENT` behind `at`: the size of each datagram of a message.
fn size_control(size: usize, control: &mut Control, at: usize) -> usize {
    // Runs are made of datagrams far below this limit.
    let size = u16::try_from(size).unwrap_or(u16::MAX);
    put_record(
        control,
        at,
        libc::SOL_UDP,
        libc::UDP_SEGMENT,
        &size.to_ne_bytes(),
    )
}

/// Writes a record and returns where the next one begins.
fn put_record(control: &mut Control, at: usize, level: i32, kind: i32, data: &[u8]) -> usize {
    let header = size_of::<libc::cmsghdr>();
    let record = &mut control.0[at..];
    record[..8].copy_from_slice(&(header + data.len()).to_ne_bytes());
    record[8..12].copy_from_slice(&level.to_ne_bytes());
    record[12..16].copy_from_slice(&kind.to_ne_bytes());
    record[header..header + data.len()].copy_from_slice(data);
    at + (header + data.len()).next_multiple_of(align_of::<libc::cmsghdr>())
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
mod tests;
