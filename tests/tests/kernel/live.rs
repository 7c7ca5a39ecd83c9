//! What a test run cannot show: programs attached to devices, tags in metadata, redirects.

use honk_common::counter::Stat;
use honk_common::flow::{FLAG_L3DEV, RETURN_L3DEV};
use honk_tests::kernel::packet::{ACK, CLIENT_MAC, SYN, tcp, udp};
use honk_tests::kernel::{GATEWAY_MAC, NONCE, PEER_MAC, Rig, Tap};
use honk_tests::tcx;

use crate::common::*;
use crate::rig;

const HONK0_MAC: [u8; 6] = [0x02, 0, 0, 0, 0x0f, 0x01];

/// A device in the place of `honk0`, known to the programs.
fn honk0(rig: &Rig) -> Tap {
    let honk0 = Tap::new("honk0", HONK0_MAC).expect("honk0");
    honk0.up().expect("honk0 up");
    let mut param = rig.param();
    param.honk0_ifindex = honk0.index();
    rig.put("PARAM", &0u32, &param);
    honk0
}

/// A device with clients behind it.
fn lan_device(rig: &mut Rig) -> Tap {
    let lan = Tap::new("lan1", GATEWAY_MAC).expect("lan1");
    lan.up().expect("up");
    rig.attach(LAN, &lan).expect("attach");
    lan
}

fn handoff(l4: u8) -> [u8; 12] {
    let mut macs = [0; 12];
    macs[..6].copy_from_slice(&PEER_MAC);
    macs[6..].copy_from_slice(&[0x02, 0x68, 0x6e, 1, l4, NONCE]);
    macs
}

#[test]
fn t35_tagged_frames_pass_and_untagged_ones_are_taken() {
    let mut rig = rig!();
    install_all(&mut rig, PROXY);
    let honk0 = honk0(&rig);
    let lan0 = lan_device(&mut rig);
    let p = udp(CLIENT, ORIGIN);
    let plain = p.build();
    let mut tagged = plain[..12].to_vec();
    tagged.extend([0x81, 0x00, 0x00, 0x07]);
    tagged.extend(&plain[12..]);
    lan0.send(&tagged).expect("sent");
    lan0.send(&tagged).expect("sent");
    lan0.send(&plain).expect("sent");
    let got = honk0.receive().expect("handed over");
    assert_eq!(got[..12], handoff(17));
    assert_eq!(got[12..], plain[12..]);
    assert_eq!(rig.stat(Stat::VlanPass), 2);
    assert_eq!(rig.stat(Stat::NewFlows), 1);
}

/// A tag for VLAN 0 is a priority: the stack takes the frame as one without.
#[test]
fn priority_tags_hide_nothing() {
    let mut rig = rig!();
    install_all(&mut rig, PROXY);
    let honk0 = honk0(&rig);
    let lan0 = lan_device(&mut rig);
    let p = udp(CLIENT, ORIGIN);
    let plain = p.build();
    let tagged = |tags: &[u8]| [&plain[..12], tags, &plain[12..]].concat();
    let priorities: [&[u8]; 3] = [
        &[0x81, 0, 0, 0],
        &[0x81, 0, 0xe0, 0],
        &[0x88, 0xa8, 0, 0, 0x81, 0, 0x60, 0],
    ];
    for tags in priorities {
        lan0.send(&tagged(tags)).expect("sent");
        let got = honk0.receive().expect("handed over");
        assert_eq!(got[..12], handoff(17), "{tags:x?}");
        assert_eq!(got[12..], plain[12..], "{tags:x?}");
    }
    assert_eq!((rig.stat(Stat::NewFlows), rig.stat(Stat::VlanPass)), (1, 0));
    // A VLAN behind a priority, and more tags than anybody sends.
    lan0.send(&tagged(&[0x81, 0, 0, 0, 0x81, 0, 0, 7]))
        .expect("sent");
    lan0.send(&tagged(&[0x81, 0, 0, 0].repeat(5)))
        .expect("sent");
    lan0.send(&plain).expect("sent");
    honk0.receive().expect("handed over");
    let counts = [Stat::VlanPass, Stat::FrameDrop].map(|s| rig.stat(s));
    assert_eq!(counts, [1, 1]);
}

/// A foreign program in front of the stack makes the kernel forget where the link header is.
#[test]
fn frames_that_lost_their_header_get_it_back() {
    let mut rig = rig!();
    install_all(&mut rig, PROXY);
    let honk0 = honk0(&rig);
    let lan0 = lan_device(&mut rig);
    let _foreign = tcx::xdp_generic_here(lan0.name()).expect("a foreign program");
    let mut sent = 0;
    for p in [
        tcp(CLIENT, ORIGIN, SYN),
        udp(CLIENT, ORIGIN),
        tcp(CLIENT6, ORIGIN6, SYN),
        udp(CLIENT6, ORIGIN6),
        // What the first bytes would say without the check: another ethertype.
        udp("8.0.69.1:9", ORIGIN),
    ] {
        lan0.send(&p.build()).expect("sent");
        sent += 1;
        let got = honk0.receive().expect("handed over");
        assert_eq!(got[..12], handoff(p.proto), "{p:?}");
        assert_eq!(got[12..], p.build()[12..], "{p:?}");
        let entry = flow(&rig, &p).expect("an entry");
        assert_eq!((entry.mac, entry.gw_mac), (CLIENT_MAC, GATEWAY_MAC));
    }
    assert_eq!(rig.stat(Stat::FrameMended), sent);
    assert_eq!(rig.stat(Stat::Malformed), 0);
}

#[test]
fn t36_a_device_without_link_header_hands_over_whole_frames() {
    let mut rig = rig!();
    install_all(&mut rig, PROXY);
    let honk0 = honk0(&rig);
    let tun = Tap::tun("eth7").expect("tun");
    tun.up().expect("up");
    rig.attach("lan_ingress_l3", &tun).expect("attach");
    for p in [
        tcp(CLIENT, ORIGIN, SYN),
        udp(CLIENT, ORIGIN),
        tcp(CLIENT6, ORIGIN6, SYN),
        udp(CLIENT6, ORIGIN6),
    ] {
        tun.send(&p.ip()).expect("sent");
        let got = honk0.receive().expect("handed over");
        assert_eq!(got[..12], handoff(p.proto), "{p:?}");
        assert_eq!(got[12..], p.build()[12..], "{p:?}");
        assert_eq!(word(&rig, &p).flags & FLAG_L3DEV, FLAG_L3DEV);
        assert_eq!(flow(&rig, &p).expect("entry").mac, [0; 6]);
        let r = way(&rig, p.src.ip()).expect("return");
        assert_eq!((r.flags, r.ifindex), (RETURN_L3DEV, tun.index()));
    }
    // And back: the link header goes.
    rig.attach("dev0_ingress", &honk0).expect("attach");
    for p in [tcp(ORIGIN, CLIENT, SYN | ACK), udp(ORIGIN6, CLIENT6)] {
        honk0
            .send(&p.clone().dmac(HONK0_MAC).build())
            .expect("sent");
        assert_eq!(tun.receive().expect("a reply"), p.ip());
    }
}

#[test]
fn replies_leave_through_the_clients_device() {
    let mut rig = rig!();
    install_all(&mut rig, PROXY);
    let honk0 = honk0(&rig);
    rig.attach("dev0_ingress", &honk0).expect("attach");
    rig.lan().up().expect("up");
    assert_eq!(
        lan(&rig, &udp(CLIENT, ORIGIN)),
        honk_tests::kernel::REDIRECT
    );
    let reply = udp("203.0.113.200:777", CLIENT);
    honk0
        .send(&reply.clone().dmac(HONK0_MAC).build())
        .expect("sent");
    let got = rig.lan().receive().expect("a reply");
    assert_eq!(got[..6], CLIENT_MAC);
    assert_eq!(got[6..12], GATEWAY_MAC);
    assert_eq!(got[12..], reply.build()[12..]);
}

#[test]
fn frames_of_every_length_are_survived() {
    let mut rig = rig!();
    install_all(&mut rig, PROXY);
    let _honk0 = honk0(&rig);
    let lan0 = lan_device(&mut rig);
    let mut sent = 0;
    for p in [tcp(CLIENT, ORIGIN, ACK), tcp(CLIENT6, ORIGIN6, ACK)] {
        let whole = p.payload(&[1; 80]).build();
        for len in 14..=128 {
            lan0.send(&whole[..len]).expect("sent");
            sent += 1;
        }
    }
    assert_eq!(rig.stat(Stat::PktsLan), sent);
    assert!(no_flows(&rig));
}
