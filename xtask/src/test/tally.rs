//! Counting: what passed, failed, was skipped, and the closing line.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{ExitCode, Stdio};

use anyhow::{Context as _, Result};

use crate::sh;

/// Sums over all steps.
#[derive(Default)]
pub(crate) struct Tally {
    passed: usize,
    failed: usize,
    skipped: usize,
    notes: Vec<String>,
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

    /// Runs `cargo test ARGS`, echoing its output and adding up its result lines. Tests that
    /// cannot run here append a line to the file named by `HONK_SKIP_LOG` and return; they are
    /// taken off the passed ones.
    pub(crate) fn cargo_test(
        &mut self,
        name: &str,
        args: &[&str],
        honk: Option<&Path>,
    ) -> Result<()> {
        let skips = sh::target_dir().join("skipped-tests.txt");
        let _ = std::fs::remove_file(&skips);
        let mut command = sh::cargo(&["test", "--no-fail-fast"]);
        command
            .args(args)
            .env("HONK_SKIP_LOG", &skips)
            .stdout(Stdio::piped());
        if let Some(honk) = honk {
            command.env("HONK_BIN", honk);
        }
        eprintln!("  $ {}", sh::show(&command));
        let mut child = command.spawn().context("cannot start cargo test")?;
        let out = child.stdout.take().context("cargo test has no output")?;
        let mut results = 0;
        let mut failed_here = 0;
        for line in BufReader::new(out).lines() {
            let line = line?;
            println!("{line}");
            if let Some(found) = result_line(&line) {
                results += 1;
                self.passed += found.passed;
                failed_here += found.failed;
                self.skipped += found.ignored;
            } else if let Some(test) = failed_test(&line) {
                self.notes.push(format!("FAILED {name}: {test}"));
            }
        }
        self.failed += failed_here;
        let status = child.wait()?;
        if results == 0 || (!status.success() && failed_here == 0) {
            self.fail(name, "cargo test did not build or broke off, see above");
        }
        self.take_off_skipped(&skips);
        Ok(())
    }

    fn take_off_skipped(&mut self, list: &Path) {
        let text = std::fs::read_to_string(list).unwrap_or_default();
        for line in text.lines() {
            self.passed = self.passed.saturating_sub(1);
            self.skipped += 1;
            self.notes.push(format!("skipped {line}"));
        }
    }

    /// Prints what is worth reading again and the closing line.
    pub(crate) fn close(self) -> ExitCode {
        for note in &self.notes {
            println!("{note}");
        }
        println!(
            "{} passed, {} failed, {} skipped",
            self.passed, self.failed, self.skipped
        );
        if self.failed > 0 {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Found {
    passed: usize,
    failed: usize,
    ignored: usize,
}

/// Reads `test result: ok. 3 passed; 0 failed; 1 ignored; ...`.
fn result_line(line: &str) -> Option<Found> {
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
    Some(Found {
        passed: count("passed")?,
        failed: count("failed")?,
        ignored: count("ignored").unwrap_or(0),
    })
}

/// Reads `test NAME ... FAILED`.
fn failed_test(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?
        .strip_suffix("... FAILED")
        .map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_add_up() {
        let line = "test result: FAILED. 3 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out";
        assert_eq!(
            result_line(line),
            Some(Found {
                passed: 3,
                failed: 2,
                ignored: 1
            })
        );
        assert_eq!(result_line("test a ... ok"), None);
    }

    #[test]
    fn failing_tests_are_named() {
        assert_eq!(
            failed_test("test t20_tc_verdict ... FAILED"),
            Some("t20_tc_verdict")
        );
        assert_eq!(failed_test("test t20_tc_verdict ... ok"), None);
    }
}
