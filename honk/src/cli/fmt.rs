//! `honk fmt`: the canonical spelling of a configuration, to stdout.

use std::io::Read as _;

use honk_grammar::{Loader as _, limits::FILE_BYTES};

use super::{
    Invocation,
    args::Fmt,
    exit::{Exit, Failure},
};

/// Runs the command.
pub(crate) fn run(invocation: &Invocation, args: &Fmt) -> Result<Exit, Failure> {
    let (name, bytes) = read(invocation, args)?;
    let text = String::from_utf8(bytes)
        .map_err(|e| Failure::new(Exit::Config, "parse", format!("{name}: not UTF-8: {e}")))?;
    let formatted = honk_grammar::format(&text)
        .map_err(|e| Failure::new(Exit::Config, "parse", format!("{name}: {e}")))?;
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
