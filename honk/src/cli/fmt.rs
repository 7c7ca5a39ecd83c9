//! `honk fmt`: the canonical spelling of a configuration, to stdout.

use std::io::Read as _;

use honk_grammar::{Loader as _, diag::Severity, limits::FILE_BYTES};
use serde_json::json;

use super::{
    Invocation,
    args::Fmt,
    exit::{Exit, Failure},
    plural,
};
use crate::app::diag::Findings;

/// Runs the command.
pub(crate) fn run(invocation: &Invocation, args: &Fmt) -> Result<Exit, Failure> {
    let (name, bytes) = read(invocation, args)?;
    let (formatted, text) = match String::from_utf8(bytes) {
        Ok(text) => (honk_grammar::format(&text).ok(), text.into_bytes()),
        Err(foreign) => (None, foreign.into_bytes()),
    };
    let Some(formatted) = formatted else {
        return Err(unreadable(&name, &text, invocation.out.json));
    };
    let changed = formatted.as_bytes() != text;
    if args.check {
        if !changed {
            return Ok(Exit::Success);
        }
        let message = format!("{name} is not in canonical form; `honk fmt` shows it");
        return Err(Failure::new(Exit::Found, "format", message));
    }
    if invocation.out.json {
        let data = serde_json::json!({ "text": formatted, "changed": changed });
        let none: [String; 0] = [];
        invocation.out.document("fmt/1", &data, &none)?;
    } else {
        invocation.out.text(&formatted)?;
    }
    Ok(Exit::Success)
}

/// What keeps a text from being formatted, each with its place: told above the last line for
/// people, in the details for machines.
fn unreadable(name: &str, text: &[u8], json: bool) -> Failure {
    let parsed = honk_grammar::parse_bytes(name, text);
    let findings = Findings::new(parsed.diagnostics, parsed.sources).cut(parsed.cut);
    let documents = findings.documents();
    if !json {
        eprint!("{}", findings.human(Severity::Error));
    }
    let errors = plural(findings.tally().errors, "error");
    let message = format!("{name} is not formatted: {errors} to correct first");
    Failure::new(Exit::Config, "parse", message).details(json!({ "diagnostics": documents }))
}

fn read(invocation: &Invocation, args: &Fmt) -> Result<(String, Vec<u8>), Failure> {
    if args.stdin {
        let mut bytes = Vec::new();
        let limit = FILE_BYTES as u64 + 1;
        std::io::stdin()
            .lock()
            .take(limit)
            .read_to_end(&mut bytes)?;
        return Ok(("<stdin>".to_owned(), bytes));
    }
    let mut spec = invocation.spec()?;
    let name = spec.entry.display().to_string();
    let loaded = spec.files.read(&name).map_err(|e| {
        let text = format!("cannot read {name}: {e}");
        Failure::new(Exit::Config, "io", text)
    })?;
    Ok((name, loaded.bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_formatted_is_told_with_its_place() {
        let text = b"global {\n log_level: (\n}\nrouting {\n dport(1 2) -> x\n}\n";
        let failure = unreadable("a.dae", text, true);
        assert_eq!(
            failure.message,
            "a.dae is not formatted: 2 errors to correct first"
        );
        let found = failure.details.unwrap();
        let lines = [0, 1].map(|i| found["diagnostics"][i]["line"].clone());
        assert_eq!(lines, [json!(2), json!(5)]);
    }

    #[test]
    fn another_encoding_is_named() {
        let failure = unreadable("a.dae", b"# \xD6\xD0\xCE\xC4\nglobal {}", true);
        let found = failure.details.unwrap();
        let help = found["diagnostics"][0]["help"].as_str().unwrap();
        assert!(help.contains("iconv -f GBK"), "{found}");
    }
}
