//! Runs test binaries one by one: cargo builds and lists them, each has a deadline, and a test
//! that failed gets a second run of its own.
//!
//! The second run tells a broken test (fails again: failed) from one that met a slow or busy
//! machine (passes alone: passed, and named as flaky in the last lines). A binary that hangs or
//! breaks off loses no result: what it had not reported runs alone as well.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::report::Report;
use super::tally::Tally;
use crate::sh;

/// A binary that ends no test for this long hangs: the longest test takes a tenth of it.
const PATIENCE: Duration = Duration::from_secs(600);
/// More failures than this in one binary are no flakes, and second runs would only take time.
const SECOND_RUNS: usize = 20;

/// A built test binary.
#[derive(Debug, PartialEq, Eq)]
struct Binary {
    name: String,
    program: PathBuf,
    /// Folder of its package; tests run there.
    folder: PathBuf,
}

/// What every run of a binary needs.
struct Setting<'a> {
    skips: &'a Path,
    honk: Option<&'a Path>,
    patience: Duration,
}

/// Builds the tests that `args` select and runs them all.
pub(super) fn run(tally: &mut Tally, args: &[&str], honk: Option<&Path>) -> Result<()> {
    let binaries = build(args)?;
    let skips = sh::target_dir().join("skipped-tests.txt");
    let _ = std::fs::remove_file(&skips);
    let setting = Setting {
        skips: &skips,
        honk,
        patience: PATIENCE,
    };
    for binary in &binaries {
        one(tally, binary, &setting)?;
    }
    tally.take_off_skipped(&std::fs::read_to_string(&skips).unwrap_or_default());
    Ok(())
}

fn build(args: &[&str]) -> Result<Vec<Binary>> {
    let mut command = sh::cargo(&["test", "--no-run"]);
    command
        .args(args)
        .arg("--message-format=json-render-diagnostics")
        .stderr(Stdio::inherit());
    eprintln!("  $ {}", sh::show(&command));
    let output = command.output().context("cannot start cargo test")?;
    if !output.status.success() {
        bail!("the tests do not build, see above");
    }
    let mut binaries: Vec<Binary> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(binary)
        .collect();
    if binaries.is_empty() {
        bail!("`{}` built no test", sh::show(&command));
    }
    // Cargo tells them in the order in which they were ready.
    binaries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(binaries)
}

/// Reads one message of cargo; `None` when it is not about a test binary.
fn binary(message: &str) -> Option<Binary> {
    let message: Value = serde_json::from_str(message).ok()?;
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
    let package = folder.file_name()?.to_str()?;
    let kind = message["target"]["kind"][0].as_str()?;
    let target = message["target"]["name"].as_str()?;
    Some(Binary {
        name: format!("{package} {kind} {target}"),
        program: message["executable"].as_str()?.into(),
        folder: folder.to_owned(),
    })
}

/// Runs one binary, then alone what failed in it or did not come to its end.
fn one(tally: &mut Tally, binary: &Binary, setting: &Setting<'_>) -> Result<()> {
    let (report, end) = execute(binary, &[], setting)?;
    tally.passed(report.passed());
    tally.ignored(report.ignored());
    if report.failed().len() > SECOND_RUNS {
        for test in report.failed() {
            tally.fail(test, "one of too many failures for a second run");
        }
        return Ok(());
    }
    if report.unnamed() > 0 {
        tally.fail(&binary.name, "a test failed that no line names");
    }
    for test in report.failed() {
        second(tally, binary, test, Some("failed once"), setting)?;
    }
    if report.is_complete() {
        return Ok(());
    }
    let why = end.story(&report, setting.patience);
    let rest: Vec<String> = listed(binary, setting)?
        .difference(&report.ended())
        .cloned()
        .collect();
    if rest.is_empty() {
        tally.fail(&binary.name, &why);
        return Ok(());
    }
    tally.flaky(&binary.name, &why);
    for (at, test) in rest.iter().enumerate() {
        if second(tally, binary, test, None, setting)? == Second::Hung {
            for test in &rest[at + 1..] {
                tally.fail(test, "not run: its binary hangs");
            }
            break;
        }
    }
    Ok(())
}

#[derive(PartialEq, Eq)]
enum Second {
    Ended,
    Hung,
}

/// The second run of one test decides about it; `before` is what the first one told.
fn second(
    tally: &mut Tally,
    binary: &Binary,
    test: &str,
    before: Option<&str>,
    setting: &Setting<'_>,
) -> Result<Second> {
    eprintln!("  once more, alone: {test}");
    let (report, end) = execute(binary, &["--exact", test], setting)?;
    let ran = report.passed() + report.ignored() > 0;
    if report.is_complete() && report.failed().is_empty() && ran {
        tally.passed(report.passed());
        tally.ignored(report.ignored());
        if let Some(before) = before {
            tally.flaky(test, &format!("{before}, passed alone"));
        }
    } else if report.failed().is_empty() {
        tally.fail(test, &end.story(&report, setting.patience));
    } else {
        let first = before.unwrap_or("not reported at first");
        tally.fail(test, &format!("{first}, failed alone"));
    }
    Ok(match end {
        End::Told(_) => Second::Ended,
        End::Hung => Second::Hung,
    })
}

/// How a run came to its end.
#[derive(Debug)]
enum End {
    Told(ExitStatus),
    Hung,
}

impl End {
    fn story(&self, report: &Report, patience: Duration) -> String {
        let stuck = report.stuck();
        let at = if stuck.is_empty() {
            String::new()
        } else {
            format!("; still running: {}", stuck.join(", "))
        };
        match self {
            Self::Told(status) => format!("broke off: {status}{at}"),
            Self::Hung => format!(
                "ended no test for {} s and was killed{at}",
                patience.as_secs()
            ),
        }
    }
}

fn command(binary: &Binary, args: &[&str], setting: &Setting<'_>) -> Command {
    let mut command = Command::new(&binary.program);
    command
        .args(args)
        .current_dir(&binary.folder)
        .env("CARGO_MANIFEST_DIR", &binary.folder)
        .env("HONK_SKIP_LOG", setting.skips)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    if let Some(honk) = setting.honk {
        command.env("HONK_BIN", honk);
    }
    command
}

/// Runs to the end or until nothing happened for too long, echoing what the binary prints.
fn execute(binary: &Binary, args: &[&str], setting: &Setting<'_>) -> Result<(Report, End)> {
    let mut command = command(binary, args, setting);
    eprintln!("  $ {} ({})", sh::show(&command), binary.name);
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot start `{}`", binary.program.display()))?;
    let lines = lines_of(&mut child)?;
    let mut report = Report::default();
    let mut deadline = Instant::now() + setting.patience;
    loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                println!("{line}");
                if report.line(&line) {
                    deadline = Instant::now() + setting.patience;
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Ok((report, End::Told(child.wait()?)));
            }
            // The reading thread stays behind: a grandchild may hold the pipe open for good.
            Err(RecvTimeoutError::Timeout) => {
                child.kill()?;
                child.wait()?;
                return Ok((report, End::Hung));
            }
        }
    }
}

fn lines_of(child: &mut Child) -> Result<mpsc::Receiver<String>> {
    let out = child.stdout.take().context("a test without output")?;
    let (sender, receiver) = mpsc::sync_channel(256);
    std::thread::spawn(move || {
        for line in BufReader::new(out).split(b'\n').map_while(Result::ok) {
            if sender
                .send(String::from_utf8_lossy(&line).into_owned())
                .is_err()
            {
                break;
            }
        }
    });
    Ok(receiver)
}

/// Names of all tests of a binary.
fn listed(binary: &Binary, setting: &Setting<'_>) -> Result<BTreeSet<String>> {
    let output = command(binary, &["--list", "--format", "terse"], setting)
        .output()
        .with_context(|| format!("cannot start `{}`", binary.program.display()))?;
    Ok(String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| Some(line.strip_suffix(": test")?.to_owned()))
        .collect())
}

#[cfg(test)]
#[path = "runner_tests.rs"]
mod tests;
