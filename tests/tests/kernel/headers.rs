//! The header walk: options, extension headers (T42), packets cut anywhere.

use honk_common::counter::Stat;
use honk_common::event::EVENT_EXT_CHAIN;
use honk_tests::kernel::packet::{
    ACK, AH, DEST_OPTS, HOP_BY_HOP, Packet, ROUTING, SYN, icmp_error, tcp, udp,
};
use honk_tests::kernel::{CLASSIFIERS, Ctx, NEXT, REDIRECT, SHOT};

use crate::common::*;
use crate::rig;

#[test]
fn ipv4_options_shift_the_ports() {
    let mut rig = rig!();
    install_all(&mut rig, PROXY);
    for options in [4, 20, 40] {
        for mut p in [tcp(CLIENT, ORIGIN, SYN), udp(CLIENT, ORIGIN)] {
            p.options = options;
            assert_eq!(lan(&rig, &p), REDIRECT);
            assert_eq!(
                flow(&rig, &p).expect("entry").isn,
                if p.proto == 6 { 1000 } else { 0 }
            );
            rig.clear("FLOW", 40);
        }
    }
}

#[test]
fn t42_extension_headers_shift_the_ports() {
    let mut rig = rig!();
    install_all(&mut rig, PROXY);
    let chains: [&[u8]; 4] = [
        &[HOP_BY_HOP, DEST_OPTS],
        &[ROUTING],
        &[HOP_BY_HOP, ROUTING, DEST_OPTS],
        &[DEST_OPTS; 8],
    ];
    for chain in chains {
        for p in [udp(CLIENT6, ORIGIN6), tcp(CLIENT6, ORIGIN6, SYN)] {
            let p = p.extensions(chain);
            assert_eq!(lan(&rig, &p), REDIRECT, "{chain:?}");
            assert!(flow(&rig, &p).is_some(), "{chain:?}");
            rig.clear("FLOW", 40);
        }
    }
    // With a fragment header among them.
    let p = udp(CLIENT6, ORIGIN6)
        .extensions(&[HOP_BY_HOP, ROUTING])
        .fragment(7, 0, true);
    assert_eq!(lan(&rig, &p), REDIRECT);
    assert!(flow(&rig, &p).is_some());
}

#[test]
fn t42_nine_extension_headers_are_dropped() {
    let mut rig = rig!();
    install_all(&mut rig, PROXY);
    let p = udp(CLIENT6, ORIGIN6).extensions(&[DEST_OPTS; 9]);
    assert_eq!(lan(&rig, &p), SHOT);
    assert_eq!(rig.stat(Stat::ExtDrop), 1);
    assert_eq!(rig.events()[0].kind, EVENT_EXT_CHAIN);
    assert!(no_flows(&rig));
}

#[test]
fn t42_authentication_header_passes() {
    let mut rig = rig!();
    install_all(&mut rig, PROXY);
    assert_eq!(lan(&rig, &udp(CLIENT6, ORIGIN6).extensions(&[AH])), NEXT);
    assert!(no_flows(&rig));
}

#[test]
fn malformed_packets_pass_to_the_stack() {
    let mut rig = rig!();
    install_all(&mut rig, PROXY);
    let good = udp(CLIENT, ORIGIN).build();
    let mut short_ihl = good.clone();
    short_ihl[14] = 0x44;
    let mut wrong_version = good.clone();
    wrong_version[14] = 0x65;
    let mut tiny_total = good;
    tiny_total[16..18].copy_from_slice(&19u16.to_be_bytes());
    let mut wrong_v6 = udp(CLIENT6, ORIGIN6).build();
    wrong_v6[14] = 0x45;
    let all = [short_ihl, wrong_version, tiny_total, wrong_v6];
    for (i, p) in all.iter().enumerate() {
        assert_eq!(rig.run(LAN, p, &mut Ctx::default()).verdict, NEXT, "{i}");
        assert_eq!(rig.stat(Stat::Malformed), i as u64 + 1, "{i}");
    }
    assert!(no_flows(&rig));
}

/// What is not whole is forwarded by routers, and may become whole behind them.
#[test]
fn ports_that_are_cut_off_are_dropped() {
    let mut rig = rig!();
    install_all(&mut rig, PROXY);
    let long = |frame: &mut [u8], length: u16| {
        let at = if frame[14] >> 4 == 4 { 16 } else { 18 };
        frame[at..at + 2].copy_from_slice(&length.to_be_bytes());
    };
    let mut all = Vec::new();
    for (p, shortest) in [
        (tcp(CLIENT, ORIGIN, SYN), 40),
        (udp(CLIENT, ORIGIN), 28),
        (tcp(CLIENT6, ORIGIN6, SYN), 20),
        (udp(CLIENT6, ORIGIN6), 8),
        (udp(CLIENT6, ORIGIN6).extensions(&[DEST_OPTS]), 16),
    ] {
        let mut frame = p.build();
        // The rest of the frame counts as padding.
        long(&mut frame, shortest - 1);
        all.push(frame.clone());
        if p.src.is_ipv6() {
            long(&mut frame, 0);
            all.push(frame.clone());
        }
        long(&mut frame, shortest);
        assert_eq!(rig.run(LAN, &frame, &mut Ctx::default()).verdict, REDIRECT);
        rig.clear("FLOW", 40);
    }
    // A header that claims to reach beyond the packet.
    let mut endless = udp(CLIENT6, ORIGIN6).extensions(&[DEST_OPTS]).build();
    endless[14 + 41] = 200;
    all.push(endless);
    // A TCP header over two fragments, and one that a fragment would overwrite.
    let half = |p: Packet| {
        let mut first = p.clone().fragment(7, 0, true).build();
        let start = if p.src.is_ipv4() { 34 } else { 62 };
        first.truncate(start + 8);
        long(&mut first, if p.src.is_ipv4() { 28 } else { 16 });
        [
            first,
            p.clone().fragment(7, 8, false).build(),
            p.fragment(8, 16, true).build(),
        ]
    };
    all.extend(half(tcp(CLIENT, ORIGIN, SYN)));
    all.extend(half(tcp(CLIENT6, ORIGIN6, SYN)));
    for (i, frame) in all.iter().enumerate() {
        for program in [LAN, "wan_egress_l2"] {
            let ran = rig.run(program, frame, &mut Ctx::default());
            assert_eq!(ran.verdict, SHOT, "{i} {program} {frame:x?}");
        }
        assert_eq!(rig.stat(Stat::ShortDrop), i as u64 * 2 + 2, "{i}");
    }
    assert!(no_flows(&rig));
    assert_eq!(rig.stat(Stat::Malformed), 0);
    // A length of zero with hop-by-hop options is looked behind, as receivers do.
    let mut open = udp(CLIENT6, ORIGIN6).extensions(&[HOP_BY_HOP]).build();
    long(&mut open, 0);
    assert_eq!(rig.run(LAN, &open, &mut Ctx::default()).verdict, REDIRECT);
}

/// Cut at every length, every program must answer, and no cut packet may look like a flow
/// before its layer-4 header is whole. The test command itself refuses packets that end within
/// the link or IP header; `live` sends such ones through a device.
#[test]
fn packets_cut_anywhere_are_safe() {
    let mut rig = rig!();
    install_all(&mut rig, PROXY);
    for p in shapes() {
        let whole = p.build();
        let ip_header = if p.src.is_ipv6() { 40 } else { 20 };
        // `payload` begins where layer 4 ends; for ICMP no flow may appear at all.
        let l4_end = match p.proto {
            6 | 17 => whole.len() - p.payload.len(),
            _ => usize::MAX,
        };
        for len in 14 + ip_header..=whole.len().min(128) {
            for program in CLASSIFIERS {
                let v = rig.run(program, &whole[..len], &mut Ctx::default()).verdict;
                assert!([NEXT, SHOT, REDIRECT].contains(&v), "{program} {len}: {v}");
            }
            let seen = flow(&rig, &p).is_some();
            assert_eq!(
                seen,
                len >= l4_end && p.extensions.len() <= 8,
                "{len}: {p:?}"
            );
            rig.clear("FLOW", 40);
            rig.clear("DCACHE", 40);
        }
    }
}

fn shapes() -> Vec<Packet> {
    let mut options = udp(CLIENT, ORIGIN);
    options.options = 40;
    let long = |p: Packet| p.payload(&[0xcd; 100]);
    vec![
        long(tcp(CLIENT, ORIGIN, SYN)),
        long(udp(CLIENT, ORIGIN)),
        long(options),
        long(tcp(CLIENT6, ORIGIN6, SYN)),
        long(udp(CLIENT6, ORIGIN6)),
        long(udp(CLIENT6, ORIGIN6).extensions(&[HOP_BY_HOP, ROUTING, DEST_OPTS])),
        long(udp(CLIENT6, ORIGIN6).extensions(&[DEST_OPTS; 9])),
        long(udp(CLIENT6, ORIGIN6).fragment(1, 0, true)),
        icmp_error(3, &tcp(ORIGIN, CLIENT, ACK)),
        icmp_error(1, &tcp(ORIGIN6, CLIENT6, ACK)),
    ]
}
