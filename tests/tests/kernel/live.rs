//! What a test run cannot show: programs attached to devices, tags in metadata, redirects.

use honk_common::counter::Stat;
use honk_common::flow::{FLAG_L3DEV, RETURN_L3DEV};
use honk_tests::kernel::packet::{ACK, CLIENT_MAC, Packet, SYN, tcp, udp};
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
    device(rig, LAN, GATEWAY_MAC)
}

fn device(rig: &mut Rig, program: &str, mac: [u8; 6]) -> Tap {
    let device = Tap::new("lan1", mac).expect("lan1");
    device.up().expect("up");
    rig.attach(program, &device).expect("attach");
    device
}

/// A datagram with four bytes of IPv4 options.
fn with_options(src: &str) -> Packet {
    let mut p = udp(src, ORIGIN);
    p.options = 4;
    p
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
    let priorities: [&[u8]; 4] = [
        &[0x81, 0, 0, 0],
        &[0x81, 0, 0xe0, 0],
        &[0x88, 0xa8, 0, 0, 0x81, 0, 0x60, 0],
        &[0x88, 0xa8, 0, 0, 0x81, 0, 0x60, 0, 0x81, 0, 0, 0],
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
    lan0.send(&tagged(&[0x81, 0, 0, 0].repeat(4)))
        .expect("sent");
    lan0.send(&plain).expect("sent");
    honk0.receive().expect("handed over");
    let counts = [Stat::VlanPass, Stat::TagDrop, Stat::FrameDrop].map(|s| rig.stat(s));
    assert_eq!(counts, [1, 1, 0]);
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
        // Or the same one, and behind it what could be an IP header, or could not.
        with_options("8.0.69.1:9"),
        with_options("8.0.7.1:9"),
        udp("[2001:db8:86dd:6000::1]:9", ORIGIN6),
        udp("[2001:db8:86dd::1]:9", ORIGIN6),
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

/// Addresses of devices begin like IP headers, too.
#[test]
fn devices_whose_address_begins_like_a_header() {
    for first in [0x44, 0x46, 0x60, 0x62] {
        let mac = [first, 0, 0, 0, 0, 1];
        let mut rig = rig!();
        install_all(&mut rig, PROXY);
        let honk0 = honk0(&rig);
        let lan0 = device(&mut rig, LAN, mac);
        let all = [
            tcp(CLIENT, ORIGIN, SYN),
            with_options("8.0.69.1:9"),
            udp(CLIENT6, ORIGIN6),
        ];
        let send_all = || {
            for p in &all {
                let p = p.clone().dmac(mac);
                lan0.send(&p.build()).expect("sent");
                let got = honk0.receive().expect("handed over");
                assert_eq!(got[12..], p.build()[12..], "{first:x}: {p:?}");
                assert_eq!(flow(&rig, &p).expect("an entry").gw_mac, mac);
            }
        };
        send_all();
        let counts = [Stat::FrameMended, Stat::FrameDrop].map(|s| rig.stat(s));
        assert_eq!(counts, [0, 0], "{first:x}");
        let _foreign = tcx::xdp_generic_here(lan0.name()).expect("a foreign program");
        send_all();
        let counts = [Stat::FrameMended, Stat::FrameDrop].map(|s| rig.stat(s));
        assert_eq!(counts, [3, 0], "{first:x}");
    }
}

/// The address of a device that `ambiguous` knows.
const COPIED_MAC: [u8; 6] = [0x62, 0, 0, 0, 0, 24];

/// A frame whose IP header begins as the link header does.
fn ambiguous() -> Packet {
    let mut p = udp("[2001:db8:86dd:6000::1]:9", ORIGIN6);
    p.dscp = 8;
    let copy = p.ip();
    p = p
        .dmac(COPIED_MAC)
        .smac(std::array::from_fn(|i| copy[6 + i]));
    assert_eq!(p.build()[..14], copy[..14]);
    p
}

#[test]
fn a_frame_that_could_begin_in_two_places_is_dropped() {
    let mut rig = rig!();
    install_all(&mut rig, PROXY);
    let honk0 = honk0(&rig);
    let lan0 = device(&mut rig, LAN, COPIED_MAC);
    let _foreign = tcx::xdp_generic_here(lan0.name()).expect("a foreign program");
    lan0.send(&ambiguous().build()).expect("sent");
    let known = udp(CLIENT6, ORIGIN6).dmac(COPIED_MAC);
    lan0.send(&known.build()).expect("sent");
    let got = honk0.receive().expect("handed over");
    assert_eq!(got[12..], known.build()[12..]);
    let counts = [Stat::FrameDrop, Stat::FrameMended, Stat::NewFlows].map(|s| rig.stat(s));
    assert_eq!(counts, [1, 1, 1]);
}

/// There nothing is dropped, so nothing counts as dropped.
#[test]
fn from_outside_lost_headers_do_not_count() {
    let mut rig = rig!();
    install_all(&mut rig, PROXY);
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").expect("a socket");
    let here = socket.local_addr().expect("an address").to_string();
    let here = here.replace("0.0.0.0", "192.0.2.2");
    let wan = device(&mut rig, "wan_ingress_l2", COPIED_MAC);
    let _foreign = tcx::xdp_generic_here(wan.name()).expect("a foreign program");
    wan.send(&ambiguous().build()).expect("sent");
    wan.send(&udp(ORIGIN, &here).dmac(COPIED_MAC).build())
        .expect("sent");
    let counts = [Stat::FrameDrop, Stat::InboundTrack].map(|s| rig.stat(s));
    assert_eq!(counts, [0, 1]);
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
