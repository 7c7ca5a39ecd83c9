//! urltest: latency, tolerance, strikes, UDP evidence, check URLs.

use super::*;
use crate::{
    group::{Cause, Scope, ToleranceSource},
    id::Domain::{DataUdp, DnsUdp},
};

fn three() -> [Node; 3] {
    [socks(1, "a"), socks(2, "b"), socks(3, "c")]
}

fn fast() -> GroupDef {
    all("g").policy(Policy::UrlTest)
}

fn measured(a: f64, b: f64, c: f64) -> Seen {
    let seen = Seen::default().tcp(1, alive(a));
    seen.tcp(2, alive(b)).tcp(3, alive(c))
}

// G-130, G-137
#[test]
fn the_fastest_member_is_selected_and_the_unmeasured_come_last() {
    let start = table(&three(), &[fast()]);
    assert_eq!(tcp(&start, "g"), Ok(1), "nobody is measured: the first");
    let one = told(&start, &Seen::default().tcp(3, alive(900.0)));
    assert_eq!(tcp(&one.table, "g"), Ok(3));
    let all = told(&one.table, &measured(90.0, 20.0, 900.0));
    assert_eq!(tcp(&all.table, "g"), Ok(2));
    assert_eq!(all.changes[0].cause, Cause::Auto);
}

// G-132, GI-09
#[test]
fn the_incumbent_is_held_within_the_tolerance_of_its_current_latency() {
    let table = told(&table(&three(), &[fast()]), &measured(30.0, 60.0, 500.0)).table;
    assert_eq!(tcp(&table, "g"), Ok(1));
    let slower = told(&table, &measured(110.0, 60.0, 500.0));
    assert_eq!((tcp(&slower.table, "g"), slower.changes.len()), (Ok(1), 0));
    let too_slow = told(&slower.table, &measured(110.1, 60.0, 500.0));
    assert_eq!(tcp(&too_slow.table, "g"), Ok(2));
    let back = told(&too_slow.table, &measured(30.0, 60.0, 500.0));
    assert_eq!(
        tcp(&back.table, "g"),
        Ok(2),
        "not faster by more than 50 ms"
    );
}

// G-020
#[test]
fn tolerance_comes_from_the_group_then_the_global_key_and_is_at_least_1_ms() {
    let zero = GroupDef {
        tolerance_ms: Some(0),
        ..fast()
    };
    let table = told(&table(&three(), &[zero]), &measured(30.0, 60.0, 500.0)).table;
    let less = told(&table, &measured(30.0, 29.5, 500.0)).table;
    assert_eq!(tcp(&less, "g"), Ok(1));
    assert_eq!(
        tcp(&told(&less, &measured(30.0, 28.9, 500.0)).table, "g"),
        Ok(2)
    );
    let view = table.view(at(&table, "g").id).unwrap();
    assert_eq!(
        (view.tolerance_ms, view.tolerance_source),
        (Some(0), ToleranceSource::Explicit)
    );
}

// G-133
#[test]
fn a_struck_member_ranks_below_all_others_and_is_not_held() {
    let table = told(&table(&three(), &[fast()]), &measured(30.0, 400.0, 500.0)).table;
    let hit = told(&table, &measured(30.0, 400.0, 500.0).tcp(1, struck(30.0)));
    assert_eq!(tcp(&hit.table, "g"), Ok(2));
    assert_eq!(hit.changes[0].cause, Cause::Auto, "it may still serve");
    let all = measured(30.0, 400.0, 500.0)
        .tcp(1, struck(30.0))
        .tcp(2, DOWN)
        .tcp(3, DOWN);
    assert_eq!(tcp(&told(&hit.table, &all).table, "g"), Ok(1));
}

// G-131
#[test]
fn udp_is_ranked_by_data_then_dns_and_follows_tcp_without_evidence() {
    let table = told(&table(&three(), &[fast()]), &measured(90.0, 20.0, 900.0)).table;
    assert_eq!(udp(&table, "g"), Ok(2), "as TCP");
    let seen = measured(90.0, 20.0, 900.0).udp(3, DnsUdp, alive(40.0));
    let dns = told(&table, &seen).table;
    assert_eq!((tcp(&dns, "g"), udp(&dns, "g")), (Ok(2), Ok(3)));
    let data = seen
        .udp(3, DataUdp, alive(400.0))
        .udp(1, DataUdp, alive(41.0));
    assert_eq!(udp(&told(&dns, &data).table, "g"), Ok(1));
    // What serves TCP carries no UDP here.
    let nodes = [socks(1, "a"), http(2, "b")];
    let table = super::table(&nodes, &[fast()]);
    let table = told(
        &table,
        &Seen::default().tcp(1, alive(90.0)).tcp(2, alive(20.0)),
    )
    .table;
    assert_eq!((tcp(&table, "g"), udp(&table, "g")), (Ok(2), Ok(1)));
}

// G-106
#[test]
fn udp_is_alive_by_either_domain_and_inherits_tcp_only_when_never_observed() {
    let table = table(&three(), &[of("g", &["a", "b"])]);
    let udp_of = |seen: Seen| udp(&told(&table, &seen).table, "g");
    assert_eq!(udp_of(Seen::default().tcp(1, DOWN)), Err(Refuse::AllDead));
    assert_eq!(
        udp_of(Seen::default().tcp(1, DOWN).udp(1, DnsUdp, alive(1.0))),
        Ok(1)
    );
    let both = Seen::default().udp(1, DnsUdp, DOWN).udp(1, DataUdp, DOWN);
    assert_eq!(
        udp_of(both.clone().tcp(1, alive(1.0))),
        Err(Refuse::AllDead)
    );
    assert_eq!(udp_of(both.udp(1, DataUdp, alive(1.0))), Ok(1));
}

// G-105, G-018
#[test]
fn the_state_under_a_check_url_replaces_the_ordinary_one_for_tcp_in_that_group_only() {
    let url = GroupDef {
        check_url: Some("https://x.example/".to_owned()),
        ..fast()
    };
    let other = all("other").policy(Policy::UrlTest);
    let table = table(&three(), &[url, other]);
    let g = at(&table, "g").id;
    let seen = measured(10.0, 20.0, 900.0)
        .url(g, member(1), DOWN)
        .url(g, member(2), alive(300.0))
        .url(g, member(3), alive(100.0));
    let table = told(&table, &seen).table;
    assert_eq!(tcp(&table, "g"), Ok(3));
    assert_eq!(tcp(&table, "other"), Ok(1));
    assert_eq!(
        udp(&table, "g"),
        Ok(3),
        "mirrors TCP, which the URL decides"
    );
    let known = seen
        .udp(1, DataUdp, alive(5.0))
        .udp(3, DataUdp, alive(150.0));
    assert_eq!(
        udp(&told(&table, &known).table, "g"),
        Ok(1),
        "the URL says nothing about UDP"
    );
    // Dead everywhere else, alive under the URL: it serves.
    let dead = measured(10.0, 20.0, 900.0)
        .tcp(3, DOWN)
        .url(g, member(3), alive(5.0));
    assert_eq!(tcp(&told(&table, &dead).table, "g"), Ok(3));
    let view = table.view(g).unwrap();
    assert_eq!(view.members[2].delay_ms, Some(100.0));
    assert_eq!(view.check_url.as_deref(), Some("https://x.example/"));
}

#[test]
fn a_nested_group_is_judged_under_the_check_url_of_its_parent() {
    let parent = GroupDef {
        check_url: Some("https://x.example/".to_owned()),
        ..nest("g", &["x", "y"]).policy(Policy::UrlTest)
    };
    let table = table(&three(), &[parent, of("x", &["a"]), of("y", &["b"])]);
    let g = at(&table, "g").id;
    let [x, y] = ["x", "y"].map(|n| MemberId::Group(at(&table, n).id));
    let seen = measured(10.0, 20.0, 900.0)
        .url(g, x, DOWN)
        .url(g, y, alive(70.0));
    assert_eq!(tcp(&told(&table, &seen).table, "g"), Ok(2));
}

// G-059
#[test]
fn add_latency_counts_in_ranking_by_the_first_line_that_admits_a_node() {
    let def = GroupDef {
        add_latency: vec![(0, -500), (1, 100)],
        tolerance_ms: Some(0),
        ..group("g", [names(&["c"]), names(&["c", "b"]), names(&["a"])])
    };
    let table = table(&three(), &[def.policy(Policy::UrlTest)]);
    let pick = |a, b, c| tcp(&told(&table, &measured(a, b, c)).table, "g");
    assert_eq!(pick(20.0, 10.0, 400.0), Ok(3), "400 - 500 is 0");
    assert_eq!(pick(20.0, 10.0, 700.0), Ok(1), "10 + 100 is more than 20");
    let view = told(&table, &measured(20.0, 10.0, 400.0))
        .table
        .view(at(&table, "g").id)
        .unwrap();
    assert_eq!(view.members[2].delay_ms, Some(400.0), "shown as measured");
}

// G-059
#[test]
fn nobody_is_faster_than_at_once() {
    let def = GroupDef {
        add_latency: vec![(0, -500)],
        ..group("g", [names(&["a", "c"])])
    };
    let table = table(&three(), &[def.policy(Policy::UrlTest)]);
    let known = told(&table, &measured(400.0, 20.0, 10.0)).table;
    assert_eq!(tcp(&known, "g"), Ok(1), "both count as 0 ms");
}

// G-067
#[test]
fn a_parent_ranks_a_child_by_its_leaf_and_does_not_move_when_the_child_does() {
    let groups = [
        nest("outer", &["left", "right"]).policy(Policy::UrlTest),
        of("left", &["a", "b"]).policy(Policy::UrlTest),
        of("right", &["c"]),
    ];
    let table = table(&three(), &groups);
    let first = told(&table, &measured(10.0, 200.0, 150.0));
    assert_eq!(tcp(&first.table, "outer"), Ok(1));
    // The child moves from a to b; the parent keeps the child.
    let second = told(&first.table, &measured(300.0, 100.0, 150.0));
    assert_eq!(tcp(&second.table, "outer"), Ok(2));
    let names: BTreeSet<&str> = second.changes.iter().map(|c| &*c.name).collect();
    assert_eq!(names, BTreeSet::from(["left"]));
    // A leaf two levels down got slower: the parent looks again.
    let third = told(&second.table, &measured(300.0, 290.0, 150.0));
    assert_eq!(tcp(&third.table, "outer"), Ok(3));
}

// Sampling one node must not depend on what else was looked at.
#[test]
fn a_change_told_node_by_node_leads_to_the_same_as_told_at_once() {
    let mut step = table(
        &three(),
        &[fast(), nest("outer", &["g"]).policy(Policy::UrlTest)],
    );
    let whole = told(&step, &measured(90.0, 20.0, 15.0)).table;
    for node in 1..=3 {
        let touched = Touched {
            nodes: [NodeId(Uuid::from_u128(node))].into(),
            ..Touched::default()
        };
        step = step
            .judged(Arc::new(measured(90.0, 20.0, 15.0)), &touched, NOW)
            .table;
    }
    // The second was selected before the third was known and is within the tolerance.
    assert_eq!((tcp(&whole, "g"), tcp(&step, "g")), (Ok(3), Ok(2)));
    assert_eq!(tcp(&step, "outer"), Ok(2));
}

#[test]
fn a_pinned_urltest_group_ranks_nobody_until_the_pin_is_gone() {
    let table = told(&table(&three(), &[fast()]), &measured(30.0, 60.0, 500.0)).table;
    let id = at(&table, "g").id;
    let pinned = table.choose(id, Scope::Tcp, member(3), NOW).unwrap();
    let causes: Vec<_> = pinned
        .changes
        .iter()
        .map(|c| (c.network, c.cause))
        .collect();
    assert_eq!(causes, [(Network::Tcp, Cause::Pin)]);
    let still = told(&pinned.table, &measured(30.0, 1.0, 500.0));
    assert_eq!((tcp(&still.table, "g"), still.changes.len()), (Ok(3), 0));
    let free = still.table.unchoose(id, Scope::Both, NOW).unwrap();
    assert_eq!(free.changes[0].cause, Cause::Unpin);
    assert_eq!(
        tcp(&free.table, "g"),
        Ok(1),
        "the incumbent from before, within the tolerance"
    );
}
