//! Include patterns: `*`, `?` and `[...]` within one path component, names in byte order.

use crate::loader::Loader;

/// Names one pattern may yield; far above the number of files that may be included.
const MATCHES: usize = 4096;

/// Whether a path contains pattern characters.
pub(crate) fn is_pattern(path: &str) -> bool {
    path.contains(['*', '?', '['])
}

/// Whether every `[` is closed inside its component.
pub(crate) fn well_formed(path: &str) -> bool {
    path.split('/').all(|part| {
        let chars: Vec<char> = part.chars().collect();
        let mut at = 0;
        while at < chars.len() {
            if chars[at] == '[' {
                match class_end(&chars, at) {
                    Some(end) => at = end,
                    None => return false,
                }
            }
            at += 1;
        }
        true
    })
}

/// All paths a pattern names, in byte order. Parts without pattern characters are not checked
/// for existence.
pub(crate) fn expand(root: &str, pattern: &str, loader: &mut dyn Loader) -> Vec<String> {
    let base = if pattern.starts_with('/') { "" } else { root };
    let mut paths = vec![base.to_owned()];
    let mut parts = pattern
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
        .peekable();
    while let Some(part) = parts.next() {
        // A file in the place of a directory is no match.
        let inner = parts.peek().is_some();
        let mut next = Vec::new();
        for path in paths {
            if !is_pattern(part) {
                next.push(format!("{path}/{part}"));
                continue;
            }
            let dir = if path.is_empty() { "/" } else { &path };
            let names = loader.list(dir);
            let names = names.iter().filter(|name| matches(part, name));
            let found = names.map(|name| format!("{path}/{name}"));
            next.extend(found.filter(|path| !inner || loader.is_dir(path)));
        }
        next.sort();
        next.truncate(MATCHES);
        paths = next;
    }
    paths
}

/// Whether a name matches one component of a pattern. `**` is `*`; a leading dot must be written.
pub fn matches(pattern: &str, name: &str) -> bool {
    if name.starts_with('.') && !pattern.starts_with('.') {
        return false;
    }
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    let (mut p, mut n) = (0, 0);
    // The last star and the place in the name it has eaten up to: enough to go back to.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if pattern.get(p) == Some(&'*') {
            star = Some((p, n));
            p += 1;
        } else if let Some(next) = step(&pattern, p, name[n]) {
            p = next;
            n += 1;
        } else if let Some((at, eaten)) = star {
            star = Some((at, eaten + 1));
            p = at + 1;
            n = eaten + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// Position behind the pattern element at `p` if it accepts `c`.
fn step(pattern: &[char], p: usize, c: char) -> Option<usize> {
    match pattern.get(p)? {
        '?' => Some(p + 1),
        '[' => {
            let end = class_end(pattern, p)?;
            in_class(&pattern[p + 1..end], c).then_some(end + 1)
        }
        other => (*other == c).then_some(p + 1),
    }
}

/// Index of the `]` that closes the class at `open`; one right behind `[` or `[!` is literal.
fn class_end(pattern: &[char], open: usize) -> Option<usize> {
    let negated = matches!(pattern.get(open + 1), Some('!' | '^'));
    let first = open + 1 + usize::from(negated);
    (first + 1..pattern.len()).find(|at| pattern[*at] == ']')
}

fn in_class(class: &[char], c: char) -> bool {
    let (negated, class) = match class {
        ['!' | '^', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let mut at = 0;
    let mut hit = false;
    while at < class.len() {
        if at + 2 < class.len() && class[at + 1] == '-' {
            hit |= (class[at]..=class[at + 2]).contains(&c);
            at += 3;
        } else {
            hit |= class[at] == c;
            at += 1;
        }
    }
    hit != negated
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_match_like_a_shell() {
        for (pattern, name, expected) in [
            ("*.dae", "a.dae", true),
            ("*.dae", ".a.dae", false),
            (".*.dae", ".a.dae", true),
            ("**.dae", "a.dae", true),
            ("?.dae", "ab.dae", false),
            ("[a-c]?.dae", "bx.dae", true),
            ("[!a-c].dae", "b.dae", false),
            ("[]x].dae", "].dae", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-b-b", false),
            ("日*", "日本.dae", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn an_open_class_is_malformed() {
        assert!(well_formed("a/[b]/*.dae"));
        assert!(!well_formed("a/[b/c].dae"));
        assert!(!well_formed("[]"));
    }
}
