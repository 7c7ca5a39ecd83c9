//! Packets that come in from outside: lets proxied replies through, and remembers UDP that
//! reaches local sockets, so that their answers stay direct.

use aya_ebpf::bindings::__sk_buff;
use honk_common::{
    counter::Stat,
    key::PROTO_UDP,
    param::{GATE_CLOSED, MARK_REPLY},
};

use crate::{
    frame::{Header, Tag, link_header, tag},
    inbound::track,
    maps::{GATE, scratch},
    packet::{Kind, parse},
    special::is_special,
    stats::count,
    verdict::NEXT,
};

/// Entry for Ethernet devices.
#[unsafe(no_mangle)]
#[unsafe(link_section = "classifier")]
pub extern "C" fn wan_ingress_l2(skb: *mut __sk_buff) -> i32 {
    run::<true>(skb)
}

/// Entry for devices without a link header.
#[unsafe(no_mangle)]
#[unsafe(link_section = "classifier")]
pub extern "C" fn wan_ingress_l3(skb: *mut __sk_buff) -> i32 {
    run::<false>(skb)
}

#[inline(always)]
fn run<const L2: bool>(skb: *mut __sk_buff) -> i32 {
    // Whatever the gate says: the mark means nothing to others.
    let mark = unsafe { (*skb).mark };
    if mark & MARK_REPLY != 0 {
        unsafe { (*skb).mark = mark & !MARK_REPLY };
        return NEXT;
    }
    if GATE.get(0).copied().unwrap_or(GATE_CLOSED) == GATE_CLOSED || tag(skb) != Tag::Ours {
        return NEXT;
    }
    if L2 {
        match link_header(skb) {
            Header::Whole => {}
            Header::Mended => count(Stat::FrameMended),
            // Nothing is kept from outside, so nothing is lost: this program only takes notes.
            Header::Lost => return NEXT,
        }
    }
    let Some(scratch) = scratch() else {
        return NEXT;
    };
    let p = &mut scratch.packet;
    if parse::<L2>(skb, p) == Kind::Flow && p.key.proto == PROTO_UDP && !is_special(p, false) {
        track(skb, p);
    }
    NEXT
}
