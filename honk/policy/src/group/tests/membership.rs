//! Who is a member, and in which order.

use super::*;

fn nodes() -> [Node; 3] {
    [socks(1, "HK 1"), socks(2, "Hong Kong 2"), socks(3, "US")]
}

fn of_filters(filters: impl Into<Vec<FilterLine>>) -> Vec<String> {
    members(&table(&nodes(), &[group("g", filters)]), "g")
}

// G-049, G-056
#[test]
fn group_without_filter_has_all_nodes_and_no_built_in() {
    assert_eq!(
        members(&table(&nodes(), &[all("g")]), "g"),
        ["HK 1", "Hong Kong 2", "US"]
    );
}

// G-050, G-053
#[test]
fn explicit_filters_that_match_nothing_stay_empty() {
    assert!(of_filters([]).is_empty());
    assert!(of_filters([groups_line(&[])]).is_empty());
    assert!(of_filters([FilterLine::Ignored]).is_empty());
    assert!(of_filters([names(&["nobody"])]).is_empty());
}

// G-043
#[test]
fn tests_are_exact_contained_or_a_regex_and_alternatives() {
    let line = |test| [FilterLine::Nodes(vec![name([test])])];
    assert_eq!(of_filters(line(exact("US"))), ["US"]);
    assert!(of_filters(line(exact("us"))).is_empty());
    assert_eq!(of_filters(line(keyword("HK"))), ["HK 1"]);
    assert_eq!(of_filters(line(regex("^Hong Kong "))), ["Hong Kong 2"]);
    let either = FilterLine::Nodes(vec![name([exact("US"), keyword("HK")])]);
    assert_eq!(of_filters([either]), ["HK 1", "US"]);
}

// G-046, G-047, G-055
#[test]
fn predicates_of_a_line_are_anded_and_lines_are_ored() {
    let and = FilterLine::Nodes(vec![name([keyword("K")]), not(name([keyword("Hong")]))]);
    assert_eq!(of_filters([and.clone()]), ["HK 1"]);
    assert_eq!(
        of_filters([names(&["US"]), FilterLine::Ignored, and]),
        ["HK 1", "US"]
    );
}

/// A node of a subscription with that tag.
fn fetched(number: u128, name: &str, tag: &str) -> Node {
    let origin = crate::node::Origin {
        subscription: Uuid::from_u128(7),
        tag: tag.to_owned(),
    };
    Node {
        origin: Some(Arc::new(origin)),
        ..socks(number, name)
    }
}

// G-042, G-048
#[test]
fn subtag_matches_the_present_tag_of_the_subscription() {
    let of_tag = |nodes: &[Node], p| {
        let group = group("g", [FilterLine::Nodes(vec![p])]);
        members(&table(nodes, &[group]), "g")
    };
    let nodes = [fetched(1, "a", "air"), fetched(2, "b", ""), socks(3, "c")];
    assert_eq!(of_tag(&nodes, subtag([exact("air")])), ["a"]);
    assert_eq!(of_tag(&nodes, subtag([regex("^$")])), ["b"]);
    assert_eq!(of_tag(&nodes, subtag([regex("")])), ["a", "b"]);
    assert_eq!(of_tag(&nodes, not(subtag([exact("air")]))), ["b", "c"]);
    let moved = [fetched(1, "a", "sea"), fetched(2, "b", "")];
    assert!(of_tag(&moved, subtag([exact("air")])).is_empty());
}

// G-058
#[test]
fn nodes_of_subscriptions_follow_static_ones_and_none_is_taken_twice() {
    let config = crate::config::Config {
        nodes: vec![socks(1, "own")],
        groups: vec![GroupDef {
            ordinal: Ordinal(2),
            ..all("g")
        }],
        ..Default::default()
    };
    let fetched = vec![
        fetched(2, "x", "s"),
        fetched(1, "copy", "s"),
        fetched(2, "y", "t"),
    ];
    let mut id = || Uuid::from_u128(99);
    let (table, _) = GroupTable::build_with(&config, fetched, None, &mut id);
    assert_eq!(members(&table, "g"), ["own", "x"]);
    assert_eq!(table.nodes().len(), 2);
}

// G-042
#[test]
fn subtag_never_matches_a_static_node() {
    let line = |p| [FilterLine::Nodes(vec![p])];
    assert!(of_filters(line(subtag([keyword("")]))).is_empty());
    assert_eq!(of_filters(line(not(subtag([exact("airport")])))).len(), 3);
}

// G-056, G-057
#[test]
fn built_ins_join_only_by_exact_spelling() {
    assert_eq!(
        of_filters([names(&["block", "direct", "US"])]),
        ["US", "direct", "block"]
    );
    let line = |predicates: Vec<Predicate>| of_filters([FilterLine::Nodes(predicates)]);
    assert!(line(vec![name([keyword("direct")])]).is_empty());
    assert!(line(vec![name([regex("^direct$")])]).is_empty());
    assert_eq!(line(vec![not(name([exact("US")]))]).len(), 2);
    let spelled = || name([exact("direct")]);
    assert_eq!(line(vec![spelled(), not(subtag([exact("x")]))]), ["direct"]);
    assert!(line(vec![spelled(), not(spelled())]).is_empty());
    assert!(line(vec![spelled(), name([keyword("d")])]).is_empty());
}

// G-058, G-015
#[test]
fn order_is_nodes_as_configured_then_groups_as_listed() {
    let lines = [
        groups_line(&["z", "a"]),
        names(&["US", "HK 1"]),
        groups_line(&["a"]),
        names(&["HK 1"]),
    ];
    let table = table(&nodes(), &[group("g", lines), all("a"), all("z")]);
    assert_eq!(members(&table, "g"), ["HK 1", "US", "z", "a"]);
}

// G-072, G-041
#[test]
fn unknown_nested_group_is_reported_and_contributes_nothing() {
    let groups = [group("g", [groups_line(&["gone"]), names(&["US"])])];
    assert_eq!(members(&table(&nodes(), &groups), "g"), ["US"]);
    assert_eq!(warned(&nodes(), &groups), [("W503", "group-unknown")]);
    assert_eq!(findings(&nodes(), &groups), []);
}

#[test]
fn implicit_group_holds_the_first_node_of_its_name_and_is_no_nested_group() {
    let nodes = [socks(1, "x"), socks(2, "x"), socks(3, "y")];
    let implicit = GroupDef {
        implicit: true,
        ..of("x", &["x"])
    };
    let table = table(&nodes, &[nest("g", &["x"]), implicit]);
    let ids: Vec<MemberId> = at(&table, "x").members.iter().map(|m| m.id()).collect();
    assert_eq!(ids, [member(1)]);
    assert!(members(&table, "g").is_empty());
}

#[test]
fn empty_group_is_reported_unless_it_asks_for_nothing() {
    let empty = [("", "group-empty")];
    assert_eq!(findings(&[], &[all("g")]), empty);
    assert_eq!(findings(&nodes(), &[of("g", &["nobody"])]), empty);
    // An ignored line is told where it stands, but not what that leaves.
    let ignored = [group("g", [FilterLine::Ignored])];
    assert_eq!(findings(&nodes(), &ignored), empty);
    assert_eq!(findings(&nodes(), &[group("g", [groups_line(&[])])]), []);
}
