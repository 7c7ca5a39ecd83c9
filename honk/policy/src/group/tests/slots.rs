//! Kernel slots: stable by name, and the state bits written for them.

use honk_common::outbound::{
    NET_DNS, NET_TCP, NET_UDP, STATE_BLOCK, STATE_DEAD, STATE_DIRECT, group_slot,
};

use super::*;

fn slot(table: &GroupTable, name: &str) -> u8 {
    at(table, name).slot.0
}

fn named(names: &[&str]) -> Vec<GroupDef> {
    names.iter().map(|n| all(n)).collect()
}

// G-003, GI-04
#[test]
fn first_table_numbers_groups_in_order_of_declaration() {
    let table = table(&[], &named(&["b", "a", "c"]));
    assert_eq!(["b", "a", "c"].map(|n| slot(&table, n)), [2, 3, 4]);
    assert_eq!(table.slot_of(Ordinal(3)), Ordinal(3));
}

// T45, G-003
#[test]
fn surviving_names_keep_their_slots_and_ordinals_map_to_them() {
    let mut builder = Builder::default();
    let (one, _) = builder.build(&[], &named(&["a", "b", "c"]), None);
    let (two, _) = builder.build(&[], &named(&["c", "new", "a"]), Some(&one));
    assert_eq!(["a", "c", "new"].map(|n| slot(&two, n)), [2, 4, 5]);
    // In the configuration `c` is now the first group.
    assert_eq!(two.slot_of(Ordinal(2)), Ordinal(4));
    assert_eq!(two.slot_of(Ordinal(3)), Ordinal(5));
    assert_eq!(two.slot_of(Ordinal(0)), Ordinal(0));
    assert_eq!(two.slot_of(Ordinal(252)), Ordinal(252));
    // Beyond the groups: nothing to send with.
    assert_eq!(two.slot_of(Ordinal(200)), Ordinal(1));
    assert_eq!(at(&two, "c").def.ordinal, Ordinal(2));
}

#[test]
fn freed_slot_is_used_again_only_after_the_caller_says_so() {
    let mut builder = Builder::default();
    let (one, _) = builder.build(&[], &named(&["a", "b"]), None);
    let (two, _) = builder.build(&[], &named(&["b"]), Some(&one));
    assert_eq!(two.retired().len(), 1);
    let (three, _) = builder.build(&[], &named(&["b", "c"]), Some(&two));
    assert_eq!(slot(&three, "c"), 4);
    let freed = three.free(Ordinal(2));
    assert!(freed.retired().is_empty());
    let (four, _) = builder.build(&[], &named(&["b", "c", "d"]), Some(&freed));
    assert_eq!(slot(&four, "d"), 2);
}

#[test]
fn returning_name_gets_its_old_slot_back() {
    let mut builder = Builder::default();
    let (one, _) = builder.build(&[], &named(&["a", "b"]), None);
    let (two, _) = builder.build(&[], &named(&["b"]), Some(&one));
    let (three, _) = builder.build(&[], &named(&["new", "b", "a"]), Some(&two));
    assert_eq!((slot(&three, "a"), slot(&three, "new")), (2, 4));
    assert!(three.retired().is_empty());
}

// G-002, GI-04
#[test]
fn all_250_slots_are_given_out_and_exhaustion_is_an_error() {
    let mut builder = Builder::default();
    let names: Vec<String> = (0..250).map(|i| format!("g{i}")).collect();
    let defs: Vec<GroupDef> = names.iter().map(|n| all(n)).collect();
    let (full, found) = builder.build(&[socks(1, "n")], &defs, None);
    assert!(found.is_empty());
    assert_eq!(slot(&full, "g249"), 251);
    let mut renamed = defs;
    renamed[7] = all("other");
    let (next, found) = builder.build(&[socks(1, "n")], &renamed, Some(&full));
    assert_eq!(found.iter().map(|d| d.number).collect::<Vec<_>>(), ["E901"]);
    assert_eq!(slot(&next, "other"), 1);
    // The one without a number does not take `block` over.
    assert_eq!(
        next.select(Ordinal(1), Network::Tcp, Family::V4)
            .unwrap()
            .leaf
            .name,
        "block"
    );
    assert_eq!(next.slots().len(), 249 * 6);
    let (again, found) = builder.build(&[socks(1, "n")], &renamed, Some(&next.free(Ordinal(9))));
    assert!(found.is_empty());
    assert_eq!(slot(&again, "other"), 9);
}

fn bits(table: &GroupTable, name: &str, net: u32) -> [u32; 2] {
    [false, true].map(|v6| {
        let index = group_slot(slot(table, name), net, v6);
        let of_slot = table.slots();
        let mut of_slot = of_slot.iter().filter(|(i, _)| *i == index);
        let (_, bits) = of_slot.next().expect("an element");
        assert!(of_slot.next().is_none());
        *bits
    })
}

// datapath.md 4.5
#[test]
fn state_bits_say_what_each_network_selects() {
    let nodes = [socks(1, "s"), http(2, "h")];
    let groups = [
        of("socks", &["s"]),
        of("http", &["h"]),
        of("final", &["h"]).last("direct"),
        of("direct", &["direct"]),
        of("block", &["block"]),
        group("empty", []),
        nest("nested", &["direct"]),
    ];
    let table = table(&nodes, &groups);
    for (name, tcp, udp) in [
        ("socks", 0, 0),
        ("http", 0, STATE_DEAD),
        ("final", 0, STATE_DIRECT),
        ("direct", STATE_DIRECT, STATE_DIRECT),
        ("block", STATE_BLOCK, STATE_BLOCK),
        ("empty", STATE_DEAD, STATE_DEAD),
        ("nested", STATE_DIRECT, STATE_DIRECT),
    ] {
        assert_eq!(bits(&table, name, NET_TCP), [tcp; 2], "{name}");
        assert_eq!(bits(&table, name, NET_DNS), [udp; 2], "{name}");
        assert_eq!(bits(&table, name, NET_UDP), [udp; 2], "{name}");
    }
}

// G-101
#[test]
fn last_resort_keeps_tcp_open_in_the_kernel() {
    let table = dead(&table(&[socks(1, "s")], &[all("g")]), [1]);
    assert_eq!(bits(&table, "g", NET_TCP), [0; 2]);
    assert_eq!(bits(&table, "g", NET_UDP), [STATE_DEAD; 2]);
}
