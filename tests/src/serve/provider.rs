//! A provider of subscriptions: answers every request with what the test put there.

use std::io::Result as IoResult;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Runtime;

use super::http::read_head;
use crate::netns::Netns;

/// What the next requests are answered with.
#[derive(Clone, Debug)]
pub struct Reply {
    /// `200 OK`
    pub status: &'static str,
    /// Further header lines, each with its line end.
    pub headers: String,
    /// The body.
    pub body: String,
    /// Announce more than is sent.
    pub cut: bool,
}

impl Reply {
    /// A good answer.
    pub fn body(body: impl Into<String>) -> Self {
        Self {
            status: "200 OK",
            headers: String::new(),
            body: body.into(),
            cut: false,
        }
    }

    /// Another status.
    #[must_use]
    pub fn status(self, status: &'static str) -> Self {
        Self { status, ..self }
    }

    /// One more header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    /// Break off in the middle.
    #[must_use]
    pub fn cut(self) -> Self {
        Self { cut: true, ..self }
    }

    fn bytes(&self, head: &str) -> String {
        let etag = self.headers.lines().find_map(|l| l.strip_prefix("ETag: "));
        if let Some(etag) = etag
            && head
                .to_lowercase()
                .contains(&format!("if-none-match: {etag}\r\n").to_lowercase())
        {
            return format!("HTTP/1.1 304 Not Modified\r\n{}\r\n", self.headers);
        }
        let length = self.body.len() + if self.cut { 100 } else { 0 };
        format!(
            "HTTP/1.1 {}\r\n{}content-length: {length}\r\n\r\n{}",
            self.status, self.headers, self.body
        )
    }
}

#[derive(Debug)]
struct Shared {
    reply: Mutex<Reply>,
    heads: Mutex<Vec<String>>,
}

/// A running provider; ends when dropped.
#[derive(Debug)]
pub struct Provider {
    runtime: Option<Runtime>,
    shared: Arc<Shared>,
    at: SocketAddr,
}

impl Provider {
    /// Listens on an address of a namespace.
    pub fn start(ns: &Netns, at: (IpAddr, u16), reply: Reply) -> Result<Self> {
        let at = SocketAddr::from(at);
        let runtime = ns.runtime()?;
        let shared = Arc::new(Shared {
            reply: Mutex::new(reply),
            heads: Mutex::default(),
        });
        let listener = runtime
            .block_on(runtime.spawn(async move { listen(at) }))?
            .with_context(|| format!("cannot serve on {at} in {}", ns.name()))?;
        runtime.spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self {
            runtime: Some(runtime),
            shared,
            at,
        })
    }

    /// A URL of this provider.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.at)
    }

    /// Answers with something else from now on.
    pub fn set(&self, reply: Reply) {
        *lock(&self.shared.reply) = reply;
    }

    /// Heads of the requests so far.
    pub fn heads(&self) -> Vec<String> {
        lock(&self.shared.heads).clone()
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn listen(at: SocketAddr) -> IoResult<TcpListener> {
    let socket = if at.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    // The same port again right after an earlier provider went.
    socket.set_reuseaddr(true)?;
    socket.bind(at)?;
    socket.listen(64)
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            // A client that goes away is its own business.
            let _ = answer(stream, &shared).await;
        });
    }
}

async fn answer(mut stream: TcpStream, shared: &Shared) -> IoResult<()> {
    let Some(head) = read_head(&mut stream).await? else {
        return Ok(());
    };
    let bytes = lock(&shared.reply).bytes(&head);
    lock(&shared.heads).push(head);
    stream.write_all(bytes.as_bytes()).await?;
    stream.shutdown().await
}
