//! Packets of a client reach the listeners, and replies find the way back.

use super::*;

#[test]
fn tcp_is_accepted_with_its_destination() {
    lab("tcp", |lab| {
        let before = snapshot();
        let (dp, listeners) = lab.start();
        assert_eq!(dp.commit(&all_proxied()).unwrap(), 2);
        dp.set_gate(GATE_OPEN).unwrap();
        for (slot, target) in [to(ORIGIN4, 443), to(ORIGIN6, 8443)]
            .into_iter()
            .enumerate()
        {
            let mut client = connect(lab, target);
            let (mut server, from) = accept(&listeners.tcp[slot]);
            assert_eq!(server.local_addr().unwrap(), target);
            let key = FlowKey::new(from, target, PROTO_TCP);
            let seen = dp.lookup(&key).expect("a flow entry");
            assert_eq!(FlowWord::unpack(seen.word).ordinal, USER_FIRST);
            dp.claim(&key, &seen);
            let state = |dp: &Datapath| dp.lookup(&key).map(|v| FlowWord::unpack(v.word).state);
            assert_eq!(state(&dp), Some(FLOW_ACTIVE));
            client.write_all(b"ping").unwrap();
            let mut got = [0; 4];
            server.read_exact(&mut got).unwrap();
            assert_eq!(&got, b"ping");
            let big = vec![7u8; 300_000];
            let sender = std::thread::spawn({
                let big = big.clone();
                move || server.write_all(&big).map(|()| server)
            });
            let mut back = vec![0; big.len()];
            client.read_exact(&mut back).unwrap();
            assert_eq!(back, big);
            drop(sender.join().unwrap().unwrap());
            dp.release(&key, false);
            assert_eq!(state(&dp), Some(FLOW_CLOSING), "lingers for late packets");
            dp.release(&key, false);
        }
        let counters = dp.counters();
        let proxied = counters.stats.iter().find(|(n, _)| *n == "proxy_new");
        assert!(proxied.unwrap().1 >= 2, "{:?}", counters.stats);
        dp.stop().unwrap();
        dp.stop().unwrap();
        drop(listeners);
        assert_eq!(snapshot(), before);
    });
}

#[test]
fn udp_comes_in_and_replies_carry_the_asked_address() {
    lab("udp", |lab| {
        let (dp, listeners) = lab.start();
        dp.commit(&all_proxied()).unwrap();
        dp.set_gate(GATE_OPEN).unwrap();
        for (v6, target) in [(false, to(ORIGIN4, 5000)), (true, to(ORIGIN6, 12345))] {
            let client = lab
                .client
                .run(move || {
                    let any = if v6 { "[::]:0" } else { "0.0.0.0:0" };
                    let client = UdpSocket::bind(any).unwrap();
                    client.set_read_timeout(Some(PATIENCE)).unwrap();
                    client.connect(target).unwrap();
                    client
                })
                .unwrap();
            // Larger than the link's MTU: fragments travel together.
            let message = vec![9u8; 4000];
            client.send(&message).unwrap();
            let mut buffer = vec![0; 5000];
            let mut found = None;
            until("a datagram", || {
                found = listeners
                    .udp
                    .iter()
                    .find_map(|s| s.recv_from(&mut buffer).ok());
                found.is_some()
            });
            let (n, from) = found.unwrap();
            assert_eq!(&buffer[..n], message);
            let key = FlowKey::new(from, target, PROTO_UDP);
            let seen = dp.lookup(&key).expect("a flow entry");
            dp.claim(&key, &seen);
            let reply = dp.bind(v6, target.port(), Some(target.ip())).unwrap();
            reply.send_to(&message, from).unwrap();
            let n = client.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..n], message);
            dp.release(&key, false);
            assert!(dp.lookup(&key).is_none());
        }
        dp.stop().unwrap();
        assert!(dp.bind(false, 9, None).is_err());
    });
}

#[test]
fn a_closed_gate_touches_nothing() {
    lab("gate", |lab| {
        let (dp, listeners) = lab.start();
        dp.commit(&all_proxied()).unwrap();
        // The gateway's own service answers, gate open or not.
        let own = std::net::TcpListener::bind("10.66.0.1:80").unwrap();
        for gate in [GATE_CLOSED, GATE_OPEN] {
            dp.set_gate(gate).unwrap();
            let client = connect(lab, to("10.66.0.1", 80));
            own.set_nonblocking(true).unwrap();
            let (_, from) = accept(&own);
            assert_eq!(from, client.local_addr().unwrap());
        }
        let refused = listeners.tcp[0].accept();
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        dp.stop().unwrap();
    });
}

#[test]
fn the_gate_needs_its_listeners() {
    lab("listeners", |lab| {
        let (dp, listeners) = lab.start();
        drop(listeners);
        let opened = dp.set_gate(GATE_OPEN);
        // A kernel map with narrow values cannot tell; it must not be worse than that.
        if let Err(e) = opened {
            assert!(matches!(e, Error::NoListener(_)), "{e}");
        }
        dp.stop().unwrap();
    });
}

#[test]
fn redirect_peer_delivers() {
    lab("peer", |lab| {
        for redirect_peer in [RedirectPeer::Auto, RedirectPeer::On, RedirectPeer::Off] {
            let settings = Settings {
                redirect_peer,
                ..lab.settings()
            };
            let (dp, listeners) = Datapath::start(settings).unwrap();
            dp.commit(&all_proxied()).unwrap();
            dp.set_gate(GATE_OPEN).unwrap();
            let features = dp.counters().features;
            let on = features.contains(&("redirect_peer", true));
            match redirect_peer {
                RedirectPeer::Auto => eprintln!("the self-test says {on}"),
                RedirectPeer::On => assert!(on),
                RedirectPeer::Off => assert!(!on),
            }
            let target = to(ORIGIN4, 443);
            let mut client = connect(lab, target);
            let (mut server, _) = accept(&listeners.tcp[0]);
            assert_eq!(server.local_addr().unwrap(), target);
            server.write_all(b"x").unwrap();
            client.read_exact(&mut [0]).unwrap();
            dp.stop().unwrap();
        }
    });
}

#[test]
fn blocked_flows_are_told_about() {
    lab("events", |lab| {
        let (dp, _listeners) = lab.start();
        let block = honk_common::outbound::BLOCK;
        dp.commit(&RouteTables::fallback_only(block)).unwrap();
        dp.set_gate(GATE_OPEN).unwrap();
        let _client = connect(lab, to(ORIGIN4, 443));
        let blocked = || {
            let events = dp.counters().stats;
            events
                .iter()
                .any(|(name, n)| *name == "event_blocked" && *n > 0)
        };
        until("the event is read", blocked);
        dp.stop().unwrap();
    });
}
