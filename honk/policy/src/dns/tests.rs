use std::{net::IpAddr, sync::Arc};

use honk_common::route::DomainVal;
use proptest::prelude::*;

use super::*;
use crate::{
    id::Ordinal,
    routing::{
        oracle::Oracle,
        rule::{Action, Cond, DomainTest, RuleLine, RuleSet, Test},
    },
};

const A: u16 = 1;
const AAAA: u16 = 28;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn lesson(name: &str, addresses: &[(&str, u32)]) -> Lesson {
    Lesson {
        client: ip("10.0.0.9"),
        name: name.to_owned(),
        kind: A,
        addresses: addresses.iter().map(|(a, ttl)| (ip(a), *ttl)).collect(),
    }
}

fn leases() -> Leases {
    Leases::new(Limits::default())
}

fn names(leases: &Leases, address: &str) -> Vec<String> {
    let mut names: Vec<_> = leases
        .owners(ip(address))
        .map(|(_, name)| name.to_string())
        .collect();
    names.sort();
    names
}

/// One line per condition: `!name` is negated; then the fallback.
fn rules(lines: &[&[&str]]) -> Arc<Oracle> {
    let line = |conds: &[&str]| RuleLine {
        conds: conds
            .iter()
            .map(|c| Cond {
                not: c.starts_with('!'),
                test: Test::Domain(vec![DomainTest::Suffix(
                    c.trim_start_matches('!').to_owned(),
                )]),
            })
            .collect(),
        action: Action {
            ordinal: Ordinal(2),
            must: false,
            mark: 0,
        },
        text: String::new(),
        file: String::new(),
        line: 0,
    };
    let lines = lines.iter().map(|l| line(l)).chain([line(&[])]).collect();
    Arc::new(Oracle::new(&RuleSet { lines }))
}

fn lines(value: &DomainVal) -> (u64, u64) {
    (value.bits[0], value.amb[0])
}

#[test]
fn a_lease_outlives_its_ttl_and_ends() {
    let mut leases = leases();
    assert_eq!(
        leases.learn(0, &lesson("a.example", &[("192.0.2.1", 60)])),
        [ip("192.0.2.1")]
    );
    assert!(leases.sweep(899).is_empty());
    assert_eq!(names(&leases, "192.0.2.1"), ["a.example"]);
    assert_eq!(leases.sweep(900), [ip("192.0.2.1")]);
    assert!(leases.is_empty() && leases.name_count() == 0 && leases.recent_count() == 0);
    assert_eq!(expiry(0, 0), 900);
    assert_eq!(expiry(0, 3600), 3900);
    assert_eq!(expiry(5, u32::MAX), 86_705);
}

#[test]
fn renewals_extend_the_lease_and_are_not_told_as_news() {
    let mut leases = leases();
    let lesson = lesson("a.example", &[("192.0.2.1", 60)]);
    leases.learn(0, &lesson);
    assert!(leases.learn(29, &lesson).is_empty());
    assert_eq!(
        leases.of_address(29, ip("192.0.2.1"))[0].left,
        871,
        "too soon"
    );
    assert!(leases.learn(30, &lesson).is_empty());
    assert_eq!(leases.of_address(30, ip("192.0.2.1"))[0].left, 900);
    assert_eq!(leases.len(), 1);
}

#[test]
fn an_answer_without_the_address_takes_nothing_away() {
    let mut leases = leases();
    for (now, address) in [(0, "192.0.2.1"), (20, "192.0.2.2"), (40, "192.0.2.3")] {
        leases.learn(now, &lesson("cdn.example", &[(address, 20)]));
    }
    assert_eq!(names(&leases, "192.0.2.1"), ["cdn.example"]);
    assert_eq!(leases.of_name(40, "cdn.example").len(), 3);
}

#[test]
fn a_negative_answer_shortens_the_leases_of_its_type() {
    let mut leases = leases();
    leases.learn(0, &lesson("a.example", &[("192.0.2.1", 60)]));
    let mut six = lesson("a.example", &[("2001:db8::1", 60)]);
    six.kind = AAAA;
    leases.learn(0, &six);
    let negative = |kind| Lesson {
        kind,
        addresses: Vec::new(),
        ..lesson("a.example", &[])
    };
    assert!(leases.learn(100, &negative(AAAA)).is_empty());
    assert_eq!(leases.of_address(100, ip("2001:db8::1"))[0].left, 60);
    assert_eq!(leases.of_address(100, ip("192.0.2.1"))[0].left, 800);
    assert_eq!(leases.sweep(160), [ip("2001:db8::1")]);
    // A name that comes back is renewed at once.
    leases.learn(170, &negative(A));
    leases.learn(171, &lesson("a.example", &[("192.0.2.1", 60)]));
    assert_eq!(leases.of_address(171, ip("192.0.2.1"))[0].left, 900);
}

#[test]
fn addresses_that_no_flow_can_have_are_not_remembered() {
    let never = [
        "0.0.0.0",
        "0.1.2.3",
        "127.0.0.1",
        "169.254.1.1",
        "224.0.0.1",
        "255.255.255.255",
        "240.0.0.1",
        "::",
        "::1",
        "ff02::1",
        "fe80::1",
        "::ffff:127.0.0.1",
    ];
    for address in never {
        assert!(!teaches(ip(address)), "{address}");
    }
    for address in [
        "10.0.0.1",
        "192.168.1.1",
        "fd00::1",
        "2001:db8::1",
        "1.1.1.1",
    ] {
        assert!(teaches(ip(address)), "{address}");
    }
    let mut leases = leases();
    let loopback = lesson("a.example", &[("127.0.0.1", 60)]);
    assert!(leases.learn(0, &loopback).is_empty());
    assert_eq!((leases.len(), leases.name_count()), (0, 0));
    leases.learn(0, &lesson("a.example", &[("::ffff:192.0.2.1", 60)]));
    assert_eq!(
        names(&leases, "192.0.2.1"),
        ["a.example"],
        "one form of an address"
    );
}

#[test]
fn each_client_is_remembered_with_the_name_it_heard() {
    let mut leases = leases();
    let shared = ip("192.0.2.1");
    let by = |client: &str, name: &str| Lesson {
        client: ip(client),
        ..lesson(name, &[("192.0.2.1", 60)])
    };
    leases.learn(0, &by("10.0.0.1", "a.example"));
    leases.learn(100, &by("10.0.0.2", "b.example"));
    let name =
        |leases: &Leases, client| leases.name_for(ip(client), shared).map(ToString::to_string);
    assert_eq!(name(&leases, "10.0.0.1").as_deref(), Some("a.example"));
    assert_eq!(name(&leases, "10.0.0.2").as_deref(), Some("b.example"));
    assert_eq!(
        name(&leases, "10.0.0.3").as_deref(),
        Some("b.example"),
        "the last one"
    );
    assert_eq!(leases.heard(ip("10.0.0.3"), shared), None);
    leases.learn(200, &by("10.0.0.1", "b.example"));
    assert_eq!(name(&leases, "10.0.0.1").as_deref(), Some("b.example"));
    assert!(leases.holds(shared, "a.example") && !leases.holds(shared, "c.example"));
    leases.sweep(900);
    assert!(!leases.holds(shared, "a.example"));
    assert_eq!(leases.recent_count(), 2);
}

fn small() -> Limits {
    Limits {
        addresses: 10,
        addresses_low: 8,
        owners: 3,
        per_name: 5,
        leases: 12,
        recent: 4,
    }
}

#[test]
fn full_memories_forget_what_would_end_first() {
    let mut leases = Leases::new(small());
    for n in 1..=10 {
        let address = format!("192.0.2.{n}");
        leases.learn(n, &lesson(&format!("n{n}.example"), &[(&address, 60)]));
    }
    assert_eq!((leases.address_count(), leases.evicted()), (10, 0));
    let touched = leases.learn(11, &lesson("n11.example", &[("192.0.2.11", 60)]));
    assert_eq!(
        touched,
        ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.11"].map(ip)
    );
    assert_eq!((leases.address_count(), leases.evicted()), (8, 3));
    assert_eq!(leases.recent_count(), 4);
}

#[test]
fn one_address_keeps_few_names_and_one_name_few_addresses() {
    let mut leases = Leases::new(small());
    for (now, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
        leases.learn(now as u64, &lesson(name, &[("192.0.2.1", 60)]));
    }
    assert_eq!(names(&leases, "192.0.2.1"), ["b", "c", "d"]);
    for n in 2..=8 {
        let address = format!("192.0.2.{n}");
        leases.learn(n, &lesson("greedy", &[(&address, 86_400)]));
    }
    let kept: Vec<_> = leases
        .of_name(9, "greedy")
        .iter()
        .map(|v| v.address)
        .collect();
    assert_eq!(kept, [4, 5, 6, 7, 8].map(|n| ip(&format!("192.0.2.{n}"))));
    assert_eq!(names(&leases, "192.0.2.1"), ["b", "c", "d"], "others stay");
}

#[test]
fn entries_are_written_once_and_again_only_when_bits_change() {
    let (mut leases, oracle) = (leases(), rules(&[&["ads.example"], &["!good.example"]]));
    let mut projection = Projection::new(oracle, &leases);
    let mut learn = |leases: &mut Leases, name: &str| {
        let touched = leases.learn(0, &lesson(name, &[("192.0.2.1", 60)]));
        projection.touch(&touched);
        let changes = projection.changes_among(leases, &touched);
        projection.confirm(&changes);
        assert_eq!(projection.waiting(), 0);
        (
            changes.first().map(|c| lines(&c.value.unwrap())),
            projection.ambiguous(),
        )
    };
    // Line 0 wants a name, line 1 rejects one, line 2 is the fallback.
    assert_eq!(learn(&mut leases, "other.example"), (Some((0b110, 0)), 0));
    assert_eq!(learn(&mut leases, "same.example"), (None, 0), "same bits");
    assert_eq!(
        learn(&mut leases, "x.ads.example"),
        (Some((0b111, 0b001)), 1)
    );
    assert_eq!(
        learn(&mut leases, "good.example"),
        (Some((0b101, 0b011)), 1)
    );
    assert_eq!(learn(&mut leases, "good.example"), (None, 1));
    // The end of the leases takes the entry away.
    let gone = leases.sweep(10_000);
    projection.touch(&gone);
    let changes = projection.changes(&leases, 10);
    assert_eq!((changes.len(), &changes[0].value), (1, &None));
    projection.confirm(&changes);
    assert_eq!((projection.entries(), projection.waiting()), (0, 0));
    projection.tidy(&leases);
    assert!(
        projection.calls_known() == 0,
        "names that are gone cost nothing"
    );
}

#[test]
fn a_name_that_left_leaves_no_bits() {
    let (mut leases, oracle) = (leases(), rules(&[&["a.example"]]));
    leases.learn(0, &lesson("a.example", &[("192.0.2.1", 60)]));
    leases.learn(500, &lesson("b.example", &[("192.0.2.1", 60)]));
    let mut projection = Projection::new(oracle, &leases);
    let value = projection.value(&leases, ip("192.0.2.1")).unwrap();
    assert_eq!((lines(&value), value.owners), ((0b11, 0b01), 2));
    leases.sweep(900);
    let value = projection.value(&leases, ip("192.0.2.1")).unwrap();
    assert_eq!((lines(&value), value.owners), ((0b10, 0), 1));
    assert_eq!(projection.value(&leases, ip("192.0.2.2")), None);
}

#[test]
fn what_was_not_confirmed_waits() {
    let (mut leases, oracle) = (leases(), rules(&[&["a.example"]]));
    let mut projection = Projection::new(oracle, &leases);
    for n in 1..=5 {
        let address = format!("192.0.2.{n}");
        let touched = leases.learn(0, &lesson("a.example", &[(&address, 60)]));
        projection.touch(&touched);
    }
    assert_eq!(projection.changes(&leases, 2).len(), 2);
    assert_eq!(projection.waiting(), 5);
    let changes = projection.changes(&leases, 2);
    projection.confirm(&changes);
    assert_eq!((projection.waiting(), projection.entries()), (3, 2));
}

#[test]
fn rules_without_names_need_no_entry_and_new_rules_get_all_of_them() {
    let mut leases = leases();
    let mut none = Projection::new(rules(&[]), &leases);
    let touched = leases.learn(
        0,
        &lesson("a.example", &[("192.0.2.1", 60), ("192.0.2.2", 60)]),
    );
    none.touch(&touched);
    assert_eq!((none.waiting(), none.changes(&leases, 10)), (0, vec![]));
    let mut some = Projection::new(rules(&[&["a.example"]]), &leases);
    assert_eq!(some.changes(&leases, 10).len(), 2);
}

#[derive(Clone, Debug)]
enum Step {
    Learn(u8, u8, u32),
    Negative(u8),
    Wait(u16),
    Write,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..6_u8, 0..8_u8, 0..4000_u32).prop_map(|(n, a, ttl)| Step::Learn(n, a, ttl)),
        1 => (0..6_u8).prop_map(Step::Negative),
        2 => (1..1500_u16).prop_map(Step::Wait),
        2 => Just(Step::Write),
    ]
}

proptest! {
    /// Whatever happens, a kernel that was told the changes agrees with a projection that is
    /// made from nothing, and no limit is passed.
    #[test]
    fn told_changes_add_up(steps in proptest::collection::vec(step(), 1..80)) {
        let oracle = rules(&[&["n0", "!n1"], &["n2"], &["!n3"]]);
        let mut leases = Leases::new(small());
        let mut projection = Projection::new(Arc::clone(&oracle), &leases);
        let mut kernel = std::collections::BTreeMap::new();
        let mut now = 0;
        for step in steps {
            match step {
                Step::Learn(name, address, ttl) => {
                    let address = format!("192.0.2.{}", address + 1);
                    let touched = leases.learn(now, &lesson(&format!("n{name}"), &[(&address, ttl)]));
                    projection.touch(&touched);
                }
                Step::Negative(name) => {
                    leases.learn(now, &lesson(&format!("n{name}"), &[]));
                }
                Step::Wait(seconds) => {
                    now += u64::from(seconds);
                    let touched = leases.sweep(now);
                    projection.touch(&touched);
                }
                Step::Write => {
                    let changes = projection.changes(&leases, 3);
                    for change in &changes {
                        match change.value {
                            Some(value) => kernel.insert(change.address, lines(&value)),
                            None => kernel.remove(&change.address),
                        };
                    }
                    projection.confirm(&changes);
                }
            }
            prop_assert!(leases.len() <= 12 && leases.address_count() <= 10);
            prop_assert!(leases.recent_count() <= 4);
            for n in 1..=8 {
                let address = format!("192.0.2.{n}");
                prop_assert!(names(&leases, &address).len() <= 3);
            }
        }
        while projection.waiting() > 0 {
            let changes = projection.changes(&leases, 3);
            for change in &changes {
                match change.value {
                    Some(value) => kernel.insert(change.address, lines(&value)),
                    None => kernel.remove(&change.address),
                };
            }
            projection.confirm(&changes);
        }
        let mut fresh = Projection::new(oracle, &leases);
        let all = fresh.changes(&leases, 1000);
        let want: std::collections::BTreeMap<_, _> = all
            .iter()
            .filter_map(|c| Some((c.address, lines(&c.value?))))
            .collect();
        prop_assert_eq!(kernel, want);
    }
}
