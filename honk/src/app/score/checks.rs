//! Outcomes of configured checks as a baseline for Score groups. Measurements that people ask for
//! do not come here (S-053).

use std::{
    collections::{HashMap, HashSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use arc_swap::ArcSwap;
use honk_policy::{
    group::Group,
    health::{Outcome, Subject},
    id::{Domain, Family, MemberId, Network, NodeId},
    score::{GroupKey, Membership, NodeKey, ProbeSample},
};

use super::{Score, scores};
use crate::app::{
    health::{check_dns, check_interval, check_method, check_url},
    snapshot::Snapshot,
};

/// Numbers of checks, apart from those of flows.
const FIRST: u64 = 1 << 63;

/// What checks are about in the active generation.
#[derive(Debug)]
pub(super) struct Checks {
    groups: ArcSwap<HashMap<GroupKey, Checked>>,
    next: AtomicU64,
}

/// A Score group.
#[derive(Debug)]
struct Checked {
    nodes: HashSet<NodeKey>,
    /// It asks an address of its own over TCP.
    own_url: bool,
    /// Identity of what is asked over TCP and over UDP.
    scopes: [u64; 2],
    interval: u64,
}

impl Default for Checks {
    fn default() -> Self {
        Self {
            groups: ArcSwap::default(),
            next: AtomicU64::new(FIRST),
        }
    }
}

impl Checks {
    /// Another generation is active.
    pub(super) fn take(&self, snapshot: &Snapshot, membership: &Membership) {
        let of = |key: GroupKey| {
            let members = membership.groups.iter().find(|m| m.group == key);
            let nodes = members
                .into_iter()
                .flat_map(|m| m.leaves.iter().chain(&m.finals));
            nodes.copied().collect()
        };
        let groups = snapshot.groups.groups().filter(|group| scores(group));
        let groups = groups.map(|group| (group.key(), checked(snapshot, group, of(group.key()))));
        self.groups.store(groups.collect::<HashMap<_, _>>().into());
    }
}

fn checked(snapshot: &Snapshot, group: &Group, nodes: HashSet<NodeKey>) -> Checked {
    let config = &snapshot.config;
    let cadence = group.def.timing(check_interval(config)).interval;
    let own = group.def.check_url.as_deref();
    let url = check_url(config);
    let (dns, method) = (check_dns(config), check_method(config));
    let scope = |text: &str, method: &str| {
        let mut hasher = DefaultHasher::new();
        (text, method, cadence, own.map(|_| group.key())).hash(&mut hasher);
        hasher.finish()
    };
    Checked {
        nodes,
        own_url: own.is_some(),
        scopes: [
            scope(own.unwrap_or(&url.text), &method),
            scope(&format!("{}:{}", dns.host, dns.port), ""),
        ],
        interval: u64::try_from(cadence.as_nanos()).unwrap_or(u64::MAX),
    }
}

impl Score {
    /// A configured check has ended; `generation` is the one it was begun under.
    pub(in crate::app) fn probed(
        &self,
        snapshot: &Snapshot,
        generation: u64,
        subject: Subject,
        outcome: Outcome,
    ) {
        let latency = match outcome {
            Outcome::Answer(took) => Some(millis(took)),
            Outcome::Failure => None,
            Outcome::Neutral | Outcome::Absent => return,
        };
        let groups = self.checks.groups.load();
        let (node, domain, family, only) = match subject {
            _ if groups.is_empty() => return,
            Subject::Node {
                node,
                domain,
                family,
            } => (Some(node), domain, family, None),
            Subject::Member {
                group,
                member,
                family,
            } => {
                let Some(group) = snapshot.groups.group(group) else {
                    return;
                };
                let node = leaf_of(snapshot, member);
                (node, Domain::Tcp, family, Some(group.key()))
            }
        };
        let Some(node) = node.map(NodeKey::from) else {
            return;
        };
        let over_tcp = domain == Domain::Tcp;
        let concerned = groups.iter().filter(|(key, checked)| {
            let asked = match only {
                Some(only) => **key == only,
                None => !(over_tcp && checked.own_url),
            };
            asked && checked.nodes.contains(&node)
        });
        let reporter = self.checks.next.fetch_add(1, Relaxed);
        for (group, checked) in concerned {
            let sample = ProbeSample {
                group: *group,
                node,
                domain,
                family,
                scope: checked.scopes[usize::from(!over_tcp)],
                interval: Some(checked.interval),
                generation,
                reporter,
                latency,
            };
            self.lock().probe(self.now(), sample);
        }
    }
}

/// The node that a member stands for now.
fn leaf_of(snapshot: &Snapshot, member: MemberId) -> Option<NodeId> {
    match member {
        MemberId::Node(node) => Some(node),
        MemberId::Group(nested) => {
            let slot = snapshot.groups.group(nested)?.slot;
            let selected = snapshot.groups.select(slot, Network::Tcp, Family::V4);
            selected.ok().map(|selected| selected.leaf.id)
        }
    }
}

fn millis(took: Duration) -> f64 {
    took.as_secs_f64() * 1e3
}
