//! Suite `deny`: licences, sources and duplicate versions of what we depend on.
//!
//! With cargo-deny installed it decides by `deny.toml`. Without it a smaller check of our own
//! runs on `cargo metadata`: every licence expression has an allowed alternative and every
//! package comes from the registry; duplicates and advisories are then reported as skipped.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::tally::Tally;
use crate::sh;

/// Runs the suite.
pub(crate) fn step(tally: &mut Tally) -> Result<()> {
    if sh::capture(&mut sh::tool("cargo-deny", &["--version"])).is_some() {
        let args = ["deny", "check", "bans", "licenses", "sources"];
        let status = sh::status(&mut sh::cargo(&args))?;
        tally.check("deny", status.success(), "cargo deny, see above");
        return Ok(());
    }
    let metadata = sh::capture(&mut sh::cargo(&[
        "metadata",
        "--format-version",
        "1",
        "--locked",
    ]))
    .context("cargo metadata failed (is Cargo.lock up to date?)")?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let config = std::fs::read_to_string(sh::root().join("deny.toml"))?;
    let problems = problems(&metadata, &allowed(&config));
    for problem in &problems {
        eprintln!("  {problem}");
    }
    tally.check(
        "deny: licences and sources",
        problems.is_empty(),
        "see above",
    );
    tally.skip(
        "deny: duplicates",
        "cargo-deny absent: run `cargo xtask setup --deny`",
    );
    Ok(())
}

/// The strings of `allow = [ .. ]` in the `[licenses]` table.
fn allowed(config: &str) -> BTreeSet<String> {
    let table = config.split("[licenses]").nth(1).unwrap_or_default();
    let list = table
        .split("allow = [")
        .nth(1)
        .and_then(|rest| rest.split(']').next());
    list.unwrap_or_default()
        .split('"')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

fn problems(metadata: &Value, allowed: &BTreeSet<String>) -> Vec<String> {
    let mut found = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = format!(
            "{} {}",
            package["name"].as_str().unwrap_or("?"),
            package["version"].as_str().unwrap_or("?")
        );
        let licence = package["license"].as_str().unwrap_or_default();
        if !permitted(licence, allowed) {
            found.push(format!(
                "{name}: licence `{licence}` is not allowed by deny.toml"
            ));
        }
        let source = package["source"].as_str();
        if source.is_some_and(|s| !s.starts_with("registry+") && !s.starts_with("sparse+")) {
            found.push(format!("{name}: comes from {}", source.unwrap_or_default()));
        }
    }
    found
}

/// Whether an SPDX expression has an alternative made of allowed licences only.
fn permitted(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let flat = expression.replace(['(', ')'], " ").replace('/', " OR ");
    flat.split(" OR ").any(|alternative| {
        let mut terms = alternative.split(" AND ").map(str::trim).peekable();
        terms.peek().is_some_and(|term| !term.is_empty())
            && terms.all(|term| allowed.contains(term))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set() -> BTreeSet<String> {
        allowed("[bans]\nx = 1\n[licenses]\nallow = [\n  \"MIT\", # plain\n  \"Unicode-3.0\",\n]\n")
    }

    #[test]
    fn one_allowed_alternative_is_enough() {
        assert!(permitted("Apache-2.0 OR MIT", &set()));
        assert!(permitted("MIT/Apache-2.0", &set()));
        assert!(permitted("MIT AND Unicode-3.0", &set()));
        assert!(!permitted("GPL-3.0", &set()));
        assert!(!permitted("MIT AND GPL-3.0", &set()));
        assert!(!permitted("", &set()));
    }
}
