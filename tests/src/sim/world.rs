//! Scripted worlds: who is there, how nodes behave over time, what people do.

use std::net::Ipv4Addr;
use std::time::Duration;

use honk_policy::config::{Config, GroupDef, Policy};
use honk_policy::id::{NodeId, Ordinal, Uuid};
use honk_policy::node::{Host, Node, Protocol, Server};

/// How a node answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Behaviour {
    /// After so many milliseconds.
    Up(u64),
    /// After so many milliseconds, and not at all in so many of a hundred cases.
    Lossy(u64, u64),
    /// Connections are refused at once.
    Refuses,
    /// Nothing comes back.
    Blackhole,
}

/// Nodes with their schedules, and the groups over them.
#[derive(Clone, Debug, Default)]
pub struct World {
    pub(super) nodes: Vec<Node>,
    pub(super) schedules: Vec<Vec<(Duration, Behaviour)>>,
    pub(super) groups: Vec<GroupDef>,
}

/// Short for what scripts are written with.
#[derive(Clone, Copy, Debug)]
pub struct Sim;

impl Sim {
    /// A moment or duration in seconds.
    pub fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }
}

impl World {
    /// A node that behaves as the schedule says, each part from its moment on. Nodes are
    /// numbered from 1 in the order they are added.
    #[must_use]
    pub fn node(mut self, name: &str, schedule: &[(u64, Behaviour)]) -> Self {
        let number = self.nodes.len() as u128 + 1;
        self.nodes.push(Node {
            id: NodeId(Uuid::from_u128(number)),
            name: name.to_owned(),
            protocol: Protocol::Socks5(Server {
                host: Host::Ip(Ipv4Addr::LOCALHOST.into()),
                port: 1080,
                auth: None,
            }),
            origin: None,
        });
        let schedule = schedule.iter().map(|(from, b)| (Sim::s(*from), *b));
        self.schedules.push(schedule.collect());
        self
    }

    /// A group of all nodes.
    #[must_use]
    pub fn group(self, name: &str, policy: Policy) -> Self {
        self.group_with(name, policy, |_| {})
    }

    /// A group of all nodes, changed by hand.
    #[must_use]
    pub fn group_with(
        mut self,
        name: &str,
        policy: Policy,
        change: impl FnOnce(&mut GroupDef),
    ) -> Self {
        let mut def = GroupDef::new(
            name.to_owned(),
            Ordinal(u8::try_from(self.groups.len()).map_or(u8::MAX, |n| n + 2)),
            policy,
        );
        change(&mut def);
        self.groups.push(def);
        self
    }

    pub(super) fn config(&self) -> Config {
        Config {
            nodes: self.nodes.clone(),
            groups: self.groups.clone(),
            ..Config::default()
        }
    }

    pub(super) fn behaviour(&self, node: NodeId, now: Duration) -> Behaviour {
        let at = self.nodes.iter().position(|n| n.id == node);
        let schedule = at.map_or(&[][..], |at| &self.schedules[at]);
        let past = schedule.iter().rev().find(|(from, _)| *from <= now);
        past.map_or(Behaviour::Blackhole, |(_, behaviour)| *behaviour)
    }

    pub(super) fn name(&self, node: NodeId) -> &str {
        let node = self.nodes.iter().find(|n| n.id == node);
        node.map_or("direct", |n| &n.name)
    }
}

/// What somebody does.
#[derive(Clone, Debug)]
pub enum Act {
    /// Chooses or pins a member of a group, by names.
    Choose(&'static str, &'static str),
    /// Drops that.
    Unchoose(&'static str),
    /// Activates the same configuration again.
    Reload,
    /// A link, address or route changed.
    NetworkChanged,
    /// The process stands still for so many seconds while the clock goes on: nothing is heard,
    /// nothing is done, and everything that became due is due at once.
    Sleep(u64),
}

/// A run: how long, with how much traffic, and what people do meanwhile.
#[derive(Clone, Debug)]
pub struct Script {
    pub(super) end: Duration,
    pub(super) acts: Vec<(Duration, Act)>,
    pub(super) flows: Option<Duration>,
    pub(super) check: Duration,
    pub(super) seed: u64,
}

impl Script {
    /// So many seconds without traffic, checks every 30 s.
    pub fn lasting(seconds: u64) -> Self {
        Self {
            end: Sim::s(seconds),
            acts: Vec::new(),
            flows: None,
            check: Sim::s(30),
            seed: 1,
        }
    }

    /// A TCP flow through every group each so many milliseconds.
    #[must_use]
    pub fn flows_each(mut self, millis: u64) -> Self {
        self.flows = Some(Duration::from_millis(millis));
        self
    }

    /// Somebody does something after so many seconds.
    #[must_use]
    pub fn at(mut self, seconds: u64, act: Act) -> Self {
        self.acts.push((Sim::s(seconds), act));
        self
    }

    /// Checks every so many seconds.
    #[must_use]
    pub fn checked_each(mut self, seconds: u64) -> Self {
        self.check = Sim::s(seconds);
        self
    }

    /// Other chances: pauses between probes, losses.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }
}
