//! Fragments: the first is classified, later ones repeat its verdict.

use honk_common::counter::Stat;
use honk_common::flow::{FRAG_DROP, FRAG_PASS, FRAG_REDIRECT, FragVal};
use honk_common::key::FragKey;
use honk_common::outbound::{BLOCK, DIRECT};
use honk_tests::kernel::packet::{DEST_OPTS, Packet, other, udp};
use honk_tests::kernel::{NEXT, REDIRECT, Rig, SHOT, bytes};

use crate::common::*;
use crate::rig;

const ID: u32 = 0x1234;

fn pair() -> [(Packet, Packet); 2] {
    [(CLIENT, ORIGIN), (CLIENT6, ORIGIN6)].map(|(c, o)| {
        let p = udp(c, o);
        (p.clone().fragment(ID, 0, true), p.fragment(ID, 1480, false))
    })
}

fn record(rig: &Rig, p: &Packet) -> Option<FragVal> {
    let k = p.key();
    let v6 = p.src.is_ipv6();
    let id = if v6 { ID.to_be() } else { ID };
    let key = FragKey {
        src: k.src,
        dst: k.dst,
        id,
        proto: if v6 { 0 } else { k.proto },
        pad: [0; 3],
    };
    rig.get("FRAG", &bytes(&key))
}

#[test]
fn proxied_datagrams_arrive_whole() {
    let mut rig = rig!();
    install_all(&mut rig, PROXY);
    for (first, later) in pair() {
        assert_eq!(lan(&rig, &later), NEXT, "nothing known yet");
        assert_eq!(lan(&rig, &first), REDIRECT);
        assert_eq!(lan(&rig, &later), REDIRECT);
        let r = record(&rig, &first).expect("record");
        assert_eq!((r.action, r.ordinal, r.mark), (FRAG_REDIRECT, PROXY, 0));
        let other = later.clone().fragment(ID + 1, 1480, false);
        assert_eq!(lan(&rig, &other), NEXT);
    }
    assert_eq!(rig.stat(Stat::FragFirst), 2);
    assert_eq!(rig.stat(Stat::FragHit), 2);
    assert_eq!(rig.stat(Stat::FragMiss), 4);
    assert_eq!(rig.traffic(PROXY).tx_packets, 4);
}

#[test]
fn blocked_and_marked_datagrams_likewise() {
    let mut rig = rig!();
    install_all(&mut rig, BLOCK);
    for (first, later) in pair() {
        assert_eq!(lan(&rig, &first), SHOT);
        assert_eq!(lan(&rig, &later), SHOT);
        assert_eq!(record(&rig, &first).expect("record").action, FRAG_DROP);
    }
    install(&mut rig, &rules([marked(line([], DIRECT), 0x42)], BLOCK), 2);
    for (first, later) in pair() {
        assert_eq!(lan_marked(&rig, &first, 0), (NEXT, 0x42));
        assert_eq!(lan_marked(&rig, &later, 0), (NEXT, 0x42));
        assert_eq!(record(&rig, &first).expect("record").action, FRAG_PASS);
    }
}

#[test]
fn plain_direct_datagrams_need_no_record() {
    let mut rig = rig!();
    install_all(&mut rig, DIRECT);
    for (first, later) in pair() {
        assert_eq!(lan(&rig, &first), NEXT);
        assert_eq!(lan(&rig, &later), NEXT);
        assert!(record(&rig, &first).is_none());
    }
}

#[test]
fn old_records_do_not_count() {
    let mut rig = rig!();
    install_all(&mut rig, PROXY);
    let [(first, later), _] = pair();
    assert_eq!(lan(&rig, &first), REDIRECT);
    let k = first.key();
    let key = FragKey {
        src: k.src,
        dst: k.dst,
        id: ID,
        proto: 17,
        pad: [0; 3],
    };
    let mut r = record(&rig, &first).expect("record");
    r.ts_ns -= 31_000_000_000;
    rig.put("FRAG", &key, &r);
    assert_eq!(lan(&rig, &later), NEXT);
}

#[test]
fn fragmented_queries_are_redirected_whole() {
    let mut rig = rig!();
    install_all(&mut rig, DIRECT);
    let q = udp(CLIENT, "198.51.100.53:53");
    assert_eq!(lan(&rig, &q.clone().fragment(ID, 0, true)), REDIRECT);
    assert_eq!(lan(&rig, &q.fragment(ID, 1480, true)), REDIRECT);
}

#[test]
fn an_atomic_fragment_is_an_ordinary_packet() {
    let mut rig = rig!();
    install_all(&mut rig, PROXY);
    let p = udp(CLIENT6, ORIGIN6).fragment(ID, 0, false);
    assert_eq!(lan(&rig, &p), REDIRECT);
    assert_eq!(rig.stat(Stat::FragFirst), 0);
    assert!(flow(&rig, &p).is_some());
}

/// The packet builder puts extension headers before the fragment header; these come after it.
#[test]
fn extension_headers_behind_the_fragment_header_do_not_part_a_datagram() {
    let mut rig = rig!();
    install_all(&mut rig, PROXY);
    let ports = udp(CLIENT6, ORIGIN6);
    let mut first = other(CLIENT6, ORIGIN6, DEST_OPTS).fragment(ID, 0, true);
    let datagram = ports.ip()[40..].to_vec();
    first.payload = [vec![17, 0, 1, 4, 0, 0, 0, 0], datagram].concat();
    assert_eq!(lan(&rig, &first), REDIRECT);
    assert!(flow(&rig, &ports).is_some());
    let later = other(CLIENT6, ORIGIN6, DEST_OPTS).fragment(ID, 1480, false);
    assert_eq!(lan(&rig, &later), REDIRECT);
}
