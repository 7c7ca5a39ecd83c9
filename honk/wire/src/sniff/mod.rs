//! The name a client asks for, read from the first bytes it sends.
//!
//! [`stream`] looks at TCP: the server name of a TLS ClientHello or the `Host` of an HTTP/1
//! request. [`quic::Session`] looks at datagrams. All input is hostile: nothing is believed
//! before it was bounded, and a name that leaves this room is one that may be looked up,
//! matched and sent to a proxy.

#[cfg(any(test, feature = "testkit"))]
pub mod craft;
mod http;
mod name;
pub mod quic;
mod reader;
mod tls;

pub use name::HostName;

/// Most bytes of a stream that are looked at. A name further back is not found.
pub const MAX_STREAM: usize = 8192;

/// What carries the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// TLS over TCP.
    Tls,
    /// HTTP/1 or HTTP/2 without TLS.
    Http,
    /// QUIC.
    Quic,
}

/// What a ClientHello or a request said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The name, if there is an acceptable one.
    pub name: Option<HostName>,
    /// The ClientHello carries Encrypted Client Hello, or pretends to: the name may then be
    /// only that of the server that decrypts it.
    pub ech: bool,
}

impl Hello {
    const NOTHING: Self = Self {
        name: None,
        ech: false,
    };
}

/// What the bytes that have come so far mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Too early to tell, or the rest of a message is missing. The kind is set as soon as it
    /// is beyond doubt.
    More(Option<Kind>),
    /// All there is to know.
    Done(Kind, Hello),
    /// Neither protocol, or a broken message: no further byte can change that.
    Foreign,
}

/// Looks at the first bytes of a stream. The bytes are looked at from their beginning every
/// time, so the caller may peek and never has to keep them.
pub fn stream(bytes: &[u8]) -> Step {
    let step = match tls::client_hello(bytes) {
        Step::Foreign => http::request(bytes),
        step => step,
    };
    match step {
        Step::More(kind) if bytes.len() >= MAX_STREAM => match kind {
            Some(kind) => Step::Done(kind, Hello::NOTHING),
            None => Step::Foreign,
        },
        step => step,
    }
}

#[cfg(test)]
mod tests;
