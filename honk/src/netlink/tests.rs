use std::os::fd::AsFd;

use netlink_packet_route::RouteNetlinkMessage;

use super::*;

/// Message types and attribute numbers that were wrong once elsewhere, checked byte by byte.
#[test]
fn rule_bytes_are_the_documented_ones() {
    let rule = route::iif_rule(Family::V4, "honk0p", 100, 100);
    let bytes = encode(RouteNetlinkMessage::NewRule(rule), 0x605, 1);
    let mut expected = vec![
        // length, RTM_NEWRULE, flags, sequence, port
        48, 0, 0, 0, 32, 0, 5, 6, 1, 0, 0, 0, 0, 0, 0, 0, //
        // AF_INET, no prefixes, tos, table 100, two reserved, FR_ACT_TO_TBL, flags
        2, 0, 0, 0, 100, 0, 0, 1, 0, 0, 0, 0, //
        // FRA_IIFNAME
        11, 0, 3, 0,
    ];
    expected.extend(b"honk0p\0\0");
    // FRA_PRIORITY
    expected.extend([8, 0, 6, 0, 100, 0, 0, 0]);
    assert_eq!(bytes, expected);
}

#[test]
fn addresses_carry_no_dad() {
    let bytes = encode(
        RouteNetlinkMessage::NewAddress(address::message(7, "fe80::2".parse().unwrap(), 64)),
        5,
        9,
    );
    assert_eq!(&bytes[4..6], &[20, 0], "RTM_NEWADDR");
    assert_eq!(&bytes[16..24], &[10, 64, 0, 253, 7, 0, 0, 0]);
    // IFA_FLAGS = IFA_F_NODAD
    assert_eq!(&bytes[bytes.len() - 8..], &[8, 0, 8, 0, 2, 0, 0, 0]);
}

#[test]
fn a_pair_names_its_peer_inside() {
    let file = std::fs::File::open("/dev/null").unwrap();
    let pair = Pair {
        host: End {
            name: "a0",
            mac: [2, 0, 0, 0, 0, 1],
        },
        peer: End {
            name: "b0",
            mac: [2, 0, 0, 0, 0, 2],
        },
        peer_netns: file.as_fd(),
        mtu: 65535,
        alias: "mine",
    };
    let bytes = encode(
        RouteNetlinkMessage::NewLink(link::pair_message(&pair)),
        5,
        1,
    );
    let host: Vec<_> = attributes(&bytes, 32).collect();
    let find = |list: &[(u16, &[u8])], kind: u16| {
        list.iter()
            .find(|(k, _)| *k == kind)
            .map(|(_, v)| v.to_vec())
    };
    assert_eq!(find(&host, 3).unwrap(), b"a0\0");
    assert_eq!(find(&host, 1).unwrap(), [2, 0, 0, 0, 0, 1]);
    assert_eq!(find(&host, 4).unwrap(), 65535u32.to_ne_bytes());
    let info = find(&host, 18).unwrap();
    let info: Vec<_> = attributes(&info, 0).collect();
    assert_eq!(&find(&info, 1).unwrap()[..4], b"veth");
    let data = find(&info, 2).unwrap();
    let data: Vec<_> = attributes(&data, 0).collect();
    // VETH_INFO_PEER: an ifinfomsg and attributes
    let peer = find(&data, 1).unwrap();
    let peer: Vec<_> = attributes(&peer, 16).collect();
    assert_eq!(find(&peer, 3).unwrap(), b"b0\0");
    // IFLA_NET_NS_FD
    assert!(find(&peer, 28).is_some());
}

#[test]
fn broken_datagrams_end_quietly() {
    assert_eq!(messages(&[]).count(), 0);
    assert_eq!(messages(&[1, 0, 0, 0, 0, 0]).count(), 0);
    let mut huge = vec![0u8; 20];
    huge[0] = 200;
    assert_eq!(messages(&huge).count(), 0);
    assert_eq!(attributes(&[9, 9, 9], 0).count(), 0);
    assert_eq!(attributes(&[200, 0, 1, 0], 0).count(), 0);
}

#[test]
fn error_codes_become_io_errors() {
    assert!(error_of(&0i32.to_ne_bytes()).is_ok());
    let e = error_of(&(-libc::EPERM).to_ne_bytes()).unwrap_err();
    assert_eq!(e.raw_os_error(), Some(libc::EPERM));
    assert!(error_of(&[]).is_ok());
}

#[test]
fn broadcast_follows_the_prefix() {
    let b = |ip: &str, prefix| broadcast(ip.parse().unwrap(), prefix).map(|b| b.to_string());
    assert_eq!(b("10.66.0.1", 24).as_deref(), Some("10.66.0.255"));
    assert_eq!(b("10.66.0.1", 30).as_deref(), Some("10.66.0.3"));
    assert_eq!(b("10.66.0.1", 31), None);
    assert_eq!(b("10.66.0.1", 32), None);
    assert_eq!(b("10.66.0.1", 0), None);
}

#[test]
fn the_loopback_is_listed() {
    let mut rtnl = Rtnl::open().unwrap();
    let lo = rtnl.link("lo").unwrap().unwrap();
    assert_eq!(lo.kind, 772);
    assert!(rtnl.link("no-such-link").unwrap().is_none());
}
