//! The configuration language, snippet by snippet: which findings at which place, and what the
//! accepted text means.

mod accepted;
mod compat;
mod gateways;
mod geodata;
mod newcomer;
mod peer;
mod pointless;
mod properties;
mod real;
mod refused;
mod secrets;

use honk_grammar::{
    diag::{Diagnostic, Severity},
    parse_text,
};
use honk_policy::config::{self, CODES, Config, NOT_BUILT};

/// Lowers a text; `⏎`, `⇥` and `␍` stand for newline, TAB and CR.
fn lowered(text: &str) -> (Option<Config>, Vec<Diagnostic>, Vec<String>) {
    let text = text
        .replace('⏎', "\n")
        .replace('⇥', "\t")
        .replace('␍', "\r");
    let parsed = parse_text("test.dae", &text);
    let (config, findings) = config::lower(&parsed, &mut geodata::files());
    for finding in &findings {
        assert!(
            CODES.contains(&finding.slug),
            "{} is in no list",
            finding.slug
        );
    }
    let short = findings
        .iter()
        .filter(|f| f.slug != NOT_BUILT && f.number != "W210")
        .map(
            |f| match f.span.and_then(|span| parsed.sources.start(span)) {
                Some(place) => format!("{} {}:{}", f.number, place.line, place.column),
                None => f.number.to_owned(),
            },
        )
        .collect();
    (config, findings, short)
}

/// The configuration of a text without errors.
fn accepted(text: &str) -> Config {
    let (config, findings, _) = lowered(text);
    let errors: Vec<_> = findings
        .iter()
        .filter(|f| f.severity == Severity::Error)
        .collect();
    config.unwrap_or_else(|| panic!("{text}: {errors:#?}"))
}

/// Whether `honk run` would refuse a text that validates.
fn unbuilt(text: &str) -> Vec<String> {
    let (_, findings, _) = lowered(text);
    let unbuilt = findings.iter().filter(|f| f.slug == NOT_BUILT);
    unbuilt
        .map(|f| f.subject.clone().unwrap_or_default())
        .collect()
}
