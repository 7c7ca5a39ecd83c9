//! `cargo xtask bench geo` and `bench config`: geodata files and name matching, against plain maps
//! and a trie; large configurations and hostile ones.
//!
//! They need neither root nor the lab; what measures are examples of `honk-policy`.

use std::io::Write as _;
use std::process::{ExitCode, Stdio};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::{peers, sh};

/// Whether the result file holds lines of other cases already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lines {
    Alone,
    AfterOthers,
}

/// The cases.
pub(crate) const CASES: [&str; 2] = ["geo", "config"];

/// Measures the named cases; fails when a target is missed.
pub(crate) fn run(cases: &[&str], json: Option<&str>, lines: Lines) -> Result<ExitCode> {
    let mut text = String::new();
    for case in cases {
        text.push_str(&measured(case)?);
    }
    write(json, lines, &text)?;
    Ok(if table(&text)? {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The result lines of a case.
fn measured(case: &str) -> Result<String> {
    let example = format!("{case}_scale");
    let mut command = sh::cargo(&["run", "--quiet", "--release", "--locked"]);
    command.args(["--package", "honk-policy", "--example", &example, "--"]);
    if case == "geo" {
        peers::run(&peers::Args {})?;
        command.arg(peers::folder());
    }
    eprintln!("$ {}", sh::show(&command));
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        bail!("{example} failed: {}", output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("{example} prints text"))
}

fn write(json: Option<&str>, lines: Lines, text: &str) -> Result<()> {
    match json {
        None => Ok(()),
        Some("-") => Ok(std::io::stdout().write_all(text.as_bytes())?),
        Some(path) => {
            let mut options = std::fs::OpenOptions::new();
            options.create(true).write(true);
            match lines {
                Lines::Alone => options.truncate(true),
                Lines::AfterOthers => options.append(true),
            };
            let file = options.open(path);
            let mut file = file.with_context(|| format!("cannot write {path}"))?;
            Ok(file.write_all(text.as_bytes())?)
        }
    }
}

/// Prints the lines for people; whether all targets are met.
fn table(text: &str) -> Result<bool> {
    eprintln!(
        "{:<20} {:<7} {:>10} {:>10} {:>7}  {:<9} RESULT",
        "CASE", "PEER", "HONK", "PEER", "RATIO", "UNIT"
    );
    let mut all = true;
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).context("a result line")?;
        let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
        let number = |key: &str| line[key].as_f64().unwrap_or_default();
        let met = line["met"].as_bool().unwrap_or(false);
        all &= met;
        eprintln!(
            "{:<20} {:<7} {:>10.2} {:>10.2} {:>7.2}  {:<9} {}",
            text("case"),
            text("peer"),
            number("value"),
            number("peer_value"),
            number("ratio"),
            text("unit"),
            if met { "ok" } else { "missed" }
        );
    }
    Ok(all)
}
