use honk_common::{flow::FLAG_DOMAIN_KNOWN, key::to_bytes};

use super::{
    super::testkit::{Asked, CONFIG, World, flow},
    *,
};
use crate::flow::Admission as _;

fn event(kind: u32, ordinal: u8, rule: u16, dport: u16) -> Event {
    Event {
        ts_ns: 0,
        kind,
        pid: 9,
        pname: *b"curl\0\0\0\0\0\0\0\0\0\0\0\0",
        ordinal,
        proto: PROTO_TCP,
        rule,
        src: to_bytes("10.0.0.2".parse().unwrap()),
        dst: to_bytes("198.51.100.1".parse().unwrap()),
        sport: 4000,
        dport,
    }
}

fn traced(flags: u8) -> u32 {
    EVENT_TRACE | u32::from(flags) << 8
}

#[test]
fn the_kernel_is_told_when_the_first_begins_and_the_last_ends() {
    let world = World::new(CONFIG);
    let traces = &world.engine.gatekeeper.traces;
    assert!(!traces.watched());
    traces.told(&event(traced(0), 0, 0, 80));
    let first = traces.watch(Filter::default()).unwrap();
    let second = traces.watch(Filter::default()).unwrap();
    assert_eq!(world.kernel.take(), [Asked::Watch(true)]);
    drop(first);
    assert!(traces.watched() && world.kernel.take().is_empty());
    drop(second);
    assert!(!traces.watched());
    assert_eq!(world.kernel.take(), [Asked::Watch(false)]);
}

#[test]
fn watchers_and_their_queues_are_bounded_and_what_is_lost_is_counted() {
    let world = World::new(CONFIG);
    let traces = &world.engine.gatekeeper.traces;
    let mut all: Vec<Watch> = (0..WATCHERS)
        .map(|_| traces.watch(Filter::default()).unwrap())
        .collect();
    assert!(traces.watch(Filter::default()).is_none());
    all.truncate(1);
    for _ in 0..QUEUE + 3 {
        traces.told(&event(traced(0), 0, 0, 80));
    }
    assert_eq!(traces.counts(), (1, 3));
    assert_eq!((all[0].take_lost(), all[0].take_lost()), (3, 0));
    assert_eq!(all[0].queue.len(), QUEUE);
    traces.end();
    assert!(!traces.watched());
}

/// What one event is told as.
fn told(world: &World, event: &Event) -> Decision {
    let traces = &world.engine.gatekeeper.traces;
    let mut watch = traces.watch(Filter::default()).unwrap();
    traces.told(event);
    let decision = watch.queue.try_recv().unwrap();
    Arc::unwrap_or_clone(decision)
}

#[test]
fn decisions_of_the_kernel_come_with_line_and_reason() {
    let world = World::new(CONFIG);
    let proxy = world.slot("proxy");
    let direct = told(&world, &event(traced(0), outbound::DIRECT, 0, 80));
    assert_eq!((direct.verdict, direct.reason), ("direct", "rule"));
    let (index, line) = direct.rule.unwrap();
    assert_eq!((index, line.line), (0, 9));
    assert!(line.text.contains("10.0.0.0/8"), "{}", line.text);
    assert_eq!(direct.process, None, "a client's");
    let block = told(&world, &event(traced(0), outbound::BLOCK, 1, 80));
    assert_eq!((block.verdict, block.reason), ("block", "rule"));
    let own = FLAG_WAN | FLAG_MUST | FLAG_DOMAIN_KNOWN;
    let group = told(&world, &event(traced(own), proxy, 3, 80));
    assert_eq!(
        (group.verdict, group.reason, group.must),
        ("proxy", "rule", true)
    );
    assert_eq!(group.outbound.as_deref(), Some("proxy"));
    assert_eq!(group.process, Some((9, "curl".to_owned())));
    let control = outbound::CONTROL;
    for (flags, rule, dport, why) in [
        (0, 3, 53, "dns"),
        (FLAG_PRELIM, 0, 80, "name_unknown"),
        (FLAG_PRELIM | FLAG_AMBIGUOUS, 0, 80, "name_ambiguous"),
        (0, u16::MAX, 80, "no_rule"),
    ] {
        let told = told(&world, &event(traced(flags), control, rule, dport));
        assert_eq!((told.verdict, told.reason), ("userspace", why));
    }
    let turned = told(&world, &event(traced(0), outbound::DIRECT, 3, 80));
    assert_eq!(turned.reason, "group", "the group is direct as a whole");
    let dead = told(&world, &event(EVENT_GROUP_DEAD, proxy, 3, 80));
    assert_eq!((dead.verdict, dead.reason), ("drop", "group_dead"));
}

#[test]
fn the_accept_path_tells_who_serves_and_who_is_refused() {
    let world = World::new(CONFIG);
    let traces = &world.engine.gatekeeper.traces;
    let mut watch = traces.watch(Filter::default()).unwrap();
    let served = flow(Network::Tcp, "203.0.113.1:443");
    let _route = world.engine.gatekeeper.admit(&served).unwrap();
    let told = watch.queue.try_recv().unwrap();
    assert_eq!((told.stage, told.verdict), ("userspace", "proxy"));
    let chain: Vec<&str> = told.chain.iter().map(|name| &**name).collect();
    assert_eq!(chain, ["proxy", "a"]);
    let blocked = flow(Network::Udp, "198.51.100.9:443");
    world.engine.gatekeeper.admit(&blocked).unwrap_err();
    let told = watch.queue.try_recv().unwrap();
    assert_eq!((told.verdict, told.reason), ("block", "blocked"));
    assert_eq!(told.rule.as_ref().map(|(index, _)| *index), Some(1));
}

#[test]
fn filters_leave_out_what_is_not_wanted() {
    let world = World::new(CONFIG);
    let mut decision = told(&world, &event(traced(0), world.slot("proxy"), 3, 80));
    decision.host = Some("www.a.test".into());
    let takes = |filter: Filter| filter.takes(&decision);
    let prefix = |text: &str| Some((text.parse().unwrap(), 24));
    let host = |text: &str| Filter {
        host: Some(text.to_owned()),
        ..Filter::default()
    };
    assert!(takes(Filter {
        src: prefix("10.0.0.0"),
        ..Filter::default()
    }));
    assert!(!takes(Filter {
        src: prefix("10.0.1.0"),
        ..Filter::default()
    }));
    assert!(takes(Filter {
        dst: prefix("198.51.100.0"),
        ..Filter::default()
    }));
    assert!(!takes(Filter {
        dst: prefix("2001:db8::"),
        ..Filter::default()
    }));
    assert!(takes(host("www.a.test")) && takes(host(".a.test")) && takes(host(".www.a.test")));
    assert!(!takes(host("a.test")) && !takes(host(".b.test")));
    assert!(takes(Filter {
        outbound: Some("proxy".to_owned()),
        ..Filter::default()
    }));
    assert!(!takes(Filter {
        outbound: Some("c".to_owned()),
        ..Filter::default()
    }));
    assert!(takes(Filter {
        rule: Some(3),
        ..Filter::default()
    }));
    assert!(!takes(Filter {
        rule: Some(2),
        ..Filter::default()
    }));
    assert!(!takes(Filter {
        network: Some(Network::Udp),
        ..Filter::default()
    }));
}
