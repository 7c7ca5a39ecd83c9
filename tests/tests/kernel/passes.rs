//! L2, L4 and L5: traffic that is never classified (T19), and the gateway's own addresses.

use honk_common::counter::Stat;
use honk_common::key::to_bytes;
use honk_tests::kernel::packet::{Packet, SYN, other, tcp, udp};
use honk_tests::kernel::{NEXT, REDIRECT, Rig};

use crate::common::*;
use crate::rig;

#[track_caller]
fn passes(rig: &Rig, p: &Packet) {
    assert_eq!(lan(rig, p), NEXT, "{p:?}");
    assert!(no_flows(rig), "{p:?}");
}

#[test]
fn t19_group_frames_and_frames_of_others_pass() {
    let mut rig = rig!();
    install_all(&mut rig, PROXY);
    let p = udp(CLIENT, ORIGIN);
    passes(&rig, &p.clone().dmac([0xff; 6]));
    passes(&rig, &p.clone().dmac([0x01, 0, 0x5e, 0, 0, 0xfb]));
    passes(&rig, &p.clone().dmac([0x02, 0, 0, 0, 0, 0x99]));
    // A query in a frame for another station is not ours either.
    passes(&rig, &udp(CLIENT, "198.51.100.131:53").dmac([0xff; 6]));
    assert_eq!(rig.stat(Stat::GroupPass), 4);
    assert_eq!(lan(&rig, &p), REDIRECT);
}

#[test]
fn other_ethertypes_and_protocols_pass() {
    let mut rig = rig!();
    install_all(&mut rig, PROXY);
    for ethertype in [0x0806, 0x8863, 0x8864, 0x88cc, 0x888e] {
        let mut p = udp(CLIENT, ORIGIN);
        p.ethertype = Some(ethertype);
        passes(&rig, &p);
    }
    assert_eq!(rig.stat(Stat::NotIpPass), 5);
    for proto in [1, 2, 41, 47, 50, 51, 58, 132] {
        passes(&rig, &other(CLIENT, ORIGIN, proto));
        passes(&rig, &other(CLIENT6, ORIGIN6, proto));
    }
    assert_eq!(rig.stat(Stat::SpecialPass), 0);
    assert_eq!(rig.stat(Stat::OtherPass), 16);
}

#[test]
fn t19_special_addresses_pass() {
    let mut rig = rig!();
    install_all(&mut rig, PROXY);
    let mut n = 0;
    for dst in [
        "0.1.2.3:9",
        "127.0.0.1:9",
        "169.254.1.1:9",
        "224.0.0.251:5353",
        "239.255.255.250:1900",
        "255.255.255.255:9",
    ] {
        passes(&rig, &udp(CLIENT, dst));
        passes(&rig, &tcp(CLIENT, dst, SYN));
        n += 2;
    }
    for src in ["0.0.0.0:9", "169.254.7.7:9"] {
        passes(&rig, &udp(src, ORIGIN));
        n += 1;
    }
    for dst in [
        "[::]:9",
        "[::1]:9",
        "[fe80::1]:9",
        "[febf::1]:9",
        "[ff02::fb]:5353",
    ] {
        passes(&rig, &udp(CLIENT6, dst));
        n += 1;
    }
    for src in ["[::]:9", "[::1]:9", "[fe80::7]:9"] {
        passes(&rig, &udp(src, ORIGIN6));
        n += 1;
    }
    assert_eq!(rig.stat(Stat::SpecialPass), n);
}

#[test]
fn neighbours_of_special_addresses_are_classified() {
    let mut rig = rig!();
    install_all(&mut rig, PROXY);
    for (src, dst) in [
        (CLIENT, "1.0.0.0:9"),
        (CLIENT, "126.255.255.255:9"),
        (CLIENT, "128.0.0.1:9"),
        (CLIENT, "169.253.255.255:9"),
        (CLIENT, "223.255.255.255:9"),
        (CLIENT, "240.0.0.1:9"),
        ("0.0.0.1:9", ORIGIN),
        (CLIENT6, "[::2]:9"),
        (CLIENT6, "[fec0::1]:9"),
        (CLIENT6, "[fe7f::1]:9"),
        (CLIENT6, "[1::1]:9"),
    ] {
        assert_eq!(lan(&rig, &udp(src, dst)), REDIRECT, "{src} {dst}");
    }
}

#[test]
fn t19_dhcp_passes_both_ways_and_nothing_like_it() {
    let mut rig = rig!();
    install_all(&mut rig, PROXY);
    for (s, d) in [(68, 67), (67, 68)] {
        passes(
            &rig,
            &udp(&format!("10.66.0.2:{s}"), &format!("10.66.1.1:{d}")),
        );
    }
    for (s, d) in [(546, 547), (547, 546)] {
        passes(
            &rig,
            &udp(&format!("[fd66::2]:{s}"), &format!("[fd67::1]:{d}")),
        );
    }
    assert_eq!(lan(&rig, &udp("10.66.0.2:68", "10.66.1.1:547")), REDIRECT);
    assert_eq!(
        lan(&rig, &tcp("10.66.0.2:68", "10.66.1.1:67", SYN)),
        REDIRECT
    );
}

#[test]
fn the_gateways_own_addresses_pass_and_only_they() {
    let mut rig = rig!();
    install_all(&mut rig, PROXY);
    for a in ["203.0.113.5", "2001:db8::5"] {
        rig.put_raw("LOCAL_ADDR", &to_bytes(a.parse().unwrap()), &bytes_of(3));
    }
    passes(&rig, &tcp(CLIENT, "203.0.113.5:443", SYN));
    passes(&rig, &udp(CLIENT, "203.0.113.5:443"));
    passes(&rig, &udp(CLIENT6, "[2001:db8::5]:443"));
    assert_eq!(rig.stat(Stat::LocalPass), 3);
    assert_eq!(lan(&rig, &tcp(CLIENT, "203.0.113.6:443", SYN)), REDIRECT);
}

fn bytes_of(ifindex: u32) -> [u8; 4] {
    ifindex.to_ne_bytes()
}
