//! "Did you mean": the nearest legal words to one that is not.

/// Suggestions offered at most.
const OFFERED: usize = 2;
/// Longer words are not misspelt, they are something else; also bounds the work.
const LONGEST: usize = 64;

/// The candidates within a third of the word's length (at least one, at most three edits),
/// nearest first, alphabetical among equals, at most two.
#[must_use]
pub fn suggest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let word: Vec<char> = word.chars().collect();
    if word.is_empty() || word.len() > LONGEST {
        return Vec::new();
    }
    let limit = (word.len() / 3).clamp(1, 3);
    let mut near: Vec<(usize, &str)> = candidates
        .into_iter()
        .filter_map(|candidate| {
            let letters: Vec<char> = candidate.chars().take(LONGEST + 4).collect();
            let far = letters.len().abs_diff(word.len()) > limit;
            if far {
                return None;
            }
            let distance = distance(&word, &letters);
            (distance <= limit).then_some((distance, candidate))
        })
        .collect();
    near.sort_unstable();
    near.dedup();
    near.truncate(OFFERED);
    near.into_iter().map(|(_, candidate)| candidate).collect()
}

/// Damerau-Levenshtein distance, adjacent letters swapped counting once (restricted form).
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    let mut row = vec![0; b.len() + 1];
    for i in 1..=a.len() {
        row[0] = i;
        for j in 1..=b.len() {
            let differ = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (last[j] + 1).min(row[j - 1] + 1).min(last[j - 1] + differ);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row[j] = best;
        }
        std::mem::swap(&mut before, &mut last);
        std::mem::swap(&mut last, &mut row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_come_first_and_far_ones_not_at_all() {
        let keys = ["tproxy_port", "tproxy_port_protect", "log_level", "mptcp"];
        assert_eq!(suggest("tproxy_prot", keys), ["tproxy_port"]);
        assert_eq!(suggest("gloabl", ["global", "node"]), ["global"]);
        assert_eq!(
            suggest("prxy", ["proxy", "pray", "proxyy"]),
            ["pray", "proxy"]
        );
        assert!(suggest("qq", keys).is_empty());
        assert!(suggest("", ["a"]).is_empty());
    }

    #[test]
    fn a_swap_is_one_edit() {
        let d = |a: &str, b: &str| {
            distance(
                &a.chars().collect::<Vec<_>>(),
                &b.chars().collect::<Vec<_>>(),
            )
        };
        assert_eq!(d("ab", "ba"), 1);
        assert_eq!(d("kitten", "sitting"), 3);
        assert_eq!(d("", "abc"), 3);
    }
}
