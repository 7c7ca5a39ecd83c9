//! When one `domain` value fits every name that another one fits.

use crate::routing::rule::DomainTest;

/// Whether all names of `other` are names of `one`. `false` may mean that it is not known.
pub(super) fn covers(one: &DomainTest, other: &DomainTest) -> bool {
    use DomainTest::{Full, Geosite, Keyword, Regex, SubdomainsOf, Suffix};
    match (one, other) {
        (Regex(pattern), _) if is_wide(pattern) => true,
        (Suffix(parent), Suffix(name) | SubdomainsOf(name) | Full(name)) => {
            name == parent || below(name, parent)
        }
        (SubdomainsOf(parent), Suffix(name) | Full(name)) => below(name, parent),
        (SubdomainsOf(parent), SubdomainsOf(name)) => name == parent || below(name, parent),
        (Keyword(word), Keyword(text) | Suffix(text) | Full(text)) => text.contains(word),
        (
            Geosite {
                file, code, attr, ..
            },
            Geosite {
                file: of,
                code: its,
                attr: only,
                ..
            },
        ) => (file, code) == (of, its) && (attr.is_none() || attr == only),
        _ => one == other,
    }
}

/// Whether no name fits both.
pub(super) fn exclude(one: &DomainTest, other: &DomainTest) -> bool {
    let plain = |test: &DomainTest| {
        matches!(
            test,
            DomainTest::Suffix(_) | DomainTest::SubdomainsOf(_) | DomainTest::Full(_)
        )
    };
    plain(one) && plain(other) && !meet(one, other)
}

fn meet(one: &DomainTest, other: &DomainTest) -> bool {
    use DomainTest::{Full, SubdomainsOf, Suffix};
    match (one, other) {
        (Full(_), _) => covers(other, one),
        (_, Full(_)) => covers(one, other),
        (Suffix(a) | SubdomainsOf(a), Suffix(b) | SubdomainsOf(b)) => {
            a == b || below(a, b) || below(b, a)
        }
        _ => true,
    }
}

fn below(name: &str, parent: &str) -> bool {
    name.strip_suffix(parent)
        .is_some_and(|rest| rest.ends_with('.'))
}

/// What a value is found by among others: a name, or the list or text it is.
pub(super) fn key(test: &DomainTest) -> Option<String> {
    Some(match test {
        DomainTest::Suffix(name) | DomainTest::SubdomainsOf(name) | DomainTest::Full(name) => {
            name.clone()
        }
        DomainTest::Geosite { file, code, .. } => format!("{file}:{code}"),
        DomainTest::Regex(pattern) if !is_wide(pattern) => format!("/{pattern}"),
        DomainTest::Regex(_) | DomainTest::Keyword(_) => return None,
    })
}

/// The keys of values that may cover this one.
pub(super) fn asks(test: &DomainTest) -> Vec<String> {
    let Some(key) = key(test) else {
        return Vec::new();
    };
    match test {
        DomainTest::Suffix(_) | DomainTest::SubdomainsOf(_) | DomainTest::Full(_) => {
            let parents = key
                .match_indices('.')
                .map(|(at, _)| key[at + 1..].to_owned());
            let parents: Vec<String> = parents.collect();
            std::iter::once(key).chain(parents).collect()
        }
        _ => vec![key],
    }
}

/// Whether a pattern finds something in every name.
pub(in crate::config) fn fits_all(pattern: &str) -> bool {
    is_wide(pattern)
        // What is longer says more than that.
        || pattern.len() <= 32
            && regex_syntax::parse(pattern).is_ok_and(|hir| {
                let about = hir.properties();
                about.minimum_len() == Some(0) && about.look_set().is_empty()
            })
}

/// The same by its look: comparing lines must not cost a parser each time.
fn is_wide(pattern: &str) -> bool {
    let bare = pattern.strip_prefix('^').unwrap_or(pattern);
    let bare = bare.strip_suffix('$').unwrap_or(bare);
    match bare {
        ".*" | ".+" | ".*?" | ".+?" => true,
        "" | "." => pattern.len() - bare.len() < 2,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use DomainTest::{Full, Keyword, Regex, SubdomainsOf, Suffix};

    #[test]
    fn what_covers_what() {
        let suffix = |t: &str| Suffix(t.into());
        let below = |t: &str| SubdomainsOf(t.into());
        let full = |t: &str| Full(t.into());
        let word = |t: &str| Keyword(t.into());
        for (one, other, want) in [
            (suffix("a.b"), suffix("a.b"), true),
            (suffix("a.b"), suffix("x.a.b"), true),
            (suffix("a.b"), full("x.a.b"), true),
            (suffix("a.b"), below("a.b"), true),
            (suffix("a.b"), suffix("xa.b"), false),
            (suffix("x.a.b"), suffix("a.b"), false),
            (below("a.b"), full("a.b"), false),
            (below("a.b"), suffix("a.b"), false),
            (below("a.b"), suffix("x.a.b"), true),
            (below("a.b"), below("a.b"), true),
            (full("a.b"), suffix("a.b"), false),
            (full("a.b"), full("a.b"), true),
            (word("ads"), word("xads"), true),
            (word("ads"), suffix("ads.b"), true),
            (word("xads"), word("ads"), false),
            (Regex(".*".into()), suffix("a.b"), true),
            (Regex("a.*".into()), suffix("a.b"), false),
        ] {
            assert_eq!(covers(&one, &other), want, "{one:?} {other:?}");
            // Who covers is among those asked.
            if let Some(key) = key(&one).filter(|_| want) {
                assert!(asks(&other).contains(&key), "{one:?} {other:?}");
            }
        }
        assert!(exclude(&full("a.b"), &full("b.b")) && exclude(&suffix("a.b"), &full("b")));
        assert!(!exclude(&suffix("b"), &full("a.b")) && !exclude(&below("b"), &suffix("b")));
        assert!(!exclude(&suffix("a"), &word("b")));
    }

    #[test]
    fn patterns_that_fit_everything() {
        for pattern in [
            "", ".*", "^.*$", "^", "$", ".", "a*", "(x|y)?", "^.+$", "(?i)",
        ] {
            assert!(fits_all(pattern), "{pattern}");
        }
        for pattern in ["^$", "a", "^.$", "\\.cn$", "a+", "^a*$", "("] {
            assert!(!fits_all(pattern), "{pattern}");
        }
    }
}
