//! Builders for nodes, groups and tables, shared by the tests of this room.

mod choosing;
mod families;
mod invariants;
mod matrix;
mod membership;
mod nesting;
mod pins;
mod policies;
mod properties;
mod ranking;
mod rivals;
mod scored;
mod selecting;
mod slots;
mod text;
mod views;
mod warmth;

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    net::Ipv4Addr,
    sync::Arc,
};

use honk_grammar::diag::Diagnostic;

use super::{
    Changed, GroupTable, Health, NodeState, Refuse, Selected, ToleranceSource, Update, table::Group,
};
use crate::{
    config::{Field, FilterLine, GroupDef, Places, Policy, Predicate, TextTest},
    health::Touched,
    id::{Domain, Family, GroupId, MemberId, Network, NodeId, Ordinal, Uuid},
    node::{Host, Node, Protocol, Server},
};

/// When choices of these tests are made.
const NOW: u64 = 1_000;
const TOLERANCE: (u16, ToleranceSource) = (50, ToleranceSource::Default);

/// A node that carries TCP and UDP. Its identity is `number`, its name may repeat.
fn socks(number: u128, name: &str) -> Node {
    node(number, name, Protocol::Socks5)
}

/// A node that carries TCP only.
fn http(number: u128, name: &str) -> Node {
    node(number, name, Protocol::Http)
}

fn node(number: u128, name: &str, protocol: fn(Server) -> Protocol) -> Node {
    Node {
        id: NodeId(Uuid::from_u128(number)),
        name: name.to_owned(),
        protocol: protocol(Server {
            host: Host::Ip(Ipv4Addr::LOCALHOST.into()),
            port: 1080,
            auth: None,
        }),
        origin: None,
    }
}

/// A group without `filter`: all nodes.
fn all(name: &str) -> GroupDef {
    GroupDef::new(name.to_owned(), Ordinal(0), Policy::Selector)
}

fn group(name: &str, filters: impl Into<Vec<FilterLine>>) -> GroupDef {
    GroupDef {
        filters: Some(filters.into()),
        ..all(name)
    }
}

/// A group of named nodes.
fn of(name: &str, nodes: &[&str]) -> GroupDef {
    group(name, [names(nodes)])
}

/// A group of groups.
fn nest(name: &str, groups: &[&str]) -> GroupDef {
    group(name, [groups_line(groups)])
}

trait Keys {
    fn default(self, name: &str) -> Self;
    fn last(self, name: &str) -> Self;
    fn policy(self, policy: Policy) -> Self;
}

impl Keys for GroupDef {
    fn default(mut self, name: &str) -> Self {
        self.default = Some(name.to_owned());
        self
    }

    fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// `final:`.
    fn last(mut self, name: &str) -> Self {
        self.final_ = Some(name.to_owned());
        self
    }
}

fn groups_line(groups: &[&str]) -> FilterLine {
    FilterLine::Groups(groups.iter().map(|&g| g.to_owned()).collect())
}

fn names(nodes: &[&str]) -> FilterLine {
    FilterLine::Nodes(vec![name(nodes.iter().map(|n| exact(n)))])
}

fn name(tests: impl IntoIterator<Item = TextTest>) -> Predicate {
    Predicate {
        not: false,
        field: Field::Name,
        tests: tests.into_iter().collect(),
    }
}

fn subtag(tests: impl IntoIterator<Item = TextTest>) -> Predicate {
    Predicate {
        field: Field::Subtag,
        ..name(tests)
    }
}

fn not(predicate: Predicate) -> Predicate {
    Predicate {
        not: !predicate.not,
        ..predicate
    }
}

fn exact(text: &str) -> TextTest {
    TextTest::Exact(text.to_owned())
}

fn keyword(text: &str) -> TextTest {
    TextTest::Keyword(text.to_owned())
}

fn regex(text: &str) -> TextTest {
    TextTest::Regex(text.to_owned())
}

/// Builds tables with ids that count up, over any number of generations.
#[derive(Default)]
struct Builder {
    ids: u128,
}

impl Builder {
    fn build(
        &mut self,
        nodes: &[Node],
        groups: &[GroupDef],
        previous: Option<&GroupTable>,
    ) -> (GroupTable, Vec<Diagnostic>) {
        let groups: Vec<GroupDef> = groups
            .iter()
            .zip(2..)
            .map(|(g, ordinal)| GroupDef {
                ordinal: Ordinal(ordinal),
                ..g.clone()
            })
            .collect();
        GroupTable::of(
            nodes,
            (&groups, &Places::default()),
            TOLERANCE,
            previous,
            &mut || {
                self.ids += 1;
                Uuid::from_u128(0xffff_0000 + self.ids)
            },
        )
    }
}

fn table(nodes: &[Node], groups: &[GroupDef]) -> GroupTable {
    Builder::default().build(nodes, groups, None).0
}

/// Codes of the warnings that readers of the groups see.
fn warned(nodes: &[Node], groups: &[GroupDef]) -> Vec<(&'static str, &'static str)> {
    let table = table(nodes, groups);
    let warnings = table.groups().flat_map(|g| g.warnings.iter());
    warnings.map(|d| (d.number, d.slug)).collect()
}

fn findings(nodes: &[Node], groups: &[GroupDef]) -> Vec<(&'static str, &'static str)> {
    let (_, found) = Builder::default().build(nodes, groups, None);
    found.iter().map(|d| (d.number, d.slug)).collect()
}

fn at<'t>(table: &'t GroupTable, name: &str) -> &'t Group {
    table.group_named(name).expect("a group of that name")
}

fn selected<'t>(
    table: &'t GroupTable,
    name: &str,
    network: Network,
) -> Result<Selected<'t>, Refuse> {
    table.select(at(table, name).slot, network, Family::V4)
}

/// Identity of the selected leaf; built-ins are 0.
fn leaf(table: &GroupTable, name: &str, network: Network) -> Result<u128, Refuse> {
    selected(table, name, network).map(|s| number(s.leaf.id))
}

fn tcp(table: &GroupTable, name: &str) -> Result<u128, Refuse> {
    leaf(table, name, Network::Tcp)
}

fn udp(table: &GroupTable, name: &str) -> Result<u128, Refuse> {
    leaf(table, name, Network::Udp)
}

fn number(id: NodeId) -> u128 {
    let n = id.0.as_u128();
    if n > u128::from(u64::MAX) { 0 } else { n }
}

fn members(table: &GroupTable, group: &str) -> Vec<String> {
    let members = at(table, group).members.iter();
    members.map(|m| m.name().to_owned()).collect()
}

fn member(number: u128) -> MemberId {
    MemberId::Node(NodeId(Uuid::from_u128(number)))
}

/// These nodes are dead on these networks.
#[derive(Debug, Default)]
struct Dead {
    tcp: HashSet<u128>,
    udp: HashSet<u128>,
}

impl Health for Dead {
    fn state(&self, node: NodeId, domain: Domain, _: Family) -> Option<NodeState> {
        let dead = match domain {
            Domain::Tcp => &self.tcp,
            Domain::DnsUdp | Domain::DataUdp => &self.udp,
        };
        Some(NodeState {
            alive: !dead.contains(&node.0.as_u128()),
            latency_ms: None,
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

fn dead(table: &GroupTable, numbers: impl IntoIterator<Item = u128>) -> GroupTable {
    let tcp: HashSet<u128> = numbers.into_iter().collect();
    let udp = tcp.clone();
    judged(table, Dead { udp, tcp })
}

/// Health as a test wants it: what is not set was never observed.
#[derive(Clone, Debug, Default)]
struct Seen {
    states: BTreeMap<(u128, Domain, Family), NodeState>,
    urls: BTreeMap<(GroupId, MemberId, Family), NodeState>,
    off: BTreeSet<u128>,
}

/// Alive with a latency in milliseconds.
fn alive(ms: f64) -> NodeState {
    NodeState {
        alive: true,
        latency_ms: Some(ms),
        strikes: 0,
    }
}

const DOWN: NodeState = NodeState {
    alive: false,
    latency_ms: Some(1.0),
    strikes: 0,
};

fn struck(ms: f64) -> NodeState {
    NodeState {
        strikes: 1,
        ..alive(ms)
    }
}

impl Seen {
    fn set(&mut self, node: u128, domain: Domain, family: Family, state: NodeState) -> &mut Self {
        self.states.insert((node, domain, family), state);
        self
    }

    /// TCP over IPv4.
    fn tcp(mut self, node: u128, state: NodeState) -> Self {
        self.set(node, Domain::Tcp, Family::V4, state);
        self
    }

    fn tcp6(mut self, node: u128, state: NodeState) -> Self {
        self.set(node, Domain::Tcp, Family::V6, state);
        self
    }

    fn udp(mut self, node: u128, domain: Domain, state: NodeState) -> Self {
        self.set(node, domain, Family::V4, state);
        self
    }

    fn url(mut self, group: GroupId, member: MemberId, state: NodeState) -> Self {
        self.urls.insert((group, member, Family::V4), state);
        self
    }

    fn off(mut self, node: u128) -> Self {
        self.off.insert(node);
        self
    }
}

impl Health for Seen {
    fn state(&self, node: NodeId, domain: Domain, family: Family) -> Option<NodeState> {
        self.states
            .get(&(node.0.as_u128(), domain, family))
            .copied()
    }

    fn url_state(&self, group: GroupId, member: MemberId, family: Family) -> Option<NodeState> {
        self.urls.get(&(group, member, family)).copied()
    }

    fn disabled(&self, node: NodeId) -> bool {
        self.off.contains(&node.0.as_u128())
    }
}

/// The table and what moved after all of this was found out.
fn told(table: &GroupTable, health: &Seen) -> Update {
    let groups = table.groups();
    let members = groups.flat_map(|g| g.members.iter().map(|m| (g.id, m.id())));
    let touched = Touched {
        nodes: table.nodes().iter().map(|n| n.id).collect(),
        members: members.collect(),
    };
    table.judged(Arc::new(health.clone()), &touched, NOW)
}

/// A flow of real traffic to an IPv4 target.
fn flow(table: &GroupTable, name: &str, network: Network) -> Result<u128, Refuse> {
    let picked = table.apply(at(table, name).slot, network, Family::V4);
    picked.map(|s| number(s.leaf.id))
}

/// The table after health changed in any way.
fn judged(table: &GroupTable, health: impl Health + 'static) -> GroupTable {
    let touched = Touched {
        nodes: table.nodes().iter().map(|n| n.id).collect(),
        ..Touched::default()
    };
    table.judged(Arc::new(health), &touched, NOW).table
}

/// Networks on which groups of both tables select another member in the newer one.
fn moved(old: &GroupTable, new: &GroupTable) -> Vec<(GroupId, Changed)> {
    let mut moved: Vec<(GroupId, Changed)> = Vec::new();
    for change in old.changes(new) {
        if moved.last().is_none_or(|(group, _)| *group != change.group) {
            moved.push((change.group, Changed::default()));
        }
        let (_, changed) = moved.last_mut().expect("just pushed");
        match change.network {
            Network::Tcp => changed.tcp = true,
            Network::Udp => changed.udp = true,
        }
    }
    moved
}
