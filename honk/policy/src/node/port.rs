//! Sets of ports that a client hops between.

use std::fmt;

/// A set of ports, never empty: ranges in order, none touching the next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PortSet(Vec<(u16, u16)>);

impl PortSet {
    /// Reads `443,5000-5002`, `all` or `*`; `between` separates the ends of a range.
    pub(crate) fn parse(text: &str, between: char) -> Result<Self, &'static str> {
        const WRONG: &str = "the port list is not made of ports and ranges";
        let mut ranges = Vec::new();
        for part in text.split(',').map(str::trim) {
            if matches!(part, "all" | "*") {
                ranges.push((1, u16::MAX));
                continue;
            }
            let (from, to) = part.split_once(between).unwrap_or((part, part));
            let (from, to) = (port(from).ok_or(WRONG)?, port(to).ok_or(WRONG)?);
            if from > to {
                return Err("a port range is written backwards");
            }
            ranges.push((from, to));
        }
        ranges.sort_unstable();
        let mut merged: Vec<(u16, u16)> = Vec::new();
        for (from, to) in ranges {
            match merged.last_mut() {
                Some(last) if from <= last.1.saturating_add(1) => last.1 = last.1.max(to),
                _ => merged.push((from, to)),
            }
        }
        Ok(Self(merged))
    }

    /// The ranges, both ends included.
    pub fn ranges(&self) -> &[(u16, u16)] {
        &self.0
    }
}

impl fmt::Display for PortSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (from, to)) in self.0.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            match from == to {
                true => write!(f, "{comma}{from}")?,
                false => write!(f, "{comma}{from}-{to}")?,
            }
        }
        Ok(())
    }
}

/// A port: decimal digits only, not 0.
pub(crate) fn port(text: &str) -> Option<u16> {
    let text = text.trim();
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits
        .then(|| text.parse().ok())
        .flatten()
        .filter(|port| *port != 0)
}
