//! Selecting for a flow allocates nothing, whatever the policy (G-215).

use std::{hint::black_box, net::Ipv4Addr, sync::Arc};

use crate::allocations;
use honk_policy::{
    config::{Config, FilterLine, GroupDef, Policy},
    group::{GroupTable, Health, NodeState},
    health::Touched,
    id::{Domain, Family, GroupId, MemberId, Network, NodeId, Ordinal, Uuid},
    node::{Host, Node, Protocol, Server},
};

/// Everything is alive and measured, later nodes faster.
#[derive(Debug)]
struct Measured;

impl Health for Measured {
    fn state(&self, node: NodeId, _: Domain, _: Family) -> Option<NodeState> {
        Some(NodeState {
            alive: true,
            latency_ms: Some(1000.0 - node.0.as_u128() as f64),
            strikes: 0,
        })
    }

    fn url_state(&self, _: GroupId, _: MemberId, _: Family) -> Option<NodeState> {
        None
    }

    fn disabled(&self, _: NodeId) -> bool {
        false
    }
}

fn def(name: &str, policy: Policy, filters: Option<Vec<FilterLine>>) -> GroupDef {
    GroupDef {
        filters,
        ..GroupDef::new(name.to_owned(), Ordinal(0), policy)
    }
}

/// One group of 100 nodes for each policy, and a selector and a loadbalance group over all.
fn table() -> GroupTable {
    let node = |number| Node {
        id: NodeId(Uuid::from_u128(number)),
        name: format!("node {number}"),
        protocol: Protocol::Socks5(Server {
            host: Host::Ip(Ipv4Addr::LOCALHOST.into()),
            port: 1080,
            auth: None,
        }),
        origin: None,
    };
    let nested = || {
        let names = ["loadbalance", "urltest"].map(str::to_owned);
        Some(vec![FilterLine::Groups(names.to_vec())])
    };
    let groups = vec![
        def("selector", Policy::Selector, None),
        def("urltest", Policy::UrlTest, None),
        def("loadbalance", Policy::LoadBalance, None),
        def("fallback", Policy::Fallback, None),
        def("score", Policy::Score, None),
        def("over", Policy::Selector, nested()),
        def("spread", Policy::LoadBalance, nested()),
    ];
    let groups = groups
        .into_iter()
        .zip(2..)
        .map(|(group, ordinal)| GroupDef {
            ordinal: Ordinal(ordinal),
            ..group
        });
    let config = Config {
        nodes: (1..=100).map(node).collect(),
        groups: groups.collect(),
        ..Config::default()
    };
    let mut ids = 1000;
    let (table, findings) = GroupTable::build(&config, None, &mut || {
        ids += 1;
        Uuid::from_u128(ids)
    });
    assert!(findings.is_empty());
    let touched = Touched {
        nodes: table.nodes().iter().map(|n| n.id).collect(),
        ..Touched::default()
    };
    table.judged(Arc::new(Measured), &touched, 0).table
}

#[test]
fn a_selection_allocates_nothing() {
    let table = table();
    let probe = allocations(|| drop(black_box(Box::new(1))));
    assert_eq!(probe, 1, "allocations are counted");
    for group in table.groups() {
        for (network, family) in [(Network::Tcp, Family::V4), (Network::Udp, Family::V6)] {
            let used = allocations(|| {
                for _ in 0..1000 {
                    let selected = black_box(&table).apply(group.slot, network, family);
                    assert!(black_box(selected).is_ok());
                    let seen = black_box(&table).select(group.slot, network, family);
                    assert!(black_box(seen).is_ok());
                }
            });
            assert_eq!(used, 0, "{} {network:?} {family:?}", group.name);
        }
    }
}
