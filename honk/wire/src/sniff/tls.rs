//! The ClientHello, from a TCP stream (RFC 8446 sections 4.1.2 and 5.1) or a CRYPTO stream.

use std::borrow::Cow;

use super::{Hello, HostName, Kind, MAX_STREAM, Step, reader::Reader};

const HANDSHAKE: u8 = 22;
const MAJOR: u8 = 3;
/// Type, version, length.
const RECORD_HEADER: usize = 5;
/// Most bytes of a record.
const MAX_RECORD: usize = 1 << 14;

const CLIENT_HELLO: usize = 1;
const SERVER_NAME: usize = 0;
const HOST_NAME: usize = 0;
const ENCRYPTED_CLIENT_HELLO: usize = 0xfe0d;

/// The hello of a TCP stream, which may be cut into records at any place.
pub(super) fn client_hello(stream: &[u8]) -> Step {
    let begins = |at: usize, want: u8| stream.get(at).is_none_or(|&b| b == want);
    if !begins(0, HANDSHAKE) || !begins(1, MAJOR) {
        return Step::Foreign;
    }
    if stream.len() < 2 {
        return Step::More(None);
    }
    let mut message: Cow<'_, [u8]> = Cow::Borrowed(&[]);
    let mut rest = stream;
    loop {
        let Some((header, behind)) = rest.split_at_checked(RECORD_HEADER) else {
            return Step::More(Some(Kind::Tls));
        };
        let len = usize::from(u16::from_be_bytes([header[3], header[4]]));
        if header[0] != HANDSHAKE || header[1] != MAJOR || len == 0 || len > MAX_RECORD {
            return if message.is_empty() {
                Step::Foreign
            } else {
                Step::Done(Kind::Tls, Hello::NOTHING)
            };
        }
        let (body, behind) = behind.split_at(len.min(behind.len()));
        if message.is_empty() {
            message = Cow::Borrowed(body);
        } else {
            message.to_mut().extend_from_slice(body);
        }
        match read(&message, MAX_STREAM) {
            Read::Done(hello) => return Step::Done(Kind::Tls, hello),
            Read::More if body.len() < len => return Step::More(Some(Kind::Tls)),
            Read::More => rest = behind,
        }
    }
}

/// What the beginning of a handshake is.
#[derive(Debug)]
pub(super) enum Read {
    /// The message is not complete.
    More,
    Done(Hello),
}

/// Reads the first handshake message; one longer than `most` says nothing.
pub(super) fn read(message: &[u8], most: usize) -> Read {
    let mut header = Reader(message);
    let (Some(kind), len) = (header.uint(1), header.uint(3)) else {
        return Read::More;
    };
    if kind != CLIENT_HELLO {
        return Read::Done(Hello::NOTHING);
    }
    match len {
        None => Read::More,
        Some(len) if len > most => Read::Done(Hello::NOTHING),
        Some(len) => match header.take(len) {
            None => Read::More,
            Some(body) => Read::Done(hello(body).unwrap_or(Hello::NOTHING)),
        },
    }
}

/// The body of a ClientHello; `None` when its lengths contradict each other.
fn hello(body: &[u8]) -> Option<Hello> {
    let mut body = Reader(body);
    let _version_and_random = body.take(2 + 32)?;
    let _session = body.vector(1)?;
    let _ciphers = body.vector(2)?;
    let _compression = body.vector(1)?;
    if body.is_empty() {
        return Some(Hello::NOTHING);
    }
    let mut extensions = Reader(body.vector(2)?);
    let (mut names, mut ech) = (None, false);
    while !extensions.is_empty() {
        let kind = extensions.uint(2)?;
        let data = extensions.vector(2)?;
        match kind {
            // Twice is forbidden, and whoever believes the wrong one is fooled.
            SERVER_NAME if names.is_some() => return None,
            SERVER_NAME => names = Some(data),
            ENCRYPTED_CLIENT_HELLO => ech = true,
            _ => {}
        }
    }
    Some(Hello {
        name: names.and_then(server_name),
        ech,
    })
}

fn server_name(data: &[u8]) -> Option<HostName> {
    let mut list = Reader(Reader(data).vector(2)?);
    while !list.is_empty() {
        let kind = list.uint(1)?;
        let name = list.vector(2)?;
        if kind == HOST_NAME {
            return HostName::parse(name);
        }
    }
    None
}
