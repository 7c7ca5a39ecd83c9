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
use crate::app::diag::{Findings, short};

/// Runs the command.
pub(crate) fn run(invocation: &Invocation, args: &Fmt) -> Result<Exit, Failure> {
    let (name, bytes) = read(invocation, args)?;
    let text = String::from_utf8(bytes)
        .map_err(|e| Failure::new(Exit::Config, "parse", format!("{name}: not UTF-8: {e}")))?;
    let formatted =
        honk_grammar::format(&text).map_err(|_| unreadable(&name, &text, invocation.out.json))?;
    if args.check {
        if formatted == text {
            return Ok(Exit::Success);
        }
        let message = format!("{name} is not in canonical form; `honk fmt` shows it");
        return Err(Failure::new(Exit::Found, "format", message));
    }
    if invocation.out.json {
        let data = serde_json::json!({ "text": formatted, "changed": formatted != text });
        let none: [String; 0] = [];
        invocation.out.document("fmt/1", &data, &none)?;
    } else {
        invocation.out.text(&formatted)?;
    }
    Ok(Exit::Success)
}

/// What keeps a text from being formatted, each with its place.
fn unreadable(name: &str, text: &str, json: bool) -> Failure {
    let parsed = honk_grammar::parse_text(name, text);
    let findings = Findings::new(parsed.diagnostics, parsed.sources);
    let documents = findings.documents();
    if !json {
        eprint!("{}", findings.human(Severity::Error));
    }
    let first = documents.first().map(short).unwrap_or_default();
    let message = match findings.tally().errors {
        0 | 1 => first,
        n => format!("{first} (and {} more)", plural(n - 1, "error")),
    };
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
        let text = "global {\n log_level: (\n}\nrouting {\n dport(1 2) -> x\n}\n";
        let failure = unreadable("a.dae", text, true);
        assert!(
            failure.message.starts_with("a.dae:2:13: error[parse]: "),
            "{failure}"
        );
        assert!(failure.message.ends_with("(and 1 error more)"), "{failure}");
        let details = failure.details.unwrap();
        assert_eq!(details["diagnostics"][1]["line"], 5);
    }
}
