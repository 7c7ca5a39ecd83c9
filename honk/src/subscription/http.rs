//! One fetch: resolve, connect, ask, follow redirects, unpack. Every step has a limit.
//!
//! The address that was checked is the address that is connected to, on every hop, so a name
//! that changes its answer in between gains nothing. Nothing is kept: no cookies, no
//! connections.

use std::{
    pin::Pin,
    sync::atomic::{AtomicU8, AtomicUsize, Ordering},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http_body_util::{BodyExt as _, Empty};
use hyper::{
    Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{self, HeaderMap, HeaderValue},
};
use hyper_util::rt::TokioIo;
use tokio::time::timeout;

use super::{
    body::Collector,
    error::FetchError,
    net::{self, Net},
    target::{BadTarget, Target},
};

/// Redirects that are followed.
pub(crate) const REDIRECTS: usize = 3;
/// Largest head of an answer.
const HEAD: usize = 64 << 10;
/// What is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) target: Target,
    pub(crate) user_agent: String,
    pub(crate) allow_private: bool,
    /// Of the copy at hand.
    pub(crate) validators: Validators,
}

/// What lets a server answer that nothing changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Validators {
    pub(crate) etag: Option<String>,
    pub(crate) modified: Option<String>,
}

/// What came back.
#[derive(Debug)]
pub(crate) enum Answer {
    /// A body and what the headers say: names in lower case.
    Body {
        bytes: Vec<u8>,
        validators: Validators,
        headers: Vec<(&'static str, String)>,
    },
    /// The copy at hand is current; headers may still tell about the account.
    Unchanged {
        headers: Vec<(&'static str, String)>,
    },
}

/// Headers that tell about the account.
const TELLING: [&str; 4] = [
    "subscription-userinfo",
    "profile-update-interval",
    "profile-title",
    "content-disposition",
];

/// How far a fetch is; read by others while it runs.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    phase: AtomicU8,
    received: AtomicUsize,
}

/// Steps in order.
pub(crate) const PHASES: [&str; 5] = ["resolve", "connect", "request", "receive", "read"];

impl Progress {
    fn enter(&self, phase: u8) {
        self.phase.store(phase, Ordering::Relaxed);
    }

    /// The answer is complete and its content is looked at.
    pub(crate) fn reading(&self) {
        self.enter(4);
    }

    /// Name of the step and bytes received so far.
    pub(crate) fn now(&self) -> (&'static str, usize) {
        let phase = usize::from(self.phase.load(Ordering::Relaxed));
        let name = PHASES.get(phase).copied().unwrap_or_default();
        (name, self.received.load(Ordering::Relaxed))
    }
}

/// Fetches a body.
pub(crate) async fn fetch(net: &Net, ask: &Ask, progress: &Progress) -> Result<Answer, FetchError> {
    let total = net.limits.total;
    match timeout(total, follow(net, ask, progress)).await {
        Ok(answer) => answer,
        Err(_) => Err(FetchError::Slow(total.as_secs())),
    }
}

async fn follow(net: &Net, ask: &Ask, progress: &Progress) -> Result<Answer, FetchError> {
    let mut target = ask.target.clone();
    for _ in 0..=REDIRECTS {
        let host = target.authority();
        let limit = net.limits.first_byte;
        let head = timeout(limit, request(net, ask, &target, progress));
        let silent = |_| FetchError::Silent {
            host: host.clone(),
            seconds: limit.as_secs(),
        };
        let (response, driver) = head.await.map_err(silent)??;
        let status = response.status();
        let broken = |cause| FetchError::Http {
            host: host.clone(),
            cause,
        };
        if status == StatusCode::NOT_MODIFIED && ask.validators != Validators::default() {
            let headers = telling(response.headers());
            return Ok(Answer::Unchanged { headers });
        }
        if is_redirect(status) {
            target = redirected(&target, &response)?;
            continue;
        }
        if !status.is_success() {
            let status = status.as_u16();
            return Err(FetchError::Status { host, status });
        }
        progress.enter(3);
        return receive(response, driver, progress)
            .await
            .map_err(|e| match e {
                Broken::Http(cause) => broken(cause),
                Broken::Body(e) => e,
            });
    }
    Err(FetchError::Redirects(REDIRECTS))
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

fn redirected(from: &Target, response: &Response<Incoming>) -> Result<Target, FetchError> {
    let refuse = |why| FetchError::Redirect {
        host: from.authority(),
        why,
    };
    let location = response.headers().get(header::LOCATION);
    let location = location.ok_or_else(|| refuse("nowhere"))?;
    let text = std::str::from_utf8(location.as_bytes()).map_err(|_| refuse("a broken address"))?;
    let next = from
        .follow(text)
        .map_err(|_| refuse("what is no web address"))?;
    if from.https && !next.https {
        return Err(refuse(
            "plain http, which would show the URL to everyone on the way",
        ));
    }
    Ok(next)
}

type Driver = Pin<Box<dyn Future<Output = Result<(), hyper::Error>> + Send>>;

/// Sends the request to a checked address and waits for the head of the answer.
async fn request(
    net: &Net,
    ask: &Ask,
    target: &Target,
    progress: &Progress,
) -> Result<(Response<Incoming>, Driver), FetchError> {
    let host = target.authority();
    progress.enter(0);
    let addresses = net::addresses(net, ask.allow_private, target).await?;
    progress.enter(1);
    let stream = net::connect(net, target, &addresses).await?;
    progress.enter(2);
    let broken = |cause| FetchError::Http {
        host: host.clone(),
        cause,
    };
    let mut http = hyper::client::conn::http1::Builder::new();
    http.max_buf_size(HEAD);
    let (mut sender, connection) = http.handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let mut driver: Driver = Box::pin(connection);
    let answer = sender.send_request(message(ask, target)?);
    let mut answer = std::pin::pin!(answer);
    let response = tokio::select! {
        biased;
        answer = answer.as_mut() => answer,
        // The connection must be driven while the answer is awaited.
        ended = driver.as_mut() => {
            ended.map_err(broken)?;
            driver = Box::pin(std::future::pending());
            answer.await
        }
    };
    Ok((response.map_err(broken)?, driver))
}

fn message(ask: &Ask, target: &Target) -> Result<Request<Empty<Bytes>>, FetchError> {
    let mut request = Request::new(Empty::new());
    // A parsed target has nothing that a path may not have.
    *request.uri_mut() = target.path.parse().map_err(|_| BadTarget::Host)?;
    let headers = request.headers_mut();
    let value = |text: &str| HeaderValue::from_str(text).map_err(|_| BadTarget::Host);
    headers.insert(header::HOST, value(&target.authority())?);
    let agent = HeaderValue::from_str(&ask.user_agent).map_err(|_| FetchError::UserAgent)?;
    headers.insert(header::USER_AGENT, agent);
    headers.insert(header::ACCEPT, HeaderValue::from_static("*/*"));
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    if let Some(login) = &target.login {
        let login = format!("Basic {}", BASE64_STANDARD.encode(login));
        let mut login = value(&login)?;
        login.set_sensitive(true);
        headers.insert(header::AUTHORIZATION, login);
    }
    for (name, text) in [
        (header::IF_NONE_MATCH, &ask.validators.etag),
        (header::IF_MODIFIED_SINCE, &ask.validators.modified),
    ] {
        if let Some(Ok(value)) = text.as_deref().map(HeaderValue::from_str) {
            headers.insert(name, value);
        }
    }
    Ok(request)
}

enum Broken {
    Http(hyper::Error),
    Body(FetchError),
}

async fn receive(
    response: Response<Incoming>,
    mut driver: Driver,
    progress: &Progress,
) -> Result<Answer, Broken> {
    let (head, mut body) = response.into_parts();
    let text = |name: header::HeaderName| {
        let value = head.headers.get(name)?.to_str().ok()?;
        (value.len() <= 1024).then(|| value.to_owned())
    };
    let encoding = text(header::CONTENT_ENCODING).unwrap_or_default();
    let mut collector = Collector::new(&encoding).map_err(Broken::Body)?;
    let mut ended = false;
    loop {
        let frame = tokio::select! {
            biased;
            frame = body.frame() => frame,
            // An error of the connection also reaches the body.
            _ = driver.as_mut(), if !ended => {
                ended = true;
                continue;
            }
        };
        let Some(frame) = frame else { break };
        if let Ok(piece) = frame.map_err(Broken::Http)?.into_data() {
            collector.push(&piece).map_err(Broken::Body)?;
            progress
                .received
                .store(collector.received(), Ordering::Relaxed);
        }
    }
    Ok(Answer::Body {
        bytes: collector.finish().map_err(Broken::Body)?,
        validators: Validators {
            etag: text(header::ETAG),
            modified: text(header::LAST_MODIFIED),
        },
        headers: telling(&head.headers),
    })
}

fn telling(headers: &HeaderMap) -> Vec<(&'static str, String)> {
    let told = TELLING.into_iter().filter_map(|name| {
        let value = headers.get(name)?.as_bytes();
        let short = value.len() <= 4096;
        short.then(|| (name, String::from_utf8_lossy(value).into_owned()))
    });
    told.collect()
}

#[cfg(test)]
#[path = "tests/http.rs"]
mod tests;
