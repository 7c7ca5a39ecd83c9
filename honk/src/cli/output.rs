//! Where results go: stdout carries them and nothing else, stderr the rest.

use std::io::{self, IsTerminal as _, Write as _};

use serde::Serialize;
use serde_json::{Value, json};

use super::{
    args::{Color, Global},
    exit::Failure,
};
use crate::{clock, state::dirs::Env};

/// Style of one invocation.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    pub(crate) json: bool,
    pub(crate) color: bool,
    pub(crate) quiet: bool,
    /// Columns of the terminal; `None` in a pipe, where nothing is cut.
    pub(crate) width: Option<usize>,
}

impl Output {
    pub(crate) fn new(global: &Global, env: Env<'_>) -> Self {
        let tty = io::stdout().is_terminal();
        Self {
            json: global.json,
            color: wants_color(global.color, env, tty),
            quiet: global.quiet,
            width: tty.then(|| width(env)),
        }
    }

    /// Text for people.
    pub(crate) fn text(&self, text: &str) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        if !text.ends_with('\n') {
            out.write_all(b"\n")?;
        }
        Ok(out.flush()?)
    }

    /// The one JSON document of a command.
    pub(crate) fn document(
        &self,
        schema: &str,
        data: &impl Serialize,
        warnings: &[impl Serialize],
    ) -> Result<(), Failure> {
        self.text(&wrap(schema, data, warnings).to_string())
    }

    /// A line on stderr, unless quiet.
    pub(crate) fn note(&self, text: &str) {
        if !self.quiet {
            eprintln!("honk: {text}");
        }
    }

    /// Wraps a text in an ANSI colour when colours are on.
    pub(crate) fn paint(&self, ansi: &str, text: &str) -> String {
        if self.color {
            format!("\x1b[{ansi}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

/// `{schema, generated_at, data, warnings}`
fn wrap(schema: &str, data: &impl Serialize, warnings: &[impl Serialize]) -> Value {
    json!({
        "schema": format!("honk.{schema}"),
        "generated_at": clock::now(),
        "data": data,
        "warnings": warnings,
    })
}

fn wants_color(flag: Color, env: Env<'_>, tty: bool) -> bool {
    let set = |name: &str| env(name).is_some_and(|v| !v.is_empty());
    match flag {
        Color::Always => true,
        Color::Never => false,
        Color::Auto if set("NO_COLOR") => false,
        Color::Auto if env("CLICOLOR_FORCE").is_some_and(|v| v == "1") => true,
        Color::Auto => tty && env("TERM").is_none_or(|t| t != "dumb"),
    }
}

fn width(env: Env<'_>) -> usize {
    let columns = env("COLUMNS").and_then(|v| v.into_string().ok()?.parse().ok());
    let terminal = || {
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
        (size.ws_col > 0).then_some(usize::from(size.ws_col))
    };
    columns.or_else(terminal).unwrap_or(80).max(20)
}

/// Text from outside (names of nodes and groups) without control characters.
pub(crate) fn clean(text: &str) -> String {
    let printable = |c: char| !c.is_control() && !('\u{202a}'..='\u{202e}').contains(&c);
    text.chars()
        .map(|c| if printable(c) { c } else { '?' })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    #[test]
    fn colour_follows_flag_then_no_color_then_force_then_terminal() {
        let none = |_: &str| None;
        let no_color = |k: &str| (k == "NO_COLOR").then(|| OsString::from("1"));
        let force = |k: &str| (k == "CLICOLOR_FORCE").then(|| OsString::from("1"));
        assert!(wants_color(Color::Always, &no_color, false));
        assert!(!wants_color(Color::Auto, &no_color, true));
        assert!(wants_color(Color::Auto, &force, false));
        assert!(wants_color(Color::Auto, &none, true));
        assert!(!wants_color(Color::Auto, &none, false));
        assert!(!wants_color(Color::Never, &force, true));
    }

    #[test]
    fn documents_name_their_schema() {
        let document = wrap("group.list/1", &json!([1]), &[] as &[Value]);
        assert_eq!(document["schema"], "honk.group.list/1");
        assert_eq!(document["data"], json!([1]));
        assert_eq!(document["warnings"], json!([]));
        assert!(document["generated_at"].as_str().unwrap().ends_with('Z'));
    }

    #[test]
    fn foreign_names_cannot_steer_the_terminal() {
        assert_eq!(clean("a\x1b[31mb\u{202e}c"), "a?[31mb?c");
    }
}
