use honk_policy::id::Network::{Tcp, Udp};

use super::*;
use crate::app::testkit::{Asked, CONFIG, World, flow};

fn admit(world: &World, flow: &NewFlow) -> Result<Route, Refusal> {
    world.engine.gatekeeper.admit(flow)
}

fn outbound(route: &Route) -> &str {
    &route.guard.entry.outbound
}

fn misses(world: &World) -> u64 {
    world
        .engine
        .gatekeeper
        .counters
        .handoff_miss
        .load(Ordering::Relaxed)
}

#[test]
fn the_kernels_decision_stands_and_its_entry_is_claimed_until_the_end() {
    let world = World::new(CONFIG);
    // The rules would say `direct`: what the kernel decided is not decided again.
    let flow = flow(Tcp, "10.1.1.1:443");
    world.kernel.decide(&flow, world.slot("proxy"), 3);
    let route = admit(&world, &flow).unwrap();
    assert_eq!(
        (
            route.leaf.name.as_str(),
            outbound(&route),
            route.guard.entry.rule
        ),
        ("a", "proxy", 3)
    );
    let key = key_of(&flow);
    assert_eq!(world.kernel.take(), [Asked::Claim(key)]);
    assert_eq!(world.engine.registry.open(), 1);
    drop(route);
    assert_eq!(world.kernel.take(), [Asked::Release(key)]);
    assert_eq!(world.engine.registry.open(), 0);
    assert_eq!(misses(&world), 0);
}

#[test]
fn a_flow_without_entry_goes_through_the_rules_and_is_counted() {
    let world = World::new(CONFIG);
    let route = admit(&world, &flow(Tcp, "203.0.113.1:8443")).unwrap();
    assert_eq!((route.leaf.name.as_str(), outbound(&route)), ("c", "c"));
    assert_eq!(misses(&world), 1);
}

#[test]
fn control_means_that_userspace_evaluates_the_rules() {
    let world = World::new(CONFIG);
    let flow = flow(Udp, "10.1.1.1:9000");
    world.kernel.decide(&flow, outbound::CONTROL, 0);
    let route = admit(&world, &flow).unwrap();
    assert_eq!((outbound(&route), route.guard.entry.rule), ("direct", 0));
    assert_eq!(misses(&world), 0);
}

#[test]
fn direct_udp_of_clients_may_go_back_to_the_kernel() {
    use honk_common::flow::FLAG_V6;
    let ask = |config: &str, flow: NewFlow, flags| {
        let world = World::new(config);
        let marked = FlowWord {
            ordinal: outbound::CONTROL,
            flags,
            dscp: 46,
            state: 0,
            mark: 0,
        };
        world.kernel.decide(&flow, outbound::CONTROL, 0);
        let mut flows = world.kernel.flows.lock().unwrap();
        flows.get_mut(&key_of(&flow)).unwrap().word = marked.pack();
        drop(flows);
        admit(&world, &flow).unwrap().back
    };
    let (direct, proxied) = ("10.1.1.1:9000", "203.0.113.1:9000");
    let back = Some(Back { dscp: 46 });
    assert_eq!(ask(CONFIG, flow(Udp, direct), FLAG_V6), back);
    assert_eq!(ask(CONFIG, flow(Udp, direct), FLAG_WAN), None);
    assert_eq!(ask(CONFIG, flow(Tcp, direct), 0), None);
    assert_eq!(ask(CONFIG, flow(Udp, proxied), 0), None);
    let off = CONFIG.replacen("global {", "global {\n nfqueue_enable: false", 1);
    assert_ne!(off, CONFIG);
    assert_eq!(ask(&off, flow(Udp, direct), 0), None);
    // Without an entry the kernel would not know the flow again.
    let world = World::new(CONFIG);
    assert_eq!(admit(&world, &flow(Udp, direct)).unwrap().back, None);
}

#[test]
fn dns_follows_its_rules_and_the_gateways_own_resolver_is_asked_directly() {
    let world = World::new(CONFIG);
    let route = admit(&world, &flow(Udp, "203.0.113.53:53")).unwrap();
    assert_eq!(outbound(&route), "proxy");
    drop(route);
    assert_eq!(
        world.kernel.take(),
        [],
        "UDP to port 53 has no kernel entry"
    );
    *world.kernel.local.lock().unwrap() = vec!["203.0.113.53".parse().unwrap()];
    let route = admit(&world, &flow(Udp, "203.0.113.53:53")).unwrap();
    assert_eq!((outbound(&route), &*route.leaf.name), ("direct", "direct"));
    assert_eq!(misses(&world), 0);
}

#[test]
fn refused_flows_leave_no_entry_and_no_record() {
    let world = World::with_capacity(CONFIG, 1);
    let blocked = flow(Tcp, "198.51.100.7:80");
    assert_eq!(admit(&world, &blocked).unwrap_err(), Refusal::Blocked);
    assert_eq!(world.kernel.take(), [Asked::Release(key_of(&blocked))]);

    let proxied = flow(Tcp, "203.0.113.1:80");
    let held = admit(&world, &proxied).unwrap();
    assert_eq!(admit(&world, &proxied).unwrap_err(), Refusal::Capacity);
    drop(held);
    drop(admit(&world, &proxied).unwrap());

    world.engine.begin_stop().unwrap();
    assert_eq!(admit(&world, &proxied).unwrap_err(), Refusal::Stopping);
    assert_eq!(world.engine.registry.open(), 0);
    let refused = &world.engine.gatekeeper.counters.refused;
    let refused: Vec<u64> = refused.iter().map(|c| c.load(Ordering::Relaxed)).collect();
    assert_eq!(refused, [1, 0, 0, 0, 0, 0, 0, 1, 1]);
}

#[test]
fn a_leaf_without_udp_refuses_udp() {
    let config = CONFIG.replace("filter: name(a, b)", "filter: name(c)");
    let world = World::new(&config);
    let udp = flow(Udp, "203.0.113.1:443");
    assert_eq!(admit(&world, &udp).unwrap_err(), Refusal::UdpIncapable);
    assert!(admit(&world, &flow(Tcp, "203.0.113.1:443")).is_ok());
    let counted = world.engine.gatekeeper.unselected();
    assert_eq!(
        counted,
        [(("proxy".into(), "udp", "udp_incapable"), 1)].into()
    );
}

#[test]
fn flows_that_final_serves_are_counted_as_such() {
    let config = CONFIG.replace("filter: name(a, b)", "filter: name(c)\n final: direct");
    let world = World::new(&config);
    let route = admit(&world, &flow(Udp, "203.0.113.1:443")).unwrap();
    assert_eq!(
        (route.leaf.name.as_str(), outbound(&route)),
        ("direct", "proxy")
    );
    let counted = world.engine.gatekeeper.unselected();
    assert_eq!(counted, [(("proxy".into(), "udp", "final"), 1)].into());
}

// G-096, G-099, G-100
#[tokio::test]
async fn the_only_node_is_dialed_though_dead_and_counted() {
    let world = World::new(&CONFIG.replace("filter: name(a, b)", "filter: name(a)"));
    world.kill(&["a"]).await;
    let counts = || world.engine.gatekeeper.last_resorts.counts();
    let udp = flow(Udp, "203.0.113.1:443");
    assert_eq!(admit(&world, &udp).unwrap_err(), Refusal::AllDead);
    assert_eq!(counts(), []);
    let route = admit(&world, &flow(Tcp, "203.0.113.1:80")).unwrap();
    assert_eq!((route.leaf.name.as_str(), outbound(&route)), ("a", "proxy"));
    assert_eq!(counts(), [("proxy".into(), 1)]);
}

// G-136: whoever probes need not wait for its next look.
#[tokio::test]
async fn the_first_flow_of_a_group_is_told_at_once() {
    let world = World::new(&CONFIG.replace("policy: select", "policy: urltest"));
    let gate = &world.engine.gatekeeper;
    admit(&world, &flow(Tcp, "203.0.113.1:80")).unwrap();
    gate.woken().await;
}
