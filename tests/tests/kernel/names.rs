//! Lines with names: what the entry of the destination address changes (T27).

use honk_common::flow::{FLAG_AMBIGUOUS, FLAG_DOMAIN_KNOWN, FLAG_PRELIM};
use honk_common::key::to_bytes;
use honk_common::outbound::{CONTROL, DIRECT, MUST_RULES};
use honk_common::param::{AMBIG_USER, OFFLOAD_DIRECT, SNI_STRICT};
use honk_policy::routing::oracle::Oracle;
use honk_policy::routing::rule::{DomainTest, RuleSet, Test};
use honk_tests::kernel::packet::{Packet, SYN, tcp};
use honk_tests::kernel::{NEXT, REDIRECT, Rig};

use crate::common::*;
use crate::rig;

const A: u8 = 10;
const B: u8 = 11;
const IP: &str = "198.51.100.131";
const IP6: &str = "2001:db8:200::1";

fn name(suffix: &str) -> Test {
    Test::Domain(vec![DomainTest::Suffix(suffix.into())])
}

/// Rules, and the names of both addresses.
fn install_named(rig: &mut Rig, set: &RuleSet, names: &[&str], generation: u32) {
    let oracle = Oracle::new(set);
    let calls: Vec<_> = names.iter().map(|n| oracle.domain_calls(n)).collect();
    let value = oracle.domain_value(&calls);
    let entries: Vec<_> = [IP, IP6]
        .into_iter()
        .filter_map(|ip| Some((to_bytes(ip.parse().expect("an address")), value?)))
        .collect();
    rig.install_names(&entries, generation).expect("names fit");
    install(rig, set, generation);
}

fn packet() -> Packet {
    tcp(CLIENT, &format!("{IP}:443"), SYN)
}

fn packets() -> [Packet; 2] {
    [packet(), tcp(CLIENT6, &format!("[{IP6}]:443"), SYN)]
}

/// Ordinal and flags of a new flow.
fn decided(rig: &Rig, p: &Packet) -> (u8, u8) {
    rig.clear("FLOW", 40);
    assert_eq!(lan(rig, p), REDIRECT, "{p:?}");
    let word = word(rig, p);
    (word.ordinal, word.flags)
}

#[test]
fn the_name_of_an_address_selects_the_line() {
    let mut rig = rig!();
    let set = rules(
        [line([is(name("a.org"))], A), line([isnt(name("b.org"))], B)],
        PROXY,
    );
    // No name: no name matches, and every negation holds.
    for (names, ordinal) in [
        (&[][..], B),
        (&["x.a.org"], A),
        (&["b.org"], PROXY),
        (&["c.org"], B),
    ] {
        install_named(&mut rig, &set, names, 1);
        for p in packets() {
            let (got, flags) = decided(&rig, &p);
            assert_eq!(got, ordinal, "{names:?} {p:?}");
            let known = flags & FLAG_DOMAIN_KNOWN != 0;
            assert_eq!(known, !names.is_empty(), "{names:?}");
            assert_eq!(flags & FLAG_PRELIM, 0);
        }
        // Another address has no name.
        let other = tcp(CLIENT, "198.51.100.132:443", SYN);
        assert_eq!(decided(&rig, &other).0, B);
    }
}

#[test]
fn names_are_those_of_the_generation() {
    let mut rig = rig!();
    let set = |suffix: &str| rules([line([is(name(suffix))], A)], B);
    install_named(&mut rig, &set("a.org"), &["a.org"], 6);
    install_named(&mut rig, &set("c.org"), &["a.org"], 7);
    assert_eq!(decided(&rig, &packet()).0, B);
    rig.put("ROUTE_SEL", &0u32, &6u32);
    assert_eq!(decided(&rig, &packet()).0, A);
}

#[test]
fn t27_owners_that_disagree_are_left_to_userspace_when_asked_for() {
    let mut rig = rig!();
    let set = rules(
        [
            line([is(name("a.org")), dport(443)], A),
            line([dport(80)], B),
        ],
        DIRECT,
    );
    let ask = OFFLOAD_DIRECT | AMBIG_USER;
    for (flags, names, outcome) in [
        (ask, &["a.org", "b.org"][..], Some(CONTROL)),
        (ask, &["a.org", "x.a.org"], Some(A)),
        (ask, &["b.org", "c.org"], None),
        // `or`: any owner counts.
        (OFFLOAD_DIRECT, &["a.org", "b.org"], Some(A)),
    ] {
        rig.put("FLAGS", &0u32, &flags);
        install_named(&mut rig, &set, names, 1);
        match outcome {
            None => {
                rig.clear("FLOW", 40);
                assert_eq!(lan(&rig, &packet()), NEXT, "{names:?}");
            }
            Some(ordinal) => {
                let (got, flags) = decided(&rig, &packet());
                assert_eq!(got, ordinal, "{names:?}");
                let open = FLAG_PRELIM | FLAG_AMBIGUOUS;
                let expected = if ordinal == CONTROL { open } else { 0 };
                assert_eq!(flags & open, expected, "{names:?}");
            }
        }
    }
    // The port decides alone: no name could change that.
    rig.put("FLAGS", &0u32, &ask);
    install_named(&mut rig, &set, &["a.org", "b.org"], 1);
    let p = tcp(CLIENT, &format!("{IP}:80"), SYN);
    assert_eq!(decided(&rig, &p).0, B);
}

#[test]
fn strict_mode_lets_direct_pass_once_the_name_is_known() {
    let mut rig = rig!();
    rig.put("FLAGS", &0u32, &(OFFLOAD_DIRECT | SNI_STRICT));
    let set = rules([line([is(name("a.org"))], A)], DIRECT);
    install_named(&mut rig, &set, &[], 1);
    assert_eq!(decided(&rig, &packet()), (CONTROL, FLAG_PRELIM));
    install_named(&mut rig, &set, &["b.org"], 1);
    rig.clear("FLOW", 40);
    assert_eq!(lan(&rig, &packet()), NEXT);
}

#[test]
fn a_name_may_carry_must_rules() {
    let mut rig = rig!();
    let set = rules([line([is(name("a.org"))], MUST_RULES)], A);
    for (names, must) in [(&["a.org"][..], true), (&["b.org"], false), (&[], false)] {
        install_named(&mut rig, &set, names, 1);
        let (_, flags) = decided(&rig, &packet());
        assert_eq!(flags & honk_common::flow::FLAG_MUST != 0, must, "{names:?}");
    }
}

#[test]
fn lines_behind_the_first_word_have_names_too() {
    let mut rig = rig!();
    let mut lines: Vec<_> = (0..200u16)
        .map(|i| line([is(name(&format!("n{i}.org")))], A))
        .collect();
    lines.push(line([dport(1)], B));
    let set = rules(lines, PROXY);
    for n in [0u16, 63, 64, 130, 199] {
        install_named(&mut rig, &set, &[&format!("n{n}.org")], 1);
        decided(&rig, &packet());
        let entry = flow(&rig, &packet()).expect("entry");
        assert_eq!(entry.rule, n);
    }
}
