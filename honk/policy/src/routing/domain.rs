//! Whether a name satisfies the values of one `domain(...)` condition.
//!
//! Names and values are lower-case without trailing dot. Values from geosite files match
//! nothing until such a file is loaded; the configuration refuses them before that.

use std::collections::HashSet;

use regex::RegexSet;

use super::rule::DomainTest;

/// The values of one condition, ready for many names.
#[derive(Clone, Debug, Default)]
pub struct DomainSet {
    full: HashSet<String>,
    /// The name itself or below.
    suffix: HashSet<String>,
    /// Below only.
    below: HashSet<String>,
    keywords: Vec<String>,
    patterns: RegexSet,
}

impl DomainSet {
    /// Prepares the values. A pattern that does not compile matches nothing; the
    /// configuration has refused it already.
    pub fn new(tests: &[DomainTest]) -> Self {
        let mut set = Self::default();
        let mut patterns = Vec::new();
        for test in tests {
            match test {
                DomainTest::Full(name) => drop(set.full.insert(name.clone())),
                DomainTest::Suffix(name) => drop(set.suffix.insert(name.clone())),
                DomainTest::SubdomainsOf(name) => {
                    set.below.insert(name.trim_start_matches('.').to_owned());
                }
                DomainTest::Keyword(text) => set.keywords.push(text.clone()),
                DomainTest::Regex(pattern) => patterns.push(pattern),
                DomainTest::Geosite { .. } => {}
            }
        }
        set.patterns = RegexSet::new(patterns).unwrap_or_default();
        set
    }

    /// Whether some value matches.
    pub fn contains(&self, name: &str) -> bool {
        self.full.contains(name)
            || self.suffix.contains(name)
            || parents(name).any(|p| self.suffix.contains(p) || self.below.contains(p))
            || self.keywords.iter().any(|k| name.contains(k.as_str()))
            || self.patterns.is_match(name)
    }
}

/// `b.c` and `c` of `a.b.c`.
fn parents(name: &str) -> impl Iterator<Item = &str> {
    name.match_indices('.').map(|(dot, _)| &name[dot + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(test: DomainTest) -> DomainSet {
        DomainSet::new(&[test])
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
    }
}
