//! The `Host` of an HTTP/1 request.

use super::{Hello, HostName, Kind, Step};

const METHODS: [&str; 9] = [
    "GET ", "POST ", "HEAD ", "PUT ", "DELETE ", "OPTIONS ", "PATCH ", "CONNECT ", "TRACE ",
];
/// How HTTP/2 begins without TLS. Its names are compressed and come later.
const PREFACE: &str = "PRI * HTTP/2.0\r\n";

const NOTHING: Step = Step::Done(Kind::Http, Hello::NOTHING);

pub(super) fn request(bytes: &[u8]) -> Step {
    if bytes.starts_with(PREFACE.as_bytes()) {
        return NOTHING;
    }
    if !METHODS.iter().any(|m| bytes.starts_with(m.as_bytes())) {
        let mut openings = METHODS.iter().chain(&[PREFACE]);
        return if openings.any(|o| o.as_bytes().starts_with(bytes)) {
            Step::More(None)
        } else {
            Step::Foreign
        };
    }
    let mut lines = Lines(bytes);
    let first = lines.next();
    // A protocol that merely begins with such a word shows it before its line ends.
    let control = |b: &u8| *b < b' ' && *b != b'\r' || *b == 0x7f;
    if first.unwrap_or(bytes).iter().any(control) {
        return Step::Foreign;
    }
    let Some(first) = first else {
        return Step::More(Some(Kind::Http));
    };
    if !first.ends_with(b" HTTP/1.1") && !first.ends_with(b" HTTP/1.0") {
        return Step::Foreign;
    }
    for line in lines {
        let Some(colon) = line.iter().position(|&b| b == b':') else {
            return NOTHING;
        };
        let (field, value) = line.split_at(colon);
        if field.eq_ignore_ascii_case(b"host") {
            let name = authority(value[1..].trim_ascii());
            return Step::Done(Kind::Http, Hello { name, ech: false });
        }
    }
    Step::More(Some(Kind::Http))
}

/// Complete lines without their ends. A blank line is one without a colon.
struct Lines<'a>(&'a [u8]);

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|&b| b == b'\n')?;
        let (line, rest) = self.0.split_at(end);
        self.0 = &rest[1..];
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    }
}

/// The name of `name` or `name:port`. An address in brackets is not a name.
fn authority(value: &[u8]) -> Option<HostName> {
    let name = match value.iter().position(|&b| b == b':') {
        Some(at) if value[at + 1..].iter().all(u8::is_ascii_digit) => &value[..at],
        Some(_) => return None,
        None => value,
    };
    HostName::parse(name)
}
