//! Configuration text: read, lowered, and written canonically.
#![no_main]

use honk_grammar::{diag, format, parse_text};
use honk_policy::config;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let parsed = parse_text("fuzz.dae", text);
    let (_, findings) = config::lower(&parsed, &mut ());
    let _ = diag::arrange(findings);
    if let Ok(once) = format(text) {
        assert_eq!(format(&once).ok().as_ref(), Some(&once), "not idempotent");
    }
});
