//! "Did you mean": the nearest legal words to one that is not.

/// Suggestions offered at most.
const OFFERED: usize = 2;
/// Longer words are not misspelt, they are something else; also bounds the work.
const LONGEST: usize = 64;

/// The candidates within a third of the word's length (at least one, at most three edits),
/// nearest first, alphabetical among equals, at most two.
#[must_use]
pub fn suggest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let word: Vec<char> = word.chars().take(LONGEST + 1).collect();
    if word.is_empty() || word.len() > LONGEST {
        return Vec::new();
    }
    let limit = (word.len() / 3).clamp(1, 3);
    let bag = bag(&word);
    let mut letters: Vec<char> = Vec::with_capacity(LONGEST + 4);
    let mut near: Vec<(usize, &str)> = Vec::new();
    for candidate in candidates {
        // A letter is at least a byte: what has too few bytes has too few letters.
        if candidate.len() + limit < word.len() {
            continue;
        }
        letters.clear();
        letters.extend(candidate.chars().take(LONGEST + 4));
        // An edit changes at most one letter into another: most words are told apart without
        // comparing them letter by letter.
        let far = letters.len().abs_diff(word.len()) > limit
            || (bag ^ self::bag(&letters)).count_ones() as usize > 2 * limit;
        if far {
            continue;
        }
        if let Some(distance) = distance(&word, &letters, limit) {
            near.push((distance, candidate));
        }
    }
    near.sort_unstable();
    near.dedup();
    near.truncate(OFFERED);
    near.into_iter().map(|(_, candidate)| candidate).collect()
}

/// Which letters occur, by their last six bits.
fn bag(word: &[char]) -> u64 {
    word.iter()
        .fold(0, |bag, letter| bag | 1 << (*letter as u32 & 63))
}

/// Damerau-Levenshtein distance, adjacent letters swapped counting once (restricted form), if it
/// is within the limit.
fn distance(a: &[char], b: &[char], limit: usize) -> Option<usize> {
    const COLUMNS: usize = LONGEST + 5;
    let far = limit + 1;
    let mut before = [far; COLUMNS];
    let mut last: [usize; COLUMNS] = std::array::from_fn(|column| column.min(far));
    let mut row = [far; COLUMNS];
    for i in 1..=a.len() {
        // What is further from the diagonal needs more edits than that.
        let (from, to) = (i.saturating_sub(limit).max(1), (i + limit).min(b.len()));
        row[from - 1] = if from == 1 { i.min(far) } else { far };
        let mut least = row[from - 1];
        for j in from..=to {
            let differ = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (last[j] + 1).min(row[j - 1] + 1).min(last[j - 1] + differ);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row[j] = best.min(far);
            least = least.min(best);
        }
        row[to + 1] = far;
        if least > limit {
            return None;
        }
        std::mem::swap(&mut before, &mut last);
        std::mem::swap(&mut last, &mut row);
    }
    Some(last[b.len()]).filter(|distance| *distance <= limit)
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
        let d = |a: &str, b: &str, limit| {
            let letters = |text: &str| text.chars().collect::<Vec<_>>();
            distance(&letters(a), &letters(b), limit)
        };
        assert_eq!(d("ab", "ba", 3), Some(1));
        assert_eq!(d("kitten", "sitting", 3), Some(3));
        assert_eq!(d("kitten", "sitting", 2), None);
        assert_eq!(d("", "abc", 3), Some(3));
        assert_eq!(d("same", "same", 1), Some(0));
    }

    /// The narrow band finds what the whole table would.
    #[test]
    fn words_within_the_limit_are_found_and_no_others() {
        let whole = |a: &[char], b: &[char]| {
            let mut table = vec![vec![0; b.len() + 1]; a.len() + 1];
            for i in 0..=a.len() {
                for j in 0..=b.len() {
                    if i == 0 || j == 0 {
                        table[i][j] = i + j;
                        continue;
                    }
                    let differ = usize::from(a[i - 1] != b[j - 1]);
                    let mut best = (table[i - 1][j] + 1).min(table[i][j - 1] + 1);
                    best = best.min(table[i - 1][j - 1] + differ);
                    if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                        best = best.min(table[i - 2][j - 2] + 1);
                    }
                    table[i][j] = best;
                }
            }
            table[a.len()][b.len()]
        };
        let words: Vec<Vec<char>> = (0..150u32)
            .map(|n| {
                (0..n % 7)
                    .map(|at| char::from(b'a' + (n >> (at * 2) & 3) as u8))
                    .collect()
            })
            .collect();
        for a in &words {
            for b in &words {
                for limit in 1..=3 {
                    let want = Some(whole(a, b)).filter(|d| *d <= limit);
                    // The caller has compared the lengths.
                    if a.len().abs_diff(b.len()) <= limit {
                        assert_eq!(distance(a, b, limit), want, "{a:?} {b:?} {limit}");
                    }
                }
            }
        }
    }
}
