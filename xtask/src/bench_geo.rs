//! `cargo xtask bench geo`: geodata files and name matching, against plain maps and a trie.
//!
//! Needs neither root nor the lab; the program that measures is an example of `honk-policy`.

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

/// Measures; fails when a target is missed.
pub(crate) fn run(json: Option<&str>, lines: Lines) -> Result<ExitCode> {
    peers::run(&peers::Args {})?;
    let mut command = sh::cargo(&["run", "--quiet", "--release", "--locked"]);
    command.args(["--package", "honk-policy", "--example", "geo_scale", "--"]);
    command.arg(peers::folder());
    eprintln!("$ {}", sh::show(&command));
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        bail!("geo_scale failed: {}", output.status);
    }
    let text = String::from_utf8(output.stdout).context("geo_scale prints text")?;
    write(json, lines, &text)?;
    Ok(if table(&text)? {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
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
        "{:<18} {:<7} {:>10} {:>10} {:>7}  {:<9} RESULT",
        "CASE", "PEER", "HONK", "PEER", "RATIO", "UNIT"
    );
    let mut all = true;
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).context("a line of geo_scale")?;
        let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
        let number = |key: &str| line[key].as_f64().unwrap_or_default();
        let met = line["met"].as_bool().unwrap_or(false);
        all &= met;
        eprintln!(
            "{:<18} {:<7} {:>10.2} {:>10.2} {:>7.2}  {:<9} {}",
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
