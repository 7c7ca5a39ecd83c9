//! Score groups: what they offer, whom they ask, and who learns.

use super::*;
use crate::{
    group::{Offer, Ranker, Ranks},
    score::{GroupKey, NodeKey},
};

/// Nodes of a view by number, each with its place among the members.
type Asked = Vec<(u128, u32)>;

/// Takes the last of each view and notes what it was asked.
#[derive(Debug, Default)]
struct Last {
    asked: Vec<(GroupKey, Asked, u32)>,
    found: Vec<GroupKey>,
}

impl Ranker for Last {
    fn rank(&mut self, offer: &Offer<'_>) -> Option<usize> {
        let view = offer.view.iter().map(|c| (plain(c.node), c.member));
        self.asked
            .push((offer.group, view.collect(), offer.filtered));
        Some(offer.view.len() - 1)
    }

    fn found(&mut self, groups: &[GroupKey], _: NodeKey, _: Network) {
        self.found = groups.to_vec();
    }
}

/// Number of a node of these tests.
fn plain(key: NodeKey) -> u128 {
    let known = (0..20).map(|n| (n, NodeKey::from(NodeId(Uuid::from_u128(n)))));
    let mut same = known.filter(|(_, node)| *node == key);
    same.next().map_or(0, |(n, _)| n)
}

/// Where a flow goes, and what was asked on the way.
fn serve(table: &GroupTable, name: &str, network: Network) -> (Result<u128, Refuse>, Last) {
    let mut last = Last::default();
    let slot = at(table, name).slot;
    let selected = table.serve(slot, network, Family::V4, &mut last);
    (selected.map(|s| number(s.leaf.id)), last)
}

fn score(name: &str, nodes: &[&str]) -> GroupDef {
    of(name, nodes).policy(Policy::Score)
}

fn dead(numbers: &[u128]) -> Seen {
    let mut seen = Seen::default();
    for &n in numbers {
        for family in Family::ALL {
            let state = NodeState {
                alive: false,
                latency_ms: None,
                strikes: 0,
            };
            seen.states.insert((n, Domain::Tcp, family), state);
        }
    }
    seen
}

#[test]
fn the_view_holds_each_able_leaf_once_and_no_block() {
    let nodes = [socks(1, "a"), http(2, "b"), socks(3, "c"), socks(1, "a")];
    let table = table(&nodes, &[score("g", &["a", "b", "c", "block"])]);
    let (leaf, last) = serve(&table, "g", Network::Tcp);
    let key = at(&table, "g").key();
    assert_eq!(leaf, Ok(3));
    assert_eq!(last.asked, [(key, vec![(1, 0), (2, 1), (3, 2)], 0)]);
    assert_eq!(last.found, [key]);
    let (_, last) = serve(&table, "g", Network::Udp);
    assert_eq!(last.asked, [(key, vec![(1, 0), (3, 2)], 1)]);
    let table = told(&table, &dead(&[3])).table;
    let (leaf, last) = serve(&table, "g", Network::Tcp);
    assert_eq!((leaf, last.asked[0].2), (Ok(2), 1));
    let (leaf, last) = serve(&told(&table, &dead(&[1, 2, 3])).table, "g", Network::Tcp);
    // What ends flows is left to end them.
    assert_eq!((leaf, last.asked), (Ok(0), vec![]));
}

#[test]
fn nested_groups_stand_for_one_leaf_and_those_with_a_say_are_asked() {
    let nodes = [socks(1, "a"), socks(2, "b"), socks(3, "c"), socks(4, "d")];
    let inner = group("inner", [names(&["c", "d"])]).policy(Policy::Score);
    let groups = [
        nest("outer", &["pick", "inner"]).policy(Policy::Score),
        of("pick", &["b", "a"]),
        inner,
    ];
    let table = table(&nodes, &groups);
    let (leaf, last) = serve(&table, "outer", Network::Tcp);
    let (outer, inner) = (at(&table, "outer").key(), at(&table, "inner").key());
    assert_eq!(leaf, Ok(4));
    // Where nobody ranks for readers, the first leaf of the inner group stands for it.
    assert_eq!(
        last.asked,
        [
            (outer, vec![(1, 0), (3, 1)], 0),
            (inner, vec![(3, 0), (4, 1)], 0)
        ]
    );
    assert_eq!(last.found, [outer, inner]);
    let selected = table
        .serve(
            at(&table, "outer").slot,
            Network::Tcp,
            Family::V4,
            &mut Last::default(),
        )
        .unwrap();
    assert_eq!(selected.path.len(), 2);
    assert_eq!(
        selected.member,
        Some(MemberId::Group(at(&table, "inner").id))
    );
}

#[test]
fn balanced_groups_below_take_turns() {
    let nodes = [socks(1, "a"), socks(2, "b"), socks(3, "c")];
    let groups = [
        group("outer", [names(&["c"]), groups_line(&["turn"])]).policy(Policy::Score),
        of("turn", &["a", "b"]).policy(Policy::LoadBalance),
    ];
    let table = table(&nodes, &groups);
    let seen: Vec<_> = (0..4)
        .map(|_| serve(&table, "outer", Network::Tcp).0)
        .collect();
    assert_eq!(seen, [Ok(1), Ok(2), Ok(1), Ok(2)]);
    // Looking moves nothing.
    assert_eq!(tcp(&table, "outer"), Ok(3));
    assert_eq!(serve(&table, "outer", Network::Tcp).0, Ok(1));
}

#[test]
fn what_is_decided_elsewhere_is_not_asked_but_learned_from() {
    let nodes = [socks(1, "a"), socks(2, "b")];
    let groups = [score("g", &["a", "b"]).last("direct"), nest("over", &["g"])];
    let first = table(&nodes, &groups);
    let group = at(&first, "g");
    let pinned = first
        .choose(
            group.id,
            crate::group::Scope::Tcp,
            group.members[0].id(),
            NOW,
        )
        .unwrap()
        .table;
    let key = at(&pinned, "g").key();
    let (leaf, last) = serve(&pinned, "over", Network::Tcp);
    assert_eq!((leaf, last.asked), (Ok(1), vec![]));
    assert_eq!(last.found, [key]);
    assert_eq!(source(&pinned, "g"), Some(crate::group::Source::Pin));
    // UDP is not pinned.
    assert_eq!(serve(&pinned, "g", Network::Udp).0, Ok(2));
    let all_dead = told(&first, &dead(&[1, 2])).table;
    let (_, last) = serve(&all_dead, "g", Network::Tcp);
    assert_eq!((last.asked, last.found), (vec![], vec![key]));
}

fn source(table: &GroupTable, name: &str) -> Option<crate::group::Source> {
    let slot = at(table, name).slot;
    let selected = table.select(slot, Network::Tcp, Family::V4);
    selected.ok().map(|s| s.source)
}

// The kernel would serve such flows without a word.
#[test]
fn the_kernel_is_never_told_to_act_alone() {
    let bits = |policy| {
        let table = table(&[], &[of("g", &["direct"]).policy(policy)]);
        let slots = table.slots();
        slots.iter().fold(0, |all, (_, bits)| all | bits)
    };
    assert_ne!(bits(Policy::Fallback), 0);
    assert_eq!(bits(Policy::Score), 0);
    let over = [
        nest("over", &["g"]),
        of("g", &["direct"]).policy(Policy::Score),
    ];
    let nested = table(&[], &over).slots();
    assert!(nested.iter().all(|(_, bits)| *bits == 0));
}

#[test]
fn a_retry_stays_on_the_way_that_was_taken() {
    let nodes = [socks(1, "a"), socks(2, "b"), socks(3, "c")];
    let groups = [
        nest("spread", &["one", "two"]).policy(Policy::LoadBalance),
        score("one", &["a", "b"]),
        score("two", &["c"]),
        of("plain", &["a", "b"]),
    ];
    let table = table(&nodes, &groups);
    let ids = |names: &[&str]| -> Vec<GroupId> { names.iter().map(|n| at(&table, n).id).collect() };
    let again = |ids: &[GroupId]| {
        let mut last = Last::default();
        let rival = table.again(ids, Network::Tcp, Family::V4, &mut last);
        rival.map(|rival| (number(rival.leaf.id), rival.groups.to_vec()))
    };
    for (way, leaf) in [(["spread", "one"], 2), (["spread", "two"], 3)] {
        let ids = ids(&way);
        assert_eq!(again(&ids), Some((leaf, ids.clone())));
    }
    assert_eq!(again(&ids(&["plain"])), None);
    assert_eq!(again(&[]), None);
}

#[test]
fn membership_follows_nested_groups_and_finals() {
    let nodes = [socks(1, "a"), socks(2, "b"), socks(3, "c"), socks(4, "d")];
    let groups = [
        group("g", [names(&["a", "block"]), groups_line(&["in"])])
            .policy(Policy::Score)
            .last("d"),
        of("in", &["b", "a"]).last("end"),
        of("end", &["c"]),
    ];
    let table = table(&nodes, &groups);
    let membership = table.scores(7);
    assert_eq!(membership.generation, 7);
    let [group] = &membership.groups[..] else {
        panic!("one Score group")
    };
    let plain = |keys: &[NodeKey]| keys.iter().map(|key| plain(*key)).collect::<Vec<_>>();
    assert_eq!(group.group, at(&table, "g").key());
    assert_eq!(plain(&group.leaves), [1, 2]);
    assert_eq!(plain(&group.finals), [4, 3]);
    let dormant = ["in", "end"].map(|name| at(&table, name).key());
    assert_eq!(membership.dormant, dormant);
}

/// Prefers the second leaf.
#[derive(Debug)]
struct Second;

impl Ranks for Second {
    fn peek(&self, _: &Offer<'_>) -> Option<usize> {
        Some(1)
    }
}

#[test]
fn readers_see_whom_the_ranks_prefer_over_generations() {
    let nodes = [socks(1, "a"), socks(2, "b")];
    let defs = [score("g", &["a", "b"])];
    let mut builder = Builder::default();
    let first = builder
        .build(&nodes, &defs, None)
        .0
        .ranked_by(Arc::new(Second));
    assert_eq!(tcp(&first, "g"), Ok(2));
    let next = builder.build(&nodes, &defs, Some(&first)).0;
    assert_eq!(tcp(&next, "g"), Ok(2));
    let view = next.view(at(&next, "g").id).unwrap();
    assert_eq!(view.tcp.member.map(|(_, name)| name), Some("b".to_owned()));
    let offered = next.offered(at(&next, "g").id, Network::Udp).unwrap();
    assert_eq!(offered.len(), 2);
}
