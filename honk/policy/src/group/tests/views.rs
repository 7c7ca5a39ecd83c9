//! What the API sees.

use super::*;
use crate::group::{FinalKind, FinalProblem, Ineligible, Scope, Source};

#[test]
fn group_view_lists_members_with_eligibility_and_leaves() {
    let nodes = [socks(1, "x"), http(2, "x"), socks(3, "y")];
    let lines = [names(&["x"]), groups_line(&["inner"])];
    let groups = [
        group("g", lines).default("inner").last("y"),
        of("inner", &["y"]),
    ];
    let table = table(&nodes, &groups);
    let view = table.view(at(&table, "g").id).unwrap();
    assert_eq!(
        (view.ordinal, view.slot, view.leaf_count),
        (Ordinal(2), Ordinal(2), 3)
    );
    assert_eq!(view.filters, ["name('x')", "group('inner')"]);
    let inner = MemberId::Group(at(&table, "inner").id);
    assert_eq!(view.default_member, Some(inner));
    let rows: Vec<_> = view
        .members
        .iter()
        .map(|m| {
            (
                m.index,
                m.duplicate_name,
                m.tcp,
                m.udp,
                number(m.leaf.as_ref().unwrap().0),
            )
        })
        .collect();
    assert_eq!(
        rows,
        [
            (0, true, None, None, 1),
            (1, true, None, Some(Ineligible::UdpIncapable), 2),
            (2, false, None, None, 3),
        ]
    );
    let final_ = view.final_.unwrap();
    assert_eq!((final_.kind, final_.problem), (FinalKind::Node, None));
    assert_eq!(view.tcp.member.unwrap().0, inner);
    assert_eq!(view.tcp.path.len(), 3);
    assert_eq!(view.tcp.source, Some(Source::Default));
}

#[test]
fn selection_view_tells_why_nothing_serves() {
    let before = table(&[socks(1, "s"), http(2, "h")], &[all("g")]);
    let id = at(&before, "g").id;
    let view = before
        .choose(id, Scope::Both, member(2), NOW)
        .unwrap()
        .table
        .view(id)
        .unwrap();
    assert_eq!(view.udp.refuse, Some(Refuse::UdpIncapable));
    assert_eq!(view.udp.member, Some((member(2), "h".to_owned())));
    assert_eq!(
        (view.udp.leaf, view.udp.source, view.udp.alive),
        (None, None, false)
    );
    assert!(view.tcp.alive);
}

#[test]
fn problems_of_final_and_cut_members_are_visible() {
    let groups = [
        group("gone", []).last("nowhere"),
        group("cycle", []).last("cycle"),
        group("direct", []).last("direct"),
        group("loop", [groups_line(&["loop"])]),
    ];
    let table = table(&[], &groups);
    let view = |name| table.view(at(&table, name).id).unwrap();
    let problem = |name| view(name).final_.unwrap().problem;
    assert_eq!(problem("gone"), Some(FinalProblem::Missing));
    assert_eq!(problem("cycle"), Some(FinalProblem::Cycle));
    assert_eq!(problem("direct"), None);
    assert_eq!(view("direct").final_.unwrap().kind, FinalKind::Direct);
    assert_eq!(view("direct").tcp.final_used.as_deref(), Some("direct"));
    assert_eq!(view("loop").dropped_members[0].code, "group-cycle");
    assert!(
        view("loop")
            .warnings
            .iter()
            .any(|w| w.slug == "group-cycle")
    );
    assert_eq!(table.views().len(), 4);
}

#[test]
fn filter_lines_are_spelled_with_their_tests() {
    let line = FilterLine::Nodes(vec![
        name([exact("it's"), keyword("b")]),
        not(subtag([regex("^c")])),
    ]);
    let table = table(
        &[],
        &[group(
            "g",
            [line, FilterLine::Ignored, groups_line(&["a", "b"])],
        )],
    );
    let expected = [
        r#"name("it's", keyword: 'b') && !subtag(regex: '^c')"#,
        "",
        "group('a', 'b')",
    ];
    assert_eq!(table.views()[0].filters, expected);
}
