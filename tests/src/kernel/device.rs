//! A network namespace for the calling thread, and TAP or TUN devices in it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
const IFF_TUN: i16 = 0x0001;
const IFF_TAP: i16 = 0x0002;
const IFF_NO_PI: i16 = 0x1000;
const ARPHRD_ETHER: u16 = 1;

/// Gives the calling thread a network namespace of its own; it ends with the thread.
pub fn enter_namespace() -> Result<()> {
    // SAFETY: changes only the namespace of this thread.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err(io::Error::last_os_error()).context("unshare(CLONE_NEWNET)");
    }
    Ok(())
}

#[repr(C)]
struct Ifreq {
    name: [u8; 16],
    data: [u8; 24],
}

impl Ifreq {
    fn new(name: &str) -> Self {
        let mut r = Self {
            name: [0; 16],
            data: [0; 24],
        };
        r.name[..name.len()].copy_from_slice(name.as_bytes());
        r
    }

    fn call(&mut self, fd: i32, request: libc::c_ulong) -> Result<()> {
        // SAFETY: an ifreq is 40 bytes on 64-bit Linux, which is what the requests read or write.
        if unsafe { libc::ioctl(fd, request as _, std::ptr::from_mut(self)) } != 0 {
            return Err(io::Error::last_os_error()).context(format!("ioctl {request:#x}"));
        }
        Ok(())
    }
}

/// A TAP or TUN device; it goes with its descriptor.
#[derive(Debug)]
pub struct Tap {
    file: File,
    control: std::net::UdpSocket,
    name: String,
    index: u32,
}

impl Tap {
    /// Creates an Ethernet device with a given MAC.
    pub fn new(name: &str, mac: [u8; 6]) -> Result<Self> {
        let tap = Self::open(name, IFF_TAP)?;
        let mut r = Ifreq::new(name);
        r.data[..2].copy_from_slice(&ARPHRD_ETHER.to_ne_bytes());
        r.data[2..8].copy_from_slice(&mac);
        r.call(tap.control.as_raw_fd(), libc::SIOCSIFHWADDR as _)?;
        Ok(tap)
    }

    /// Creates a device without link header.
    pub fn tun(name: &str) -> Result<Self> {
        Self::open(name, IFF_TUN)
    }

    fn open(name: &str, kind: i16) -> Result<Self> {
        use std::os::unix::fs::OpenOptionsExt as _;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/net/tun")
            .context("/dev/net/tun")?;
        let mut r = Ifreq::new(name);
        r.data[..2].copy_from_slice(&(kind | IFF_NO_PI).to_ne_bytes());
        r.call(file.as_raw_fd(), TUNSETIFF)?;
        // Any socket of this namespace serves as a handle for the requests below.
        let control = std::net::UdpSocket::bind("0.0.0.0:0")?;
        let mut r = Ifreq::new(name);
        r.call(control.as_raw_fd(), libc::SIOCGIFINDEX as _)?;
        let index = u32::from_ne_bytes([r.data[0], r.data[1], r.data[2], r.data[3]]);
        Ok(Self {
            file,
            control,
            name: name.to_owned(),
            index,
        })
    }

    /// Interface name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The descriptor packets are read from and written to; it does not block.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Interface index.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Sets an IPv4 address with a /24 mask, turns forwarding on and brings the device up.
    pub fn configure(&self, addr: [u8; 4]) -> Result<()> {
        let fd = self.control.as_raw_fd();
        for (request, bytes) in [
            (libc::SIOCSIFADDR, addr),
            (libc::SIOCSIFNETMASK, [255, 255, 255, 0]),
        ] {
            let mut r = Ifreq::new(&self.name);
            r.data[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
            r.data[4..8].copy_from_slice(&bytes);
            r.call(fd, request as _)?;
        }
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").context("ip_forward")?;
        self.up()
    }

    /// Brings the device up, without IPv6 chatter of its own.
    pub fn up(&self) -> Result<()> {
        let file = format!("/proc/sys/net/ipv6/conf/{}/disable_ipv6", self.name);
        std::fs::write(&file, "1").context(file)?;
        let mut r = Ifreq::new(&self.name);
        r.data[..2].copy_from_slice(&(libc::IFF_UP as i16).to_ne_bytes());
        r.call(self.control.as_raw_fd(), libc::SIOCSIFFLAGS as _)
    }

    /// Lets a packet arrive on the device.
    pub fn send(&self, packet: &[u8]) -> Result<()> {
        (&self.file)
            .write_all(packet)
            .context("write to the device")
    }

    /// The next packet the kernel sends out of the device, if one comes within ten seconds.
    pub fn receive(&self) -> Option<Vec<u8>> {
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut buf = vec![0; 4096];
        loop {
            if let Ok(n) = (&self.file).read(&mut buf) {
                buf.truncate(n);
                return Some(buf);
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            let mut poll = libc::pollfd {
                fd: self.file.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one pollfd, as the count says.
            unsafe { libc::poll(&raw mut poll, 1, left.as_millis() as libc::c_int) };
        }
    }
}
