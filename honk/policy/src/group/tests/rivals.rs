//! Other leaves for a flow, and when a group has measured nothing.

use super::*;
use crate::group::{Rivals, Scope};

fn four() -> [Node; 4] {
    [socks(1, "a"), socks(2, "b"), http(3, "c"), socks(4, "d")]
}

fn measured() -> Seen {
    let seen = Seen::default().tcp(1, alive(10.0)).tcp(2, alive(40.0));
    seen.tcp(3, alive(30.0)).tcp(4, alive(20.0))
}

/// Rivals of what the group selects, the selected one left out.
fn others(table: &GroupTable, group: &str, network: Network, family: Family) -> Option<Rivals> {
    let selected = table
        .select(at(table, group).slot, network, family)
        .unwrap();
    let way = (&**selected.path, &**selected.groups);
    table.rivals(way, network, family, Some(selected.leaf.id), 3)
}

fn leaves(rivals: Option<Rivals>) -> Vec<u128> {
    let rivals = rivals.map_or_else(Vec::new, |r| r.leaves);
    rivals.iter().map(|r| number(r.leaf.id)).collect()
}

fn of_tcp(table: &GroupTable, group: &str) -> Vec<u128> {
    leaves(others(table, group, Network::Tcp, Family::V4))
}

// G-135
#[test]
fn the_fastest_other_leaves_of_an_urltest_group_are_rivals() {
    let start = table(&four(), &[all("g").policy(Policy::UrlTest)]);
    let known = told(&start, &measured()).table;
    assert_eq!(tcp(&known, "g"), Ok(1));
    assert_eq!(of_tcp(&known, "g"), [4, 3, 2]);
    let dead = told(&known, &measured().tcp(4, DOWN)).table;
    assert_eq!(of_tcp(&dead, "g"), [3, 2]);
    let hit = told(&known, &measured().tcp(4, struck(20.0))).table;
    assert_eq!(of_tcp(&hit, "g"), [3, 2, 4], "strikes rank behind");
    let udp = others(&known, "g", Network::Udp, Family::V4);
    assert_eq!(leaves(udp), [2, 4], "c carries no UDP; nobody is measured");
}

#[test]
fn no_more_rivals_are_told_than_asked_for() {
    let start = table(&four(), &[all("g").policy(Policy::UrlTest)]);
    let known = told(&start, &measured()).table;
    let selected = selected(&known, "g", Network::Tcp).unwrap();
    let way = (&**selected.path, &**selected.groups);
    for (most, want) in [(1, &[4][..]), (2, &[4, 3]), (9, &[4, 3, 2])] {
        let except = Some(selected.leaf.id);
        let rivals = known.rivals(way, Network::Tcp, Family::V4, except, most);
        assert_eq!(leaves(rivals), want);
    }
}

// G-135, G-122, G-150
#[test]
fn nothing_that_was_chosen_has_rivals() {
    let groups = [
        all("select"),
        all("back").policy(Policy::Fallback),
        all("turn").policy(Policy::LoadBalance),
        all("fast").policy(Policy::UrlTest),
    ];
    let table = told(&table(&four(), &groups), &measured()).table;
    for group in ["select", "back", "turn"] {
        assert_eq!(
            others(&table, group, Network::Tcp, Family::V4),
            None,
            "{group}"
        );
    }
    let pin = table.choose(at(&table, "fast").id, Scope::Tcp, member(2), NOW);
    let pinned = pin.unwrap().table;
    assert_eq!(others(&pinned, "fast", Network::Tcp, Family::V4), None);
    assert!(others(&pinned, "fast", Network::Udp, Family::V4).is_some());
}

// G-125: the choice stays, what it leads to chooses by itself.
#[test]
fn rivals_stay_below_the_choice_and_tell_their_way() {
    let groups = [
        nest("outer", &["fast", "other"]),
        group("fast", [names(&["a", "b"]), groups_line(&["inner"])]).policy(Policy::UrlTest),
        of("inner", &["d"]),
        of("other", &["c"]),
    ];
    let table = told(&table(&four(), &groups), &measured()).table;
    let rivals = others(&table, "outer", Network::Tcp, Family::V4).unwrap();
    assert_eq!(&*rivals.group, "fast");
    let ways: Vec<String> = rivals.leaves.iter().map(|r| r.path.join("/")).collect();
    assert_eq!(ways, ["outer/fast/inner", "outer/fast"]);
    assert_eq!(leaves(Some(rivals)), [4, 2]);
}

// G-135: unique nodes
#[test]
fn a_node_that_is_there_twice_is_one_rival() {
    let groups = [
        group("fast", [names(&["a", "b"]), groups_line(&["again"])]).policy(Policy::UrlTest),
        of("again", &["b"]),
    ];
    let table = told(&table(&four(), &groups), &measured()).table;
    assert_eq!(of_tcp(&table, "fast"), [2]);
}

// G-081
#[test]
fn rivals_for_ipv6_targets_are_asked_over_ipv6_first() {
    let start = table(&four()[..2], &[all("g").policy(Policy::UrlTest)]);
    let seen = measured().tcp(3, DOWN).tcp(4, DOWN);
    let table = told(&start, &seen).table;
    let v6 = others(&table, "g", Network::Tcp, Family::V6);
    assert_eq!(leaves(v6), [2]);
}

fn cold(table: &GroupTable, group: &str, network: Network) -> bool {
    let slot = at(table, group).slot;
    table.select(slot, network, Family::V4).unwrap().cold
}

// G-138
#[test]
fn an_urltest_group_is_cold_until_one_of_its_leaves_is_measured() {
    let groups = [
        all("fast").policy(Policy::UrlTest),
        nest("outer", &["fast"]),
        all("select"),
        all("back").policy(Policy::Fallback),
    ];
    let start = table(&four(), &groups);
    assert!(cold(&start, "fast", Network::Tcp) && cold(&start, "fast", Network::Udp));
    for group in ["outer", "select", "back"] {
        assert!(!cold(&start, group, Network::Tcp), "{group}");
    }
    let one = told(&start, &Seen::default().tcp(4, alive(900.0))).table;
    assert!(!cold(&one, "fast", Network::Tcp));
    assert!(!cold(&one, "fast", Network::Udp), "UDP follows TCP");
    let pin = start.choose(at(&start, "fast").id, Scope::Both, member(2), NOW);
    assert!(!cold(&pin.unwrap().table, "fast", Network::Tcp));
    // A measurement that cannot be used is none.
    let gone = told(&one, &Seen::default().tcp(4, DOWN)).table;
    assert!(cold(&gone, "fast", Network::Tcp));
}

// G-136
#[test]
fn the_first_flow_after_a_pause_is_news_for_whoever_probes() {
    let groups = [
        all("fast").policy(Policy::UrlTest),
        nest("outer", &["fast"]),
    ];
    let table = table(&four(), &groups);
    let slot = at(&table, "outer").slot;
    let peek = || table.select(slot, Network::Tcp, Family::V4).unwrap().woke;
    let flow = || table.apply(slot, Network::Tcp, Family::V4).unwrap().woke;
    assert!(!peek());
    assert!(flow() && !flow(), "once is enough");
    assert!(at(&table, "fast").activity().take());
    assert!(!peek() && flow());
}
