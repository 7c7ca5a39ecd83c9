//! The index against the plain meaning of every value.

use std::sync::Arc;

use proptest::{collection::vec, prelude::*, sample::select};

use super::*;
use crate::geo::SiteList;

fn set(test: DomainTest) -> DomainSet {
    DomainSet::new(&[test])
}

fn listed(names: &[(Kind, &str)]) -> DomainTest {
    DomainTest::Geosite {
        file: "geosite.dat".into(),
        code: "x".into(),
        attr: None,
        list: Arc::new(names.iter().copied().collect::<SiteList>()),
    }
}

/// What a value means, without any preparation.
fn means(test: &DomainTest, name: &str) -> bool {
    let below = |parent: &str| {
        name.strip_suffix(parent)
            .is_some_and(|rest| rest.ends_with('.'))
    };
    match test {
        DomainTest::Full(full) => name == full,
        DomainTest::Suffix(suffix) => name == suffix || below(suffix),
        DomainTest::SubdomainsOf(parent) => below(parent),
        DomainTest::Keyword(text) => name.contains(text.as_str()),
        DomainTest::Regex(pattern) => regex::Regex::new(pattern).unwrap().is_match(name),
        DomainTest::Geosite { list, .. } => list.iter().any(|(kind, value)| {
            let value = value.to_owned();
            let test = match kind {
                Kind::Full => DomainTest::Full(value),
                Kind::Suffix => DomainTest::Suffix(value),
                Kind::Keyword => DomainTest::Keyword(value),
                Kind::Regex => DomainTest::Regex(value),
            };
            means(&test, name)
        }),
    }
}

/// Bits of the conditions that an index finds.
fn found(index: &DomainIndex, name: &str) -> Vec<bool> {
    let mut hits = vec![0; index.words()];
    index.find(name, &mut hits);
    (0..index.conds())
        .map(|c| hits[c / 64] >> (c % 64) & 1 == 1)
        .collect()
}

#[test]
fn suffix_matches_the_name_and_below_but_not_a_longer_label() {
    let s = set(DomainTest::Suffix("a.b".into()));
    assert!(s.contains("a.b"));
    assert!(s.contains("x.y.a.b"));
    assert!(!s.contains("xa.b"));
    assert!(!s.contains("b"));
}

#[test]
fn leading_dot_matches_sub_domains_only() {
    let s = set(DomainTest::SubdomainsOf("a.b".into()));
    assert!(s.contains("x.a.b"));
    assert!(!s.contains("a.b"));
}

#[test]
fn full_keyword_and_regex_match_as_written() {
    assert!(set(DomainTest::Full("a.b".into())).contains("a.b"));
    assert!(!set(DomainTest::Full("a.b".into())).contains("x.a.b"));
    assert!(set(DomainTest::Keyword("oo".into())).contains("foo.b"));
    assert!(!set(DomainTest::Keyword("oo".into())).contains("fo.ob"));
    assert!(set(DomainTest::Regex("^ad[0-9]".into())).contains("ad1.net"));
    assert!(!set(DomainTest::Regex("^ad[0-9]".into())).contains("bad1.net"));
}

#[test]
fn a_set_without_values_matches_nothing() {
    assert!(!DomainSet::new(&[]).contains("a.b"));
    assert!(!DomainSet::default().contains("a.b"));
}

#[test]
fn names_of_a_list_match_like_written_ones() {
    let s = set(listed(&[
        (Kind::Suffix, "a.b"),
        (Kind::Full, "full.c"),
        (Kind::Keyword, "key"),
        (Kind::Regex, r"^r\d+\.e$"),
    ]));
    for yes in ["a.b", "x.a.b", "full.c", "monkey.d", "r17.e"] {
        assert!(s.contains(yes), "{yes}");
    }
    for no in ["xa.b", "x.full.c", "ke.y", "r.e", "r17.ee"] {
        assert!(!s.contains(no), "{no}");
    }
}

#[test]
fn one_name_can_satisfy_many_conditions() {
    let conds: Vec<Vec<DomainTest>> = (0..200)
        .map(|n| match n % 4 {
            0 => vec![DomainTest::Suffix("b.c".into())],
            1 => vec![DomainTest::SubdomainsOf("a.b.c".into())],
            2 => vec![
                DomainTest::Keyword("a.b".into()),
                DomainTest::Regex("^z".into()),
            ],
            _ => vec![DomainTest::Regex("c$".into())],
        })
        .collect();
    let index = DomainIndex::new(conds.iter().map(Vec::as_slice));
    let want: Vec<bool> = (0..200).map(|n| n % 4 != 1).collect();
    assert_eq!(found(&index, "a.b.c"), want);
    assert_eq!(index.names(), 2);
}

#[test]
fn expressions_that_ask_for_unicode_still_work() {
    assert!(set(DomainTest::Regex(r"^\p{Lowercase}+\.b$".into())).contains("abc.b"));
    assert!(set(DomainTest::Regex(r"^\w+\.b$".into())).contains("abc.b"));
}

#[test]
fn expressions_beyond_one_set_are_split() {
    // Each takes about a megabyte.
    let tests: Vec<_> = (0..40)
        .map(|n| DomainTest::Regex(format!("^x{n}[a-z]{{900}}[0-9]{{900}}$")))
        .chain([
            DomainTest::Regex("(".into()),
            DomainTest::Regex("^last$".into()),
        ])
        .collect();
    let s = DomainSet::new(&tests);
    assert!(s.contains("last"));
    assert!(s.contains(&format!("x39{}{}", "a".repeat(900), "1".repeat(900))));
    assert!(!s.contains("("));
}

#[test]
fn endless_names_end() {
    let deep = format!("{}a", "a.".repeat(200));
    let s = DomainSet::new(&[
        DomainTest::Full(deep.clone()),
        DomainTest::Suffix("b.a".into()),
    ]);
    assert!(s.contains(&deep));
    assert!(!s.contains(&format!("a.{deep}")));
    assert!(s.contains(&format!("{}b.a", "..".repeat(10_000))));
    assert!(!s.contains(&".".repeat(100_000)));
}

/// Few letters and labels, so that names and values meet often.
fn name() -> impl Strategy<Value = String> {
    vec(
        select(vec![
            "a",
            "b",
            "ab",
            "ba",
            "aab",
            "abcdefgh",
            "abcdefghi",
            "x-1",
        ]),
        1..5,
    )
    .prop_map(|labels| labels.join("."))
}

fn test() -> impl Strategy<Value = DomainTest> {
    let plain = prop_oneof![
        4 => name().prop_map(DomainTest::Suffix),
        4 => name().prop_map(DomainTest::Full),
        2 => name().prop_map(DomainTest::SubdomainsOf),
        1 => "[ab.]{1,4}".prop_map(DomainTest::Keyword),
        1 => select(vec!["^a", "b$", r"^\w+\.a", r"a{2}.*b", "[^ab.]"])
            .prop_map(|p| DomainTest::Regex(p.to_owned())),
    ];
    let kind = select(vec![Kind::Suffix, Kind::Full, Kind::Keyword]);
    let list = vec((kind, name()), 0..6).prop_map(|names| {
        let names: Vec<_> = names
            .iter()
            .map(|(kind, name)| (*kind, name.as_str()))
            .collect();
        listed(&names)
    });
    prop_oneof![8 => plain, 1 => list]
}

proptest! {
    #[test]
    fn the_index_agrees_with_the_meaning(
        conds in vec(vec(test(), 0..12), 0..8),
        names in vec(name(), 1..20),
    ) {
        let index = DomainIndex::new(conds.iter().map(Vec::as_slice));
        for name in &names {
            let want: Vec<bool> =
                conds.iter().map(|tests| tests.iter().any(|t| means(t, name))).collect();
            prop_assert_eq!(index.any(name), want.contains(&true), "{}", name);
            prop_assert_eq!(found(&index, name), want, "{}", name);
        }
    }

    /// Names from outside hold anything.
    #[test]
    fn no_name_does_harm(conds in vec(vec(test(), 0..12), 0..4), name in "\\PC{0,40}") {
        let index = DomainIndex::new(conds.iter().map(Vec::as_slice));
        let _ = found(&index, &name);
    }
}
