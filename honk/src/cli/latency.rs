//! Latencies and states as people see them: a number, a colour, a bar.

use super::{
    output::Output,
    table::{Cell, plain},
};

/// Below: good.
const GOOD_MS: u16 = 200;
/// Below: fair.
const FAIR_MS: u16 = 500;
/// Columns of the longest bar.
const WIDTH: u16 = 12;
/// Milliseconds of the longest bar.
const LONGEST_MS: u16 = 1000;

const GREEN: &str = "32";
const ORANGE: &str = "33";
const RED: &str = "31";
const DIM: &str = "2";

/// `48ms`; `-` where nothing is known.
pub(crate) fn cell(ms: Option<u16>) -> Cell {
    match ms {
        Some(ms) => plain(format!("{ms}ms")).painted(color(ms)),
        None => plain("-").painted(DIM),
    }
}

/// A measurement that may be borrowed from elsewhere, or have failed.
pub(crate) fn measured(result: Result<u16, ()>) -> Cell {
    match result {
        Ok(ms) => cell(Some(ms)),
        Err(()) => plain("failed").painted(RED),
    }
}

/// The same as a bar.
pub(crate) fn bar(ms: Option<u16>) -> Cell {
    let Some(ms) = ms else {
        return plain(String::new());
    };
    let eighths = u32::from(ms.min(LONGEST_MS)) * u32::from(WIDTH) * 8 / u32::from(LONGEST_MS);
    let eighths = eighths.max(1) as usize;
    let mut text = "█".repeat(eighths / 8);
    let rest = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    text.push_str(rest[eighths % 8]);
    plain(text).painted(color(ms))
}

/// The state of a node: the word in a pipe, a sign with it on a terminal.
pub(crate) fn state(out: &Output, state: &str) -> Cell {
    let (sign, color) = match state {
        "alive" => ("●", GREEN),
        "dead" | "dropped" => ("✗", RED),
        "disabled" => ("–", DIM),
        "unknown" => ("?", DIM),
        _ => return plain(state),
    };
    match out.width {
        Some(_) => plain(format!("{sign} {state}")).painted(color),
        None => plain(state).painted(color),
    }
}

fn color(ms: u16) -> &'static str {
    match ms {
        ms if ms < GOOD_MS => GREEN,
        ms if ms < FAIR_MS => ORANGE,
        _ => RED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_change_at_200_and_500_and_bars_end_at_a_second() {
        assert_eq!(
            [0, 199, 200, 499, 500, u16::MAX].map(color),
            [GREEN, GREEN, ORANGE, ORANGE, RED, RED]
        );
        let width = |ms| bar(Some(ms)).text().chars().count();
        assert_eq!((width(0), width(1000), width(60_000)), (1, 12, 12));
        assert_eq!(bar(Some(500)).text(), "██████");
        assert_eq!(bar(None).text(), "");
        assert_eq!((cell(Some(48)).text(), cell(None).text()), ("48ms", "-"));
    }
}
