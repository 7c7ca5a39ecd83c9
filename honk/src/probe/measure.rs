//! One measurement of one node: a request over HTTP, or a DNS query over UDP.
//!
//! A measurement dials the node itself and touches neither selections nor flows. One deadline
//! covers everything; giving up is dropping the future, which closes its sockets.

use std::{
    fmt,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use honk_policy::{
    config::{CheckDns, CheckUrl},
    id::Family,
    node::Node,
};
use honk_wire::{
    Target, dns, http,
    socks5::udp::{self, Header},
};
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::timeout,
};
use tokio_rustls::TlsConnector;

use crate::outbound::{
    Dialer, associate,
    error::{Class, DialError, Stage as DialStage},
    open::{self, OpenError},
    stream, tls,
};

/// Pause before an unanswered query is sent again: datagrams may be lost.
const RESEND: Duration = Duration::from_millis(1500);
/// Name of the query when the server is given by address.
const NAME: &str = "www.gstatic.com";

/// What a measurement asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) url: Arc<CheckUrl>,
    pub(crate) method: Arc<str>,
    pub(crate) timeout: Duration,
    /// Of the way to the node; `None`: whichever its server has.
    pub(crate) family: Option<Family>,
    /// Answers that count.
    pub(crate) expected: Statuses,
}

/// Ranges of status codes, ends included; without any, every status is an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Statuses(Arc<[(u16, u16)]>);

impl Statuses {
    /// Reads `200/204/400-500`; `None` when that is not what it is.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let code = |text: &str| {
            let code = text.trim().parse::<u16>().ok();
            code.filter(|code| (100..=599).contains(code))
        };
        let range = |part: &str| {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            let range = (code(from)?, code(to)?);
            (range.0 <= range.1).then_some(range)
        };
        let ranges: Option<Vec<_>> = text.split('/').map(range).collect();
        ranges.map(|ranges| Self(ranges.into()))
    }

    fn take(&self, status: u16) -> bool {
        let mut ranges = self.0.iter();
        self.0.is_empty() || ranges.any(|(from, to)| (*from..=*to).contains(&status))
    }
}

/// How far a measurement came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Resolve,
    Dial,
    Handshake,
    Tls,
    Request,
    Timeout,
}

impl Stage {
    /// Name in the API.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Resolve => "resolve",
            Self::Dial => "dial",
            Self::Handshake => "handshake",
            Self::Tls => "tls",
            Self::Request => "request",
            Self::Timeout => "timeout",
        }
    }
}

/// Why there is no latency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) stage: Stage,
    pub(crate) reason: String,
    /// Whose fault it is.
    pub(crate) fault: Fault,
}

/// Whether a failure says something about the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It does.
    Node,
    /// This machine is out of something.
    Local,
    /// The server has no address in the family asked for.
    NoFamily,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.stage.name(), self.reason)
    }
}

impl Failure {
    fn new(stage: Stage, reason: impl fmt::Display) -> Self {
        Self {
            stage,
            reason: reason.to_string(),
            fault: Fault::Node,
        }
    }
}

impl From<DialError> for Failure {
    fn from(error: DialError) -> Self {
        let stage = match error.class {
            Class::Carrier(DialStage::Resolve) | Class::Timeout(DialStage::Resolve) => {
                Stage::Resolve
            }
            Class::Carrier(DialStage::Connect)
            | Class::Timeout(DialStage::Connect)
            | Class::LocalResource
            | Class::ConfigUnsupported => Stage::Dial,
            _ => Stage::Handshake,
        };
        let fault = match error.class {
            Class::LocalResource => Fault::Local,
            _ => Fault::Node,
        };
        Self {
            stage,
            reason: error.detail.into_owned(),
            fault,
        }
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Dial(error) => error.into(),
            OpenError::NoFamily => Self {
                fault: Fault::NoFamily,
                ..Self::new(Stage::Resolve, "the server has no address in the family")
            },
        }
    }
}

/// Time from the start of the dial to the end of the head of the answer. Whatever the status
/// is, the node has brought an answer, unless the request expects others.
pub(crate) async fn url_test(
    dialer: &Arc<Dialer>,
    node: &Arc<Node>,
    family: Option<Family>,
    request: &Request,
) -> Result<Duration, Failure> {
    let mut stage = Stage::Dial;
    let attempt = exchange(dialer, node, family, request, &mut stage);
    match timeout(request.timeout, attempt).await {
        Ok(result) => result,
        Err(_) => Err(Failure::new(
            Stage::Timeout,
            format!(
                "no answer within {} ms ({})",
                request.timeout.as_millis(),
                stage.name()
            ),
        )),
    }
}

async fn exchange(
    dialer: &Arc<Dialer>,
    node: &Arc<Node>,
    family: Option<Family>,
    request: &Request,
    stage: &mut Stage,
) -> Result<Duration, Failure> {
    let url = &request.url;
    let started = Instant::now();
    let literal = url.host.parse().ok();
    let target = match url.addresses.first().copied().or(literal) {
        Some(ip) => Target::Ip(SocketAddr::new(ip, url.port)),
        None => Target::Name(&url.host, url.port),
    };
    let plain = open::open(dialer, node, target, family).await?;
    let mut head = Vec::new();
    let written = http::request(&request.method, &url.authority, &url.path, &mut head);
    written.map_err(|e| Failure::new(Stage::Request, e))?;
    if !url.tls {
        *stage = Stage::Request;
        let status = talk(plain, &head).await?;
        return judged(request, status, started);
    }
    *stage = Stage::Tls;
    let name = ServerName::try_from(url.host.clone());
    let name = name.map_err(|_| Failure::new(Stage::Tls, "the host is no name for TLS"))?;
    let connector = TlsConnector::from(tls::web());
    let secured = connector.connect(name, plain).await;
    let secured = secured.map_err(|e| Failure::new(Stage::Tls, e))?;
    *stage = Stage::Request;
    let status = talk(secured, &head).await?;
    judged(request, status, started)
}

fn judged(request: &Request, status: u16, started: Instant) -> Result<Duration, Failure> {
    let took = started.elapsed();
    match request.expected.take(status) {
        true => Ok(took),
        false => {
            let text = format!("the answer has the status {status}");
            Err(Failure::new(Stage::Request, text))
        }
    }
}

/// Sends a request and waits for the head of the answer, for its status.
async fn talk(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    head: &[u8],
) -> Result<u16, Failure> {
    let failed = |e: &dyn fmt::Display| Failure::new(Stage::Request, e);
    stream.write_all(head).await.map_err(|e| failed(&e))?;
    stream.flush().await.map_err(|e| failed(&e))?;
    let mut answer = http::Answer::default();
    let mut buffer = [0; 2048];
    loop {
        let n = stream.read(&mut buffer).await.map_err(|e| failed(&e))?;
        if n == 0 {
            return Err(failed(&"the connection ended before an answer"));
        }
        match answer.read(&buffer[..n]).map_err(|e| failed(&e))? {
            http::Step::More => {}
            http::Step::Done { status, .. } => return Ok(status),
        }
    }
}

/// Time a DNS query takes through a node over UDP. Any answer to the question is one.
pub(crate) async fn dns_test(
    dialer: &Arc<Dialer>,
    node: &Arc<Node>,
    family: Option<Family>,
    server: &CheckDns,
    limit: Duration,
) -> Result<Duration, Failure> {
    let attempt = query(dialer, node, family, server);
    match timeout(limit, attempt).await {
        Ok(result) => result,
        Err(_) => {
            let text = format!("no answer within {} ms", limit.as_millis());
            Err(Failure::new(Stage::Timeout, text))
        }
    }
}

async fn query(
    dialer: &Arc<Dialer>,
    node: &Arc<Node>,
    family: Option<Family>,
    server: &CheckDns,
) -> Result<Duration, Failure> {
    let named = server.host.parse::<std::net::IpAddr>().is_err();
    let target = match server.known().first() {
        Some(addr) => *addr,
        None => {
            let ips = dialer.addresses_of(&server.host).await?;
            let ip = ips.first().copied();
            let ip = ip.ok_or_else(|| Failure::new(Stage::Resolve, "no address"))?;
            SocketAddr::new(ip, server.port)
        }
    };
    let state = dialer.server(node);
    let opened = associate::check(dialer, &state, family).await?;
    let socket = stream::udp(opened.relay, dialer.mark(0));
    let socket = socket.map_err(|e| Failure::from(DialError::direct(&e)))?;
    let connected = socket.connect(opened.relay).await;
    connected.map_err(|e| Failure::from(DialError::direct(&e)))?;
    let name = if named { server.host.as_str() } else { NAME };
    let mut question = Vec::new();
    // The relay is ours alone and the answer must repeat the question: no secret is needed.
    let written = dns::query(0x686b, name, dns::Kind::A, &mut question);
    written.map_err(|e| Failure::new(Stage::Request, e))?;
    let mut packet = Header::new(target).as_bytes().to_vec();
    packet.extend_from_slice(&question);
    let failed = |e: &dyn fmt::Display| Failure::new(Stage::Request, e);
    let mut buffer = [0; 2048];
    loop {
        let sent = Instant::now();
        socket.send(&packet).await.map_err(|e| failed(&e))?;
        while let Some(left) = RESEND.checked_sub(sent.elapsed()) {
            let Ok(received) = timeout(left, socket.recv(&mut buffer)).await else {
                break;
            };
            let n = received.map_err(|e| failed(&e))?;
            let Ok((_, payload)) = udp::parse(&buffer[..n]) else {
                continue;
            };
            match dns::answer(&question, payload) {
                Err(dns::Error::Foreign | dns::Error::Malformed | dns::Error::Name) => {}
                Ok(_) | Err(_) => return Ok(sent.elapsed()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expected_statuses_are_codes_and_ranges() {
        let expected = Statuses::parse("200/204/400-500").unwrap();
        for (status, taken) in [
            (200, true),
            (204, true),
            (203, false),
            (399, false),
            (450, true),
        ] {
            assert_eq!(expected.take(status), taken, "{status}");
        }
        assert!(expected.take(400) && expected.take(500) && !expected.take(501));
        assert!(Statuses::default().take(599));
        for bad in ["", "20", "200/", "500-400", "200-", "x", "600", "200,204"] {
            assert_eq!(Statuses::parse(bad), None, "{bad}");
        }
    }
}
