//! Groups as the API shows them: plain structs, filled without side effects.

use std::collections::HashMap;

use honk_grammar::diag::Diagnostic;

use super::{
    field::By,
    live::{Resolver, TCP, V4},
    member::Member,
    pick::{Refuse, Source},
    table::{Final, Group, GroupTable, net},
};
use crate::{
    config::{Field, FilterLine, Policy, Predicate, TextTest},
    id::{GroupId, MemberId, Network, NodeId, Ordinal, Secret, Uuid},
    node::Protocol,
};

/// One group.
#[derive(Clone, Debug)]
pub struct GroupView {
    /// Identity.
    pub id: GroupId,
    /// Name.
    pub name: String,
    /// Policy.
    pub policy: Policy,
    /// Number in the configuration.
    pub ordinal: Ordinal,
    /// Number in the kernel.
    pub slot: Ordinal,
    /// Made for a node that a rule names.
    pub implicit: bool,
    /// `icon:`; mask listener secrets before showing it.
    pub icon: Option<Secret>,
    /// `default:` as written.
    pub default: Option<String>,
    /// What it names.
    pub default_member: Option<MemberId>,
    /// `final:`.
    pub final_: Option<FinalView>,
    /// `check_url:` of an automatic group.
    pub check_url: Option<String>,
    /// What must be gained to switch, in milliseconds; urltest only.
    pub tolerance_ms: Option<u16>,
    /// Who says so.
    pub tolerance_source: ToleranceSource,
    /// `idle_timeout:` in seconds, as written.
    pub idle_timeout_s: Option<u64>,
    /// Selection changes close flows.
    pub interrupt_connections: bool,
    /// The `filter` lines in canonical spelling; a line that was ignored is empty.
    pub filters: Vec<String>,
    /// Direct members in order.
    pub members: Vec<MemberView>,
    /// Nested groups that were left out.
    pub dropped_members: Vec<DroppedView>,
    /// Distinct nodes below it.
    pub leaf_count: usize,
    /// Selection for TCP.
    pub tcp: SelectionView,
    /// Selection for UDP.
    pub udp: SelectionView,
    /// Raised by every published change of a choice, a pin or an automatic selection.
    pub selection_revision: u64,
    /// Findings about this group.
    pub warnings: Vec<Diagnostic>,
}

/// Where a tolerance comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToleranceSource {
    /// The group's own key.
    Explicit,
    /// `global.check_tolerance`.
    Global,
    /// Nobody set it.
    Default,
}

impl ToleranceSource {
    /// Name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Explicit => "explicit",
            Self::Global => "global",
            Self::Default => "default",
        }
    }
}

/// Where `final` leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinalView {
    /// As written.
    pub name: String,
    /// What it is; a missing one counts as a node.
    pub kind: FinalKind,
    /// Its identity.
    pub id: Option<Uuid>,
    /// What is wrong with it.
    pub problem: Option<FinalProblem>,
}

/// What a `final` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinalKind {
    /// A node.
    Node,
    /// A group.
    Group,
    /// The built-in `direct`.
    Direct,
    /// The built-in `block`.
    Block,
}

/// What is wrong with a `final`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinalProblem {
    /// It names nothing.
    Missing,
    /// It leads back to the group.
    Cycle,
}

/// One direct member.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberView {
    /// Identity.
    pub id: MemberId,
    /// Display name.
    pub name: String,
    /// Place in the list.
    pub index: usize,
    /// Another member has the same name.
    pub duplicate_name: bool,
    /// Why it cannot serve TCP.
    pub tcp: Option<Ineligible>,
    /// Why it cannot serve UDP.
    pub udp: Option<Ineligible>,
    /// The node it stands for now, for TCP.
    pub leaf: Option<(NodeId, String)>,
    /// Its average TCP latency in milliseconds, under the group's `check_url` if it has one.
    pub delay_ms: Option<f64>,
}

/// Why a member may not serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ineligible {
    /// Its leaf is dead.
    Dead,
    /// Its leaf carries no UDP.
    UdpIncapable,
    /// The node is switched off.
    Disabled,
    /// A nested group without a leaf.
    NoMember,
    /// More than eight groups on the way.
    Depth,
}

impl Ineligible {
    /// Name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dead => "dead",
            Self::UdpIncapable => "udp_incapable",
            Self::Disabled => "disabled",
            Self::NoMember => "no_member",
            Self::Depth => "depth",
        }
    }
}

/// A nested group that was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedView {
    /// Its identity.
    pub id: GroupId,
    /// Its name.
    pub name: String,
    /// Why, as a diagnostic code.
    pub code: &'static str,
}

/// The selection of one network.
#[derive(Clone, Debug, PartialEq)]
pub struct SelectionView {
    /// The selected member, also when it cannot serve.
    pub member: Option<(MemberId, String)>,
    /// The node that serves.
    pub leaf: Option<(NodeId, String)>,
    /// Ids of groups and leaf; empty when nothing serves.
    pub path: Vec<Uuid>,
    /// Something serves, and not as last resort.
    pub alive: bool,
    /// Average latency of that node in milliseconds.
    pub delay_ms: Option<f64>,
    /// Unix milliseconds of the last change; `None` when there was none since the start.
    pub since_ms: Option<u64>,
    /// What decided; `None` when nothing serves.
    pub source: Option<Source>,
    /// Unix milliseconds of the pin of an automatic group.
    pub pinned_at_ms: Option<u64>,
    /// Name of the `final` that serves.
    pub final_used: Option<String>,
    /// Why nothing serves.
    pub refuse: Option<Refuse>,
}

impl GroupTable {
    /// The group with that identity.
    pub fn view(&self, id: GroupId) -> Option<GroupView> {
        self.index_of(id).map(|index| self.view_at(index))
    }

    /// All groups in configuration order, implicit ones included.
    pub fn views(&self) -> Vec<GroupView> {
        (0..self.groups.len())
            .map(|index| self.view_at(index))
            .collect()
    }

    fn view_at(&self, index: usize) -> GroupView {
        let group = &*self.groups[index];
        let def = &*group.def;
        let is_urltest = def.policy == Policy::UrlTest;
        GroupView {
            id: group.id,
            name: def.name.clone(),
            policy: def.policy,
            ordinal: def.ordinal,
            slot: group.slot,
            implicit: def.implicit,
            icon: def.icon.clone(),
            default: def.default.clone(),
            default_member: group.default_member().map(Member::id),
            final_: self.final_view(group),
            check_url: def.check_url.clone(),
            tolerance_ms: is_urltest.then_some(group.tolerance_ms),
            tolerance_source: group.tolerance_source,
            idle_timeout_s: def.idle_timeout_s,
            interrupt_connections: def.interrupt_connections,
            filters: def.filters.iter().flatten().map(spelled).collect(),
            members: self.member_views(index),
            dropped_members: self.dropped_views(group),
            leaf_count: self.shape.leaf_counts[index],
            tcp: self.selection_view(index, Network::Tcp),
            udp: self.selection_view(index, Network::Udp),
            selection_revision: group.selection_revision,
            warnings: group.warnings.to_vec(),
        }
    }

    fn final_view(&self, group: &Group) -> Option<FinalView> {
        let name = group.def.final_.clone()?;
        let (kind, id) = match &group.final_ {
            Final::None | Final::Missing => (FinalKind::Node, None),
            Final::Node(node) => {
                let kind = match node.protocol {
                    Protocol::Direct => FinalKind::Direct,
                    Protocol::Block => FinalKind::Block,
                    Protocol::Socks5(_) | Protocol::Http(_) | Protocol::Proxy(_) => FinalKind::Node,
                };
                (kind, Some(node.id.0))
            }
            Final::Group(index) => (FinalKind::Group, Some(self.groups[*index].id.0)),
        };
        let problem = match (&group.final_, group.final_cyclic) {
            (Final::Missing, _) => Some(FinalProblem::Missing),
            (_, true) => Some(FinalProblem::Cycle),
            _ => None,
        };
        Some(FinalView {
            name,
            kind,
            id,
            problem,
        })
    }

    fn member_views(&self, index: usize) -> Vec<MemberView> {
        let members = &self.groups[index].members;
        let mut names = HashMap::new();
        for member in &**members {
            *names.entry(member.name()).or_insert(0) += 1;
        }
        let resolver = self.resolver();
        let view = |(at, member): (usize, &Member)| {
            resolver.walks.begin();
            let leaf = resolver.leaf(index, at as u32, TCP, V4).ok();
            let node = leaf.map(|leaf| &self.shape.leaves[leaf as usize]);
            MemberView {
                id: member.id(),
                name: member.name().to_owned(),
                index: at,
                duplicate_name: names[member.name()] > 1,
                tcp: self.ineligible(&resolver, index, at, Network::Tcp),
                udp: self.ineligible(&resolver, index, at, Network::Udp),
                leaf: node.map(|leaf| (leaf.id, leaf.name.clone())),
                delay_ms: self.delay(index, at, leaf),
            }
        };
        members.iter().enumerate().map(view).collect()
    }

    /// Why a member may not serve flows to IPv4 targets.
    fn ineligible(
        &self,
        resolver: &Resolver<'_>,
        index: usize,
        at: usize,
        network: Network,
    ) -> Option<Ineligible> {
        let refuse = resolver.leaf(index, at as u32, net(network), V4).err()?;
        Some(match (refuse, self.groups[index].members.get(at)) {
            (Refuse::AllDead, Some(Member::Node(node))) if !resolver.is_enabled(node.id) => {
                Ineligible::Disabled
            }
            (Refuse::AllDead, _) => Ineligible::Dead,
            (Refuse::UdpIncapable, _) => Ineligible::UdpIncapable,
            (Refuse::Depth, _) => Ineligible::Depth,
            (Refuse::NoMember | Refuse::FinalMissing | Refuse::FinalCycle, _) => {
                Ineligible::NoMember
            }
        })
    }

    /// TCP latency of a member, known also of one that is dead.
    fn delay(&self, index: usize, at: usize, leaf: Option<u32>) -> Option<f64> {
        let leaf = self.groups[index].nodes.get(at).copied().or(leaf)?;
        let mark = self.resolver().under_url(index, at as u32, TCP, V4, leaf);
        mark.measured().then_some(mark.latency)
    }

    fn dropped_views(&self, group: &Group) -> Vec<DroppedView> {
        let dropped = group.cut.iter().map(|&index| DroppedView {
            id: self.groups[index].id,
            name: self.groups[index].name.to_string(),
            code: "group-cycle",
        });
        dropped.collect()
    }

    fn selection_view(&self, index: usize, network: Network) -> SelectionView {
        let at = net(network);
        let group = &*self.groups[index];
        let pick = self.selected(index, at, V4, &mut By::Look(&*self.ranks));
        let kept = self.kept_member(index, at, V4);
        let kept = kept.and_then(|kept| group.members.get(kept as usize));
        // Members in turn, or ranked anew for each flow: the one of this moment.
        let turn = || {
            let member = pick.as_ref().ok()?.member?;
            group.members.iter().find(|m| m.id() == member)
        };
        let member = kept.or_else(turn);
        let pinned = group.is_automatic() && group.choices[at].is_some();
        let since = group.since[at];
        let delay = |leaf: NodeId| {
            let leaf = *self.shape.places(leaf).first()? as usize;
            let mark = self.marks[leaf][at][V4];
            mark.measured().then_some(mark.latency)
        };
        let leaf = pick.as_ref().ok().map(|p| p.leaf);
        let path = pick.as_ref().map_or_else(
            |_| Vec::new(),
            |p| p.groups.iter().map(|g| g.0).chain([p.leaf.id.0]).collect(),
        );
        SelectionView {
            member: member.map(|m| (m.id(), m.name().to_owned())),
            leaf: leaf.map(|leaf| (leaf.id, leaf.name.clone())),
            path,
            alive: pick.is_ok_and(|p| p.source != Source::LastResort),
            delay_ms: leaf.and_then(|leaf| delay(leaf.id)),
            since_ms: (since != 0).then_some(since),
            source: pick.ok().map(|p| p.source),
            pinned_at_ms: pinned.then_some(group.chosen_at[at]),
            final_used: pick
                .ok()
                .and_then(|p| p.final_used.map(|name| name.to_string())),
            refuse: pick.err(),
        }
    }
}

fn spelled(line: &FilterLine) -> String {
    match line {
        FilterLine::Nodes(predicates) => {
            let calls: Vec<String> = predicates.iter().map(call).collect();
            calls.join(" && ")
        }
        FilterLine::Groups(tags) => {
            let tags: Vec<String> = tags.iter().map(|t| quoted(t)).collect();
            format!("group({})", tags.join(", "))
        }
        FilterLine::Ignored => String::new(),
    }
}

fn call(predicate: &Predicate) -> String {
    let not = if predicate.not { "!" } else { "" };
    let name = match predicate.field {
        Field::Name => "name",
        Field::Subtag => "subtag",
    };
    let tests = predicate.tests.iter().map(|test| match test {
        TextTest::Exact(s) => quoted(s),
        TextTest::Keyword(s) => format!("keyword: {}", quoted(s)),
        TextTest::Regex(s) => format!("regex: {}", quoted(s)),
    });
    let tests: Vec<String> = tests.collect();
    format!("{not}{name}({})", tests.join(", "))
}

fn quoted(text: &str) -> String {
    let quote = if text.contains('\'') { '"' } else { '\'' };
    format!("{quote}{text}{quote}")
}
