//! HTTP CONNECT client (RFC 9110 section 9.3.6): the request head and a bounded parser for
//! the head of the answer. Bytes behind the blank line are payload and left to the caller.

use crate::{addr::Target, base64, socks5::Credentials};

/// Largest answer head that is read.
pub const MAX_HEAD: usize = 16 * 1024;
/// Most header lines of an answer.
pub const MAX_HEADERS: usize = 64;

/// One fixed browser string, so that nodes do not tell builds apart.
const USER_AGENT: &str = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 \
     (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36";

/// Why an answer was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not `HTTP/1.x NNN ...`.
    #[error("the answer does not start with an HTTP/1 status line; is it an HTTP proxy?")]
    StatusLine,
    /// A line ends with LF alone, or holds a control character.
    #[error("a header line of the answer is malformed")]
    HeaderLine,
    /// The head exceeds [`MAX_HEAD`] or [`MAX_HEADERS`].
    #[error("the head of the answer is too long")]
    TooLong,
    /// The target name holds characters that would break the request line.
    #[error("the target name cannot be written into a request")]
    Target,
}

/// Appends the request for `target`.
pub fn connect(
    target: &Target<'_>,
    credentials: Option<Credentials<'_>>,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    let authority = match target {
        Target::Ip(addr) => addr_text(*addr),
        Target::Name(name, port) => {
            let clean = |b: u8| b.is_ascii_graphic() && !b"/?#@:[]\\".contains(&b);
            if name.is_empty() || !name.bytes().all(clean) {
                return Err(Error::Target);
            }
            format!("{name}:{port}")
        }
    };
    for part in [
        "CONNECT ",
        &authority,
        " HTTP/1.1\r\nHost: ",
        &authority,
        "\r\n",
    ] {
        out.extend_from_slice(part.as_bytes());
    }
    if let Some(Credentials { user, password }) = credentials {
        out.extend_from_slice(b"Proxy-Authorization: Basic ");
        base64::encode(format!("{user}:{password}").as_bytes(), out);
        out.extend_from_slice(b"\r\n");
    }
    for part in [
        "User-Agent: ",
        USER_AGENT,
        "\r\nProxy-Connection: keep-alive\r\n\r\n",
    ] {
        out.extend_from_slice(part.as_bytes());
    }
    Ok(())
}

/// Appends a request without body to an origin server. `host` is what stands in the URL, with
/// its port unless that is the default; the connection is not used again.
pub fn request(method: &str, host: &str, path: &str, out: &mut Vec<u8>) -> Result<(), Error> {
    let word = |b: u8| b.is_ascii_graphic();
    let clean = [method, host, path]
        .iter()
        .all(|part| !part.is_empty() && part.bytes().all(word));
    if !clean || !path.starts_with('/') {
        return Err(Error::Target);
    }
    for part in [
        method,
        " ",
        path,
        " HTTP/1.1\r\nHost: ",
        host,
        "\r\nUser-Agent: ",
        USER_AGENT,
        "\r\nAccept: */*\r\nConnection: close\r\n\r\n",
    ] {
        out.extend_from_slice(part.as_bytes());
    }
    Ok(())
}

/// IPv4-mapped addresses are written as IPv4; IPv6 goes in brackets.
fn addr_text(addr: std::net::SocketAddr) -> String {
    std::net::SocketAddr::new(addr.ip().to_canonical(), addr.port()).to_string()
}

/// Result of feeding bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// All input was taken, the head is not complete.
    More,
    /// The head is complete.
    Done {
        /// Status code.
        status: u16,
        /// Bytes of the last input that belong to the head.
        used: usize,
    },
}

/// The head of the answer, as far as it has arrived.
#[derive(Debug, Default)]
pub struct Answer {
    line: Vec<u8>,
    total: usize,
    lines: usize,
    status: u16,
}

impl Answer {
    /// Takes what arrived.
    pub fn read(&mut self, input: &[u8]) -> Result<Step, Error> {
        let mut at = 0;
        while let Some(len) = input[at..].iter().position(|&b| b == b'\n') {
            self.grow(&input[at..at + len + 1])?;
            at += len + 1;
            let line = std::mem::take(&mut self.line);
            let Some(line) = line.strip_suffix(b"\r\n") else {
                return Err(Error::HeaderLine);
            };
            if self.take_line(line)? {
                return Ok(Step::Done {
                    status: self.status,
                    used: at,
                });
            }
        }
        self.grow(&input[at..])?;
        Ok(Step::More)
    }

    fn grow(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.total += bytes.len();
        if self.total > MAX_HEAD {
            return Err(Error::TooLong);
        }
        self.line.extend_from_slice(bytes);
        // A peer that does not speak HTTP is told apart before it sends a line end.
        let prefix = b"HTTP/1.";
        let seen = self.line.len().min(prefix.len());
        if self.lines == 0 && self.line[..seen] != prefix[..seen] {
            return Err(Error::StatusLine);
        }
        Ok(())
    }

    /// Takes one line without its end; true when it was the blank one.
    fn take_line(&mut self, line: &[u8]) -> Result<bool, Error> {
        if self.lines == 0 {
            self.status = status(line)?;
        } else if line.is_empty() {
            return Ok(true);
        } else if !line.contains(&b':') || line.iter().any(|&b| b < 32 && b != b'\t') {
            return Err(Error::HeaderLine);
        }
        self.lines += 1;
        if self.lines > MAX_HEADERS + 1 {
            return Err(Error::TooLong);
        }
        Ok(false)
    }
}

fn status(line: &[u8]) -> Result<u16, Error> {
    let code = match line.strip_prefix(b"HTTP/1.") {
        Some([b'0' | b'1', b' ', code @ ..]) => code,
        _ => &[],
    };
    let (digits, rest) = code.split_first_chunk::<3>().ok_or(Error::StatusLine)?;
    if !digits.iter().all(u8::is_ascii_digit) || !matches!(rest.first(), None | Some(b' ')) {
        return Err(Error::StatusLine);
    }
    Ok(digits.iter().fold(0, |n, d| n * 10 + u16::from(d - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_one_clean_head() {
        let mut out = Vec::new();
        request("HEAD", "check.test:8080", "/a?b", &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("HEAD /a?b HTTP/1.1\r\nHost: check.test:8080\r\n"));
        assert!(text.ends_with("\r\nConnection: close\r\n\r\n"));
        for (method, host, path) in [
            ("HEAD", "a\r\nb", "/"),
            ("HE AD", "a", "/"),
            ("HEAD", "a", "b"),
            ("HEAD", "", "/"),
            ("HEAD", "a", "/ HTTP/1.1"),
        ] {
            let refused = request(method, host, path, &mut Vec::new());
            assert_eq!(refused, Err(Error::Target), "{method:?} {host:?} {path:?}");
        }
    }

    #[test]
    fn the_request_names_the_target_twice_and_the_credentials_once() {
        let mut out = Vec::new();
        let credentials = Some(Credentials {
            user: "user",
            password: "pass",
        });
        let target = Target::Ip("[2001:db8::1]:443".parse().unwrap());
        connect(&target, credentials, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with(
            "CONNECT [2001:db8::1]:443 HTTP/1.1\r\nHost: [2001:db8::1]:443\r\n\
             Proxy-Authorization: Basic dXNlcjpwYXNz\r\nUser-Agent: "
        ));
        assert!(text.ends_with("\r\nProxy-Connection: keep-alive\r\n\r\n"));
    }

    #[test]
    fn a_name_cannot_smuggle_a_header() {
        for name in ["a b", "a\r\nX: y", "", "a/b", "é"] {
            let got = connect(&Target::Name(name, 80), None, &mut Vec::new());
            assert_eq!(got, Err(Error::Target), "{name:?}");
        }
    }

    #[test]
    fn payload_behind_the_head_is_left_alone() {
        let answer = b"HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\npayload";
        let head = answer.len() - 7;
        for cut in 1..head {
            let mut parser = Answer::default();
            assert_eq!(parser.read(&answer[..cut]), Ok(Step::More), "{cut}");
            assert_eq!(
                parser.read(&answer[cut..]),
                Ok(Step::Done {
                    status: 200,
                    used: head - cut
                })
            );
        }
    }

    #[test]
    fn bad_heads_are_refused() {
        let read = |bytes: &[u8]| Answer::default().read(bytes);
        assert_eq!(read(b"SSH-2.0"), Err(Error::StatusLine));
        assert_eq!(read(b"\x05\x00"), Err(Error::StatusLine));
        assert_eq!(read(b"HTTP/1.1 2x0 \r\n"), Err(Error::StatusLine));
        assert_eq!(read(b"HTTP/1.1 2000\r\n"), Err(Error::StatusLine));
        assert_eq!(read(b"HTTP/1.1 200 OK\n\n"), Err(Error::HeaderLine));
        assert_eq!(
            read(b"HTTP/1.1 200 OK\r\nno colon\r\n"),
            Err(Error::HeaderLine)
        );
        let mut long = b"HTTP/1.1 200 OK\r\nX: ".to_vec();
        long.resize(MAX_HEAD + 1, b'x');
        assert_eq!(read(&long), Err(Error::TooLong));
        let many = format!("HTTP/1.1 200 OK\r\n{}", "A: b\r\n".repeat(MAX_HEADERS + 1));
        assert_eq!(read(many.as_bytes()), Err(Error::TooLong));
    }

    #[test]
    fn refusals_are_statuses() {
        let got = Answer::default().read(b"HTTP/1.0 407 Auth\r\n\r\n");
        assert_eq!(
            got,
            Ok(Step::Done {
                status: 407,
                used: 21
            })
        );
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_answers_never_panic(bytes: Vec<u8>, cut: usize) {
            let mut answer = b"HTTP/1.1 ".to_vec();
            answer.extend_from_slice(&bytes);
            let cut = cut % (answer.len() + 1);
            let mut parser = Answer::default();
            if let Ok(Step::More) = parser.read(&answer[..cut]) {
                let _ = parser.read(&answer[cut..]);
            }
            let _ = Answer::default().read(&bytes);
        }
    }
}
