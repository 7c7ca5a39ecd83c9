//! L8-L10: group states and mode flags.

use honk_common::counter::Stat;
use honk_common::event::EVENT_GROUP_DEAD;
use honk_common::outbound::{
    BLOCK, CONTROL, DIRECT, NET_DNS, NET_TCP, NET_UDP, STATE_BLOCK, STATE_DEAD, STATE_DIRECT,
    USER_FIRST, USER_LAST, group_slot,
};
use honk_common::param::{OFFLOAD_ALL, OFFLOAD_DIRECT};
use honk_tests::kernel::packet::{ACK, Packet, SYN, tcp, udp};
use honk_tests::kernel::{NEXT, REDIRECT, Rig, SHOT};

use crate::common::*;
use crate::rig;

/// One flow per slot of a group, with that slot's network and family.
fn flows() -> [(u32, bool, Packet); 4] {
    [
        (NET_TCP, false, tcp(CLIENT, ORIGIN, SYN)),
        (NET_TCP, true, tcp(CLIENT6, ORIGIN6, SYN)),
        (NET_UDP, false, udp(CLIENT, ORIGIN)),
        (NET_UDP, true, udp(CLIENT6, ORIGIN6)),
    ]
}

fn set(rig: &Rig, ordinal: u8, net: u32, v6: bool, bits: u32) {
    rig.put("GROUP_STATE", &group_slot(ordinal, net, v6), &bits);
}

fn flags(rig: &Rig, bits: u32) {
    rig.put("FLAGS", &0u32, &bits);
}

#[test]
fn each_slot_stops_its_own_network_and_family_only() {
    let mut rig = rig!();
    install_all(&mut rig, PROXY);
    for (net, v6, _) in flows() {
        set(&rig, PROXY, net, v6, STATE_DEAD);
        for (n, f, p) in flows() {
            let want = if (n, f) == (net, v6) { SHOT } else { REDIRECT };
            assert_eq!(lan(&rig, &p), want, "{net} {v6} {n} {f}");
        }
        set(&rig, PROXY, net, v6, 0);
        rig.clear("FLOW", 40);
    }
    assert_eq!(rig.stat(Stat::DeadDrop), 4);
    let e = rig.events();
    assert!(
        e.len() == 4
            && e.iter()
                .all(|e| e.kind == EVENT_GROUP_DEAD && e.ordinal == PROXY)
    );
}

#[test]
fn the_first_and_last_group_have_states_and_others_do_not() {
    let mut rig = rig!();
    for ordinal in [USER_FIRST, USER_LAST] {
        install_all(&mut rig, ordinal);
        set(&rig, ordinal, NET_TCP, false, STATE_DEAD);
        assert_eq!(lan(&rig, &tcp(CLIENT, ORIGIN, SYN)), SHOT, "{ordinal}");
    }
    for ordinal in [DIRECT, CONTROL] {
        install_all(&mut rig, ordinal);
        set(&rig, ordinal, NET_TCP, false, STATE_DEAD | STATE_BLOCK);
        assert_ne!(lan(&rig, &tcp(CLIENT, ORIGIN, SYN)), SHOT, "{ordinal}");
    }
}

#[test]
fn a_group_on_direct_or_block_is_served_by_the_kernel() {
    let mut rig = rig!();
    install_all(&mut rig, PROXY);
    set(&rig, PROXY, NET_TCP, false, STATE_DIRECT);
    set(&rig, PROXY, NET_UDP, false, STATE_BLOCK);
    assert_eq!(lan(&rig, &tcp(CLIENT, ORIGIN, SYN)), NEXT);
    assert_eq!(lan(&rig, &udp(CLIENT, ORIGIN)), SHOT);
    assert!(no_flows(&rig));
    install(&mut rig, &rules([must(line([], PROXY))], DIRECT), 2);
    // must: direct is for userspace to say, block is not.
    assert_eq!(lan(&rig, &tcp(CLIENT, ORIGIN, SYN)), REDIRECT);
    assert_eq!(lan(&rig, &udp(CLIENT, ORIGIN)), SHOT);
}

#[test]
fn a_dead_group_drops_must_flows_too() {
    let mut rig = rig!();
    install(&mut rig, &rules([must(line([], PROXY))], DIRECT), 1);
    set(&rig, PROXY, NET_TCP, false, STATE_DEAD);
    set(&rig, PROXY, NET_DNS, false, STATE_DEAD);
    assert_eq!(lan(&rig, &tcp(CLIENT, ORIGIN, SYN)), SHOT);
    assert_eq!(lan(&rig, &udp(CLIENT, "198.51.100.1:53")), SHOT);
}

#[test]
fn queries_without_must_do_not_care_for_dead_groups() {
    let mut rig = rig!();
    install_all(&mut rig, PROXY);
    set(&rig, PROXY, NET_DNS, false, STATE_DEAD);
    set(&rig, PROXY, NET_TCP, false, STATE_DEAD);
    assert_eq!(lan(&rig, &udp(CLIENT, "198.51.100.1:53")), REDIRECT);
    assert_eq!(lan(&rig, &tcp(CLIENT, "198.51.100.1:53", SYN)), REDIRECT);
}

#[test]
fn established_tcp_outlives_a_dead_group_and_udp_does_not() {
    let mut rig = rig!();
    install_all(&mut rig, PROXY);
    let (t, u) = (tcp(CLIENT, ORIGIN, SYN), udp(CLIENT, ORIGIN));
    assert_eq!((lan(&rig, &t), lan(&rig, &u)), (REDIRECT, REDIRECT));
    set(&rig, PROXY, NET_TCP, false, STATE_DEAD);
    set(&rig, PROXY, NET_UDP, false, STATE_DEAD);
    assert_eq!(lan(&rig, &tcp(CLIENT, ORIGIN, ACK)), REDIRECT);
    assert_eq!(lan(&rig, &t), SHOT, "retransmitted SYN");
    assert_eq!(lan(&rig, &u), SHOT);
    // A switched selection moves new flows; this one keeps its outbound.
    set(&rig, PROXY, NET_UDP, false, STATE_DIRECT);
    assert_eq!(lan(&rig, &u), REDIRECT);
}

#[test]
fn direct_mode_takes_all_but_must_and_block() {
    let mut rig = rig!();
    let set_ = rules(
        [
            must(line([dport(1)], PROXY)),
            line([dport(2)], BLOCK),
            marked(line([dport(3)], PROXY), 8),
        ],
        PROXY,
    );
    install(&mut rig, &set_, 1);
    flags(&rig, OFFLOAD_DIRECT | OFFLOAD_ALL);
    assert_eq!(lan(&rig, &tcp(CLIENT, "198.51.100.9:1", SYN)), REDIRECT);
    assert_eq!(lan(&rig, &tcp(CLIENT, "198.51.100.9:2", SYN)), SHOT);
    let p = tcp(CLIENT, "198.51.100.9:3", SYN);
    assert_eq!(lan_marked(&rig, &p, 0), (NEXT, 0));
    // A dead group does not stop what leaves directly.
    set(&rig, PROXY, NET_TCP, false, STATE_DEAD);
    assert_eq!(lan(&rig, &tcp(CLIENT, "198.51.100.9:4", SYN)), NEXT);
}

#[test]
fn without_offload_direct_flows_go_to_userspace() {
    let mut rig = rig!();
    install(
        &mut rig,
        &rules(
            [must(line([dport(1)], DIRECT)), line([dport(2)], BLOCK)],
            DIRECT,
        ),
        1,
    );
    flags(&rig, 0);
    let p = tcp(CLIENT, ORIGIN, SYN);
    assert_eq!(lan(&rig, &p), REDIRECT);
    assert_eq!(word(&rig, &p).ordinal, CONTROL);
    assert_eq!(lan(&rig, &tcp(CLIENT, "198.51.100.9:1", SYN)), NEXT);
    assert_eq!(lan(&rig, &tcp(CLIENT, "198.51.100.9:2", SYN)), SHOT);
}
