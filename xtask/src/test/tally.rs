//! Counting: what passed, failed, was skipped, and the closing line.

use std::process::ExitCode;

/// Sums over all steps.
#[derive(Default)]
pub(crate) struct Tally {
    passed: usize,
    failed: usize,
    skipped: usize,
    notes: Vec<String>,
    flaky: Vec<String>,
}

impl Tally {
    /// Counts one check and remembers why it failed.
    pub(crate) fn check(&mut self, name: &str, ok: bool, why: &str) {
        if ok {
            self.passed += 1;
            eprintln!("  ok: {name}");
        } else {
            self.fail(name, why);
        }
    }

    /// Counts one failure.
    pub(crate) fn fail(&mut self, name: &str, why: &str) {
        self.failed += 1;
        eprintln!("  FAILED: {name}: {why}");
        self.notes.push(format!("FAILED {name}: {why}"));
    }

    /// Counts one thing that could not run here.
    pub(crate) fn skip(&mut self, name: &str, why: &str) {
        self.skipped += 1;
        eprintln!("  skipped: {name}: {why}");
        self.notes.push(format!("skipped {name}: {why}"));
    }

    /// Counts tests that passed.
    pub(super) fn passed(&mut self, count: usize) {
        self.passed += count;
    }

    /// Counts tests that are marked to be left out.
    pub(super) fn ignored(&mut self, count: usize) {
        self.skipped += count;
    }

    /// Names what passed only at the second try; its pass is counted apart.
    pub(super) fn flaky(&mut self, name: &str, why: &str) {
        eprintln!("  FLAKY: {name}: {why}");
        self.flaky.push(format!("FLAKY {name}: {why}"));
    }

    /// Tests that cannot run here tell it in a list and pass; they are taken off the passed ones.
    pub(super) fn take_off_skipped(&mut self, list: &str) {
        for line in list.lines() {
            self.passed = self.passed.saturating_sub(1);
            self.skipped += 1;
            self.notes.push(format!("skipped {line}"));
        }
    }

    /// Prints what is worth reading again and the closing line.
    pub(crate) fn close(self) -> ExitCode {
        for note in self.notes.iter().chain(&self.flaky) {
            println!("{note}");
        }
        println!("{}", self.last_line());
        if self.failed > 0 {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        }
    }

    /// What failed, was skipped or flaky so far.
    #[cfg(test)]
    pub(super) fn told(&self) -> Vec<&str> {
        let notes = self.notes.iter().chain(&self.flaky);
        notes.map(String::as_str).collect()
    }

    pub(super) fn last_line(&self) -> String {
        format!(
            "{} passed, {} failed, {} skipped, {} flaky",
            self.passed,
            self.failed,
            self.skipped,
            self.flaky.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_adds_everything_up() {
        let mut tally = Tally::default();
        tally.passed(5);
        tally.ignored(1);
        tally.check("fmt", true, "");
        tally.check("clippy", false, "warnings");
        tally.skip("gen", "no linker");
        tally.flaky("a::b", "failed once, passed alone");
        tally.take_off_skipped("sys::t01: needs root\n");
        assert_eq!(tally.last_line(), "5 passed, 1 failed, 3 skipped, 1 flaky");
        assert_eq!(
            tally.told(),
            [
                "FAILED clippy: warnings",
                "skipped gen: no linker",
                "skipped sys::t01: needs root",
                "FLAKY a::b: failed once, passed alone",
            ]
        );
        assert_eq!(tally.close(), ExitCode::FAILURE);
    }

    #[test]
    fn a_flaky_test_alone_does_not_fail_the_run() {
        let mut tally = Tally::default();
        tally.passed(1);
        tally.flaky("a", "failed once, passed alone");
        assert_eq!(tally.close(), ExitCode::SUCCESS);
    }
}
