//! What holds after any sequence of health events, choices, flows and reloads.

use proptest::{collection::vec, prelude::*, sample::select};

use super::{
    invariants::{GROUPS, cases, defs, pool, reachable},
    *,
};
use crate::{
    group::{ChooseError, Member, Scope, Source, admit::admitted, member as membership},
    node::Origin,
};

/// One thing that happens.
#[derive(Clone, Debug)]
enum Step {
    /// A node, a domain and a family are found in a state.
    Seen(u128, Domain, Family, NodeState),
    /// A node is forgotten.
    Forgotten(u128),
    Disabled(u128),
    /// Member number of a group.
    Chosen(usize, usize, Scope),
    Dropped(usize, Scope),
    Flow(usize, Network, Family),
    Reload,
}

fn networks() -> impl Strategy<Value = Network> {
    select(vec![Network::Tcp, Network::Udp])
}

fn families() -> impl Strategy<Value = Family> {
    select(Family::ALL.to_vec())
}

fn scopes() -> impl Strategy<Value = Scope> {
    select(vec![Scope::Tcp, Scope::Udp, Scope::Both])
}

fn states() -> impl Strategy<Value = NodeState> {
    let latency = prop_oneof![
        Just(None),
        (1..8u32).prop_map(|n| Some(f64::from(n) * 40.0))
    ];
    (any::<bool>(), latency, 0..2u32).prop_map(|(alive, latency_ms, strikes)| NodeState {
        alive,
        latency_ms,
        strikes,
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let domain = select(Domain::ALL.to_vec());
    let seen = (1..5u128, domain, families(), states());
    let step = prop_oneof![
        6 => seen.prop_map(|(n, d, f, s)| Step::Seen(n, d, f, s)),
        1 => (1..5u128).prop_map(Step::Forgotten),
        1 => (1..5u128).prop_map(Step::Disabled),
        2 => (0..GROUPS, 0..4usize, scopes()).prop_map(|(g, m, s)| Step::Chosen(g, m, s)),
        1 => (0..GROUPS, scopes()).prop_map(|(g, s)| Step::Dropped(g, s)),
        3 => (0..GROUPS, networks(), families()).prop_map(|(g, n, f)| Step::Flow(g, n, f)),
        1 => Just(Step::Reload),
    ];
    vec(step, 1..25)
}

/// A table with everything that was found out so far.
struct Life {
    builder: Builder,
    defs: Vec<GroupDef>,
    seen: Seen,
    table: GroupTable,
}

impl Life {
    fn new(defs: &[GroupDef]) -> Self {
        let mut builder = Builder::default();
        Self {
            table: builder.build(&pool(), defs, None).0,
            defs: defs.to_vec(),
            seen: Seen::default(),
            builder,
        }
    }

    fn id(&self, group: usize) -> GroupId {
        at(&self.table, &format!("g{group}")).id
    }

    /// Takes the step; tells the table of no other node than the one the step is about.
    fn take(&mut self, step: &Step) {
        let node = match step {
            Step::Seen(node, domain, family, state) => {
                self.seen.set(*node, *domain, *family, *state);
                *node
            }
            Step::Forgotten(node) => {
                self.seen.states.retain(|(n, ..), _| n != node);
                self.seen.off.remove(node);
                *node
            }
            Step::Disabled(node) => {
                self.seen.off.insert(*node);
                *node
            }
            Step::Chosen(group, member, scope) => {
                let members = &at(&self.table, &format!("g{group}")).members;
                if let Some(member) = members.get(*member).map(Member::id) {
                    let chosen = self.table.choose(self.id(*group), *scope, member, NOW);
                    self.table = chosen.expect("a member").table;
                }
                return;
            }
            Step::Dropped(group, scope) => {
                let dropped = self.table.unchoose(self.id(*group), *scope, NOW);
                self.table = dropped.expect("a group").table;
                return;
            }
            Step::Flow(group, network, family) => {
                let slot = at(&self.table, &format!("g{group}")).slot;
                let _ = self.table.apply(slot, *network, *family);
                return;
            }
            Step::Reload => {
                self.table = self.builder.build(&pool(), &self.defs, Some(&self.table)).0;
                return;
            }
        };
        let touched = Touched {
            nodes: [NodeId(Uuid::from_u128(node))].into(),
            ..Touched::default()
        };
        self.table = self
            .table
            .judged(Arc::new(self.seen.clone()), &touched, NOW)
            .table;
    }

    fn state(&self, node: u128, domain: Domain, family: Family) -> Option<NodeState> {
        let other = match family {
            Family::V4 => Family::V6,
            Family::V6 => Family::V4,
        };
        let of = |family| self.seen.states.get(&(node, domain, family)).copied();
        of(family).or_else(|| of(other))
    }

    /// Health and capability of a node, as section 9 has it.
    fn eligible(&self, node: u128, network: Network, family: Family) -> bool {
        let tcp = self
            .state(node, Domain::Tcp, family)
            .is_none_or(|s| s.alive);
        let udp = [Domain::DnsUdp, Domain::DataUdp].map(|d| self.state(node, d, family));
        let carries = network == Network::Tcp || !matches!(node, 2 | 4);
        let alive = match (network, udp) {
            (Network::Tcp, _) | (Network::Udp, [None, None]) => tcp,
            (Network::Udp, udp) => udp.into_iter().flatten().any(|s| s.alive),
        };
        carries && alive && !self.seen.off.contains(&node)
    }

    /// Leaves and groups below a member, and what their finals lead to.
    fn below(&self, member: &Member) -> BTreeSet<NodeId> {
        let mut ids = BTreeSet::new();
        match member {
            Member::Node(node) => drop(ids.insert(node.id)),
            Member::Group { name, .. } => {
                reachable(&self.table, name, &mut BTreeSet::new(), &mut ids)
            }
        }
        ids
    }
}

fn everywhere() -> impl Iterator<Item = (String, Network, Family)> {
    let networks = [Network::Tcp, Network::Udp];
    (0..GROUPS).flat_map(move |g| {
        networks
            .into_iter()
            .flat_map(move |network| Family::ALL.map(|family| (format!("g{g}"), network, family)))
    })
}

/// Whether choices on every level lead to a node over members alone, without any final.
fn leads_to(table: &GroupTable, group: &Group, node: NodeId, depth: usize) -> bool {
    if depth == 8 || group.def.final_.is_some() {
        return false;
    }
    let fits = |member: &Member| match member {
        Member::Node(n) => n.id == node,
        Member::Group { name, .. } => leads_to(table, at(table, name), node, depth + 1),
    };
    let chosen = group
        .chosen(Network::Tcp)
        .and_then(|id| group.members.iter().find(|m| m.id() == id));
    let selector = group.def.policy == Policy::Selector;
    let default = group.def.default.as_ref().filter(|_| selector);
    let default = default.and_then(|tag| group.members.iter().find(|m| m.name() == tag));
    match chosen
        .or(default)
        .or_else(|| group.members.first().filter(|_| selector))
    {
        Some(member) => fits(member),
        None => group.members.iter().any(fits),
    }
}

proptest! {
    #![proptest_config(cases(300))]

    // G-079: what is worked out step by step is what working out everything gives.
    #[test]
    fn an_event_leaves_nothing_out_of_date(defs in defs(), steps in steps()) {
        let mut life = Life::new(&defs);
        for step in &steps {
            life.take(step);
            let mut whole = life.table.clone();
            whole.judge_all();
            prop_assert_eq!(&whole.live, &life.table.live, "after {:?}", step);
        }
    }

    // GI-01, GI-02, GI-03, GI-17, GI-20
    #[test]
    fn selections_stay_where_choices_and_finals_lead(defs in defs(), steps in steps()) {
        let mut life = Life::new(&defs);
        steps.iter().for_each(|step| life.take(step));
        let table = &life.table;
        for (name, network, family) in everywhere() {
            let group = at(table, &name);
            let picked = table.select(group.slot, network, family);
            let reach = table.reach(group.id).expect("a group");
            let mut all = BTreeSet::new();
            reachable(table, &name, &mut BTreeSet::new(), &mut all);
            let builtins = all.iter().filter(|id| number(**id) == 0).count();
            prop_assert_eq!(reach.tcp.len() + builtins, all.len());
            let Ok(pick) = picked else { continue };
            prop_assert!(all.contains(&pick.leaf.id), "{} {:?}", name, pick);
            let node = number(pick.leaf.id);
            if network == Network::Udp {
                prop_assert!(!matches!(node, 2 | 4), "{} {:?}", name, pick);
            }
            // The leaf may serve over a family that targets of this one ask for, unless it is
            // the last one.
            let asked: &[Family] = match family {
                Family::V4 => &[Family::V4],
                Family::V6 => &Family::ALL,
            };
            let able = node == 0 || asked.iter().any(|f| life.eligible(node, network, *f));
            prop_assert_eq!(able, pick.source != Source::LastResort, "{} {:?}", name, pick);
            if let Some(chosen) = group.chosen(network) {
                let member = group.members.iter().find(|m| m.id() == chosen);
                let member = member.expect("GI-15: an existing member");
                let inside = life.below(member).contains(&pick.leaf.id);
                prop_assert!(inside || pick.source == Source::Final, "{} {:?}", name, pick);
            }
        }
    }

    // GI-20, the other way round
    #[test]
    fn the_last_resort_serves_if_and_only_if_its_conditions_hold(defs in defs(), steps in steps()) {
        let mut life = Life::new(&defs);
        steps.iter().for_each(|step| life.take(step));
        let table = &life.table;
        for (name, network, family) in everywhere() {
            let group = at(table, &name);
            let picked = table.select(group.slot, network, family);
            let mut leaves = BTreeSet::new();
            members_below(table, group, &mut BTreeSet::new(), &mut leaves);
            let only = leaves.iter().next().copied().filter(|_| leaves.len() == 1);
            let dead = |id: NodeId| {
                let node = number(id);
                let able = |f: &Family| life.eligible(node, network, *f);
                let asked: &[Family] = match family {
                    Family::V4 => &[Family::V4],
                    Family::V6 => &Family::ALL,
                };
                node != 0 && !life.seen.off.contains(&node) && !asked.iter().any(able)
            };
            let wanted = network == Network::Tcp
                && only.is_some_and(|id| dead(id) && leads_to(table, group, id, 0));
            let got = matches!(picked, Ok(pick) if pick.source == Source::LastResort);
            prop_assert!(wanted || !got, "{} {:?} {:?}", name, network, picked);
            // A `final` of a group below may serve instead.
            prop_assert!(picked.is_ok() || !wanted, "{} {:?} {:?}", name, network, picked);
        }
    }

    // GI-06
    #[test]
    fn looking_changes_nothing(defs in defs(), steps in steps()) {
        let mut life = Life::new(&defs);
        steps.iter().for_each(|step| life.take(step));
        let before = format!("{:?}", life.table);
        for (name, network, family) in everywhere() {
            let _ = life.table.select(at(&life.table, &name).slot, network, family);
        }
        life.table.views();
        life.table.slots();
        life.table.warm_tcp();
        life.table.warm_udp(3);
        let stranger = GroupId(Uuid::from_u128(7));
        let nobody = life.table.choose(stranger, Scope::Both, member(1), NOW);
        prop_assert_eq!(nobody.map(|_| ()), Err(ChooseError::UnknownGroup));
        prop_assert_eq!(before, format!("{:?}", life.table));
    }

    // GI-07
    #[test]
    fn a_loadbalance_group_is_uniform_over_every_window(
        dead_nodes in vec(1..5u128, 0..3),
        skip in 0..9usize,
        other in 0..5usize,
    ) {
        let table = table(&pool(), &[all("g").policy(Policy::LoadBalance)]);
        let seen = dead_nodes.iter().fold(Seen::default(), |seen, &n| seen.tcp(n, DOWN));
        let table = told(&table, &seen).table;
        let alive = (1..5u128).filter(|n| !dead_nodes.contains(n)).count();
        (0..skip).for_each(|_| assert!(flow(&table, "g", Network::Tcp).is_ok()));
        for _ in 0..other {
            let _ = flow(&table, "g", Network::Udp);
        }
        let window: BTreeSet<u128> =
            (0..alive).map(|_| flow(&table, "g", Network::Tcp).unwrap()).collect();
        prop_assert_eq!(window.len(), alive);
    }

    // GI-08, GI-09
    #[test]
    fn automatic_selections_move_only_for_a_reason(steps in steps()) {
        let urltest = all("g1").policy(Policy::UrlTest);
        let rest = (2..GROUPS).map(|i| all(&format!("g{i}")));
        let mut defs = vec![all("g0").policy(Policy::Fallback), urltest];
        defs.extend(rest);
        let mut life = Life::new(&defs);
        let kept = |life: &Life, name: &str, network, family| {
            life.table.member_of(at(&life.table, name).id, network, family)
        };
        for step in steps {
            if matches!(step, Step::Chosen(..) | Step::Dropped(..)) {
                continue;
            }
            let before: Vec<_> =
                everywhere().map(|(n, net, fam)| kept(&life, &n, net, fam)).collect();
            life.take(&step);
            for ((name, network, family), old) in everywhere().zip(before) {
                let new = kept(&life, &name, network, family);
                let (Some(MemberId::Node(old)), Some(MemberId::Node(new))) = (old, new) else {
                    continue;
                };
                if old == new || !life.eligible(number(old), network, family) {
                    continue;
                }
                prop_assert_eq!(&*name, "g1", "a fallback moved from {:?}", old);
                let rank = |id: NodeId| rank(&life, number(id), network, family);
                let ((was, struck), (is, _)) = (rank(old), rank(new));
                let free = struck || was.is_infinite();
                prop_assert!(free || is + 50.0 < was, "{} to {}", was, is);
            }
        }
    }

    // GI-10
    #[test]
    fn both_networks_change_in_one_table(defs in defs(), steps in steps(), group in 0..GROUPS) {
        let mut life = Life::new(&defs);
        steps.iter().for_each(|step| life.take(step));
        let group = at(&life.table, &format!("g{group}"));
        for member in group.members.iter().map(Member::id) {
            let choice = life.table.choose(group.id, Scope::Both, member, NOW).unwrap();
            let after = choice.table.group(group.id).expect("the group");
            for network in [Network::Tcp, Network::Udp] {
                prop_assert_eq!(after.chosen(network), Some(member));
                prop_assert_eq!(group.chosen(network), life.table.group(group.id).unwrap().chosen(network));
            }
            let revisions = after.selection_revision - group.selection_revision;
            prop_assert_eq!(revisions, u64::from(choice.stored), "one revision for both");
        }
    }

    // GI-16
    #[test]
    fn udp_health_moves_no_tcp_selection_and_the_other_way_round(
        defs in defs(),
        steps in steps(),
        node in 1..5u128,
        family in families(),
        state in states(),
    ) {
        let mut life = Life::new(&defs);
        // UDP of every node has been observed, and measured where it is alive: nothing mirrors.
        for n in 1..5 {
            for f in Family::ALL {
                life.seen.set(n, Domain::DataUdp, f, alive(70.0));
                life.seen.set(n, Domain::DnsUdp, f, alive(70.0));
            }
        }
        for step in &steps {
            if !matches!(step, Step::Forgotten(_) | Step::Seen(_, Domain::DataUdp, ..)) {
                life.take(step);
            }
        }
        let table = told(&life.table, &life.seen).table;
        let leaves = |table: &GroupTable, network| -> Vec<_> {
            let of = |family| move |g: &Group| {
                table.select(g.slot, network, family).map(|s| s.leaf.id)
            };
            let both = Family::ALL.map(|f| table.groups().map(of(f)).collect::<Vec<_>>());
            both.into_iter().flatten().collect()
        };
        for (domain, other) in [(Domain::DnsUdp, Network::Tcp), (Domain::Tcp, Network::Udp)] {
            let mut seen = life.seen.clone();
            seen.set(node, domain, family, state);
            let after = told(&table, &seen).table;
            prop_assert_eq!(leaves(&table, other), leaves(&after, other), "{:?}", domain);
        }
    }

    // GI-12, GI-13
    #[test]
    fn lines_only_add_and_terms_only_take_away(
        first in vec(select(vec!["a", "b", "c", "direct", "gone"]), 1..3),
        more in vec(select(vec!["a", "b", "c"]), 1..3),
        pattern in select(vec!["", "a|b", "c", "^dir"]),
        negated in any::<bool>(),
    ) {
        let nodes: Vec<Arc<Node>> = pool().into_iter().map(Arc::new).collect();
        let members = |def: GroupDef| -> BTreeSet<NodeId> {
            let admitted = admitted(std::slice::from_ref(&def), &nodes);
            let members = {
                let places = admitted[0].as_ref().map(|a| a.nodes.as_slice());
                membership::nodes(&def, places, &nodes)
            };
            members.iter().map(|n| n.id).collect()
        };
        let of = |lines: Vec<FilterLine>| members(group("g", lines));
        let line = names(&first);
        let base = of(vec![line.clone()]);
        prop_assert!(base.is_subset(&of(vec![line, names(&more)])));
        let extra = name([regex(pattern)]);
        let extra = if negated { not(extra) } else { extra };
        let named = name(first.iter().map(|n| exact(n)));
        let narrowed = of(vec![FilterLine::Nodes(vec![named, extra.clone()])]);
        prop_assert!(narrowed.is_subset(&base));
        let spelled = first.contains(&"direct");
        let builtin = |ids: &BTreeSet<NodeId>| ids.iter().any(|id| number(*id) == 0);
        prop_assert_eq!(builtin(&base), spelled);
        prop_assert!(!builtin(&of(vec![FilterLine::Nodes(vec![extra])])));
        prop_assert!(!builtin(&members(all("g"))));
    }

    // GI-14
    #[test]
    fn a_renamed_subscription_moves_by_its_tag_and_by_nothing_else(
        from in vec(0..2usize, 4),
        wanted in select(vec!["old", "new", "other"]),
        named in vec(select(vec!["a", "b", "c"]), 1..3),
        negated in any::<bool>(),
    ) {
        let of = |tags: [&str; 2]| -> Vec<Arc<Node>> {
            let nodes = pool().into_iter().zip(&from);
            let node = |(node, which): (Node, &usize)| Arc::new(Node {
                origin: Some(Arc::new(Origin {
                    subscription: Uuid::from_u128(*which as u128),
                    tag: tags[*which].to_owned(),
                })),
                ..node
            });
            nodes.map(node).collect()
        };
        let tag = subtag([exact(wanted)]);
        let tag = if negated { not(tag) } else { tag };
        let groups = [
            all("all"),
            group("named", [names(&named)]),
            group("tagged", [FilterLine::Nodes(vec![tag])]),
        ];
        let table = |nodes: &[Arc<Node>], previous: Option<&GroupTable>| {
            let nodes: Vec<Node> = nodes.iter().map(|n| (**n).clone()).collect();
            GroupTable::of(&nodes, (&groups, &Places::default()), TOLERANCE, previous, &mut Uuid::new_v4).0
        };
        let members = |table: &GroupTable, group: &str| -> Vec<u128> {
            let members = at(table, group).members.iter();
            members.map(|m| match m.id() {
                MemberId::Node(id) => number(id),
                MemberId::Group(_) => 0,
            }).collect()
        };
        let before = table(&of(["old", "other"]), None);
        let after = table(&of(["new", "other"]), Some(&before));
        for group in ["all", "named"] {
            prop_assert_eq!(members(&before, group), members(&after, group));
        }
        // A node follows the present tag of the subscription that brought it.
        let tags = ["new", "other"];
        let expected: Vec<u128> = (1..=4u128)
            .zip(&from)
            .filter(|(_, which)| (tags[**which] == wanted) != negated)
            .map(|(id, _)| id)
            .collect();
        prop_assert_eq!(members(&after, "tagged"), expected);
        // Nobody became another node on the way.
        prop_assert!(before.nodes().iter().zip(after.nodes()).all(|(a, b)| a.id == b.id));
    }

    // GI-19
    #[test]
    fn a_namesake_never_stands_in(dead_first in any::<bool>(), network in networks()) {
        // 3 and 4 are both called `c`; 4 carries no UDP.
        let groups = [all("default").default("c"), of("final", &["b"]).last("c")];
        let table = table(&pool(), &groups);
        let victim = if dead_first { 3 } else { 4 };
        let seen = Seen::default().tcp(victim, DOWN).tcp(2, DOWN);
        let table = told(&table, &seen).table;
        let wanted = if dead_first { Err(Refuse::AllDead) } else { Ok(3) };
        prop_assert_eq!(leaf(&table, "default", network), wanted);
        prop_assert_eq!(leaf(&table, "final", Network::Tcp), wanted);
    }
}

fn rank(life: &Life, node: u128, network: Network, family: Family) -> (f64, bool) {
    let states = match network {
        Network::Tcp => vec![life.state(node, Domain::Tcp, family)],
        Network::Udp => vec![
            life.state(node, Domain::DataUdp, family),
            life.state(node, Domain::DnsUdp, family),
        ],
    };
    let latency = states.iter().flatten().find_map(|s| s.latency_ms);
    let struck = states.iter().flatten().any(|s| s.strikes > 0);
    (latency.unwrap_or(f64::INFINITY), struck)
}

/// Leaves over members only.
fn members_below(
    table: &GroupTable,
    group: &Group,
    seen: &mut BTreeSet<String>,
    leaves: &mut BTreeSet<NodeId>,
) {
    if !seen.insert(group.name.to_string()) {
        return;
    }
    for member in &*group.members {
        match member {
            Member::Node(node) => drop(leaves.insert(node.id)),
            Member::Group { name, .. } => members_below(table, at(table, name), seen, leaves),
        }
    }
}
