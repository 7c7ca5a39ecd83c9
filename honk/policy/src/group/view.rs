//! Groups as the API shows them: plain structs, filled without side effects.

use std::collections::HashMap;

use honk_grammar::diag::Diagnostic;

use super::{
    member::Member,
    resolve::{Refuse, Source},
    table::{Final, Group, GroupTable},
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
    /// Raised by every change of the choices.
    pub selection_revision: u64,
    /// Findings about this group.
    pub warnings: Vec<Diagnostic>,
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
#[derive(Clone, Debug, PartialEq, Eq)]
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
    pub tcp: Option<Refuse>,
    /// Why it cannot serve UDP.
    pub udp: Option<Refuse>,
    /// The node it stands for now, for TCP.
    pub leaf: Option<(NodeId, String)>,
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectionView {
    /// The selected member, also when it cannot serve.
    pub member: Option<(MemberId, String)>,
    /// The node that serves.
    pub leaf: Option<(NodeId, String)>,
    /// Ids of groups and leaf; empty when nothing serves.
    pub path: Vec<Uuid>,
    /// Something serves, and not as last resort.
    pub alive: bool,
    /// What decided; `None` when nothing serves.
    pub source: Option<Source>,
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
        let resolver = self.resolver(Network::Tcp);
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
            interrupt_connections: def.interrupt_connections,
            filters: def.filters.iter().flatten().map(spelled).collect(),
            members: self.member_views(index),
            dropped_members: self.dropped_views(group),
            leaf_count: resolver.leaves(index).len(),
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
        let view = |(at, member): (usize, &Member)| {
            let tcp = self.resolver(Network::Tcp).leaf(index, member);
            let udp = self.resolver(Network::Udp).leaf(index, member);
            MemberView {
                id: member.id(),
                name: member.name().to_owned(),
                index: at,
                duplicate_name: names[member.name()] > 1,
                tcp: tcp.as_ref().err().copied(),
                udp: udp.err(),
                leaf: tcp.ok().map(|leaf| (leaf.id, leaf.name.clone())),
            }
        };
        members.iter().enumerate().map(view).collect()
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
        let resolver = self.resolver(network);
        let member = resolver.member(&self.groups[index]);
        let pick = resolver.select(index);
        let refuse = pick.as_ref().err().copied();
        let pick = pick.ok();
        SelectionView {
            member: member.map(|(m, _)| (m.id(), m.name().to_owned())),
            leaf: pick.as_ref().map(|p| (p.leaf.id, p.leaf.name.clone())),
            path: pick.as_ref().map_or_else(Vec::new, |p| p.ids.to_vec()),
            alive: pick
                .as_ref()
                .is_some_and(|p| p.source != Source::LastResort),
            source: pick.as_ref().map(|p| p.source),
            final_used: pick.and_then(|p| p.final_used).map(|name| name.to_string()),
            refuse,
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
