//! Tables for people: header, two-space gutters, numbers to the right.

use super::output::{Output, clean};

/// How a column is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// A text, perhaps in a colour.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    ansi: Option<&'static str>,
}

/// A text without a colour.
pub(crate) fn plain(text: impl AsRef<str>) -> Cell {
    Cell {
        text: clean(text.as_ref()),
        ansi: None,
    }
}

impl Cell {
    #[must_use]
    pub(crate) fn painted(self, ansi: &'static str) -> Self {
        let ansi = Some(ansi);
        Self { ansi, ..self }
    }

    #[cfg(test)]
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

/// Rows under a header.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<Cell>>,
}

/// Narrowest a column is cut to.
const MIN_CUT: usize = 8;

impl Table {
    pub(crate) fn new(columns: &[(&'static str, Align)]) -> Self {
        Self {
            columns: columns.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; missing cells stay empty.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.iter().map(plain).collect());
    }

    /// The same with colours.
    pub(crate) fn cells(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// Whether there is nothing under the header.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The text; on a terminal the widest text column gives way.
    pub(crate) fn render(&self, out: &Output) -> String {
        let mut widths: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .map(|(i, (head, _))| {
                let cells = self.rows.iter().filter_map(|r| r.get(i));
                cells
                    .map(|c| width(&c.text))
                    .max()
                    .unwrap_or(0)
                    .max(width(head))
            })
            .collect();
        if let Some(limit) = out.width {
            self.shrink(&mut widths, limit);
        }
        let heads: Vec<Cell> = self.columns.iter().map(|(h, _)| plain(h)).collect();
        let mut text = self.line(out, &heads, &widths);
        for row in &self.rows {
            text.push_str(&self.line(out, row, &widths));
        }
        text
    }

    fn shrink(&self, widths: &mut [usize], limit: usize) {
        let gutters = 2 * widths.len().saturating_sub(1);
        let mut excess = (widths.iter().sum::<usize>() + gutters).saturating_sub(limit);
        while excess > 0 {
            let texts = widths.iter().enumerate().filter(|(i, w)| {
                **w > MIN_CUT && self.columns.get(*i).is_some_and(|c| c.1 == Align::Left)
            });
            let Some((widest, _)) = texts.max_by_key(|(_, w)| **w) else {
                return;
            };
            widths[widest] -= 1;
            excess -= 1;
        }
    }

    fn line(&self, out: &Output, cells: &[Cell], widths: &[usize]) -> String {
        let mut line = String::new();
        for (i, ((_, align), &room)) in self.columns.iter().zip(widths).enumerate() {
            let cell = cells.get(i);
            let text = cut(cell.map_or("", |c| &c.text), room);
            let pad = " ".repeat(room.saturating_sub(width(&text)));
            let cell = match cell.and_then(|c| c.ansi) {
                Some(ansi) if !text.is_empty() => out.paint(ansi, &text),
                _ => text,
            };
            if i > 0 {
                line.push_str("  ");
            }
            match align {
                Align::Left => line.extend([cell.as_str(), pad.as_str()]),
                Align::Right => line.extend([pad.as_str(), cell.as_str()]),
            }
        }
        line.truncate(line.trim_end().len());
        line.push('\n');
        line
    }
}

/// Columns a text takes on a terminal.
fn width(text: &str) -> usize {
    unicode_width::UnicodeWidthStr::width(text)
}

/// Cuts to `room` columns, the last of which is `…`.
fn cut(text: &str, room: usize) -> String {
    if width(text) <= room {
        return text.to_owned();
    }
    let mut kept = String::new();
    for c in text.chars() {
        kept.push(c);
        if width(&kept) >= room {
            kept.pop();
            break;
        }
    }
    kept.push('…');
    kept
}

/// `1.5 MiB`
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    #[expect(clippy::cast_precision_loss, reason = "one digit behind the point")]
    let mut value = n as f64 / 1024.0;
    let mut unit = UNITS[0];
    for next in &UNITS[1..] {
        if value < 1023.95 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    format!("{value:.1} {unit}")
}

/// `2d 3h`, `4m 5s`
pub(crate) fn span(seconds: u64) -> String {
    let (d, h, m, s) = (
        seconds / 86_400,
        seconds / 3_600 % 24,
        seconds / 60 % 60,
        seconds % 60,
    );
    if d > 0 {
        format!("{d}d {h}h")
    } else if h > 0 {
        format!("{h}h {m}m")
    } else if m > 0 {
        format!("{m}m {s}s")
    } else {
        format!("{s}s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(width: Option<usize>) -> Output {
        Output {
            json: false,
            color: false,
            quiet: false,
            width,
        }
    }

    fn sample() -> Table {
        let mut table = Table::new(&[("GROUP", Align::Left), ("CONNS", Align::Right)]);
        table.row(vec!["香港 and more words".into(), "3".into()]);
        table.row(vec!["b".into(), "1200".into()]);
        table
    }

    #[test]
    fn columns_line_up_by_display_width() {
        let text = sample().render(&output(None));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "GROUP                CONNS");
        assert_eq!(lines[1], "香港 and more words      3");
        assert_eq!(lines[2], "b                     1200");
    }

    #[test]
    fn colours_do_not_move_columns_and_are_off_in_a_pipe() {
        let mut table = sample();
        table.cells(vec![plain("c").painted("32"), plain("7")]);
        let last = |out: &Output| table.render(out).lines().last().map(str::to_owned);
        let mut out = output(None);
        assert_eq!(last(&out).unwrap(), "c                        7");
        out.color = true;
        assert_eq!(
            last(&out).unwrap(),
            "\x1b[32mc\x1b[0m                        7"
        );
    }

    #[test]
    fn only_a_terminal_cuts_the_text_column() {
        let text = sample().render(&output(Some(20)));
        assert_eq!(text.lines().nth(1), Some("香港 and mor…      3"));
    }

    #[test]
    fn sizes_and_spans_read_well() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(2_202_009), "2.1 MiB");
        assert_eq!(bytes(u64::MAX), "16384.0 PiB");
        assert_eq!(span(59), "59s");
        assert_eq!(span(90_061), "1d 1h");
    }
}
