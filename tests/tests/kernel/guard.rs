//! The early drop program: what it drops, and that it never says more than `lan_ingress`.

use honk_common::counter::Stat;
use honk_common::flow::{DIRECT_KIND, DirectVal, INBOUND_KIND};
use honk_common::key::to_bytes;
use honk_common::outbound::{BLOCK, DIRECT};
use honk_common::param::{GATE_CLOSED, GATE_DRAINING, GATE_OPEN};
use honk_policy::routing::rule::Test;
use honk_tests::kernel::packet::{ACK, HOP_BY_HOP, Packet, SYN, tcp, udp};
use honk_tests::kernel::{NEXT, Rig, SHOT, XDP_DROP, XDP_PASS};

use crate::common::*;
use crate::rig;

const BAD: &str = "203.0.113.9:9";
const BAD6: &str = "[2001:db8:bad::9]:9";

fn blocking(rig: &mut Rig, generation: u32) {
    let nets = dip(&["203.0.113.0/24", "2001:db8:bad::/48", "0.0.0.0/8"]);
    install(rig, &rules([line([nets], BLOCK)], DIRECT), generation);
}

/// The guard passes a frame, which `lan_ingress` then judges.
fn passes(rig: &Rig, p: &Packet) -> bool {
    rig.guard(&p.build()) == XDP_PASS
}

#[test]
fn datagrams_to_blocked_networks_are_dropped() {
    let mut rig = rig!();
    blocking(&mut rig, 1);
    for (client, bad) in [(CLIENT, BAD), (CLIENT6, BAD6)] {
        let p = udp(client, bad);
        assert_eq!(rig.guard(&p.build()), XDP_DROP, "{bad}");
        assert_eq!(lan(&rig, &p), SHOT, "{bad}");
        // Without payload, too.
        assert_eq!(rig.guard(&p.payload(&[]).build()), XDP_DROP, "{bad}");
    }
    assert_eq!(rig.stat(Stat::XdpDrop), 4);
    for (client, good) in [(CLIENT, ORIGIN), (CLIENT6, ORIGIN6)] {
        assert!(passes(&rig, &udp(client, good)), "{good}");
    }
    assert_eq!((rig.stat(Stat::XdpDrop), rig.stat(Stat::XdpBogus)), (4, 0));
}

#[test]
fn what_may_have_another_verdict_passes() {
    let mut rig = rig!();
    blocking(&mut rig, 1);
    let bad = || udp(CLIENT, BAD);
    let mut options = bad();
    options.options = 8;
    let mut tagged = bad();
    tagged.ethertype = Some(0x8100);
    let others = [
        ("a SYN is answered", tcp(CLIENT, BAD, SYN)),
        ("a connection may be older", tcp(CLIENT, BAD, ACK)),
        ("a query is the daemon's", udp(CLIENT, "203.0.113.9:53")),
        ("options", options),
        ("a VLAN", tagged),
        ("a fragment", bad().fragment(7, 0, true)),
        ("a later fragment", bad().fragment(7, 64, false)),
        (
            "extension headers",
            udp(CLIENT6, BAD6).extensions(&[HOP_BY_HOP]),
        ),
        ("another station", bad().dmac([2, 0, 0, 0, 9, 9])),
        ("a group", bad().dmac([1, 0, 0x5e, 0, 0, 1])),
        ("a special address", udp(CLIENT, "0.1.2.3:9")),
    ];
    for (what, p) in &others {
        assert!(passes(&rig, p), "{what}");
    }
    assert!(passes(&rig, &bad().payload(&[0; 4])) == passes(&rig, &bad()));

    put_flow(&rig, &bad(), &entry(PROXY));
    assert!(passes(&rig, &bad()), "a flow that is known");
    rig.clear("FLOW", 40);
    let cached = |kind, generation| DirectVal {
        created_ns: 1,
        generation,
        kind,
        pad: [0; 3],
    };
    for (what, value, passed) in [
        ("the reply of a peer", cached(INBOUND_KIND, 0), true),
        ("direct by these rules", cached(DIRECT_KIND, 1), true),
        ("direct by older rules", cached(DIRECT_KIND, 0), false),
    ] {
        rig.put("DCACHE", &bad().key(), &value);
        assert_eq!(passes(&rig, &bad()), passed, "{what}");
        let verdict = if passed { NEXT } else { SHOT };
        assert_eq!(lan(&rig, &bad()), verdict, "{what}");
    }
    rig.clear("DCACHE", 40);

    let own = to_bytes("203.0.113.9".parse().expect("an address"));
    rig.put_raw("LOCAL_ADDR", &own, &1u32.to_ne_bytes());
    assert!(passes(&rig, &bad()), "the gateway's own address");
    rig.del("LOCAL_ADDR", &own);

    for (gate, passed) in [
        (GATE_CLOSED, true),
        (GATE_DRAINING, true),
        (GATE_OPEN, false),
    ] {
        rig.put("GATE", &0u32, &gate);
        assert_eq!(passes(&rig, &bad()), passed, "gate {gate}");
    }
}

#[test]
fn networks_belong_to_their_generation() {
    let mut rig = rig!();
    let bad = udp(CLIENT, BAD);
    blocking(&mut rig, 1);
    assert!(!passes(&rig, &bad));
    let earlier = line([is(Test::SourcePort(vec![(40_001, 40_001)]))], PROXY);
    let blocks = line([dip(&["203.0.113.0/24"])], BLOCK);
    install(&mut rig, &rules([earlier, blocks], DIRECT), 2);
    assert!(passes(&rig, &bad), "an earlier line may take it");
    blocking(&mut rig, 3);
    assert!(!passes(&rig, &bad));
}

#[test]
fn headers_that_contradict_themselves_are_dropped() {
    let mut rig = rig!();
    blocking(&mut rig, 1);
    let v4 = udp(CLIENT, ORIGIN).build();
    let v6 = udp(CLIENT6, ORIGIN6).build();
    let with = |frame: &[u8], at: usize, byte: u8| {
        let mut frame = frame.to_vec();
        frame[at] = byte;
        frame
    };
    let short = with(&with(&v4, 16, 0), 17, 19);
    let bogus = [
        with(&v4, 14, 0x65),
        with(&v4, 14, 0x44),
        short,
        with(&v6, 14, 0x45),
    ];
    for (n, frame) in bogus.iter().enumerate() {
        assert_eq!(rig.guard(frame), XDP_DROP, "{n}");
        // There it is left to the stack, which throws it away.
        let ctx = &mut honk_tests::kernel::Ctx::default();
        assert_eq!(rig.run(LAN, frame, ctx).outcome(), NEXT, "{n}");
    }
    assert_eq!(rig.stat(Stat::XdpBogus), 4);
    // Cut anywhere: no harm, and never a drop for what is not there.
    for frame in [&v4, &v6] {
        for length in 14..frame.len() {
            assert_eq!(rig.guard(&frame[..length]), XDP_PASS, "{length}");
        }
    }
}
