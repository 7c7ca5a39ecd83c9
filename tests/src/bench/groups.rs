//! Group selection in numbers, at the largest size honk promises: 250 groups over 2,000 nodes.

use std::collections::HashSet;
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use honk_policy::config::{Config, GroupDef, Policy};
use honk_policy::group::{GroupTable, Health, NodeState};
use honk_policy::health::Touched;
use honk_policy::id::{Domain, Family, GroupId, MemberId, Network, NodeId, Ordinal, Uuid};
use honk_policy::node::{Host, Node, Protocol, Server};

use super::flip;

const NODES: u128 = 2_000;
const GROUPS: u8 = 250;
/// Events whose publication is timed, one node each.
const EVENTS: u128 = 40;

type Figure = (&'static str, f64, &'static str, f64);

/// Name, value, unit and target of each figure; smaller is better.
pub(super) fn figures() -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (name, policy, target) in [
        ("policy.select_selector", Policy::Selector, 200.0),
        ("policy.select_urltest", Policy::UrlTest, 300.0),
        ("policy.select_loadbalance", Policy::LoadBalance, 200.0),
        ("policy.select_fallback", Policy::Fallback, 200.0),
    ] {
        let table = table(policy);
        figures.push((name, select(&table)?, "ns", target));
    }
    for (name, policy) in [
        ("policy.publish_urltest", Policy::UrlTest),
        ("policy.publish_loadbalance", Policy::LoadBalance),
        ("policy.publish_fallback", Policy::Fallback),
    ] {
        figures.push((name, publish(&table(policy)), "ms", 20.0));
    }
    figures.push((
        "policy.sample_urltest",
        sample(&table(Policy::UrlTest)),
        "ms",
        1.0,
    ));
    let (median, worst) = flip::milliseconds(NODES as u32, GROUPS)?;
    figures.push(("policy.flip", median, "ms", 20.0));
    figures.push(("policy.flip_worst", worst, "ms", 20.0));
    Ok(figures)
}

/// Median of batches of selections for flows, in nanoseconds each.
fn select(table: &GroupTable) -> Result<f64> {
    const BATCH: u32 = 1_000;
    let slots: Vec<Ordinal> = table.groups().map(|group| group.slot).collect();
    ensure!(slots.len() == usize::from(GROUPS));
    let mut batches: Vec<Duration> = (0..101)
        .map(|_| {
            let start = Instant::now();
            for n in 0..BATCH as usize {
                let slot = slots[n % slots.len()];
                let _ = black_box(table.apply(black_box(slot), Network::Tcp, Family::V4));
            }
            start.elapsed()
        })
        .collect();
    batches.sort_unstable();
    Ok(batches[50].as_secs_f64() * 1e9 / f64::from(BATCH))
}

/// Time from a death that every group must hear of to the new table with its kernel slots.
/// Each node dies while it is selected, where the policy selects one.
fn publish(table: &GroupTable) -> f64 {
    let mut dead = HashSet::new();
    let mut table = table.clone();
    let took = (1..=EVENTS).map(|node| {
        dead.insert(node);
        let health = Arc::new(Measured {
            dead: dead.clone(),
            fast: None,
        });
        let touched = touched(node);
        let start = Instant::now();
        let update = table.judged(health, &touched, 0);
        let slots = black_box(update.table.slots());
        let took = start.elapsed();
        drop(slots);
        table = update.table;
        took
    });
    median_ms(took.collect())
}

/// Time to take in one latency that changes no selection.
fn sample(table: &GroupTable) -> f64 {
    let took = (1..=EVENTS).map(|node| {
        let node = NODES - node;
        let health = Measured {
            dead: HashSet::new(),
            fast: Some(node),
        };
        let touched = touched(node);
        let health = Arc::new(health);
        let start = Instant::now();
        black_box(table.judged(health, &touched, 0));
        start.elapsed()
    });
    median_ms(took.collect())
}

fn median_ms(mut took: Vec<Duration>) -> f64 {
    took.sort_unstable();
    took[took.len() / 2].as_secs_f64() * 1e3
}

fn touched(node: u128) -> Touched {
    Touched {
        nodes: [NodeId(Uuid::from_u128(node))].into(),
        ..Touched::default()
    }
}

/// Latencies that rise with the number of the node.
#[derive(Debug)]
struct Measured {
    dead: HashSet<u128>,
    /// A node that is a little faster than that, without getting anywhere near the first.
    fast: Option<u128>,
}

impl Health for Measured {
    fn state(&self, node: NodeId, _: Domain, family: Family) -> Option<NodeState> {
        let number = node.0.as_u128();
        let v6 = if family == Family::V6 { 0.5 } else { 0.0 };
        let gain = if self.fast == Some(number) { 1.0 } else { 0.0 };
        Some(NodeState {
            alive: !self.dead.contains(&number),
            latency_ms: Some(100.0 + number as f64 + v6 - gain),
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

/// Groups of one policy that all hold all nodes.
pub(super) fn unmeasured(nodes: u128, groups: u8, policy: Policy) -> GroupTable {
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
    let group = |number| GroupDef::new(format!("group {number}"), Ordinal(2 + number), policy);
    let config = Config {
        nodes: (1..=nodes).map(node).collect(),
        groups: (0..groups).map(group).collect(),
        ..Config::default()
    };
    let mut ids = 1 << 64;
    let (table, _) = GroupTable::build(&config, None, &mut || {
        ids += 1;
        Uuid::from_u128(ids)
    });
    table
}

/// The same at full size, with every node measured.
fn table(policy: Policy) -> GroupTable {
    let table = unmeasured(NODES, GROUPS, policy);
    let touched = Touched {
        nodes: table.nodes().iter().map(|node| node.id).collect(),
        ..Touched::default()
    };
    let health = Measured {
        dead: HashSet::new(),
        fast: None,
    };
    table.judged(Arc::new(health), &touched, 0).table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worlds_of_the_figures_are_what_they_say() {
        let table = table(Policy::UrlTest);
        assert_eq!(table.groups().len(), usize::from(GROUPS));
        let selected = table.apply(Ordinal(2), Network::Tcp, Family::V4).unwrap();
        assert_eq!(selected.leaf.name, "node 1");
        let health = Measured {
            dead: HashSet::from([1]),
            fast: None,
        };
        let update = table.judged(Arc::new(health), &touched(1), 0);
        assert_eq!(update.changes.len(), 2 * usize::from(GROUPS));
        let quiet = Measured {
            dead: HashSet::new(),
            fast: Some(NODES),
        };
        let update = table.judged(Arc::new(quiet), &touched(NODES), 0);
        assert!(update.changes.is_empty());
    }
}
