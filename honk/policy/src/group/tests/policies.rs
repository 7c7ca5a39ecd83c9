//! What automatic policies select, flow by flow and event by event.

use super::*;
use crate::group::{Cause, Scope, Source};

fn three() -> [Node; 3] {
    [socks(1, "a"), socks(2, "b"), socks(3, "c")]
}

fn one(policy: Policy) -> GroupTable {
    table(&three(), &[all("g").policy(policy)])
}

// G-140, GI-07
#[test]
fn loadbalance_takes_alive_members_in_turn_per_network() {
    let table = one(Policy::LoadBalance);
    let turns = |table: &GroupTable, network, count| -> Vec<u128> {
        let flows = (0..count).map(|_| flow(table, "g", network).unwrap());
        flows.collect()
    };
    assert_eq!(turns(&table, Network::Tcp, 4), [1, 2, 3, 1]);
    assert_eq!(turns(&table, Network::Udp, 2), [1, 2], "a turn of its own");
    let update = told(&table, &Seen::default().tcp(2, DOWN));
    assert!(update.changes.is_empty(), "turns are no changes");
    // Four flows so far: the fifth is number 4 of two members.
    assert_eq!(turns(&update.table, Network::Tcp, 4), [1, 3, 1, 3]);
    assert_eq!(
        selected(&table, "g", Network::Tcp).unwrap().source,
        Source::Auto
    );
}

// G-140, GI-06
#[test]
fn looking_at_a_loadbalance_group_moves_no_turn() {
    let table = one(Policy::LoadBalance);
    for _ in 0..5 {
        assert_eq!(tcp(&table, "g"), Ok(1));
        let view = table.view(at(&table, "g").id).unwrap();
        assert_eq!(view.tcp.member.unwrap().0, member(1));
        table.warm_tcp();
    }
    assert_eq!(flow(&table, "g", Network::Tcp), Ok(1));
    assert_eq!(tcp(&table, "g"), Ok(2));
}

// G-077
#[test]
fn a_nested_turn_advances_only_when_the_parent_serves_through_it() {
    let groups = [
        nest("outer", &["spread", "other"]),
        all("spread").policy(Policy::LoadBalance),
        of("other", &["c"]),
    ];
    let table = table(&three(), &groups);
    let taken: Vec<_> = (0..4)
        .map(|_| flow(&table, "outer", Network::Tcp).unwrap())
        .collect();
    assert_eq!(taken, [1, 2, 3, 1]);
    assert_eq!(flow(&table, "spread", Network::Tcp), Ok(2), "the same turn");
    let other = MemberId::Group(at(&table, "other").id);
    let outer = at(&table, "outer").id;
    let moved = table.choose(outer, Scope::Both, other, NOW).unwrap().table;
    assert_eq!(flow(&moved, "outer", Network::Tcp), Ok(3));
    assert_eq!(
        flow(&moved, "spread", Network::Tcp),
        Ok(3),
        "nobody moved it"
    );
}

#[test]
fn turns_over_nested_groups_keep_the_order_of_the_declaration() {
    let lines = [names(&["c"]), groups_line(&["x", "spread"])];
    let groups = [
        group("g", lines).policy(Policy::LoadBalance),
        of("x", &["a"]),
        of("spread", &["a", "b"]).policy(Policy::LoadBalance),
    ];
    let table = table(&three(), &groups);
    let taken: Vec<_> = (0..6)
        .map(|_| flow(&table, "g", Network::Tcp).unwrap())
        .collect();
    assert_eq!(taken, [3, 1, 1, 3, 1, 2]);
    let nested = table
        .apply(at(&table, "g").slot, Network::Tcp, Family::V4)
        .unwrap();
    assert_eq!(number(nested.leaf.id), 3);
}

// G-145, GI-08
#[test]
fn fallback_holds_its_pin_until_it_dies_and_does_not_fail_back() {
    let table = one(Policy::Fallback);
    assert_eq!(tcp(&table, "g"), Ok(1));
    let first = told(&table, &Seen::default().tcp(1, DOWN));
    assert_eq!(tcp(&first.table, "g"), Ok(2));
    let moved: Vec<_> = first.changes.iter().map(|c| (c.network, c.cause)).collect();
    // UDP was never observed, so it is as dead as TCP.
    let both = [(Network::Tcp, Cause::Health), (Network::Udp, Cause::Health)];
    assert_eq!(moved, both);
    let back = told(&first.table, &Seen::default());
    assert_eq!((tcp(&back.table, "g"), back.changes.len()), (Ok(2), 0));
    let again = told(&back.table, &Seen::default().tcp(2, DOWN).tcp(1, DOWN));
    assert_eq!(tcp(&again.table, "g"), Ok(3));
    let all_dead = told(
        &again.table,
        &Seen::default().tcp(1, DOWN).tcp(2, DOWN).tcp(3, DOWN),
    );
    assert_eq!(tcp(&all_dead.table, "g"), Err(Refuse::AllDead));
    assert!(all_dead.changes.is_empty(), "nobody took over");
    let revived = told(&all_dead.table, &Seen::default());
    assert_eq!(
        (tcp(&revived.table, "g"), revived.changes.len()),
        (Ok(3), 0)
    );
}

// G-107, GI-17
#[test]
fn automatic_policies_pass_over_members_without_udp() {
    let nodes = [http(1, "h"), socks(2, "s"), http(3, "i")];
    for policy in [Policy::UrlTest, Policy::LoadBalance, Policy::Fallback] {
        let table = table(
            &nodes,
            &[all("g").policy(policy), of("h", &["h", "i"]).policy(policy)],
        );
        for _ in 0..3 {
            assert_eq!(flow(&table, "g", Network::Udp), Ok(2), "{policy:?}");
        }
        assert_eq!(flow(&table, "g", Network::Tcp), Ok(1));
        assert_eq!(udp(&table, "h"), Err(Refuse::UdpIncapable));
    }
}

// G-090, G-086
#[test]
fn an_automatic_group_without_a_survivor_uses_its_final_or_says_why_not() {
    for policy in [Policy::UrlTest, Policy::LoadBalance, Policy::Fallback] {
        let groups = [
            of("with", &["a", "b"]).policy(policy).last("c"),
            of("without", &["a", "b"]).policy(policy),
            group("empty", []).policy(policy),
        ];
        let table = table(&three(), &groups);
        let dead = told(&table, &Seen::default().tcp(1, DOWN).tcp(2, DOWN)).table;
        assert_eq!(tcp(&dead, "with"), Ok(3));
        let pick = selected(&dead, "with", Network::Tcp).unwrap();
        assert_eq!((pick.source, pick.member), (Source::Final, None));
        assert_eq!(tcp(&dead, "without"), Err(Refuse::AllDead));
        assert_eq!(tcp(&dead, "empty"), Err(Refuse::NoMember));
    }
}

// G-083: a child's own final makes it a candidate like any other.
#[test]
fn a_child_that_falls_back_on_its_final_still_serves_its_parent() {
    let groups = [
        nest("outer", &["first", "second"]).policy(Policy::Fallback),
        of("first", &["a"]).last("direct"),
        of("second", &["b"]),
    ];
    let table = told(&table(&three(), &groups), &Seen::default().tcp(1, DOWN)).table;
    let pick = selected(&table, "outer", Network::Tcp).unwrap();
    assert_eq!(
        (pick.leaf.name.as_str(), pick.source),
        ("direct", Source::Auto)
    );
}

// G-096, GI-20
#[test]
fn the_only_leaf_of_an_automatic_group_is_a_last_resort_for_tcp() {
    for policy in [Policy::UrlTest, Policy::LoadBalance, Policy::Fallback] {
        let lines = [names(&["a"]), groups_line(&["empty"])];
        let groups = [group("g", lines).policy(policy), group("empty", [])];
        let table = told(&table(&three(), &groups), &Seen::default().tcp(1, DOWN)).table;
        let pick = selected(&table, "g", Network::Tcp).unwrap();
        assert_eq!((number(pick.leaf.id), pick.source), (1, Source::LastResort));
        assert_eq!(udp(&table, "g"), Err(Refuse::AllDead));
    }
}

// G-185, G-188
#[test]
fn pins_and_turns_go_on_over_a_reload_and_the_old_table_moves_nothing() {
    let mut builder = Builder::default();
    let groups = [
        all("f").policy(Policy::Fallback),
        all("l").policy(Policy::LoadBalance),
    ];
    let (old, _) = builder.build(&three(), &groups, None);
    let old = told(&old, &Seen::default().tcp(1, DOWN)).table;
    let old = told(&old, &Seen::default()).table;
    assert_eq!(tcp(&old, "f"), Ok(2));
    assert_eq!(flow(&old, "l", Network::Tcp), Ok(1));
    let reordered = [socks(3, "c"), socks(2, "b"), socks(1, "a")];
    let (new, _) = builder.build(&reordered, &groups, Some(&old));
    assert_eq!(tcp(&new, "f"), Ok(2));
    assert!(old.changes(&new).is_empty());
    flow(&old, "l", Network::Tcp).unwrap();
    assert_eq!(
        flow(&new, "l", Network::Tcp),
        Ok(2),
        "one turn was taken before"
    );
    let (fresh, _) = builder.build(&three(), &[all("f").policy(Policy::UrlTest)], Some(&old));
    assert_eq!(tcp(&fresh, "f"), Ok(1), "another policy starts afresh");
    let (gone, _) = builder.build(&[socks(3, "c")], &groups, Some(&old));
    assert_eq!(tcp(&gone, "f"), Ok(3));
}

#[test]
fn a_disabled_node_serves_nobody_and_the_view_says_so() {
    let table = one(Policy::Fallback);
    let off = told(&table, &Seen::default().off(1)).table;
    assert_eq!((tcp(&off, "g"), udp(&off, "g")), (Ok(2), Ok(2)));
    let view = off.view(at(&off, "g").id).unwrap();
    let why: Vec<_> = view
        .members
        .iter()
        .map(|m| m.tcp.map(|w| w.name()))
        .collect();
    assert_eq!(why, [Some("disabled"), None, None]);
}

// G-168
#[test]
fn an_automatic_move_raises_the_revision_and_tells_when_it_was() {
    let table = one(Policy::Fallback);
    let group = at(&table, "g");
    assert_eq!(group.selection_revision, 0);
    let moved = told(&table, &Seen::default().tcp(1, DOWN)).table;
    assert_eq!(at(&moved, "g").selection_revision, 1);
    let view = moved.view(group.id).unwrap();
    assert_eq!((view.tcp.since_ms, view.selection_revision), (Some(NOW), 1));
    assert_eq!(
        told(&moved, &Seen::default())
            .table
            .view(group.id)
            .unwrap()
            .selection_revision,
        1
    );
}

// G-137
#[test]
fn the_first_selection_of_a_group_is_no_change() {
    let mut builder = Builder::default();
    let (before, _) = builder.build(&three(), &[all("old")], None);
    let before = dead(&before, [1, 2, 3]);
    for policy in [Policy::UrlTest, Policy::Fallback] {
        let groups = [all("old"), all("g").policy(policy)];
        let (after, _) = builder.build(&three(), &groups, Some(&before));
        assert_eq!(tcp(&after, "g"), Err(Refuse::AllDead));
        assert_eq!(before.changes(&after), []);
        let revived = told(&after, &Seen::default().tcp(2, DOWN));
        assert_eq!((tcp(&revived.table, "g"), revived.changes), (Ok(1), vec![]));
        // The next one is.
        let moved = told(&revived.table, &Seen::default().tcp(1, DOWN));
        assert!(!moved.changes.is_empty());
    }
}

// G-136, G-197
#[test]
fn real_traffic_marks_a_urltest_group_as_used_also_through_a_parent_and_looking_does_not() {
    let groups = [nest("outer", &["g"]), all("g").policy(Policy::UrlTest)];
    let table = table(&three(), &groups);
    let activity = at(&table, "g").activity();
    tcp(&table, "outer").unwrap();
    table.views();
    table.warm_tcp();
    assert!(!activity.take(), "looking is no use");
    let slot = at(&table, "outer").slot;
    table.apply(slot, Network::Tcp, Family::V6).unwrap();
    assert!(activity.take() && !activity.take());
    assert!(!table.kernel_serves(at(&table, "g").id));
}
