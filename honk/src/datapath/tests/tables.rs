//! Rule banks, group states and the janitor, on real maps.

use std::sync::atomic::Ordering;

use honk_common::{
    flow::ReturnVal,
    key::{LpmKey, v4_mapped},
    limits::DOMAIN_ENTRIES,
    outbound::{BLOCK, DIRECT, NET_TCP, STATE_DEAD, group_slot},
    route::{ACT_FALLBACK, DIM_DEST, DIM_DOMAIN, DomainVal, RuleAct, bank},
};

use super::*;
use crate::datapath::{
    claims::Claims,
    janitor::{Janitor, Load, Tally},
    map::Addr,
};

/// `n` prefixes that all mean the first of two lines.
fn prefixes(n: u32, first: u8) -> RouteTables {
    let mut t = all_proxied();
    let rule = |ordinal, flags, rule| RuleAct {
        ordinal,
        flags,
        rule,
        ..RuleAct::default()
    };
    t.acts = vec![rule(first, 0, 0), rule(USER_FIRST, ACT_FALLBACK, 1)];
    t.meta.rules = 2;
    t.meta.dims = DIM_DEST;
    t.classes[0][0] = 0b11;
    t.classes.push([0; 16]);
    t.classes[2][0] = 0b10;
    t.meta.dest_default = 2;
    t.dest = (0..n)
        .map(|i| {
            let addr = v4_mapped((0xc633_6400 + i).to_be_bytes());
            let prefix_len = 128;
            (LpmKey { prefix_len, addr }, 0)
        })
        .collect();
    t
}

#[test]
fn rules_change_as_a_whole_or_not_at_all() {
    lab("swap", |lab| {
        let (dp, listeners) = lab.start();
        dp.set_gate(GATE_OPEN).unwrap();
        let verdict = |port| {
            let _client = connect(lab, to(ORIGIN4, port));
            let (_, from) = accept(&listeners.tcp[0]);
            let key = FlowKey::new(from, to(ORIGIN4, port), PROTO_TCP);
            let value = dp.lookup(&key).unwrap();
            (FlowWord::unpack(value.word).ordinal, value.generation)
        };
        assert_eq!(verdict(1), (honk_common::outbound::CONTROL, 1));
        let mut generation = 1;
        for round in 0..6u8 {
            generation = dp.commit(&prefixes(300, USER_FIRST + 1 + round)).unwrap();
            let port = u16::from(round) + 10;
            assert_eq!(verdict(port), (USER_FIRST + 1 + round, generation));
        }
        // Long lists have a table in front of their tree, in the bank in force.
        let tables = || [0, 1].map(|at| dp.0.shared.maps.dest_near.lookup(&at).unwrap().is_some());
        assert_eq!(tables(), [0, 1].map(|at| at == bank(generation)));
        let mut wide = prefixes(300, USER_FIRST + 6);
        for (key, _) in &mut wide.dest {
            key.prefix_len = 96 + 24;
            key.addr[15] = 0;
        }
        generation = dp.commit(&wide).unwrap();
        assert_eq!(verdict(20), (USER_FIRST + 6, generation));
        // A prefix longer than an address: refused by the kernel half way through.
        let mut bad = prefixes(300, USER_FIRST);
        bad.dest[200].0.prefix_len = 200;
        assert!(dp.commit(&bad).is_err());
        let mut bad = prefixes(300, USER_FIRST);
        bad.acts.clear();
        assert!(matches!(dp.commit(&bad), Err(Error::Tables(_))));
        assert_eq!(verdict(30), (USER_FIRST + 6, generation));
        assert_eq!(lock(&dp.0.shared.banks).generation, generation);
        let next = dp.commit(&prefixes(1, USER_FIRST)).unwrap();
        assert_eq!(tables(), [false; 2], "a short list needs none");
        assert_eq!(next, generation + 1);
        dp.stop().unwrap();
    });
}

/// Two lines, the first only for named addresses, and what such an address has.
fn named(first: u8) -> (RouteTables, DomainVal) {
    let mut t = prefixes(0, first);
    t.meta.dims = DIM_DOMAIN;
    t.meta.domain_unknown_class = 2;
    let mut bits = [0; 16];
    bits[0] = 0b11;
    let value = DomainVal {
        bits,
        amb: [0; 16],
        owners: 1,
        pad: 0,
    };
    (t, value)
}

#[test]
fn names_belong_to_their_generation() {
    lab("names", |lab| {
        let (dp, listeners) = lab.start();
        dp.set_gate(GATE_OPEN).unwrap();
        let verdict = |port| {
            let _client = connect(lab, to(ORIGIN4, port));
            let (_, from) = accept(&listeners.tcp[0]);
            let key = FlowKey::new(from, to(ORIGIN4, port), PROTO_TCP);
            FlowWord::unpack(dp.lookup(&key).unwrap().word).ordinal
        };
        let origin = ip(ORIGIN4);
        let (tables, value) = named(USER_FIRST + 1);
        // The rules in force have no names: nothing to write to.
        assert_eq!(
            dp.write_domains(1, &[(origin, value)]).unwrap(),
            Applied::Stale
        );
        let old = dp.commit(&tables).unwrap();
        assert_eq!(verdict(1), USER_FIRST);
        assert_eq!(
            dp.write_domains(old, &[(origin, value)]).unwrap(),
            Applied::All
        );
        assert_eq!(verdict(2), USER_FIRST + 1);
        // Both banks take entries while a reload is under way; the old one decides.
        let new = dp.stage(&named(USER_FIRST + 2).0).unwrap();
        assert_eq!(
            dp.write_domains(new, &[(origin, value)]).unwrap(),
            Applied::All
        );
        assert_eq!(dp.delete_domains(old, &[origin]).unwrap(), Applied::All);
        assert_eq!(verdict(3), USER_FIRST);
        dp.activate(new).unwrap();
        assert_eq!(verdict(4), USER_FIRST + 2);
        assert_eq!(dp.write_domains(old, &[]).unwrap(), Applied::Stale);
        assert_eq!(dp.delete_domains(old, &[origin]).unwrap(), Applied::Stale);
        // What was staged and given up is never a generation again.
        let given_up = dp.stage(&named(USER_FIRST).0).unwrap();
        let next = dp.stage(&named(USER_FIRST).0).unwrap();
        assert!(dp.activate(given_up).is_err());
        assert_eq!(dp.write_domains(given_up, &[]).unwrap(), Applied::Stale);
        assert_eq!(verdict(5), USER_FIRST + 2);
        dp.activate(next).unwrap();
        assert_eq!(verdict(6), USER_FIRST);
        dp.stop().unwrap();
    });
}

#[test]
fn a_full_name_table_says_how_far_it_got() {
    lab("names-full", |lab| {
        let (dp, _listeners) = lab.start();
        let (tables, value) = named(USER_FIRST);
        let generation = dp.commit(&tables).unwrap();
        let many: Vec<_> = (0..DOMAIN_ENTRIES + 10)
            .map(|n| (IpAddr::from(n.to_be_bytes()), value))
            .collect();
        let full = Applied::Full(DOMAIN_ENTRIES as usize);
        assert_eq!(dp.write_domains(generation, &many).unwrap(), full);
        // Known addresses still change, and room that is made can be used.
        assert_eq!(
            dp.write_domains(generation, &many[..9]).unwrap(),
            Applied::All
        );
        dp.delete_domains(generation, &[many[0].0]).unwrap();
        let last = &many[many.len() - 1..];
        assert_eq!(dp.write_domains(generation, last).unwrap(), Applied::All);
        dp.stop().unwrap();
    });
}

/// Processor time of this thread.
fn cpu_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

#[test]
fn many_prefixes_are_written_quickly() {
    lab("prefixes", |lab| {
        let (dp, _listeners) = lab.start();
        let tables = prefixes(100_000, DIRECT);
        // The wait for running packets is not ours to hurry: count processor time.
        let start = cpu_time();
        dp.commit(&tables).unwrap();
        let took = cpu_time() - start;
        eprintln!("100000 prefixes: {took:?}");
        // A quarter of a second; the bound is for what grows with the square.
        assert!(took < Duration::from_secs(10), "{took:?}");
        dp.stop().unwrap();
    });
}

#[test]
fn dead_groups_drop_and_lost_states_heal() {
    lab("groups", |lab| {
        let (dp, listeners) = lab.start();
        dp.commit(&all_proxied()).unwrap();
        dp.set_gate(GATE_OPEN).unwrap();
        let slot = group_slot(USER_FIRST, NET_TCP, false);
        dp.write_groups(&[(slot, STATE_DEAD)]).unwrap();
        let dropped = |dp: &Datapath| {
            let stats = dp.counters().stats;
            stats.iter().find(|(n, _)| *n == "dead_drop").unwrap().1
        };
        let _waiting = connect(lab, to(ORIGIN4, 1));
        until("the SYN is dropped", || dropped(&dp) > 0);
        dp.write_groups(&[(slot, 0)]).unwrap();
        let _client = connect(lab, to(ORIGIN4, 2));
        // The first attempt's retransmission may come in as well.
        let (server, _) = accept(&listeners.tcp[0]);
        assert_eq!(server.local_addr().unwrap().ip(), ip(ORIGIN4));
        // Somebody overwrites a slot.
        let map = &dp.0.shared.maps.group_state;
        map.put(&slot, &STATE_DEAD).unwrap();
        keeper::heal_groups(&dp.0.shared);
        assert_eq!(map.lookup(&slot).unwrap(), Some(0));
        assert_ne!(BLOCK, DIRECT);
        dp.stop().unwrap();
    });
}

fn entry(last_seen_ns: u64, isn: u32) -> FlowVal {
    FlowVal {
        last_seen_ns,
        word: 0,
        isn,
        generation: 1,
        rule: 0,
        vlan: 0,
        pid: 0,
        pname: [0; 16],
        mac: [0; 6],
        gw_mac: [0; 6],
        ifindex: 0,
    }
}

#[test]
fn a_reused_port_keeps_its_new_entry() {
    lab("reuse", |lab| {
        let (dp, _listeners) = lab.start();
        let flow = &dp.0.shared.maps.flow;
        let key = FlowKey::new(to("10.66.0.11", 40_001), to(ORIGIN4, 443), PROTO_TCP);
        let state = || FlowWord::unpack(dp.lookup(&key).unwrap().word).state;
        let first = entry(1, 100);
        flow.put(&key, &first).unwrap();
        dp.claim(&key, &first);
        assert_eq!(state(), FLOW_ACTIVE, "a claim is no matter of the kernel");
        // The client connects again from the same port before the first relay has ended.
        let second = entry(2, 200);
        flow.put(&key, &second).unwrap();
        dp.claim(&key, &second);
        dp.release(&key, false);
        assert_eq!(state(), FLOW_ACTIVE, "the second relay still runs");
        let claimed = || {
            dp.counters()
                .maps
                .iter()
                .find(|m| m.map == "flow_claimed")
                .unwrap()
                .entries
        };
        assert_eq!(claimed(), 1);
        dp.release(&key, false);
        assert_eq!(state(), FLOW_CLOSING);
        // Where the client's FIN was seen, the kernel has done it: nothing is written.
        flow.put(&key, &second).unwrap();
        dp.claim(&key, &second);
        dp.release(&key, true);
        assert_eq!((state(), claimed()), (FLOW_ACTIVE, 0));
        // A third connection that nobody has claimed yet.
        dp.claim(&key, &second);
        flow.put(&key, &entry(3, 300)).unwrap();
        dp.release(&key, false);
        assert_eq!(state(), FLOW_ACTIVE);
        assert_eq!(claimed(), 0);
        dp.stop().unwrap();
    });
}

#[test]
fn idle_entries_go_and_claimed_ones_stay() {
    lab("janitor", |lab| {
        let settings = Settings {
            flow_entries: 20_000,
            ..lab.settings()
        };
        let (dp, _listeners) = Datapath::start(settings).unwrap();
        let maps = &dp.0.shared.maps;
        let key = |n: u32| {
            let client = SocketAddr::new(
                IpAddr::from((0x0a42_0000 + n / 50_000).to_be_bytes()),
                (n % 50_000) as u16 + 1,
            );
            FlowKey::new(client, to(ORIGIN4, 443), PROTO_TCP)
        };
        let fresh = u64::MAX / 2;
        for n in 0..10_000 {
            // One in ten is in use.
            let seen = if n % 10 == 0 { fresh } else { 1 };
            maps.flow.put(&key(n), &entry(seen, 5)).unwrap();
        }
        let claims = Claims::default();
        for n in 1..=5 {
            let seen = dp.lookup(&key(n)).unwrap();
            claims.claim(&key(n), &seen);
        }
        let idle_return = ReturnVal {
            last_seen_ns: 1,
            ifindex: 1,
            smac: [0; 6],
            dmac: [0; 6],
            vlan: 0,
            flags: 0,
            pad: [0; 5],
        };
        // 10.66.0.0 has live flows, 10.67.0.0 has none.
        let addr = |a: &str| Addr(honk_common::key::to_bytes(ip(a)));
        maps.ret.put(&addr("10.66.0.0"), &idle_return).unwrap();
        maps.ret.put(&addr("10.67.0.0"), &idle_return).unwrap();
        let tally = Tally::default();
        let mut janitor = Janitor::new(20_000);
        until("the scan ends", || {
            janitor
                .tick(&maps.flow, &maps.ret, &claims, &tally, Load::default())
                .unwrap();
            janitor.at_rest()
        });
        if tally.expired.load(Ordering::Relaxed) == 0 {
            return eprintln!("skipped: this machine runs for less than two minutes");
        }
        assert_eq!(tally.expired.load(Ordering::Relaxed), 9000 - 5);
        assert_eq!(tally.flows.load(Ordering::Relaxed), 1000 + 5);
        assert!((1..=5).all(|n| dp.lookup(&key(n)).is_some()));
        assert!(maps.ret.lookup(&addr("10.66.0.0")).unwrap().is_some());
        let uptime: f64 = std::fs::read_to_string("/proc/uptime")
            .unwrap()
            .split(' ')
            .next()
            .unwrap()
            .parse()
            .unwrap();
        if uptime > 601.0 {
            assert!(maps.ret.lookup(&addr("10.67.0.0")).unwrap().is_none());
        }
        dp.stop().unwrap();
    });
}
