//! Traffic that is never classified, and traffic for the gateway itself.

use honk_common::{key::PROTO_UDP, param::DNS_LOCAL};

use crate::{
    maps::{FLAGS, LOCAL_ADDR},
    packet::Packet,
};

/// Addresses no route leads to, multicast, and DHCP. Queries to port 53 are exempt but for
/// multicast: clients may ask any address, the router's link-local one included.
#[inline(always)]
pub fn is_special(p: &Packet, dns: bool) -> bool {
    let (src, dst) = words(p);
    let multicast = if p.v6 {
        p.key.dst[0] == 0xff
    } else {
        dst[3] >> 28 == 0xe || dst[3] == u32::MAX
    };
    if multicast {
        return true;
    }
    if dns {
        return false;
    }
    if is_dhcp(p) {
        return true;
    }
    if p.v6 {
        unroutable_v6(src) || unroutable_v6(dst)
    } else {
        let (s, d) = (src[3], dst[3]);
        d >> 24 == 0
            || d >> 24 == 127
            || d >> 16 == LINK_LOCAL_V4
            || s == 0
            || s >> 16 == LINK_LOCAL_V4
    }
}

/// The gateway's own address, or one it answers for.
#[inline(always)]
pub fn is_local(p: &Packet) -> bool {
    LOCAL_ADDR.get_ptr(&p.key.dst).is_some()
}

/// Whether queries to the gateway belong to its own resolver.
#[inline(always)]
pub fn dns_is_local() -> bool {
    FLAGS.get(0).copied().unwrap_or(0) & DNS_LOCAL != 0
}

const LINK_LOCAL_V4: u32 = 0xa9fe;

#[inline(always)]
fn is_dhcp(p: &Packet) -> bool {
    let ports = (p.key.sport, p.key.dport);
    p.key.proto == PROTO_UDP && matches!(ports, (67, 68) | (68, 67) | (546, 547) | (547, 546))
}

/// `::`, `::1` and link-local.
#[inline(always)]
fn unroutable_v6(a: [u32; 4]) -> bool {
    a[0] >> 22 == 0x3fa || (a[0] | a[1] | a[2] == 0 && a[3] <= 1)
}

/// Source and destination as host-order words.
#[inline(always)]
fn words(p: &Packet) -> ([u32; 4], [u32; 4]) {
    let k = (&raw const p.key).cast::<u32>();
    let at = |i: usize| u32::from_be(unsafe { k.add(i).read() });
    ([at(0), at(1), at(2), at(3)], [at(4), at(5), at(6), at(7)])
}
