//! What a selector selects: choice, default, first, final, last resort, or nothing.

use honk_common::outbound::{BLOCK, DIRECT};

use super::*;
use crate::group::{Scope, Source};

fn three() -> [Node; 3] {
    [socks(1, "a"), http(2, "b"), socks(3, "c")]
}

// G-121
#[test]
fn default_then_first_member_is_selected() {
    let table = table(&three(), &[all("g"), all("h").default("c")]);
    let first = selected(&table, "g", Network::Tcp).unwrap();
    assert_eq!((number(first.leaf.id), first.source), (1, Source::First));
    let default = selected(&table, "h", Network::Tcp).unwrap();
    assert_eq!(
        (number(default.leaf.id), default.source),
        (3, Source::Default)
    );
}

// G-060, G-065
#[test]
fn default_binds_the_first_namesake_and_nodes_before_groups() {
    let nodes = [socks(1, "y"), socks(2, "x"), socks(3, "x")];
    let lines = [groups_line(&["x"]), names(&["x", "y"])];
    let groups = [group("g", lines).default("x"), of("x", &["y"])];
    assert_eq!(tcp(&table(&nodes, &groups), "g"), Ok(2));
}

// G-062
#[test]
fn health_does_not_retarget_a_default_to_a_namesake() {
    let nodes = [socks(1, "x"), socks(2, "x")];
    let table = dead(&table(&nodes, &[all("g").default("x")]), [1]);
    assert_eq!(tcp(&table, "g"), Err(Refuse::AllDead));
}

// G-126
#[test]
fn default_that_is_no_member_is_reported_and_ignored() {
    let groups = [of("g", &["a"]).default("c")];
    assert_eq!(tcp(&table(&three(), &groups), "g"), Ok(1));
    assert_eq!(findings(&three(), &groups), [("W503", "default-unknown")]);
    let undeclared = [all("g").default("gone")];
    assert_eq!(warned(&three(), &undeclared), [("W503", "default-unknown")]);
    assert_eq!(findings(&three(), &undeclared), []);
}

// G-107, G-108
#[test]
fn udp_incapable_selection_is_refused_and_no_sibling_serves() {
    let table = table(&three(), &[all("g").default("b")]);
    assert_eq!(tcp(&table, "g"), Ok(2));
    assert_eq!(udp(&table, "g"), Err(Refuse::UdpIncapable));
}

// G-017, G-090, G-109
#[test]
fn final_serves_when_the_selection_cannot() {
    let groups = [
        of("node", &["b"]).last("c"),
        of("group", &["b"]).last("node"),
        of("direct", &["b"]).last("direct"),
        of("block", &["b"]).last("block"),
        group("empty", []).last("direct"),
    ];
    let table = table(&three(), &groups);
    assert_eq!(udp(&table, "node"), Ok(3));
    assert_eq!(udp(&table, "group"), Ok(3));
    let by_group = selected(&table, "group", Network::Udp).unwrap();
    assert_eq!(
        by_group.path.iter().map(|n| &**n).collect::<Vec<_>>(),
        ["group", "node"]
    );
    assert_eq!((by_group.source, by_group.member), (Source::Final, None));
    assert_eq!(by_group.final_used.map(|n| &**n), Some("node"));
    let kind = |name, network| {
        selected(&table, name, network)
            .unwrap()
            .leaf
            .protocol
            .clone()
    };
    assert_eq!(kind("direct", Network::Udp), Protocol::Direct);
    assert_eq!(kind("block", Network::Udp), Protocol::Block);
    assert_eq!(kind("empty", Network::Tcp), Protocol::Direct);
    // TCP does not need it (GI-16).
    assert_eq!(
        selected(&table, "direct", Network::Tcp).unwrap().source,
        Source::First
    );
}

// G-063, G-065
#[test]
fn final_names_a_built_in_before_a_node_before_a_group() {
    let nodes = [http(1, "only"), socks(2, "x"), socks(3, "x"), socks(4, "y")];
    let groups = [of("g", &["only"]).last("x"), of("x", &["y"])];
    assert_eq!(udp(&table(&nodes, &groups), "g"), Ok(2));
}

// G-091
#[test]
fn final_node_is_gated_by_health_and_capability() {
    let healthy = table(
        &three(),
        &[of("g", &["a"]).last("c"), of("u", &["b"]).last("b")],
    );
    assert_eq!(tcp(&dead(&healthy, [1]), "g"), Ok(3));
    assert_eq!(tcp(&dead(&healthy, [1, 3]), "g"), Err(Refuse::AllDead));
    assert_eq!(udp(&healthy, "u"), Err(Refuse::UdpIncapable));
}

// G-092
#[test]
fn missing_final_refuses_and_never_means_direct() {
    let groups = [group("g", []).last("gone"), of("h", &["a"]).last("gone")];
    let table = table(&three(), &groups);
    assert_eq!(tcp(&table, "g"), Err(Refuse::FinalMissing));
    assert_eq!(tcp(&table, "h"), Ok(1));
    let found = warned(&three(), &groups);
    assert_eq!(
        found
            .iter()
            .filter(|f| **f == ("W503", "final-missing"))
            .count(),
        2
    );
}

// G-092, G-093
#[test]
fn final_that_leads_back_is_refused() {
    let groups = [
        of("m", &["b"]).last("z"),
        of("z", &["b"]).last("m"),
        of("own", &["b"]).last("own"),
        nest("parent", &["child"]),
        of("child", &["b"]).last("parent"),
    ];
    let table = table(&three(), &groups);
    for name in ["m", "z", "own", "parent", "child"] {
        assert_eq!(udp(&table, name), Err(Refuse::FinalCycle), "{name}");
        assert_eq!(tcp(&table, name), Ok(2), "{name}");
    }
    let cycles = findings(&three(), &groups);
    assert_eq!(cycles, vec![("W909", "final-cycle"); 4]);
}

// G-124
#[test]
fn dead_selection_is_not_replaced_by_a_sibling() {
    let table = dead(&table(&three(), &[all("g")]), [1]);
    assert_eq!(tcp(&table, "g"), Err(Refuse::AllDead));
    assert_eq!(udp(&table, "g"), Err(Refuse::AllDead));
}

// G-096, G-098, G-099
#[test]
fn only_leaf_is_dialed_for_tcp_though_dead() {
    let groups = [nest("outer", &["inner"]), of("inner", &["a"])];
    let table = dead(&table(&three(), &groups), [1]);
    let pick = selected(&table, "outer", Network::Tcp).unwrap();
    assert_eq!((number(pick.leaf.id), pick.source), (1, Source::LastResort));
    assert_eq!(pick.path.len(), 2);
    assert_eq!(udp(&table, "outer"), Err(Refuse::AllDead));
}

// G-096, G-097, G-092
#[test]
fn last_resort_needs_one_leaf_no_final_and_choices_that_lead_to_it() {
    let groups = [
        of("two", &["a", "c"]),
        of("final", &["a"]).last("gone"),
        group("chosen", [names(&["a"]), groups_line(&["empty"])]).default("empty"),
        group("empty", []),
        nest("below", &["final"]),
    ];
    let table = dead(&table(&three(), &groups), [1]);
    assert_eq!(tcp(&table, "two"), Err(Refuse::AllDead));
    assert_eq!(tcp(&table, "final"), Err(Refuse::FinalMissing));
    assert_eq!(tcp(&table, "chosen"), Err(Refuse::NoMember));
    assert_eq!(tcp(&table, "below"), Err(Refuse::FinalMissing));
}

// G-096: a nested last resort does not serve a parent that has other leaves.
#[test]
fn last_resort_of_a_child_is_none_for_its_parent() {
    let groups = [
        group("outer", [groups_line(&["inner"]), names(&["c"])]).default("inner"),
        of("inner", &["a"]),
    ];
    let table = dead(&table(&three(), &groups), [1]);
    assert_eq!(tcp(&table, "inner"), Ok(1));
    assert_eq!(tcp(&table, "outer"), Err(Refuse::AllDead));
}

#[test]
fn same_leaf_below_two_children_counts_once_for_the_last_resort() {
    let groups = [nest("outer", &["x", "y"]), of("x", &["a"]), of("y", &["a"])];
    let table = dead(&table(&three(), &groups), [1]);
    assert_eq!(tcp(&table, "outer"), Ok(1));
}

// G-094, G-109
#[test]
fn built_in_members_are_always_eligible() {
    let table = table(&[], &[of("d", &["direct"]), of("b", &["block"])]);
    assert_eq!(
        selected(&table, "d", Network::Udp).unwrap().leaf.name,
        "direct"
    );
    assert_eq!(
        selected(&table, "b", Network::Udp).unwrap().leaf.name,
        "block"
    );
}

#[test]
fn built_in_slots_select_themselves_and_unused_ones_nothing() {
    let table = table(&three(), &[all("g")]);
    let leaf = |slot| {
        table
            .select(Ordinal(slot), Network::Tcp, Family::V4)
            .map(|s| s.leaf.name.clone())
    };
    assert_eq!(leaf(DIRECT).as_deref(), Ok("direct"));
    assert_eq!(leaf(BLOCK).as_deref(), Ok("block"));
    assert_eq!(leaf(2).as_deref(), Ok("a"));
    assert_eq!(leaf(3), Err(Refuse::NoMember));
    assert_eq!(leaf(255), Err(Refuse::NoMember));
}

// Section 19, selector matrix: {choice, default, first} x {alive, dead, UDP-incapable}
// x {no final, direct, missing}, the expected value from the pipeline's text.
#[test]
fn selector_matrix_follows_the_pipeline() {
    for (source, target) in [("choice", 2), ("default", 2), ("first", 1), ("choice", 3)] {
        for is_dead in [false, true] {
            for final_ in [None, Some("direct"), Some("gone")] {
                let mut def = all("g");
                def.final_ = final_.map(str::to_owned);
                if source == "default" {
                    def = def.default("b");
                }
                let mut t = table(&three(), &[def]);
                if source == "choice" {
                    t = t
                        .choose(at(&t, "g").id, Scope::Both, member(target), NOW)
                        .unwrap()
                        .table;
                }
                if is_dead {
                    t = dead(&t, [target]);
                }
                for network in [Network::Tcp, Network::Udp] {
                    let obstacle = match (network, target, is_dead) {
                        (Network::Udp, 2, _) => Some(Refuse::UdpIncapable),
                        (_, _, true) => Some(Refuse::AllDead),
                        _ => None,
                    };
                    let expected = match (obstacle, final_) {
                        (None, _) => Ok(target),
                        (Some(why), None) => Err(why),
                        (Some(_), Some("direct")) => Ok(0),
                        (Some(_), _) => Err(Refuse::FinalMissing),
                    };
                    let case = format!("{source} {target} {is_dead} {final_:?} {network:?}");
                    assert_eq!(leaf(&t, "g", network), expected, "{case}");
                }
            }
        }
    }
}
