//! Packets from LAN clients (spec: datapath 2.2): the gate, what is never classified, then
//! `judge`.

use aya_ebpf::bindings::__sk_buff;
use honk_common::{
    counter::Stat,
    param::{GATE_CLOSED, GATE_DRAINING, MARK_CLASSIFIED, MARK_REPLY},
};

use crate::{
    frame::{Header, Tag, link_header, tag},
    judge::judge,
    maps::GATE,
    stats::count,
    verdict::{NEXT, SHOT},
};

const PACKET_HOST: u32 = 0;

/// Entry for Ethernet devices.
#[unsafe(no_mangle)]
#[unsafe(link_section = "classifier")]
pub extern "C" fn lan_ingress_l2(skb: *mut __sk_buff) -> i32 {
    run::<true>(skb)
}

/// Entry for devices without a link header.
#[unsafe(no_mangle)]
#[unsafe(link_section = "classifier")]
pub extern "C" fn lan_ingress_l3(skb: *mut __sk_buff) -> i32 {
    run::<false>(skb)
}

#[inline(always)]
fn run<const L2: bool>(skb: *mut __sk_buff) -> i32 {
    let gate = GATE.get(0).copied().unwrap_or(GATE_CLOSED);
    if gate == GATE_CLOSED {
        return NEXT;
    }
    let mark = unsafe { (*skb).mark };
    if mark & (MARK_CLASSIFIED | MARK_REPLY) != 0 {
        unsafe { (*skb).mark = mark & !(MARK_CLASSIFIED | MARK_REPLY) };
        return NEXT;
    }
    count(Stat::PktsLan);
    match tag(skb) {
        Tag::Ours => {}
        Tag::Vlan => {
            count(Stat::VlanPass);
            return NEXT;
        }
        Tag::TooMany => {
            count(Stat::TagDrop);
            return SHOT;
        }
    }
    // Group addresses and frames for other stations; header-less devices know neither.
    if L2 && unsafe { (*skb).pkt_type } != PACKET_HOST {
        count(Stat::GroupPass);
        return NEXT;
    }
    if L2 {
        match link_header(skb) {
            Header::Whole => {}
            Header::Mended => count(Stat::FrameMended),
            Header::Lost => {
                count(Stat::FrameDrop);
                return SHOT;
            }
        }
    }
    judge::<L2, false>(skb, gate == GATE_DRAINING)
}
