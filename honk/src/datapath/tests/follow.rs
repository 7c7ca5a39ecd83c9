//! Interfaces, addresses and programs that come, change and go.

use super::*;

fn attached(dp: &Datapath, name: &str) -> bool {
    dp.interfaces().iter().any(|i| i.name == name && i.attached)
}

/// A proxied connection from the client works.
fn proxied(lab: &Lab, listeners: &Listeners, port: u16) {
    let target = to(ORIGIN4, port);
    let mut client = connect(lab, target);
    let (mut server, _) = accept(&listeners.tcp[0]);
    assert_eq!(server.local_addr().unwrap(), target);
    server.write_all(b"x").unwrap();
    client.read_exact(&mut [0]).unwrap();
}

fn open_all(dp: &Datapath) {
    dp.commit(&all_proxied()).unwrap();
    dp.set_gate(GATE_OPEN).unwrap();
}

#[test]
fn interfaces_come_and_go() {
    lab("come-and-go", |lab| {
        let mut settings = lab.settings();
        settings.lan = vec!["lan".to_owned(), "x*".to_owned(), "later".to_owned()];
        let (dp, listeners) = Datapath::start(settings).unwrap();
        open_all(&dp);
        assert!(attached(&dp, "lan"));
        let pending = |dp: &Datapath| dp.interfaces().iter().filter(|i| i.pending).count();
        assert_eq!(pending(&dp), 2);
        proxied(lab, &listeners, 1);

        // The same name under a new index.
        let mut rtnl = Rtnl::open().unwrap();
        let old = rtnl.link("lan").unwrap().unwrap().index;
        rtnl.delete_link(old).unwrap();
        until("lan left", || pending(&dp) == 3);
        let new = lab.link("lan", "c1");
        assert_ne!(new, old);
        until("lan is hooked again", || attached(&dp, "lan"));
        let param = dp.0.shared.maps.param.lookup(&0).unwrap().unwrap();
        assert_eq!(param.lan_ifindex[..2], [new, 0]);
        proxied(lab, &listeners, 2);

        // A wildcard's interface, which then takes another name.
        rtnl.delete_link(new).unwrap();
        let index = lab.link("x1", "c2");
        until("x1 is hooked", || attached(&dp, "x1"));
        rename(index, "y1");
        until("y1 is let go", || pending(&dp) == 3);
        rename(index, "later");
        until("later is hooked", || attached(&dp, "later"));
        proxied(lab, &listeners, 3);
        dp.stop().unwrap();
    });
}

fn rename(index: u32, name: &str) {
    use netlink_packet_route::{
        RouteNetlinkMessage,
        link::{LinkAttribute, LinkMessage},
    };
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.attributes = vec![LinkAttribute::IfName(name.to_owned())];
    let mut rtnl = Rtnl::open().unwrap();
    rtnl.change(RouteNetlinkMessage::SetLink(message), 0, "rename")
        .unwrap();
}

#[test]
fn another_list_is_taken_or_refused_as_a_whole() {
    lab("set-lan", |lab| {
        let (dp, listeners) = lab.start();
        open_all(&dp);
        let sit = Rtnl::open().unwrap().link("sit0").unwrap();
        dp.set_interfaces(vec!["none".to_owned()], vec![]).unwrap();
        assert!(!attached(&dp, "lan"));
        dp.set_interfaces(vec!["lan".to_owned()], vec![]).unwrap();
        proxied(lab, &listeners, 1);
        drop(sit);
        let e = dp.set_interfaces(vec![pair::PEER.to_owned(), "lan".to_owned()], vec![]);
        assert!(e.is_ok(), "a missing interface is pending: {e:?}");
        assert!(attached(&dp, "lan"));
        dp.stop().unwrap();
        assert!(matches!(
            dp.set_interfaces(vec![], vec![]),
            Err(Error::Stopped)
        ));
    });
}

#[test]
fn own_addresses_are_known_at_once() {
    lab("addresses", |_lab| {
        let (dp, _listeners) = _lab.start();
        for known in ["10.66.0.1", "10.66.0.255", "fd66::1", "127.0.0.1"] {
            assert!(dp.is_local(ip(known)), "{known}");
        }
        assert!(!dp.is_local(ip("10.66.0.11")));
        let mut rtnl = Rtnl::open().unwrap();
        let lo = rtnl.link("lo").unwrap().unwrap().index;
        let lan = rtnl.link("lan").unwrap().unwrap().index;
        rtnl.add_address(lo, ip("192.0.2.9"), 32).unwrap();
        until("192.0.2.9 is local", || dp.is_local(ip("192.0.2.9")));
        // The same address on two links: one may go.
        rtnl.add_address(lan, ip("192.0.2.9"), 32).unwrap();
        rtnl.delete_link(lan).unwrap();
        until("10.66.0.1 is gone", || !dp.is_local(ip("10.66.0.1")));
        assert!(dp.is_local(ip("192.0.2.9")));
        let map = &dp.0.shared.maps.local_addr;
        let kernel = |a: &str| {
            let key = map::Addr(honk_common::key::to_bytes(ip(a)));
            map.lookup(&key).unwrap()
        };
        assert!(kernel("192.0.2.9").is_some() && kernel("10.66.0.1").is_none());
        dp.stop().unwrap();
    });
}

#[test]
fn the_smallest_mtu_rules() {
    lab("mtu", |lab| {
        let (dp, _listeners) = lab.start();
        let netns = &dp.0.shared.netns;
        let inside = || netns.run(|| Rtnl::open().unwrap().default_mtu()).unwrap();
        assert_eq!(inside(), Some(1500));
        let mut rtnl = Rtnl::open().unwrap();
        let lan = rtnl.link("lan").unwrap().unwrap();
        rtnl.set_mac_mtu(lan.index, lan.mac.unwrap(), 1400).unwrap();
        until("the route follows", || inside() == Some(1400));
        dp.stop().unwrap();
    });
}

#[test]
fn a_lost_pair_is_made_again() {
    lab("pair", |lab| {
        let (dp, listeners) = lab.start();
        open_all(&dp);
        proxied(lab, &listeners, 1);
        let mut rtnl = Rtnl::open().unwrap();
        let old = rtnl.link(pair::HOST).unwrap().unwrap().index;
        rtnl.delete_link(old).unwrap();
        until("a new pair", || {
            let link = rtnl.link(pair::HOST).unwrap();
            link.is_some_and(|l| l.index != old && l.up)
        });
        until("PARAM knows it", || {
            let param = dp.0.shared.maps.param.lookup(&0).unwrap().unwrap();
            param.honk0_ifindex != old
        });
        proxied(lab, &listeners, 2);

        // Another MAC inside, and a host end that was set down.
        let netns = &dp.0.shared.netns;
        netns
            .run(|| {
                let mut rtnl = Rtnl::open().unwrap();
                let peer = rtnl.link(pair::PEER).unwrap().unwrap();
                let mac = [2, 9, 9, 9, 9, 9];
                rtnl.set_mac_mtu(peer.index, mac, pair::MTU).unwrap();
            })
            .unwrap();
        until("the new address is used", || {
            let param = dp.0.shared.maps.param.lookup(&0).unwrap().unwrap();
            param.peer_mac == [2, 9, 9, 9, 9, 9]
        });
        proxied(lab, &listeners, 3);
        dp.stop().unwrap();
    });
}

#[test]
fn removed_programs_come_back() {
    lab("removed", |lab| {
        let (dp, listeners) = lab.start();
        open_all(&dp);
        let lan = Rtnl::open().unwrap().link("lan").unwrap().unwrap();
        let detached = detach_links(lan.index);
        assert_eq!(detached, 2);
        // Nothing announces a detached program; any change makes the thread look.
        touch(lab);
        until("both hooks", || links_of(lan.index).len() == 2);
        proxied(lab, &listeners, 1);
        dp.stop().unwrap();
        assert!(links_of(lan.index).is_empty());
    });
}

/// Causes an address event.
fn touch(_lab: &Lab) {
    let mut rtnl = Rtnl::open().unwrap();
    let lo = rtnl.link("lo").unwrap().unwrap().index;
    rtnl.add_address(lo, ip("192.0.2.200"), 32).unwrap();
}

#[test]
fn settings_inside_are_put_back() {
    lab("inside", |lab| {
        let (dp, listeners) = lab.start();
        open_all(&dp);
        let path = "/proc/sys/net/ipv4/conf/all/rp_filter";
        let netns = &dp.0.shared.netns;
        netns
            .run(move || std::fs::write(path, "1").unwrap())
            .unwrap();
        touch(lab);
        until("rp_filter is 0 again", || {
            let value = netns.run(move || std::fs::read_to_string(path).unwrap());
            value.unwrap().trim() == "0"
        });
        proxied(lab, &listeners, 1);
        dp.stop().unwrap();
    });
}

#[test]
fn header_less_links_get_their_own_programs() {
    lab("tun", |lab| {
        let Some(_tun) = tun("t0") else {
            return eprintln!("skipped: no /dev/net/tun");
        };
        let settings = Settings {
            lan: vec!["t*".to_owned(), "lan".to_owned()],
            ..lab.settings()
        };
        let (dp, _listeners) = Datapath::start(settings).unwrap();
        let interfaces = dp.interfaces();
        let hooks = |name: &str| {
            interfaces
                .iter()
                .find(|i| i.name == name)
                .unwrap()
                .hooks
                .clone()
        };
        assert_eq!(hooks("t0"), ["lan_ingress_l3", "lan_egress_l3"]);
        assert_eq!(hooks("lan"), ["lan_ingress_l2", "lan_egress_l2"]);
        dp.stop().unwrap();
    });
}

/// A TUN device that lives as long as the file.
fn tun(name: &str) -> Option<std::fs::File> {
    use std::os::fd::AsRawFd;
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/net/tun")
        .ok()?;
    // struct ifreq: the name, then IFF_TUN | IFF_NO_PI.
    let mut request = [0u8; 40];
    request[..name.len()].copy_from_slice(name.as_bytes());
    request[16..18].copy_from_slice(&0x1001u16.to_ne_bytes());
    // SAFETY: TUNSETIFF reads and writes one ifreq, which is 40 bytes.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), 0x4004_54ca, request.as_mut_ptr()) };
    (done == 0).then_some(file)
}
