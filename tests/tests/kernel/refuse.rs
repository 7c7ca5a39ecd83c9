//! A blocked connection fails at once: its SYN comes back as a reset.

use honk_common::counter::Stat;
use honk_common::outbound::BLOCK;
use honk_common::param::MARK_REPLY;
use honk_tests::kernel::packet::{HOP_BY_HOP, Packet, SYN, tcp};
use honk_tests::kernel::{Ctx, REDIRECT, SHOT};

use crate::common::*;
use crate::rig;

const RST_ACK: u8 = 0x14;

fn fold(bytes: &[u8]) -> u32 {
    bytes
        .chunks(2)
        .map(|c| u32::from(c[0]) << 8 | u32::from(*c.get(1).unwrap_or(&0)))
        .sum()
}

/// One's complement sum of a TCP segment with its pseudo-header; 0xffff when it is right.
fn tcp_sum(ip: &[u8]) -> u16 {
    let (addrs, segment) = if ip[0] >> 4 == 4 {
        (&ip[12..20], &ip[20..])
    } else {
        (&ip[8..40], &ip[40..])
    };
    let mut sum = fold(addrs) + fold(segment) + 6 + segment.len() as u32;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The frame with a right TCP checksum.
fn frame(p: &Packet) -> Vec<u8> {
    let mut f = p.build();
    let sum = !tcp_sum(&f[14..]);
    let at = 14 + if f[14] >> 4 == 4 { 20 } else { 40 } + 16;
    f[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    f
}

#[test]
fn a_blocked_syn_is_answered_with_a_reset_of_right_sums() {
    let mut rig = rig!();
    install_all(&mut rig, BLOCK);
    for (from, to) in [(CLIENT, ORIGIN), (CLIENT6, ORIGIN6)] {
        let mut p = tcp(from, to, SYN);
        p.seq = 0xffff_ffff;
        let sent = frame(&p);
        assert_eq!(tcp_sum(&sent[14..]), 0xffff, "the test's own sum");
        let ran = rig.run(LAN, &sent, &mut Ctx::default());
        assert_eq!(ran.verdict, REDIRECT);
        let got = &ran.data;
        assert_eq!(
            (&got[..6], &got[6..12]),
            (&sent[6..12], &sent[..6]),
            "MAC addresses"
        );
        let (ip, addrs) = if p.src.is_ipv4() {
            (20, 12..20)
        } else {
            (40, 8..40)
        };
        let (was, is) = (&sent[14..][addrs.clone()], &got[14..][addrs]);
        let half = was.len() / 2;
        assert_eq!(
            (&is[..half], &is[half..]),
            (&was[half..], &was[..half]),
            "addresses"
        );
        let t = &got[14 + ip..];
        assert_eq!(t[..2], p.dst.port().to_be_bytes());
        assert_eq!(t[2..4], p.src.port().to_be_bytes());
        assert_eq!(t[4..8], [0; 4], "sequence");
        assert_eq!(t[8..12], 0u32.to_be_bytes(), "acknowledges the SYN");
        assert_eq!((t[12], t[13]), (0x50, RST_ACK));
        assert_eq!(tcp_sum(&got[14..]), 0xffff, "checksum of {from}");
    }
    assert_eq!(rig.stat(Stat::BlockReset), 2);
    assert!(no_flows(&rig));
}

/// The gateway's own SYN: the same reset, sent to the receive path as a reply.
#[test]
fn a_blocked_syn_of_the_gateway_comes_back_as_a_reset() {
    let mut rig = rig!();
    install_all(&mut rig, BLOCK);
    // The test command takes the ethertype of a header-less packet from its source address.
    for p in [tcp("8.0.0.2:9", ORIGIN, SYN), tcp(CLIENT6, ORIGIN6, SYN)] {
        let sent = frame(&p);
        for (program, from) in [("wan_egress_l2", 0), ("wan_egress_l3", 14)] {
            if from != 0 && p.src.is_ipv6() {
                continue;
            }
            let mut ctx = Ctx::default();
            let ran = rig.run(program, &sent[from..], &mut ctx);
            assert_eq!(ran.verdict, REDIRECT, "{program}");
            assert_eq!(ctx.mark, MARK_REPLY, "{program}");
            let ip = &ran.data[14 - from..];
            let tcp = if p.src.is_ipv4() { 20 } else { 40 };
            assert_eq!(ip[tcp..tcp + 2], p.dst.port().to_be_bytes());
            assert_eq!(ip[tcp + 13], RST_ACK);
            assert_eq!(tcp_sum(ip), 0xffff, "{program}");
            if from == 0 {
                assert_eq!(ran.data[..6], sent[6..12], "to the interface itself");
            }
        }
    }
    assert_eq!(rig.stat(Stat::BlockReset), 3);
    assert!(no_flows(&rig));
}

#[test]
fn shapes_that_are_not_plain_are_dropped() {
    let mut rig = rig!();
    install_all(&mut rig, BLOCK);
    let mut with_options = tcp(CLIENT, ORIGIN, SYN);
    with_options.options = 4;
    let extended = tcp(CLIENT6, ORIGIN6, SYN).extensions(&[HOP_BY_HOP]);
    for p in [with_options, extended] {
        let ran = rig.run(LAN, &p.build(), &mut Ctx::default());
        assert_eq!(ran.verdict, SHOT, "{p:?}");
    }
    assert_eq!(rig.stat(Stat::Block), 2);
    assert_eq!(rig.stat(Stat::BlockReset), 0);
}
