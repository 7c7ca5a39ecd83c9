//! L6 and APPLY: the life of a flow entry (T11, T12).

use honk_common::counter::Stat;
use honk_common::flow::{
    DirectVal, FLOW_ACTIVE, FLOW_CLAIMED, FLOW_CLOSING, FLOW_REINJECT, FLOW_STALE, FlowWord,
    INBOUND_KIND,
};
use honk_common::key::to_bytes;
use honk_common::outbound::{BLOCK, DIRECT};
use honk_tests::kernel::packet::{ACK, FIN, RST, SYN, tcp, udp};
use honk_tests::kernel::{NEXT, REDIRECT, SHOT, bytes};

use crate::common::*;
use crate::rig;

#[test]
fn t11_another_syn_starts_a_new_life() {
    let mut rig = rig!();
    install_all(&mut rig, PROXY);
    let syn = tcp(CLIENT, ORIGIN, SYN);
    assert_eq!(lan(&rig, &syn.clone().seq(1)), REDIRECT);
    install(&mut rig, &rules([], DIRECT), 2);
    assert_eq!(lan(&rig, &tcp(CLIENT, ORIGIN, ACK)), REDIRECT);
    assert_eq!(lan(&rig, &syn.clone().seq(2)), NEXT);
    assert!(flow(&rig, &syn).is_none());
    assert_eq!(lan(&rig, &tcp(CLIENT, ORIGIN, ACK)), NEXT);

    install(&mut rig, &rules([], PROXY), 3);
    assert_eq!(lan(&rig, &syn.clone().seq(3)), REDIRECT);
    assert_eq!(flow(&rig, &syn).expect("entry").isn, 3);
}

#[test]
fn t12_a_retransmitted_syn_keeps_its_decision() {
    let mut rig = rig!();
    install_all(&mut rig, PROXY);
    let syn = tcp(CLIENT, ORIGIN, SYN);
    assert_eq!(lan(&rig, &syn), REDIRECT);
    let before = flow(&rig, &syn).expect("entry").word;
    install(&mut rig, &rules([], BLOCK), 2);
    assert_eq!(lan(&rig, &syn), REDIRECT);
    assert_eq!(flow(&rig, &syn).expect("entry").word, before);
    assert_eq!(rig.stat(Stat::SynRetransmit), 1);
    assert_eq!(rig.stat(Stat::NewFlows), 1);
}

#[test]
fn the_same_syn_after_the_end_is_a_new_life() {
    let mut rig = rig!();
    install_all(&mut rig, PROXY);
    let syn = tcp(CLIENT, ORIGIN, SYN);
    assert_eq!(lan(&rig, &syn), REDIRECT);
    assert_eq!(lan(&rig, &tcp(CLIENT, ORIGIN, RST)), REDIRECT);
    install(&mut rig, &rules([], BLOCK), 2);
    assert_eq!(lan(&rig, &syn), SHOT);
    assert!(flow(&rig, &syn).is_none());
}

#[test]
fn fin_and_rst_close_and_keep_the_rest_of_the_word() {
    let mut rig = rig!();
    install_all(&mut rig, PROXY);
    for end in [FIN | ACK, RST, RST | ACK] {
        let p = tcp(CLIENT, ORIGIN, ACK);
        let mut e = entry(PROXY);
        let before = FlowWord {
            ordinal: PROXY,
            flags: 0x51,
            dscp: 46,
            state: FLOW_CLAIMED,
            mark: 0x1234_5678,
        };
        e.word = before.pack();
        put_flow(&rig, &p, &e);
        assert_eq!(lan(&rig, &p), REDIRECT);
        assert_eq!(word(&rig, &p), before);
        assert_eq!(lan(&rig, &tcp(CLIENT, ORIGIN, end)), REDIRECT);
        let closing = FlowWord {
            state: FLOW_CLOSING,
            ..before
        };
        assert_eq!(word(&rig, &p), closing);
        assert_eq!(lan(&rig, &p), REDIRECT, "half-closed flows go on");
    }
}

#[test]
fn a_syn_ack_from_a_client_is_no_new_flow() {
    let mut rig = rig!();
    install_all(&mut rig, PROXY);
    assert_eq!(lan(&rig, &tcp(CLIENT, ORIGIN, SYN | ACK)), NEXT);
    assert!(no_flows(&rig));
}

#[test]
fn timestamps_are_renewed_once_a_second() {
    let mut rig = rig!();
    install_all(&mut rig, PROXY);
    let p = tcp(CLIENT, ORIGIN, ACK);
    let fresh = now() - 100_000_000;
    let mut e = entry(PROXY);
    e.last_seen_ns = fresh;
    put_flow(&rig, &p, &e);
    assert_eq!(lan(&rig, &p), REDIRECT);
    assert_eq!(flow(&rig, &p).expect("entry").last_seen_ns, fresh);
    e.last_seen_ns = now() - 2_000_000_000;
    put_flow(&rig, &p, &e);
    assert_eq!(lan(&rig, &p), REDIRECT);
    assert!(flow(&rig, &p).expect("entry").last_seen_ns > fresh);
}

#[test]
fn return_entries_follow_a_client_that_moves() {
    let mut rig = rig!();
    install_all(&mut rig, PROXY);
    let p = udp(CLIENT, ORIGIN);
    let ip = p.src.ip();
    assert_eq!(lan(&rig, &p), REDIRECT);
    let first = way(&rig, ip).expect("return");
    assert_eq!(lan(&rig, &p), REDIRECT);
    assert_eq!(way(&rig, ip).expect("return"), first, "fresh: not written");

    let mac = [2, 0, 0, 0, 0, 0x33];
    assert_eq!(lan(&rig, &p.clone().smac(mac)), REDIRECT);
    assert_eq!(way(&rig, ip).expect("return").smac, mac);

    let mut stale = way(&rig, ip).expect("return");
    stale.ifindex += 5;
    rig.put_raw("RETURN", &to_bytes(ip), &bytes(&stale));
    assert_eq!(lan(&rig, &p.clone().smac(mac)), REDIRECT);
    assert_eq!(way(&rig, ip).expect("return").ifindex, rig.lan().index());

    stale.ifindex = rig.lan().index();
    stale.last_seen_ns = 1;
    rig.put_raw("RETURN", &to_bytes(ip), &bytes(&stale));
    assert_eq!(lan(&rig, &p.smac(mac)), REDIRECT);
    assert!(way(&rig, ip).expect("return").last_seen_ns > 1);
}

#[test]
fn entries_for_direct_and_block_are_applied() {
    let mut rig = rig!();
    install_all(&mut rig, PROXY);
    let p = udp(CLIENT, ORIGIN);
    put_flow(&rig, &p, &entry(DIRECT));
    assert_eq!(lan_marked(&rig, &p, 3), (NEXT, 3));
    assert_eq!(rig.traffic(DIRECT).tx_packets, 1);
    // A flow handed back to the kernel stays direct.
    let mut e = entry(DIRECT);
    e.word = FlowWord {
        state: FLOW_REINJECT,
        ..FlowWord::unpack(e.word)
    }
    .pack();
    put_flow(&rig, &p, &e);
    assert_eq!(lan(&rig, &p), NEXT);
    put_flow(&rig, &p, &entry(BLOCK));
    assert_eq!(lan(&rig, &p), SHOT);
    assert_eq!(word(&rig, &p).state, FLOW_ACTIVE);
}

#[test]
fn inbound_flows_stay_direct_across_generations() {
    let mut rig = rig!();
    install(&mut rig, &rules([], PROXY), 9);
    let p = udp(CLIENT, ORIGIN);
    let value = DirectVal {
        created_ns: 1,
        generation: 0,
        kind: INBOUND_KIND,
        pad: [0; 3],
    };
    rig.put("DCACHE", &p.key(), &value);
    assert_eq!(lan(&rig, &p), NEXT);
    assert_eq!(rig.stat(Stat::NewFlows), 0);
}

/// The flow of a daemon that died: its packets are answered with a reset inside, not forwarded.
#[test]
fn a_stale_flow_never_passes_and_ends_with_its_next_packet() {
    let mut rig = rig!();
    install_all(&mut rig, DIRECT);
    let p = tcp(CLIENT, ORIGIN, ACK);
    let stale = |seq| {
        let mut value = entry(honk_common::outbound::CONTROL);
        let word = FlowWord::unpack(value.word);
        value.isn = seq;
        value.word = FlowWord {
            state: FLOW_STALE,
            ..word
        }
        .pack();
        value
    };
    put_flow(&rig, &p, &stale(1000));
    assert_eq!(lan(&rig, &p), REDIRECT);
    assert_eq!(word(&rig, &p).state, FLOW_CLOSING);
    // The reset may get lost.
    assert_eq!(lan(&rig, &p), REDIRECT);
    // The same port again, even with the same number, is a new connection.
    put_flow(&rig, &p, &stale(1000));
    assert_eq!(lan(&rig, &tcp(CLIENT, ORIGIN, SYN).seq(1000)), NEXT);
    assert!(flow(&rig, &p).is_none());
}
