//! Reads what a test binary prints: which tests ended how, and whether it came to its end.

use std::collections::BTreeSet;

/// What was read so far.
#[derive(Debug, Default)]
pub(super) struct Report {
    passed: BTreeSet<String>,
    failed: BTreeSet<String>,
    ignored: BTreeSet<String>,
    slow: BTreeSet<String>,
    total: Option<Total>,
    in_failures: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Total {
    passed: usize,
    failed: usize,
    ignored: usize,
}

impl Report {
    /// Reads one line; says whether it tells the end of a test.
    pub(super) fn line(&mut self, line: &str) -> bool {
        if let Some(total) = total(line) {
            self.total = Some(total);
            return true;
        }
        // A child's output can tear the `... FAILED` line apart; the list at the end is whole.
        if line == "failures:" {
            self.in_failures = true;
        } else if self.in_failures {
            match line.strip_prefix("    ").filter(|name| is_name(name)) {
                Some(name) => {
                    self.failed.insert(name.to_owned());
                }
                None => self.in_failures = false,
            }
        }
        let Some((name, how)) = line
            .strip_prefix("test ")
            .and_then(|rest| rest.split_once(' '))
        else {
            return false;
        };
        let set = if how.starts_with("has been running for over") {
            self.slow.insert(name.to_owned());
            return false;
        } else if how.ends_with("... ok") {
            &mut self.passed
        } else if how.ends_with("... FAILED") {
            &mut self.failed
        } else if how.contains("... ignored") {
            &mut self.ignored
        } else {
            return false;
        };
        set.insert(name.to_owned());
        true
    }

    /// Whether the binary told its total: it neither hung nor broke off.
    pub(super) fn is_complete(&self) -> bool {
        self.total.is_some()
    }

    /// How many passed: its own total, or what was read before it broke off.
    pub(super) fn passed(&self) -> usize {
        self.total.map_or(self.passed.len(), |total| total.passed)
    }

    /// How many are marked to be left out.
    pub(super) fn ignored(&self) -> usize {
        self.total.map_or(self.ignored.len(), |total| total.ignored)
    }

    /// Names of the failed ones.
    pub(super) fn failed(&self) -> &BTreeSet<String> {
        &self.failed
    }

    /// Failures that the total counts and nothing names.
    pub(super) fn unnamed(&self) -> usize {
        self.total
            .map_or(0, |total| total.failed.saturating_sub(self.failed.len()))
    }

    /// Every test that ended.
    pub(super) fn ended(&self) -> BTreeSet<String> {
        [&self.passed, &self.failed, &self.ignored]
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    }

    /// Tests that took long and did not end.
    pub(super) fn stuck(&self) -> Vec<String> {
        self.slow.difference(&self.ended()).cloned().collect()
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.contains(' ')
}

/// Reads `test result: ok. 3 passed; 0 failed; 1 ignored; ...`.
fn total(line: &str) -> Option<Total> {
    let counts = line
        .trim()
        .strip_prefix("test result: ")?
        .split_once(". ")?
        .1;
    let count = |word: &str| {
        counts
            .split(';')
            .find_map(|part| part.trim().strip_suffix(word)?.trim().parse().ok())
    };
    Some(Total {
        passed: count("passed")?,
        failed: count("failed")?,
        ignored: count("ignored").unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Report {
        let mut report = Report::default();
        for line in text.lines() {
            report.line(line);
        }
        report
    }

    fn names(set: &BTreeSet<String>) -> Vec<&str> {
        set.iter().map(String::as_str).collect()
    }

    #[test]
    fn totals_and_names_are_read() {
        let report = read(
            "running 4 tests\n\
             test a::one ... ok\n\
             test a::two ... FAILED\n\
             test b - should panic ... ok\n\
             test c ... ignored, needs a disk\n\
             \n\
             failures:\n\
             \n\
             ---- a::two stdout ----\n\
             \n\
             failures:\n    a::two\n\
             \n\
             test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out",
        );
        assert!(report.is_complete());
        assert_eq!((report.passed(), report.ignored()), (2, 1));
        assert_eq!(names(report.failed()), ["a::two"]);
        assert_eq!(names(&report.ended()), ["a::one", "a::two", "b", "c"]);
        assert_eq!(report.unnamed(), 0);
    }

    #[test]
    fn a_torn_line_does_not_hide_a_failure() {
        let report = read(
            "test x ... noise of a child\n\
             FAILED\n\
             failures:\n    x\n    y::z\n\
             \n\
             test result: FAILED. 0 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out",
        );
        assert_eq!(names(report.failed()), ["x", "y::z"]);
        assert_eq!(report.unnamed(), 1);
    }

    #[test]
    fn a_run_that_broke_off_keeps_what_it_told() {
        let report = read(
            "test a ... ok\n\
             test slow has been running for over 60 seconds\n\
             test late has been running for over 60 seconds\n\
             test late ... ok",
        );
        assert!(!report.is_complete());
        assert_eq!(report.passed(), 2);
        assert_eq!(report.stuck(), ["slow"]);
    }

    #[test]
    fn only_ends_of_tests_count_as_progress() {
        let mut report = Report::default();
        assert!(report.line("test a ... ok"));
        assert!(!report.line("test b has been running for over 60 seconds"));
        assert!(!report.line("chatter"));
        assert!(report.line("test result: ok. 1 passed; 0 failed; 0 ignored"));
    }
}
