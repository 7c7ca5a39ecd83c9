//! What should be warm, and whose health a group depends on.

use super::*;
use crate::group::Scope;

fn four() -> [Node; 4] {
    [socks(1, "a"), socks(2, "b"), http(3, "c"), socks(4, "d")]
}

fn ids(nodes: &[Arc<Node>]) -> Vec<u128> {
    nodes.iter().map(|n| number(n.id)).collect()
}

// G-190, G-191, G-193, G-194
#[test]
fn selectors_keep_their_tcp_leaf_warm_dead_or_not() {
    let groups = [
        of("one", &["a", "b"]),
        nest("outer", &["fast"]),
        of("fast", &["b", "d"]).policy(Policy::UrlTest),
        of("same", &["a"]),
        of("direct", &["direct"]),
    ];
    let table = table(&four(), &groups);
    assert_eq!(ids(&table.warm_tcp()), [1, 2]);
    let chosen = table
        .choose(at(&table, "one").id, Scope::Both, member(2), NOW)
        .unwrap()
        .table;
    assert_eq!(ids(&chosen.warm_tcp()), [2, 1]);
    let dead = told(&chosen, &Seen::default().tcp(2, DOWN)).table;
    assert_eq!(
        ids(&dead.warm_tcp()),
        [2, 4, 1],
        "the child moved, the choice did not"
    );
}

// G-195
#[test]
fn the_udp_set_takes_the_selected_leaf_and_then_the_fastest() {
    let table = table(&four(), &[all("g").policy(Policy::UrlTest)]);
    assert!(table.warm_udp(0).is_empty());
    let seen = Seen::default()
        .udp(1, Domain::DataUdp, alive(900.0))
        .udp(2, Domain::DataUdp, alive(80.0))
        .udp(4, Domain::DataUdp, alive(70.0));
    let table = told(&table, &seen).table;
    assert_eq!(ids(&table.warm_udp(2)), [4, 2]);
    assert_eq!(ids(&table.warm_udp(9)), [4, 2, 1], "c carries no UDP");
}

// G-075, G-076
#[test]
fn a_group_depends_on_members_and_finals_of_all_groups_below() {
    let groups = [
        nest("outer", &["inner"]).last("d"),
        of("inner", &["a", "direct"]).last("more"),
        of("more", &["c"]),
    ];
    let table = table(&four(), &groups);
    let reach = table.reach(at(&table, "outer").id).unwrap();
    let plain = |set: &BTreeSet<NodeId>| set.iter().map(|n| number(*n)).collect::<Vec<_>>();
    assert_eq!(
        (plain(&reach.tcp), plain(&reach.udp)),
        (vec![1, 3, 4], vec![1, 4])
    );
    assert_eq!(table.reach(GroupId(Uuid::from_u128(1))), None);
}

#[test]
fn leads_name_the_leaf_unless_members_take_turns() {
    let groups = [
        of("g", &["b"]),
        all("l").policy(Policy::LoadBalance),
        of("x", &["direct"]),
    ];
    let table = table(&four(), &groups);
    let leads = |name| table.leads(at(&table, name).id).unwrap();
    let b = Some(NodeId(Uuid::from_u128(2)));
    assert_eq!(
        (leads("g").tcp, leads("g").udp, leads("g").unseen),
        (b, b, false)
    );
    assert_eq!((leads("l").tcp, leads("l").unseen), (None, false));
    assert!(leads("x").unseen);
}
