//! What userspace says about groups: alive, or served by the kernel itself.

use honk_common::{
    counter::Stat,
    event::EVENT_GROUP_DEAD,
    key::PROTO_TCP,
    outbound::{NET_DNS, NET_TCP, NET_UDP, group_slot, is_user},
};

use crate::{maps::GROUP_STATE, packet::Packet, stats::count, verdict::Verdict};

/// The group has nothing to send with: fail closed.
#[inline(always)]
pub fn dead(ordinal: u8, rule: u16) -> Verdict {
    count(Stat::DeadDrop);
    Verdict::drop_loudly(ordinal, EVENT_GROUP_DEAD, rule)
}

/// State bits of the group for this kind of flow; none for ordinals that are no group.
#[inline(always)]
pub fn group_state(p: &Packet, ordinal: u8, dns: bool) -> u32 {
    if !is_user(ordinal) {
        return 0;
    }
    let net = if p.key.proto == PROTO_TCP {
        NET_TCP
    } else if dns {
        NET_DNS
    } else {
        NET_UDP
    };
    GROUP_STATE
        .get(group_slot(ordinal, net, p.v6))
        .copied()
        .unwrap_or(0)
}
