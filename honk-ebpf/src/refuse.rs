//! Refusing a blocked connection at once: the SYN is turned into the reset that answers it and
//! sent back where it came from. A silent drop would leave the client to its own timeout.
//!
//! A connection of the gateway itself gets it on the receive path of the interface it would have
//! left through, marked like any reply.
//!
//! Only the plain shapes are answered (no IP options, no extension headers, no fragment); the
//! rest is dropped. Addresses and ports change places, which leaves their sums alone, so one
//! difference over the TCP header keeps the checksum right, also a partial one.

use aya_ebpf::{
    bindings::{__sk_buff, BPF_F_INGRESS},
    helpers::generated::{bpf_csum_diff, bpf_l4_csum_replace, bpf_redirect},
};
use honk_common::{counter::Stat, key::PROTO_TCP, param::MARK_REPLY};

use crate::{
    frame::{load, store, untag},
    packet::{ETH_LEN, Packet, TCP_ACK, TCP_RST},
    stats::count,
    verdict::SHOT,
};

const TCP_LEN: usize = 20;
/// Where the checksum lies in a TCP header.
const TCP_CSUM: u32 = 16;

/// Answers the SYN in `skb` with a reset (RFC 9293, 3.10.7.1), or drops it.
#[inline(always)]
pub fn refuse<const L2: bool, const WAN: bool>(skb: *mut __sk_buff, p: &Packet) -> i32 {
    if p.key.proto != PROTO_TCP || !p.is_pure_syn() || p.first_fragment {
        return SHOT;
    }
    let done = untag(skb)
        && if p.v6 {
            turn::<L2, 40, 8, 16>(skb, p.seq)
        } else {
            turn::<L2, 20, 12, 4>(skb, p.seq)
        };
    if !done {
        return SHOT;
    }
    if L2 {
        let macs = [
            p.smac[0], p.smac[1], p.smac[2], p.smac[3], p.smac[4], p.smac[5], p.dmac[0], p.dmac[1],
            p.dmac[2], p.dmac[3], p.dmac[4], p.dmac[5],
        ];
        if !store(skb, 0, &macs) {
            return SHOT;
        }
    }
    count(Stat::BlockReset);
    let way = if WAN {
        unsafe { (*skb).mark = MARK_REPLY };
        BPF_F_INGRESS
    } else {
        0
    };
    (unsafe { bpf_redirect((*skb).ifindex, way.into()) }) as i32
}

/// Exchanges the ends and writes the reset. `IP` is the length of the IP header, `ADDRS` the
/// offset of its addresses, `ADDR` the length of one.
#[inline(always)]
fn turn<const L2: bool, const IP: usize, const ADDRS: usize, const ADDR: usize>(
    skb: *mut __sk_buff,
    seq: u32,
) -> bool {
    let l2 = if L2 { ETH_LEN } else { 0 };
    let mut first = [0u8; 8];
    if !load(skb, l2, &mut first) {
        return false;
    }
    let plain = if IP == 20 {
        first[0] == 0x45
    } else {
        first[6] == PROTO_TCP
    };
    let (mut src, mut dst) = ([0u8; ADDR], [0u8; ADDR]);
    let mut old = [0u32; TCP_LEN / 4];
    let l4 = l2 + IP;
    if !plain
        || !load(skb, l2 + ADDRS, &mut src)
        || !load(skb, l2 + ADDRS + ADDR, &mut dst)
        || !load(skb, l4, &mut old)
    {
        return false;
    }
    // Ports, sequence 0, acknowledgement of the SYN, length kept, no window, checksum kept.
    let length = u32::from_be(old[3]) & 0xf000_0000;
    let flags = ((TCP_RST | TCP_ACK) as u32) << 16;
    let new = [
        old[0].rotate_left(16),
        0,
        seq.wrapping_add(1).to_be(),
        (length | flags).to_be(),
        old[4] & 0xffff_u32,
    ];
    // The urgent pointer goes with the old flags; it is the second half of the last word.
    let (from, to) = ((&raw const old).cast_mut(), (&raw const new).cast_mut());
    unsafe {
        let diff = bpf_csum_diff(from.cast(), TCP_LEN as u32, to.cast(), TCP_LEN as u32, 0);
        diff >= 0
            && store(skb, l2 + ADDRS, &dst)
            && store(skb, l2 + ADDRS + ADDR, &src)
            && store(skb, l4, &new)
            && bpf_l4_csum_replace(skb, l4 as u32 + TCP_CSUM, 0, diff as u64, 0) == 0
    }
}
