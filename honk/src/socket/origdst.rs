//! The original destination of an intercepted datagram, from its control messages.
//!
//! A datagram is answered to whoever we think it was meant for, so anything unclear is
//! refused: no record, two records, a cut buffer, an address that nobody can have.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// `struct cmsghdr` on 64-bit Linux: length, level, type.
const HEADER: usize = size_of::<libc::cmsghdr>();
const ALIGN: usize = align_of::<libc::cmsghdr>();

/// Why a datagram has no usable destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OrigDstError {
    #[error("the control buffer was cut")]
    Cut,
    #[error("no destination record")]
    Missing,
    #[error("more than one destination record")]
    Twice,
    #[error("the destination is unspecified or has port 0")]
    Unspecified,
}

/// Finds the one destination record in `control`, the control bytes the kernel returned;
/// `cut` is its word that they did not fit.
pub(crate) fn parse(control: &[u8], cut: bool) -> Result<SocketAddr, OrigDstError> {
    if cut {
        return Err(OrigDstError::Cut);
    }
    let mut found = None;
    let mut rest = control;
    while !rest.is_empty() {
        let (level, kind, data, total) = record(rest).ok_or(OrigDstError::Cut)?;
        let addr = match (level, kind) {
            (libc::SOL_IP, libc::IP_ORIGDSTADDR) => Some(ipv4(data)),
            (libc::SOL_IPV6, libc::IPV6_ORIGDSTADDR) => Some(ipv6(data)),
            _ => None,
        };
        if let Some(addr) = addr
            && found.replace(addr.ok_or(OrigDstError::Cut)?).is_some()
        {
            return Err(OrigDstError::Twice);
        }
        rest = rest.get(total..).unwrap_or(&[]);
    }
    let addr = found.ok_or(OrigDstError::Missing)?;
    if addr.ip().is_unspecified() || addr.port() == 0 {
        return Err(OrigDstError::Unspecified);
    }
    Ok(addr)
}

/// Level, type, data and padded length of the first record.
pub(super) fn record(bytes: &[u8]) -> Option<(i32, i32, &[u8], usize)> {
    let len = usize::from_ne_bytes(bytes.get(..8)?.try_into().ok()?);
    let level = i32::from_ne_bytes(bytes.get(8..12)?.try_into().ok()?);
    let kind = i32::from_ne_bytes(bytes.get(12..16)?.try_into().ok()?);
    let data = bytes.get(HEADER..len)?;
    Some((level, kind, data, len.next_multiple_of(ALIGN)))
}

/// `struct sockaddr_in`.
fn ipv4(data: &[u8]) -> Option<SocketAddr> {
    if u16::from_ne_bytes(data.get(..2)?.try_into().ok()?) != libc::AF_INET as u16 {
        return None;
    }
    let port = u16::from_be_bytes(data.get(2..4)?.try_into().ok()?);
    let ip: [u8; 4] = data.get(4..8)?.try_into().ok()?;
    Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::from(ip)), port))
}

/// `struct sockaddr_in6`.
fn ipv6(data: &[u8]) -> Option<SocketAddr> {
    if u16::from_ne_bytes(data.get(..2)?.try_into().ok()?) != libc::AF_INET6 as u16 {
        return None;
    }
    let port = u16::from_be_bytes(data.get(2..4)?.try_into().ok()?);
    let ip: [u8; 16] = data.get(8..24)?.try_into().ok()?;
    Some(SocketAddr::new(IpAddr::V6(Ipv6Addr::from(ip)), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cmsg(level: i32, kind: i32, data: &[u8]) -> Vec<u8> {
        let mut out = (HEADER + data.len()).to_ne_bytes().to_vec();
        out.extend_from_slice(&level.to_ne_bytes());
        out.extend_from_slice(&kind.to_ne_bytes());
        out.extend_from_slice(data);
        out.resize(out.len().next_multiple_of(ALIGN), 0);
        out
    }

    fn v4(ip: [u8; 4], port: u16) -> Vec<u8> {
        let mut data = (libc::AF_INET as u16).to_ne_bytes().to_vec();
        data.extend_from_slice(&port.to_be_bytes());
        data.extend_from_slice(&ip);
        data.resize(16, 0);
        cmsg(libc::SOL_IP, libc::IP_ORIGDSTADDR, &data)
    }

    fn v6(ip: [u8; 16], port: u16) -> Vec<u8> {
        let mut data = (libc::AF_INET6 as u16).to_ne_bytes().to_vec();
        data.extend_from_slice(&port.to_be_bytes());
        data.extend_from_slice(&[0; 4]);
        data.extend_from_slice(&ip);
        data.resize(28, 0);
        cmsg(libc::SOL_IPV6, libc::IPV6_ORIGDSTADDR, &data)
    }

    #[test]
    fn t43_exactly_one_record_is_accepted() {
        let one = v4([192, 0, 2, 1], 53);
        assert_eq!(parse(&one, false), Ok("192.0.2.1:53".parse().unwrap()));
        let six = v6("2001:db8::1".parse::<Ipv6Addr>().unwrap().octets(), 443);
        assert_eq!(parse(&six, false), Ok("[2001:db8::1]:443".parse().unwrap()));
        let mut other_first = cmsg(libc::SOL_SOCKET, 29, &[0; 16]);
        other_first.extend_from_slice(&one);
        assert!(parse(&other_first, false).is_ok());
    }

    #[test]
    fn t43_unclear_buffers_are_refused() {
        let one = v4([192, 0, 2, 1], 53);
        assert_eq!(parse(&one, true), Err(OrigDstError::Cut));
        assert_eq!(parse(&[], false), Err(OrigDstError::Missing));
        let twice = [one.clone(), one.clone()].concat();
        assert_eq!(parse(&twice, false), Err(OrigDstError::Twice));
        let mixed = [one.clone(), v6([1; 16], 53)].concat();
        assert_eq!(parse(&mixed, false), Err(OrigDstError::Twice));
        for bad in [v4([0; 4], 53), v4([192, 0, 2, 1], 0), v6([0; 16], 53)] {
            assert_eq!(parse(&bad, false), Err(OrigDstError::Unspecified));
        }
        for cut in 1..HEADER + 8 {
            assert_eq!(parse(&one[..cut], false), Err(OrigDstError::Cut), "{cut}");
        }
        let mut family = one.clone();
        family[HEADER] = 99;
        assert_eq!(parse(&family, false), Err(OrigDstError::Cut));
        let mut huge = one;
        huge[..8].copy_from_slice(&usize::MAX.to_ne_bytes());
        assert_eq!(parse(&huge, false), Err(OrigDstError::Cut));
        let mut tiny = v4([192, 0, 2, 1], 53);
        tiny[..8].copy_from_slice(&0usize.to_ne_bytes());
        assert_eq!(
            parse(&tiny, false),
            Err(OrigDstError::Cut),
            "no endless walk"
        );
    }
}
