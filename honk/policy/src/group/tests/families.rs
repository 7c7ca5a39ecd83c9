//! Targets of both families against servers that are reached over either (G-081).

use super::*;
use crate::group::Source;

fn six(table: &GroupTable, name: &str) -> Result<u128, Refuse> {
    let picked = table.select(at(table, name).slot, Network::Tcp, Family::V6);
    picked.map(|s| number(s.leaf.id))
}

fn two() -> [Node; 2] {
    [socks(1, "a"), socks(2, "b")]
}

#[test]
fn ipv6_targets_ask_ipv6_health_first_and_ipv4_health_before_any_final() {
    let groups = [all("g").policy(Policy::Fallback).last("direct")];
    let table = table(&two(), &groups);
    let seen = Seen::default().tcp(1, alive(1.0)).tcp6(1, DOWN);
    let split = told(&table, &seen.clone().tcp6(2, alive(1.0)).tcp(2, DOWN)).table;
    assert_eq!((tcp(&split, "g"), six(&split, "g")), (Ok(1), Ok(2)));
    let only4 = told(&table, &seen.clone().tcp6(2, DOWN).tcp(2, DOWN)).table;
    assert_eq!((tcp(&only4, "g"), six(&only4, "g")), (Ok(1), Ok(1)));
    let none = seen.tcp(1, DOWN).tcp6(2, DOWN).tcp(2, DOWN);
    assert_eq!(six(&told(&table, &none).table, "g"), Ok(0), "direct");
}

#[test]
fn ipv4_targets_do_not_use_nodes_that_only_ipv6_health_vouches_for() {
    let table = table(&two(), &[all("g")]);
    let seen = Seen::default().tcp(1, DOWN).tcp6(1, alive(1.0));
    let table = told(&table, &seen).table;
    assert_eq!(
        (tcp(&table, "g"), six(&table, "g")),
        (Err(Refuse::AllDead), Ok(1))
    );
}

#[test]
fn a_family_that_was_never_observed_is_judged_by_the_other() {
    let groups = [all("g"), all("fast").policy(Policy::UrlTest)];
    let table = table(&two(), &groups);
    let dead = told(&table, &Seen::default().tcp(1, DOWN)).table;
    assert_eq!(
        (six(&dead, "g"), six(&dead, "fast")),
        (Err(Refuse::AllDead), Ok(2))
    );
    let seen = Seen::default().tcp(1, alive(90.0)).tcp(2, alive(10.0));
    assert_eq!(
        six(&told(&table, &seen).table, "fast"),
        Ok(2),
        "ranked, too"
    );
}

// A leaf that came through a child's final does not end the search before the IPv4 pass.
#[test]
fn a_childs_final_waits_for_the_ipv4_pass_and_goes_before_the_parents_own() {
    let groups = [
        nest("outer", &["inner"]).last("block"),
        of("inner", &["a"]).last("direct"),
    ];
    let table = table(&two(), &groups);
    let four = told(&table, &Seen::default().tcp(1, alive(1.0)).tcp6(1, DOWN)).table;
    assert_eq!(six(&four, "outer"), Ok(1));
    let neither = told(&table, &Seen::default().tcp(1, DOWN)).table;
    let pick = neither
        .select(at(&neither, "outer").slot, Network::Tcp, Family::V6)
        .unwrap();
    assert_eq!(
        (pick.leaf.name.as_str(), pick.source),
        ("direct", Source::First)
    );
}

#[test]
fn changes_tell_the_family_they_are_about() {
    let table = table(&two(), &[all("g").policy(Policy::Fallback)]);
    let seen = Seen::default()
        .tcp(1, alive(1.0))
        .tcp6(1, DOWN)
        .tcp6(2, alive(1.0));
    let update = told(&table, &seen);
    let tcp: Vec<_> = update
        .changes
        .iter()
        .filter(|c| c.network == Network::Tcp)
        .collect();
    assert_eq!(tcp.len(), 1);
    assert_eq!(tcp[0].families, [false, true]);
    assert!(tcp[0].concerns(Network::Tcp, Family::V6));
    assert!(!tcp[0].concerns(Network::Tcp, Family::V4));
    let group = at(&update.table, "g").id;
    let member_of = |family| update.table.member_of(group, Network::Tcp, family);
    assert_eq!(
        (member_of(Family::V4), member_of(Family::V6)),
        (Some(member(1)), Some(member(2)))
    );
}

#[test]
fn kernel_slots_of_each_family_follow_the_targets() {
    use honk_common::outbound::{NET_TCP, STATE_DEAD, group_slot};
    let table = table(&two(), &[of("g", &["a", "b"])]);
    let seen = Seen::default().tcp(1, DOWN).tcp6(1, alive(1.0));
    let table = told(&table, &seen).table;
    let bits = |v6| {
        let index = group_slot(at(&table, "g").slot.0, NET_TCP, v6);
        table
            .slots()
            .into_iter()
            .find(|(i, _)| *i == index)
            .unwrap()
            .1
    };
    assert_eq!((bits(false), bits(true)), (STATE_DEAD, 0));
}
