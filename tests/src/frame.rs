//! Frames on the wire, as they are: what a socket of the client would never send.

use std::os::fd::AsRawFd as _;

use anyhow::{Context as _, Result};
use socket2::{Domain, Socket, Type};

use crate::netns::Netns;
use crate::tool;

/// Sends whole frames through an interface of the calling thread's namespace.
pub fn send(interface: &str, frames: &[Vec<u8>]) -> Result<()> {
    let name = std::ffi::CString::new(interface)?;
    // SAFETY: name is a valid C string for the duration of the call.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    let mut to = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: i32::try_from(index)?,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 6,
        sll_addr: [0; 8],
    };
    // Protocol 0: it receives nothing.
    let socket = Socket::new(Domain::PACKET, Type::RAW, None)?;
    for frame in frames {
        to.sll_addr[..6].copy_from_slice(frame.get(..6).context("a short frame")?);
        // SAFETY: buffer and address are valid for the lengths given.
        let sent = unsafe {
            libc::sendto(
                socket.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                0,
                std::ptr::from_ref(&to).cast(),
                size_of_val(&to) as libc::socklen_t,
            )
        };
        if sent < 0 {
            return Err(std::io::Error::last_os_error())
                .with_context(|| format!("cannot send through {interface}"));
        }
    }
    Ok(())
}

/// The MAC address of an interface.
pub fn mac_of(ns: &Netns, interface: &str) -> Result<[u8; 6]> {
    let mut ip = ns.command("ip");
    let shown = tool::run(ip.args(["-o", "link", "show", "dev", interface]))?;
    let text = shown.split("link/ether ").nth(1);
    let text = text.and_then(|t| t.split(' ').next()).context("no MAC")?;
    let mut mac = [0; 6];
    for (byte, digits) in mac.iter_mut().zip(text.split(':')) {
        *byte = u8::from_str_radix(digits, 16)?;
    }
    Ok(mac)
}
