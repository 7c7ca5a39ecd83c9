//! How far a long piece of work is, on stderr: a bar for a terminal, a few lines for a log.

use std::io::{self, IsTerminal as _, Write as _};

use serde_json::json;

use super::args::Progress as Wanted;
use crate::clock;

/// Columns of a bar.
const WIDTH: usize = 24;
/// Steps of the form for logs.
const STEPS: usize = 4;

/// Shows one piece of work.
#[derive(Debug)]
pub(crate) struct Progress {
    form: Form,
    phase: &'static str,
    /// What was shown last: count done, or the step of it.
    shown: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    None,
    Bar,
    Lines,
    Json,
}

impl Progress {
    pub(crate) fn new(wanted: Wanted, quiet: bool, phase: &'static str) -> Self {
        let form = form(wanted, quiet, io::stderr().is_terminal());
        Self {
            form,
            phase,
            shown: None,
        }
    }

    /// `done` of `total`; `item` is what ended last.
    pub(crate) fn at(&mut self, done: usize, total: usize, item: Option<&str>) {
        let step = match self.form {
            Form::Bar | Form::Json => done,
            Form::Lines => (done * STEPS).checked_div(total).unwrap_or(STEPS),
            Form::None => return,
        };
        if self.shown == Some(step) {
            return;
        }
        self.shown = Some(step);
        let text = match self.form {
            Form::Bar => format!("\r\x1b[K{}", bar(self.phase, done, total, item)),
            Form::Lines => format!("honk: {}: {done}/{total}\n", self.phase),
            Form::Json => {
                let event = json!({
                    "t": clock::now(),
                    "phase": self.phase,
                    "done": done,
                    "total": total,
                    "item": item,
                });
                format!("{event}\n")
            }
            Form::None => return,
        };
        show(&text);
    }

    /// Leaves nothing of a bar behind.
    pub(crate) fn end(&mut self) {
        if self.form == Form::Bar && self.shown.is_some() {
            show("\r\x1b[K");
        }
        self.form = Form::None;
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}

/// Nobody is there to complain to when stderr is closed.
fn show(text: &str) {
    let mut err = io::stderr().lock();
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}

fn form(wanted: Wanted, quiet: bool, terminal: bool) -> Form {
    match wanted {
        Wanted::Never => Form::None,
        Wanted::Json => Form::Json,
        Wanted::Always if terminal => Form::Bar,
        Wanted::Always => Form::Lines,
        Wanted::Auto if quiet => Form::None,
        Wanted::Auto if terminal => Form::Bar,
        Wanted::Auto => Form::Lines,
    }
}

fn bar(phase: &str, done: usize, total: usize, item: Option<&str>) -> String {
    let full = (done * WIDTH)
        .checked_div(total)
        .unwrap_or(WIDTH)
        .min(WIDTH);
    let item: String = item.unwrap_or_default().chars().take(30).collect();
    format!(
        "{phase} [{}{}] {done}/{total} {}",
        "█".repeat(full),
        "░".repeat(WIDTH - full),
        super::output::clean(&item)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_get_lines_terminals_a_bar_and_the_quiet_nothing() {
        assert_eq!(form(Wanted::Auto, false, true), Form::Bar);
        assert_eq!(form(Wanted::Auto, false, false), Form::Lines);
        assert_eq!(form(Wanted::Auto, true, true), Form::None);
        assert_eq!(form(Wanted::Always, true, true), Form::Bar);
        assert_eq!(form(Wanted::Never, false, true), Form::None);
        assert_eq!(form(Wanted::Json, true, false), Form::Json);
    }

    #[test]
    fn bars_fill_from_the_left() {
        let half = bar("ping", 5, 10, Some("a\x1b[2J"));
        assert!(
            half.starts_with("ping [████████████░░░░░░░░░░░░] 5/10 a?"),
            "{half}"
        );
        assert!(bar("ping", 0, 0, None).contains("] 0/0"));
        assert!(!bar("ping", 0, 3, None).contains('█'));
    }
}
