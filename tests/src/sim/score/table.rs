//! The table of `docs/SCORE.md`: every scenario, every policy.

use std::fmt::Write as _;

use super::{Figures, Who, figures, scenario};

/// Plays everything with so many seeds each and writes a Markdown table: flows whose first
/// attempt failed and flows that failed, per thousand, then median and mean in milliseconds.
pub fn table(seeds: u64) -> String {
    let mut text = String::from("| | scenario |");
    for who in Who::ALL {
        let _ = write!(text, " {} |", who.name());
    }
    text.push_str("\n|---|---|");
    text.push_str(&"---|".repeat(Who::ALL.len()));
    text.push('\n');
    for scenario in scenario::ALL {
        let _ = write!(text, "| {} | {} |", scenario.number, scenario.title);
        let world = (scenario.world)();
        for who in Who::ALL {
            let _ = write!(text, " {} |", cell(&figures(&world, 1..=seeds, who)));
        }
        text.push('\n');
    }
    text
}

fn cell(figures: &Figures) -> String {
    let Figures {
        first_failed,
        failed,
        p50,
        mean,
        ..
    } = figures;
    let (first, failed) = (first_failed * 1e3, failed * 1e3);
    format!("{first:.1} {failed:.1} {p50:.0} {mean:.0}")
}
