//! The stream handshake as a state machine over bytes.

use std::net::SocketAddr;

use super::{
    AUTH_VERSION, Command, Credentials, Error, METHOD_NONE, METHOD_PASSWORD, METHOD_REFUSED,
    Refusal, VERSION,
};
use crate::addr::{self, Target};

/// How the client's messages are spread over its flights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Each message waits for the answer to the one before.
    Serial,
    /// All messages leave at once. Only for servers known to read the greeting exactly: one
    /// that takes a whole segment for the greeting would wait for ever.
    Pipelined,
}

/// The address of the server's side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound {
    /// A literal address.
    Ip(SocketAddr),
    /// A name and a port; servers rarely answer so.
    Name(String, u16),
}

/// Result of feeding bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// All input was taken; send what was appended to `out`, then read on.
    More,
    /// The server agreed. `used` bytes of this input belong to the handshake.
    Done {
        /// Bytes of the last input that were part of the handshake.
        used: usize,
        /// The server's bound address: for UDP the relay.
        bound: Bound,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Method,
    Auth,
    Reply,
}

/// A handshake under way.
pub struct Handshake {
    stage: Stage,
    mode: Mode,
    /// Authentication message, when credentials were given.
    auth: Vec<u8>,
    request: Vec<u8>,
    /// Incomplete message, at most one reply long.
    partial: Vec<u8>,
}

impl Handshake {
    /// Starts a handshake and appends the first flight to `out`.
    pub fn start(
        command: Command,
        target: &Target<'_>,
        credentials: Option<Credentials<'_>>,
        mode: Mode,
        out: &mut Vec<u8>,
    ) -> Result<Self, Error> {
        let auth = credentials.map_or(Ok(Vec::new()), auth_message)?;
        let mut request = vec![VERSION, command as u8, 0];
        addr::encode(target, &mut request).map_err(Error::Target)?;
        match (mode, auth.is_empty()) {
            (_, true) => out.extend_from_slice(&[VERSION, 1, METHOD_NONE]),
            // A pipelined password needs a server that asks for it: with a choice the server
            // could take "none" and read our password as the request.
            (Mode::Pipelined, false) => out.extend_from_slice(&[VERSION, 1, METHOD_PASSWORD]),
            (Mode::Serial, false) => {
                out.extend_from_slice(&[VERSION, 2, METHOD_NONE, METHOD_PASSWORD]);
            }
        }
        if mode == Mode::Pipelined {
            out.extend_from_slice(&auth);
            out.extend_from_slice(&request);
        }
        Ok(Self {
            stage: Stage::Method,
            mode,
            auth,
            request,
            partial: Vec::new(),
        })
    }

    /// Whether the server has answered the greeting and only the reply about the target is
    /// missing. A timeout after that is the target's, not the server's.
    pub fn awaits_reply(&self) -> bool {
        self.stage == Stage::Reply
    }

    /// Takes what arrived; may append the next flight to `out`.
    pub fn read(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<Step, Error> {
        // The usual case parses straight from the input; only a cut message is kept.
        if self.partial.is_empty() {
            return self.parse(input, 0, out);
        }
        let mut joined = std::mem::take(&mut self.partial);
        let kept = joined.len();
        joined.extend_from_slice(input);
        self.parse(&joined, kept, out)
    }

    /// Parses `data`, whose first `kept` bytes came with earlier reads.
    fn parse(&mut self, data: &[u8], kept: usize, out: &mut Vec<u8>) -> Result<Step, Error> {
        let mut at = 0;
        loop {
            let rest = &data[at..];
            if let (Stage::Method | Stage::Reply, Some(&version)) = (self.stage, rest.first())
                && version != VERSION
            {
                return Err(Error::Version(version));
            }
            match self.stage {
                Stage::Method => {
                    let Some(&[_, method]) = rest.first_chunk::<2>() else {
                        return Ok(self.keep(rest));
                    };
                    at += 2;
                    self.method(method, out)?;
                }
                Stage::Auth => {
                    // The version byte of this reply is not checked: servers disagree on it.
                    let Some(&[_, status]) = rest.first_chunk::<2>() else {
                        return Ok(self.keep(rest));
                    };
                    at += 2;
                    if status != 0 {
                        return Err(Error::AuthRefused(status));
                    }
                    self.enter_reply(out);
                }
                Stage::Reply => {
                    if let Some(&code) = rest.get(1)
                        && code != 0
                    {
                        return Err(Error::Refused(Refusal::from_code(code)));
                    }
                    let Some(bound) = rest.get(3..) else {
                        return Ok(self.keep(rest));
                    };
                    let Some((bound, len)) = decode_bound(bound)? else {
                        return Ok(self.keep(rest));
                    };
                    return Ok(Step::Done {
                        used: at + 3 + len - kept,
                        bound,
                    });
                }
            }
        }
    }

    fn method(&mut self, method: u8, out: &mut Vec<u8>) -> Result<(), Error> {
        match (method, self.auth.is_empty(), self.mode) {
            (METHOD_NONE, true, _) | (METHOD_NONE, false, Mode::Serial) => self.enter_reply(out),
            (METHOD_PASSWORD, false, mode) => {
                self.stage = Stage::Auth;
                if mode == Mode::Serial {
                    out.extend_from_slice(&self.auth);
                }
            }
            (METHOD_REFUSED, ..) => return Err(Error::NoMethod),
            (other, ..) => return Err(Error::MethodNotOffered(other)),
        }
        Ok(())
    }

    fn enter_reply(&mut self, out: &mut Vec<u8>) {
        self.stage = Stage::Reply;
        if self.mode == Mode::Serial {
            out.extend_from_slice(&self.request);
        }
    }

    fn keep(&mut self, rest: &[u8]) -> Step {
        self.partial.extend_from_slice(rest);
        Step::More
    }
}

impl std::fmt::Debug for Handshake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handshake")
            .field("stage", &self.stage)
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

fn auth_message(credentials: Credentials<'_>) -> Result<Vec<u8>, Error> {
    let mut out = vec![AUTH_VERSION];
    for part in [credentials.user, credentials.password] {
        let len = u8::try_from(part.len()).map_err(|_| Error::CredentialsTooLong)?;
        out.push(len);
        out.extend_from_slice(part.as_bytes());
    }
    Ok(out)
}

/// The bound address of a reply. Unlike a target it may be an empty name: some servers fill
/// nothing in, and for CONNECT nobody reads it.
fn decode_bound(input: &[u8]) -> Result<Option<(Bound, usize)>, Error> {
    if let Some(&[3, 0]) = input.first_chunk::<2>() {
        let Some(port) = input.get(2..4) else {
            return Ok(None);
        };
        let port = u16::from_be_bytes([port[0], port[1]]);
        return Ok(Some((Bound::Name(String::new(), port), 4)));
    }
    let decoded = addr::decode(input).map_err(Error::BoundAddress)?;
    Ok(decoded.map(|(target, len)| {
        let bound = match target {
            Target::Ip(addr) => Bound::Ip(addr),
            Target::Name(name, port) => Bound::Name(name.to_owned(), port),
        };
        (bound, len)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK_REPLY: [u8; 10] = [5, 0, 0, 1, 0, 0, 0, 0, 0, 0];

    fn start(credentials: bool, mode: Mode) -> (Handshake, Vec<u8>) {
        let mut out = Vec::new();
        let credentials = credentials.then_some(Credentials {
            user: "user",
            password: "pass",
        });
        let target = Target::Name("example.com", 443);
        let hs = Handshake::start(Command::Connect, &target, credentials, mode, &mut out).unwrap();
        (hs, out)
    }

    fn done(used: usize) -> Step {
        Step::Done {
            used,
            bound: Bound::Ip("0.0.0.0:0".parse().unwrap()),
        }
    }

    #[test]
    fn serial_without_credentials() {
        let (mut hs, out) = start(false, Mode::Serial);
        assert_eq!(out, [5, 1, 0]);
        let mut out = Vec::new();
        assert_eq!(hs.read(&[5, 0], &mut out), Ok(Step::More));
        assert_eq!(out, b"\x05\x01\x00\x03\x0bexample.com\x01\xbb");
        assert!(hs.awaits_reply());
        assert_eq!(hs.read(&OK_REPLY, &mut out), Ok(done(10)));
    }

    #[test]
    fn serial_with_credentials() {
        let (mut hs, out) = start(true, Mode::Serial);
        assert_eq!(out, [5, 2, 0, 2]);
        let mut out = Vec::new();
        assert_eq!(hs.read(&[5, 2], &mut out), Ok(Step::More));
        assert_eq!(out, b"\x01\x04user\x04pass");
        out.clear();
        assert_eq!(hs.read(&[1, 0], &mut out), Ok(Step::More));
        assert_eq!(out, b"\x05\x01\x00\x03\x0bexample.com\x01\xbb");
        assert_eq!(hs.read(&OK_REPLY, &mut out), Ok(done(10)));
    }

    #[test]
    fn pipelined_sends_all_at_once_and_offers_one_method() {
        let (mut hs, out) = start(true, Mode::Pipelined);
        assert_eq!(
            out,
            b"\x05\x01\x02\x01\x04user\x04pass\x05\x01\x00\x03\x0bexample.com\x01\xbb"
        );
        let mut answer = vec![5, 2, 1, 0];
        answer.extend_from_slice(&OK_REPLY);
        answer.extend_from_slice(b"hello");
        let mut out = Vec::new();
        assert_eq!(hs.read(&answer, &mut out), Ok(done(14)));
        assert!(out.is_empty());
        let (mut hs, _) = start(true, Mode::Pipelined);
        assert_eq!(
            hs.read(&[5, 0], &mut out),
            Err(Error::MethodNotOffered(0)),
            "a server that skips the password must not read it as a request"
        );
    }

    #[test]
    fn any_cut_gives_the_same_result() {
        let mut answer = vec![5, 2, 1, 0, 5, 0, 0, 3, 3, b'a', b'b', b'c', 0, 80];
        let handshake = answer.len();
        answer.extend_from_slice(b"payload");
        for cut in 1..handshake {
            let (mut hs, _) = start(true, Mode::Serial);
            let mut out = Vec::new();
            assert_eq!(hs.read(&answer[..cut], &mut out), Ok(Step::More), "{cut}");
            let Ok(Step::Done { used, bound }) = hs.read(&answer[cut..], &mut out) else {
                panic!("not done after the rest, cut at {cut}");
            };
            assert_eq!(used, handshake - cut);
            assert_eq!(bound, Bound::Name("abc".into(), 80));
            assert_eq!(&answer[cut + used..], b"payload");
        }
    }

    #[test]
    fn refusals_have_names() {
        let read = |bytes: &[u8]| start(true, Mode::Serial).0.read(bytes, &mut Vec::new());
        assert_eq!(read(&[4, 0]), Err(Error::Version(4)));
        assert_eq!(read(b"HTTP"), Err(Error::Version(b'H')));
        assert_eq!(read(&[5, 0xff]), Err(Error::NoMethod));
        assert_eq!(read(&[5, 1]), Err(Error::MethodNotOffered(1)));
        assert_eq!(read(&[5, 2, 1, 1]), Err(Error::AuthRefused(1)));
        assert_eq!(
            read(&[5, 0, 5, 5]),
            Err(Error::Refused(Refusal::ConnectionRefused)),
            "a short refusal is enough"
        );
        assert_eq!(
            read(&[5, 0, 5, 0, 0, 9]),
            Err(Error::BoundAddress(addr::AddrError::Type(9)))
        );
    }

    #[test]
    fn long_credentials_are_refused() {
        let long = "x".repeat(256);
        let credentials = Some(Credentials {
            user: "u",
            password: &long,
        });
        let target = Target::Name("a", 1);
        let got = Handshake::start(
            Command::Connect,
            &target,
            credentials,
            Mode::Serial,
            &mut Vec::new(),
        );
        assert_eq!(got.err(), Some(Error::CredentialsTooLong));
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_answers_never_panic(
            chunks in proptest::collection::vec(
                proptest::collection::vec(proptest::num::u8::ANY, 0..40), 0..6),
            valid: bool,
            credentials: bool,
            pipelined: bool,
        ) {
            let mode = if pipelined { Mode::Pipelined } else { Mode::Serial };
            let (mut hs, _) = start(credentials, mode);
            let mut out = Vec::new();
            if valid {
                let _ = hs.read(&[5, if credentials { 2 } else { 0 }], &mut out);
            }
            for chunk in chunks {
                match hs.read(&chunk, &mut out) {
                    Ok(Step::More) => {}
                    Ok(Step::Done { used, .. }) => { assert!(used <= chunk.len()); break; }
                    Err(_) => break,
                }
                assert!(hs.partial.len() <= 3 + addr::MAX_ENCODED);
            }
        }
    }
}
