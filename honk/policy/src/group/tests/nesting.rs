//! Nested groups: depth, cycles, and what a parent gets from a child.

use super::*;

/// `g0` lists `g1`, and so on; the last holds the node.
fn chain(groups: usize) -> Vec<GroupDef> {
    let mut defs: Vec<GroupDef> = (1..groups)
        .map(|i| nest(&format!("g{}", i - 1), &[&format!("g{i}")]))
        .collect();
    defs.push(all(&format!("g{}", groups - 1)));
    defs
}

// G-070
#[test]
fn eight_groups_on_the_way_are_followed_and_nine_are_not() {
    let nodes = [socks(1, "n")];
    let eight = table(&nodes, &chain(8));
    assert_eq!(tcp(&eight, "g0"), Ok(1));
    assert_eq!(selected(&eight, "g0", Network::Tcp).unwrap().path.len(), 8);
    let nine = table(&nodes, &chain(9));
    assert_eq!(tcp(&nine, "g0"), Err(Refuse::Depth));
    assert_eq!(tcp(&nine, "g1"), Ok(1));
    assert_eq!(findings(&nodes, &chain(8)), []);
    assert_eq!(findings(&nodes, &chain(9)), [("W909", "group-depth")]);
}

// G-071
#[test]
fn edge_that_closes_a_cycle_is_cut_whatever_the_order_of_declaration() {
    let nodes = [socks(1, "n")];
    let a = || group("a", [groups_line(&["b"])]);
    let b = || group("b", [groups_line(&["a"]), names(&["n"])]);
    for groups in [[a(), b()], [b(), a()]] {
        let table = table(&nodes, &groups);
        assert_eq!(members(&table, "a"), ["b"]);
        assert_eq!(members(&table, "b"), ["n"]);
        assert_eq!(tcp(&table, "a"), Ok(1));
        assert_eq!(findings(&nodes, &groups), [("W909", "group-cycle")]);
    }
}

// G-071
#[test]
fn self_loops_and_three_cycles_are_cut_once_and_named() {
    let nodes = [socks(1, "n")];
    let own = [group("a", [groups_line(&["a"]), names(&["n"])])];
    assert_eq!(members(&table(&nodes, &own), "a"), ["n"]);
    let three = [nest("a", &["b"]), nest("b", &["c"]), nest("c", &["a"])];
    let (table, found) = Builder::default().build(&nodes, &three, None);
    assert_eq!(members(&table, "b"), ["c"]);
    assert!(members(&table, "c").is_empty());
    let cycle = found.iter().find(|d| d.slug == "group-cycle").unwrap();
    assert!(cycle.message.contains("`c`") && cycle.message.contains("`a`"));
}

#[test]
fn diamond_is_no_cycle() {
    let groups = [
        nest("a", &["b", "c"]),
        nest("b", &["d"]),
        nest("c", &["d"]),
        all("d"),
    ];
    assert_eq!(findings(&[socks(1, "n")], &groups), []);
}

// G-073, G-078
#[test]
fn parent_serves_the_leaf_its_child_selects() {
    let nodes = [socks(1, "x"), socks(2, "y")];
    let groups = [nest("outer", &["inner"]), all("inner").default("y")];
    let table = table(&nodes, &groups);
    let pick = selected(&table, "outer", Network::Tcp).unwrap();
    assert_eq!(number(pick.leaf.id), 2);
    assert_eq!(
        pick.path.iter().map(|n| &**n).collect::<Vec<_>>(),
        ["outer", "inner"]
    );
    let expected = [at(&table, "outer").id, at(&table, "inner").id];
    assert_eq!(**pick.groups, expected);
    assert_eq!(pick.member, Some(MemberId::Group(at(&table, "inner").id)));
}

// G-083
#[test]
fn child_uses_its_own_final_before_the_parent_uses_its() {
    let nodes = [http(1, "h"), socks(2, "a"), socks(3, "b")];
    let inner = of("inner", &["h"]).last("a");
    let groups = [nest("outer", &["inner"]).last("b"), inner];
    let table = table(&nodes, &groups);
    let pick = selected(&table, "outer", Network::Udp).unwrap();
    assert_eq!(number(pick.leaf.id), 2);
    assert_eq!(pick.path.len(), 2);
    assert_eq!(pick.final_used, None);
}

// G-084, G-124
#[test]
fn empty_child_does_not_lead_to_a_sibling() {
    let nodes = [socks(1, "n")];
    let groups = [
        nest("outer", &["empty", "full"]),
        group("empty", []),
        all("full"),
    ];
    assert_eq!(tcp(&table(&nodes, &groups), "outer"), Err(Refuse::NoMember));
}

/// Ten groups in each of twelve layers, each listing the whole next layer: a hundred million
/// ways down from each group of the first.
fn layers(policy: Policy, last: Option<&str>) -> Vec<GroupDef> {
    let name = |layer: usize, n: usize| format!("g{layer}x{n}");
    let mut defs = Vec::new();
    for layer in 0..12 {
        let next: Vec<String> = (0..10).map(|n| name(layer + 1, n)).collect();
        let next: Vec<&str> = next.iter().map(String::as_str).collect();
        for n in 0..10 {
            let def = match layer {
                11 => all(&name(layer, n)),
                _ => nest(&name(layer, n), &next),
            };
            defs.push(GroupDef {
                policy,
                final_: last.map(str::to_owned),
                ..def
            });
        }
    }
    defs
}

#[test]
fn many_ways_down_are_not_walked_one_by_one() {
    let nodes = [socks(1, "n")];
    for policy in [
        Policy::Selector,
        Policy::UrlTest,
        Policy::Fallback,
        Policy::LoadBalance,
    ] {
        for last in [None, Some("g0x0")] {
            let table = table(&nodes, &layers(policy, last));
            assert_eq!(tcp(&table, "g11x0"), Ok(1), "{policy:?} {last:?}");
            assert!(table.view(table.group_named("g0x0").unwrap().id).is_some());
            if last.is_none() {
                assert_eq!(tcp(&table, "g0x0"), Err(Refuse::Depth), "{policy:?}");
            }
        }
    }
}
