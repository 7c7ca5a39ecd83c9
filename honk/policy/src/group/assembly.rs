//! From declarations and the previous table to groups: nothing is selected here.
//!
//! What a group has kept (slot, id, choices) comes from the previous table by its name; the
//! rest is worked out anew.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use honk_common::outbound;
use honk_grammar::diag::{Diagnostic, Severity};

use super::{
    admit::{self, Admitted},
    builtin,
    graph::{self, Graph, MAX_DEPTH},
    member::{self, Member},
    pick::Way,
    shape,
    slot::{self, Retired},
    table::{Final, Group, GroupTable},
    view::ToleranceSource,
};
use crate::{
    config::{Field, FilterLine, GroupDef, Places, Policy, Predicate, TextTest},
    id::{GroupId, MemberId, Ordinal},
    node::Node,
    score::GroupKey,
};

/// What is known while the groups are put together.
pub(super) struct Assembly<'a> {
    defs: &'a [GroupDef],
    places: &'a Places,
    nodes: &'a [Arc<Node>],
    ids: Vec<GroupId>,
    slots: Vec<Ordinal>,
    graph: Graph,
    heights: Vec<usize>,
    finals: Vec<Final>,
    final_cycles: Vec<bool>,
    /// What urltest groups without one of their own have.
    tolerance: (u16, ToleranceSource),
    declared: HashSet<&'a str>,
}

impl<'a> Assembly<'a> {
    pub(super) fn new(
        (defs, places): (&'a [GroupDef], &'a Places),
        nodes: &'a [Arc<Node>],
        ids: Vec<GroupId>,
        slots: Vec<Ordinal>,
        tolerance: (u16, ToleranceSource),
    ) -> Self {
        let declared = defs.iter().enumerate().filter(|(_, d)| !d.implicit);
        let by_name: HashMap<&str, usize> = declared.map(|(i, d)| (d.name.as_str(), i)).collect();
        let edges = defs.iter().map(|def| {
            let tags = member::tags(def).into_iter();
            tags.filter_map(|tag| by_name.get(tag).copied()).collect()
        });
        let graph = Graph::new(defs, edges.collect());
        let finals = defs.iter().map(|d| graph::final_target(d, nodes, &by_name));
        let finals: Vec<Final> = finals.collect();
        Self {
            heights: graph.heights(),
            final_cycles: graph::final_cycles(&graph, &finals),
            declared: by_name.into_keys().collect(),
            defs,
            places,
            nodes,
            ids,
            slots,
            graph,
            finals,
            tolerance,
        }
    }

    pub(super) fn groups(
        self,
        previous: Option<&GroupTable>,
        findings: &mut Vec<Diagnostic>,
    ) -> Vec<Arc<Group>> {
        let admitted = admit::admitted(self.defs, self.nodes);
        let everyone = self.nodes.iter().cloned().map(Member::Node).collect();
        let group = |(index, admitted): (usize, Option<Admitted>)| {
            Arc::new(self.group(index, admitted.as_ref(), &everyone, previous, findings))
        };
        admitted.into_iter().enumerate().map(group).collect()
    }

    /// `everyone` is what groups without filters share.
    fn group(
        &self,
        index: usize,
        admitted: Option<&Admitted>,
        everyone: &Arc<[Member]>,
        previous: Option<&GroupTable>,
        findings: &mut Vec<Diagnostic>,
    ) -> Group {
        let def = &self.defs[index];
        let shared = def.filters.is_none() && !def.implicit;
        let nodes = match shared {
            true => Vec::new(),
            false => member::nodes(def, admitted.map(|a| a.nodes.as_slice()), self.nodes),
        };
        let extra = member::extra(def, &nodes);
        let nested: Arc<[usize]> = self.graph.children[index].as_slice().into();
        let groups = nested.iter().map(|&index| Member::Group {
            id: self.ids[index],
            name: self.defs[index].name.as_str().into(),
            index,
        });
        let members: Arc<[Member]> = match shared {
            true => Arc::clone(everyone),
            false => nodes.into_iter().map(Member::Node).chain(groups).collect(),
        };
        let default = def.default.as_deref();
        let default = default.and_then(|tag| members.iter().position(|m| m.name() == tag));
        let old = previous.and_then(|p| p.group_named(&def.name));
        let exists = |id: &MemberId| members.iter().any(|m| m.id() == *id);
        // A choice of a selector and a pin of a policy are not the same thing.
        let same = old.filter(|g| g.is_automatic() == is_automatic(def.policy));
        // A choice whose member is gone falls through to `default` (G-123, G-184).
        let choices = same.map_or([None; 2], |g| g.choices.map(|c| c.filter(exists)));
        let mut found = self.found(index, &members, default);
        let idle = admitted.map_or(&[][..], |admitted| &admitted.idle);
        found.extend(self.idle(index, &members, idle));
        findings.extend_from_slice(&found);
        let warnings = self.undeclared(index).into_iter().chain(found).collect();
        let name: Arc<str> = def.name.as_str().into();
        let kept = old.filter(|g| g.def.policy == def.policy);
        let activity = kept.map_or_else(Arc::default, |g| Arc::clone(&g.activity));
        let sleeps = def.policy == Policy::UrlTest;
        let scored = def.policy == Policy::Score;
        let key = GroupKey(u32::from(self.slots[index].0));
        let way = Way {
            path: Arc::new([Arc::clone(&name)]),
            ids: Arc::new([self.ids[index]]),
            activities: sleeps.then(|| Arc::clone(&activity)).into_iter().collect(),
            scores: scored.then_some(key).into_iter().collect(),
        };
        let (tolerance_ms, tolerance_source) = match def.tolerance_ms {
            Some(ms) => (ms, ToleranceSource::Explicit),
            None => self.tolerance,
        };
        let mut group = Group {
            id: self.ids[index],
            name,
            slot: self.slots[index],
            selection_revision: old.map_or(0, |g| {
                g.selection_revision + u64::from(g.choices != choices)
            }),
            warnings,
            def: Arc::new(def.clone()),
            nodes: shape::placed(&members, self.nodes),
            nested,
            members,
            choices,
            chosen_at: same.map_or([0; 2], |g| g.chosen_at),
            since: old.map_or([0; 2], |g| g.since),
            fixed: [None; 2],
            default,
            final_: self.finals[index].clone(),
            final_name: def.final_.as_deref().map(Into::into),
            final_cyclic: self.final_cycles[index],
            cut: self.graph.cut[index].as_slice().into(),
            extra,
            tolerance_ms,
            tolerance_source,
            way: Arc::new(way),
            // The old ones stay with the old table: whoever still reads it moves nothing here.
            counters: kept.map_or_else(Default::default, |g| {
                g.counters
                    .each_ref()
                    .map(|counter| Arc::new(counter.fork()))
            }),
            activity,
        };
        group.fix();
        group
    }

    /// What only the finished groups tell.
    fn found(&self, index: usize, members: &[Member], default: Option<usize>) -> Vec<Diagnostic> {
        let def = &self.defs[index];
        let name = &def.name;
        let places = self.places.group(name);
        let mut found = Vec::new();
        let mut warn = |number, slug, span, message, help: &str| {
            let mut finding = warning(number, slug, message).help(help);
            finding.span = span;
            found.push(finding);
        };
        let named = places.map(|p| p.name);
        for &child in &self.graph.cut[index] {
            let child = &self.defs[child].name;
            let message = format!(
                "group `{name}` lists group `{child}`, which leads back to it; the entry is left out"
            );
            let span = places.and_then(|p| p.nested.get(child).copied()).or(named);
            let help = "remove this entry or the one that leads back";
            warn("W909", "group-cycle", span, message, help);
        }
        if self.heights[index] > MAX_DEPTH {
            let message = format!(
                "group `{name}` nests {} groups deep; below {MAX_DEPTH} nothing is selected",
                self.heights[index]
            );
            let help = "list the inner groups directly instead of through others";
            warn("W909", "group-depth", named, message, help);
        }
        if let (Some(tag), None) = (&def.default, default)
            && self.is_declared(tag)
        {
            let message = format!("default `{tag}` of group `{name}` is no member; it is ignored");
            let span = places.and_then(|p| p.default).or(named);
            let help = member_help(members, tag);
            warn("W503", "default-unknown", span, message, &help);
        }
        if self.final_cycles[index] {
            let message =
                format!("final of group `{name}` leads back to it; flows that need it are refused");
            let span = places.and_then(|p| p.final_).or(named);
            let help = "name an outbound that does not lead back, such as a node or `block`";
            warn("W909", "final-cycle", span, message, help);
        }
        if members.is_empty() && !reported_empty(def) {
            let help = match (def.implicit, &def.filters) {
                (true, _) => "enable the node, or name another outbound",
                (false, None) => "declare nodes in `node { }` or `subscription { }`",
                (false, Some(_)) => {
                    "no node fits its filters: `honk validate --dump nodes` lists the names"
                }
            };
            let message = format!("group `{name}` has no member");
            warn("", "group-empty", named, message, help);
        }
        found
    }

    /// Filter lines that fit nothing while others do. (A name that no node has, and a tag that no
    /// subscription has, is told by the lowering.)
    fn idle(&self, index: usize, members: &[Member], idle: &[usize]) -> Vec<Diagnostic> {
        let def = &self.defs[index];
        if members.is_empty() || def.implicit {
            return Vec::new();
        }
        let fetched = self.nodes.iter().any(|node| node.origin.is_some());
        let untold = |predicate: &Predicate| {
            let exact = |test: &TextTest| matches!(test, TextTest::Exact(_));
            predicate.not
                || !predicate.tests.iter().all(exact)
                || (predicate.field == Field::Name && fetched)
        };
        let silent = |line: &&usize| match def.filters.iter().flatten().nth(**line) {
            Some(FilterLine::Nodes(predicates)) => {
                predicates.iter().any(untold) && !member::spells_builtin(predicates)
            }
            _ => false,
        };
        let places = self.places.group(&def.name);
        let finding = |line: &usize| {
            let mut finding = warning(
                "",
                "filter-empty",
                format!("group `{}`: this filter line fits no node", def.name),
            )
            .help("`honk validate --dump nodes` lists the names");
            finding.span = places.and_then(|p| p.filters.get(*line).copied().or(Some(p.name)));
            finding
        };
        idle.iter().filter(silent).map(finding).collect()
    }

    /// Names that nobody declares. The lowering has reported them with their place; here they
    /// are for readers of the group.
    fn undeclared(&self, index: usize) -> Vec<Diagnostic> {
        let def = &self.defs[index];
        let name = &def.name;
        let mut found = Vec::new();
        let mut warn = |slug, message| found.push(warning("W503", slug, message));
        for tag in member::tags(def) {
            if !self.declared.contains(tag) {
                let message = format!("group `{name}` lists group `{tag}`, which does not exist");
                warn("group-unknown", message);
            }
        }
        if let Some(tag) = def.default.as_ref().filter(|tag| !self.is_declared(tag)) {
            let message =
                format!("default `{tag}` of group `{name}` does not exist; it is ignored");
            warn("default-unknown", message);
        }
        if let (Some(tag), Final::Missing) = (&def.final_, &self.finals[index]) {
            let message = format!(
                "final `{tag}` of group `{name}` does not exist; flows that need it are refused"
            );
            warn("final-missing", message);
        }
        found
    }

    fn is_declared(&self, name: &str) -> bool {
        let node = || self.nodes.iter().any(|n| n.name == name);
        builtin::named(name).is_some() || self.declared.contains(name) || node()
    }
}

/// Whether the policy moves on its own.
pub(super) fn is_automatic(policy: Policy) -> bool {
    policy != Policy::Selector
}

/// The nodes; one that did not change stays the same allocation.
pub(super) fn shared_nodes(nodes: &[Node], previous: Option<&GroupTable>) -> Arc<[Arc<Node>]> {
    let old: HashMap<_, _> = previous
        .iter()
        .flat_map(|p| p.nodes())
        .map(|n| (n.id, n))
        .collect();
    let shared = |node: &Node| match old.get(&node.id) {
        Some(same) if ***same == *node => Arc::clone(same),
        _ => Arc::new(node.clone()),
    };
    nodes.iter().map(shared).collect()
}

/// Slots of the groups, and those that no group may get yet.
pub(super) fn slots(
    defs: &[GroupDef],
    places: &Places,
    previous: Option<&GroupTable>,
    findings: &mut Vec<Diagnostic>,
) -> (Vec<Ordinal>, Vec<Retired>) {
    let names: Vec<Arc<str>> = defs.iter().map(|d| d.name.as_str().into()).collect();
    let held = |name: &str| {
        let old = previous?.group_named(name)?;
        Some(old.slot).filter(|slot| outbound::is_user(slot.0))
    };
    let mut retired = previous.map_or_else(Vec::new, |p| p.retired.clone());
    for old in previous.into_iter().flat_map(GroupTable::groups) {
        if outbound::is_user(old.slot.0) && !names.contains(&old.name) {
            retired.push(Retired {
                name: Arc::clone(&old.name),
                slot: old.slot,
            });
        }
    }
    let slots = slot::assign(&names, held, &mut retired);
    let slots = defs.iter().zip(slots).map(|(def, slot)| {
        slot.unwrap_or_else(|| {
            let message = format!(
                "no ordinal is free for group `{}`: flows of removed groups still use theirs",
                def.name
            );
            let place = places.group(&def.name).map(|p| p.name);
            let finding =
                Diagnostic::new(Severity::Error, "E901", "too-many-groups", place, message);
            findings.push(finding.help("reload again when those flows have ended"));
            // Fails closed if it is published all the same.
            Ordinal(outbound::BLOCK)
        })
    });
    let slots = slots.collect();
    (slots, retired)
}

/// `group()` has a warning of its own that says the same.
fn reported_empty(def: &GroupDef) -> bool {
    let lines = def.filters.as_deref().unwrap_or_default();
    let silent = |line: &FilterLine| matches!(line, FilterLine::Groups(tags) if tags.is_empty());
    !lines.is_empty() && lines.iter().all(silent)
}

/// How to make something a member, with a few of those there are.
fn member_help(members: &[Member], tag: &str) -> String {
    let names: Vec<String> = members
        .iter()
        .take(3)
        .map(|m| format!("`{}`", m.name()))
        .collect();
    match names.as_slice() {
        [] => format!("add a `filter:` line that selects `{tag}`"),
        names => format!(
            "add a `filter:` line that selects `{tag}`, or name a member such as {}",
            names.join(", ")
        ),
    }
}

/// A warning about a group; the names stand in the message, not in machine fields (G-210).
fn warning(number: &'static str, slug: &'static str, message: String) -> Diagnostic {
    let mut finding = Diagnostic::new(Severity::Warning, number, slug, None, message);
    finding.section = Some("group".to_owned());
    finding
}
