//! Choices: independent per network, atomic for both, carried over by identity.

use super::*;
use crate::group::{Changed, ChooseError, Scope, Source};

fn nodes() -> [Node; 3] {
    [socks(1, "x"), socks(2, "x"), socks(3, "y")]
}

const TCP: Changed = Changed {
    tcp: true,
    udp: false,
};
const BOTH: Changed = Changed {
    tcp: true,
    udp: true,
};
const NONE: Changed = Changed {
    tcp: false,
    udp: false,
};

// G-120, G-157
#[test]
fn networks_are_chosen_independently_or_together() {
    let before = table(&nodes(), &[all("g")]);
    let id = at(&before, "g").id;
    let tcp_only = before.choose(id, Scope::Tcp, member(3), NOW).unwrap();
    assert_eq!(
        (tcp(&tcp_only.table, "g"), udp(&tcp_only.table, "g")),
        (Ok(3), Ok(1))
    );
    assert_eq!(tcp_only.changed, TCP);
    let both = before.choose(id, Scope::Both, member(3), NOW).unwrap();
    assert_eq!(
        (tcp(&both.table, "g"), udp(&both.table, "g")),
        (Ok(3), Ok(3))
    );
    assert_eq!(both.changed, BOTH);
    assert_eq!(at(&both.table, "g").selection_revision, 1);
    // The published table is untouched.
    assert_eq!(tcp(&before, "g"), Ok(1));
}

// G-061, G-062
#[test]
fn member_id_picks_one_of_several_namesakes_and_keeps_it() {
    let before = table(&nodes(), &[all("g")]);
    let chosen = before
        .choose(at(&before, "g").id, Scope::Both, member(2), NOW)
        .unwrap()
        .table;
    assert_eq!(tcp(&chosen, "g"), Ok(2));
    assert_eq!(
        selected(&chosen, "g", Network::Tcp).unwrap().source,
        Source::Choice
    );
    assert_eq!(tcp(&dead(&chosen, [2]), "g"), Err(Refuse::AllDead));
    // A name means the first of them, dead or alive (G-060).
    let ill = dead(&before, [1]);
    let named = at(&ill, "g").member_named("x").map(|m| m.id());
    assert_eq!(named, Some(member(1)));
}

// G-156, G-166
#[test]
fn only_direct_members_of_known_groups_are_accepted() {
    let groups = [
        nest("outer", &["inner"]),
        of("inner", &["x"]),
        of("other", &["y"]),
    ];
    let table = table(&nodes(), &groups);
    let choose = |name, id| {
        table
            .choose(at(&table, name).id, Scope::Both, id, NOW)
            .map(|c| c.changed)
    };
    assert_eq!(choose("outer", member(1)), Err(ChooseError::NotAMember));
    assert_eq!(choose("inner", member(3)), Err(ChooseError::NotAMember));
    assert_eq!(choose("inner", member(2)), Ok(BOTH));
    let inner = MemberId::Group(at(&table, "inner").id);
    assert_eq!(choose("outer", inner), Ok(NONE));
    let stranger = GroupId(Uuid::from_u128(1));
    let unknown = table
        .choose(stranger, Scope::Tcp, member(1), NOW)
        .unwrap_err();
    assert_eq!(unknown, ChooseError::UnknownGroup);
    assert_eq!(
        table.unchoose(stranger, Scope::Tcp, NOW).unwrap_err(),
        ChooseError::UnknownGroup
    );
}

// G-166
#[test]
fn health_and_capability_do_not_veto_a_choice() {
    let nodes = [socks(1, "a"), http(2, "b")];
    let before = dead(&table(&nodes, &[all("g")]), [2]);
    let after = before
        .choose(at(&before, "g").id, Scope::Both, member(2), NOW)
        .unwrap()
        .table;
    assert_eq!(udp(&after, "g"), Err(Refuse::UdpIncapable));
    assert_eq!(tcp(&after, "g"), Err(Refuse::AllDead));
}

// G-167
#[test]
fn same_choice_again_changes_and_stores_nothing() {
    let before = table(&nodes(), &[all("g")]);
    let id = at(&before, "g").id;
    let first = before.choose(id, Scope::Both, member(1), NOW).unwrap();
    assert_eq!((first.changed, first.stored), (NONE, true));
    let again = first.table.choose(id, Scope::Both, member(1), NOW).unwrap();
    assert_eq!((again.changed, again.stored), (NONE, false));
    assert_eq!(at(&again.table, "g").selection_revision, 1);
}

// G-165
#[test]
fn dropping_a_choice_returns_to_default_for_the_networks_asked() {
    let before = table(&nodes(), &[all("g").default("y")]);
    let id = at(&before, "g").id;
    let chosen = before
        .choose(id, Scope::Both, member(2), NOW)
        .unwrap()
        .table;
    let dropped = chosen.unchoose(id, Scope::Udp, NOW).unwrap();
    assert_eq!(
        (tcp(&dropped.table, "g"), udp(&dropped.table, "g")),
        (Ok(2), Ok(3))
    );
    assert_eq!(
        dropped.changed,
        Changed {
            tcp: false,
            udp: true
        }
    );
    assert!(!dropped.table.unchoose(id, Scope::Udp, NOW).unwrap().stored);
}

// G-125
#[test]
fn choice_in_a_child_moves_the_leaf_of_its_parent_but_not_its_member() {
    let groups = [nest("outer", &["inner"]), all("inner")];
    let before = table(&nodes(), &groups);
    let choice = before
        .choose(at(&before, "inner").id, Scope::Both, member(3), NOW)
        .unwrap();
    assert_eq!(tcp(&choice.table, "outer"), Ok(3));
    let inner = at(&before, "inner").id;
    assert_eq!(moved(&before, &choice.table), [(inner, BOTH)]);
}

// G-155, G-159, G-183
#[test]
fn ids_and_choices_follow_the_name_over_a_reload() {
    let mut builder = Builder::default();
    let groups = [nest("outer", &["a", "b"]), all("a"), all("b")];
    let (old, _) = builder.build(&nodes(), &groups, None);
    let b = MemberId::Group(at(&old, "b").id);
    let old = old
        .choose(at(&old, "outer").id, Scope::Both, b, NOW)
        .unwrap()
        .table;
    let old = old
        .choose(at(&old, "a").id, Scope::Tcp, member(3), NOW)
        .unwrap()
        .table;
    let reordered = [all("b"), all("new"), nest("outer", &["a", "b"]), all("a")];
    let (new, _) = builder.build(&nodes(), &reordered, Some(&old));
    for name in ["outer", "a", "b"] {
        assert_eq!(at(&new, name).id, at(&old, name).id, "{name}");
    }
    assert_eq!(at(&new, "outer").chosen(Network::Udp), Some(b));
    assert_eq!((tcp(&new, "a"), udp(&new, "a")), (Ok(3), Ok(1)));
    assert_eq!(moved(&old, &new), []);
}

// G-123, G-184, G-186, GI-15
#[test]
fn choice_of_a_vanished_member_falls_through_to_default() {
    let mut builder = Builder::default();
    let (old, _) = builder.build(&nodes(), &[all("g").default("y")], None);
    let old = old
        .choose(at(&old, "g").id, Scope::Both, member(2), NOW)
        .unwrap()
        .table;
    let without = [socks(1, "x"), socks(3, "y")];
    let (new, _) = builder.build(&without, &[all("g").default("y")], Some(&old));
    assert_eq!(at(&new, "g").chosen(Network::Tcp), None);
    assert_eq!(tcp(&new, "g"), Ok(3));
    assert_eq!(moved(&old, &new), [(at(&new, "g").id, BOTH)]);
    assert_eq!(at(&new, "g").selection_revision, 2);
}

// G-155
#[test]
fn group_that_was_away_returns_with_a_new_id_and_no_choice() {
    let mut builder = Builder::default();
    let (one, _) = builder.build(&nodes(), &[all("g")], None);
    let one = one
        .choose(at(&one, "g").id, Scope::Both, member(3), NOW)
        .unwrap()
        .table;
    let (two, _) = builder.build(&nodes(), &[], Some(&one));
    let (three, _) = builder.build(&nodes(), &[all("g")], Some(&two));
    assert_ne!(at(&three, "g").id, at(&one, "g").id);
    assert_eq!(tcp(&three, "g"), Ok(1));
}

#[test]
fn unchanged_nodes_keep_their_allocation_over_a_reload() {
    let mut builder = Builder::default();
    let (old, _) = builder.build(&nodes(), &[all("g")], None);
    let changed = [socks(1, "x"), http(2, "x"), socks(3, "y")];
    let (new, _) = builder.build(&changed, &[all("g")], Some(&old));
    assert!(Arc::ptr_eq(&old.nodes()[0], &new.nodes()[0]));
    assert_eq!(new.nodes()[1].protocol, changed[1].protocol);
}
