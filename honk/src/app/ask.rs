//! The one question that a start may ask: whether to leave out more nodes than ten.

use std::io::{self, BufRead, IsTerminal as _, Write};

use honk_policy::verdict::LIMIT;
use tokio::sync::oneshot;

use super::signals::Signals;

/// Whether somebody is there to answer.
pub(super) fn possible() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks whether to go on. A signal to stop is an answer.
pub(super) async fn whether_more(signals: &mut Signals) -> bool {
    let (tell, told) = oneshot::channel();
    // A thread of its own: reading a terminal cannot be called off, and nothing waits for it.
    std::thread::spawn(move || {
        let more = ask(io::stdin().lock(), io::stderr());
        // Nobody may be listening any more.
        let _ = tell.send(more);
    });
    tokio::select! {
        more = told => more.unwrap_or(false),
        () = signals.stop_again() => false,
    }
}

/// Asks until the answer is one; the end of the input is to stop.
fn ask(mut input: impl BufRead, mut output: impl Write) -> bool {
    loop {
        let text = format!("{LIMIT} nodes disabled - there may be more: [s]top / [k]eep checking ");
        let asked = output
            .write_all(text.as_bytes())
            .and_then(|()| output.flush());
        let mut line = String::new();
        let read = input.read_line(&mut line).unwrap_or(0);
        if asked.is_err() || read == 0 {
            return false;
        }
        match line.trim().to_ascii_lowercase().as_str() {
            "s" | "stop" => return false,
            "k" | "keep" | "keep checking" => return true,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_word_goes_on() {
        for (input, more, times) in [
            ("k\n", true, 1),
            ("Keep\n", true, 1),
            ("s\nk\n", false, 1),
            ("yes\n\nk\n", true, 3),
            ("what\n", false, 2),
            ("", false, 1),
        ] {
            let mut output = Vec::new();
            assert_eq!(ask(input.as_bytes(), &mut output), more, "{input:?}");
            let text = String::from_utf8(output).unwrap();
            assert_eq!(text.matches("[k]eep").count(), times, "{input:?}");
        }
    }
}
