//! Pins on automatic groups: a choice that ends with the configuration.

use honk_common::outbound::{NET_TCP, STATE_DIRECT, group_slot};

use super::*;
use crate::group::{Cause, Scope, Source};

const POLICIES: [Policy; 3] = [Policy::UrlTest, Policy::LoadBalance, Policy::Fallback];

fn three() -> [Node; 3] {
    [socks(1, "a"), socks(2, "b"), socks(3, "c")]
}

// G-149, G-150
#[test]
fn a_pinned_member_is_kept_per_network_and_not_replaced_when_it_dies() {
    for policy in POLICIES {
        let table = table(
            &three(),
            &[
                all("g").policy(policy).last("direct"),
                all("h").policy(policy),
            ],
        );
        let pin = |table: &GroupTable, name| {
            let id = at(table, name).id;
            table.choose(id, Scope::Tcp, member(2), NOW).unwrap().table
        };
        let table = pin(&pin(&table, "g"), "h");
        for _ in 0..3 {
            assert_eq!(flow(&table, "g", Network::Tcp), Ok(2), "{policy:?}");
        }
        assert_eq!(flow(&table, "g", Network::Udp), Ok(1));
        let pick = selected(&table, "g", Network::Tcp).unwrap();
        assert_eq!((pick.source, pick.member), (Source::Pin, Some(member(2))));
        let view = table.view(at(&table, "g").id).unwrap();
        assert_eq!(
            (view.tcp.pinned_at_ms, view.udp.pinned_at_ms),
            (Some(NOW), None)
        );
        let dead = told(&table, &Seen::default().tcp(2, DOWN));
        assert_eq!(tcp(&dead.table, "g"), Ok(0), "final");
        assert_eq!(tcp(&dead.table, "h"), Err(Refuse::AllDead));
        let tcp_moved = dead.changes.iter().any(|c| c.network == Network::Tcp);
        assert!(!tcp_moved, "a pin does not move");
    }
}

// G-150, G-185
#[test]
fn an_activation_ends_pins_but_not_choices_and_a_mere_rebuild_ends_neither() {
    let mut builder = Builder::default();
    let groups = [all("auto").policy(Policy::Fallback), all("hand")];
    let (old, _) = builder.build(&three(), &groups, None);
    let mut old = old;
    for name in ["auto", "hand"] {
        old = old
            .choose(at(&old, name).id, Scope::Both, member(3), NOW)
            .unwrap()
            .table;
    }
    let (rebuilt, _) = builder.build(&three(), &groups, Some(&old));
    assert_eq!(
        (tcp(&rebuilt, "auto"), tcp(&rebuilt, "hand")),
        (Ok(3), Ok(3))
    );
    let activated = rebuilt.unpinned();
    assert_eq!(
        (tcp(&activated, "auto"), tcp(&activated, "hand")),
        (Ok(1), Ok(3))
    );
    assert_eq!(at(&activated, "auto").chosen(Network::Tcp), None);
    let causes: BTreeSet<_> = old
        .changes(&activated)
        .iter()
        .map(|c| c.cause.name())
        .collect();
    assert_eq!(causes, BTreeSet::from([Cause::Reload.name()]));
    let (gone, _) = builder.build(&three()[..2], &groups, Some(&old));
    assert_eq!(
        (tcp(&gone, "auto"), at(&gone, "auto").chosen(Network::Tcp)),
        (Ok(1), None)
    );
}

// A choice of a selector is no pin of the urltest group that has its name now.
#[test]
fn a_change_between_selector_and_policy_drops_the_choice() {
    let mut builder = Builder::default();
    let (old, _) = builder.build(&three(), &[all("g")], None);
    let old = old
        .choose(at(&old, "g").id, Scope::Both, member(3), NOW)
        .unwrap()
        .table;
    let (new, _) = builder.build(&three(), &[all("g").policy(Policy::UrlTest)], Some(&old));
    assert_eq!(at(&new, "g").chosen(Network::Tcp), None);
    assert_eq!(tcp(&new, "g"), Ok(1));
}

// G-164
#[test]
fn unpinning_a_loadbalance_group_names_no_member_to_move_to() {
    let table = table(&three(), &[all("g").policy(Policy::LoadBalance)]);
    let id = at(&table, "g").id;
    let pinned = table.choose(id, Scope::Both, member(2), NOW).unwrap();
    assert_eq!(pinned.changes.len(), 2);
    let of = |table: &GroupTable| table.member_of(id, Network::Tcp, Family::V4);
    assert_eq!((of(&table), of(&pinned.table)), (None, Some(member(2))));
    let free = pinned.table.unchoose(id, Scope::Both, NOW).unwrap();
    assert_eq!((free.changes.len(), of(&free.table)), (2, None));
}

// datapath.md 4.5
#[test]
fn the_kernel_serves_direct_itself_only_where_no_flow_has_a_say() {
    let only = |policy| of("g", &["direct"]).policy(policy);
    let bits = |table: &GroupTable| {
        let index = group_slot(at(table, "g").slot.0, NET_TCP, false);
        table
            .slots()
            .into_iter()
            .find(|(i, _)| *i == index)
            .unwrap()
            .1
    };
    for (policy, direct) in [
        (Policy::Selector, STATE_DIRECT),
        (Policy::Fallback, STATE_DIRECT),
        (Policy::UrlTest, 0),
        (Policy::LoadBalance, 0),
    ] {
        let table = table(&[], &[only(policy)]);
        assert_eq!(bits(&table), direct, "{policy:?}");
        let parent = super::table(
            &[],
            &[
                nest("g", &["x"]),
                GroupDef {
                    name: "x".to_owned(),
                    ..only(policy)
                },
            ],
        );
        assert_eq!(bits(&parent), direct, "{policy:?} below a selector");
        let id = at(&table, "g").id;
        let member = MemberId::Node(crate::group::builtin::DIRECT);
        let pinned = table.choose(id, Scope::Both, member, NOW).unwrap().table;
        assert_eq!(bits(&pinned), STATE_DIRECT, "{policy:?} with a pin");
        assert!(pinned.kernel_serves(id));
    }
    let fails = table(
        &[http(1, "h")],
        &[all("g").policy(Policy::UrlTest).last("direct")],
    );
    let fails = told(&fails, &Seen::default().tcp(1, DOWN)).table;
    assert_eq!(bits(&fails), STATE_DIRECT, "final serves");
    assert!(fails.kernel_serves(at(&fails, "g").id));
}
