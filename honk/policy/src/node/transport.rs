//! Streams inside TCP or TLS that look like web traffic.

use std::fmt;

/// What carries the stream of a protocol. `Debug` shows the name only: paths are often secrets.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Transport {
    /// The bytes themselves.
    #[default]
    Tcp,
    /// WebSocket.
    Ws {
        /// Path, starting with `/`.
        path: String,
        /// Host header; else the server name.
        host: Option<String>,
        /// Further headers.
        headers: Vec<Header>,
        /// First bytes inside the request.
        early: Option<EarlyData>,
    },
    /// gRPC.
    Grpc {
        /// Service name, or a path when it starts with `/`.
        service: String,
        /// Authority; else the server name.
        authority: Option<String>,
        /// Several messages at once.
        multi: bool,
    },
    /// An HTTP/1.1 upgrade without WebSocket frames.
    HttpUpgrade {
        /// Path, starting with `/`.
        path: String,
        /// Host header; else the server name.
        host: Option<String>,
        /// Further headers.
        headers: Vec<Header>,
        /// The answer is not awaited.
        fast_open: bool,
    },
    /// A request body in HTTP/2.
    H2 {
        /// Path, starting with `/`.
        path: String,
        /// Authorities to choose from; else the server name.
        hosts: Vec<String>,
        /// Method; else `PUT`.
        method: Option<String>,
    },
}

/// Name and value of an HTTP header.
pub type Header = (String, String);

/// Early data of a WebSocket.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EarlyData {
    /// Most bytes.
    pub max: u16,
    /// Header that carries it; `None` appends it to the path.
    pub header: Option<String>,
}

impl EarlyData {
    /// The header of most clients.
    pub const HEADER: &str = "Sec-WebSocket-Protocol";
    /// More is never sent early.
    pub const MAX: u16 = 2560;
}

impl Transport {
    /// Name in links.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Ws { .. } => "ws",
            Self::Grpc { .. } => "grpc",
            Self::HttpUpgrade { .. } => "httpupgrade",
            Self::H2 { .. } => "h2",
        }
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A path as it is requested, and the early data that clients write into it as `ed=2048`.
pub(crate) fn path(text: &str) -> (String, Option<u16>) {
    let text = match text.starts_with('/') {
        true => text.to_owned(),
        false => format!("/{text}"),
    };
    let Some((path, query)) = text.split_once('?') else {
        return (text, None);
    };
    let mut early = None;
    let mut keep = Vec::new();
    for item in query.split('&') {
        match item.strip_prefix("ed=").and_then(|n| n.parse::<u32>().ok()) {
            Some(bytes) => early = Some(u16::try_from(bytes).unwrap_or(u16::MAX)),
            None => keep.push(item),
        }
    }
    match (early, keep.is_empty()) {
        (None, _) => (text, None),
        (early, true) => (path.to_owned(), early),
        (early, false) => (format!("{path}?{}", keep.join("&")), early),
    }
}

/// A further header, if it may be set: not what the transport itself decides.
pub(crate) fn header(name: &str, value: &str) -> Option<Header> {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    let name = name.trim().to_ascii_lowercase();
    let legal = !name.is_empty() && name.len() <= 64 && name.bytes().all(token);
    let ours = name.starts_with("sec-websocket-")
        || matches!(
            name.as_str(),
            "host" | "connection" | "upgrade" | "content-length" | "transfer-encoding"
        );
    let value = value.trim();
    let printable = value.len() <= 1024 && !value.chars().any(char::is_control);
    (legal && !ours && printable).then(|| (name, value.to_owned()))
}
