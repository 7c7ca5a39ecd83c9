//! TCP listeners. Who may do what is the business of the [`guard`](super::guard).

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::OwnedFd,
    time::Duration,
};

use axum::Router;
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
};

use super::{
    accept::{self, Door},
    guard::Peer,
    stall::STALLED,
};

/// Silence after which a client is asked whether it still lives, pause between the questions, and
/// how many may stay without an answer.
const IDLE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_secs(10);
const PROBES: u32 = 3;

/// A listening TCP socket.
#[derive(Debug)]
pub(crate) struct ApiListener {
    listener: TcpListener,
    address: SocketAddr,
}

impl ApiListener {
    /// Over a socket that listens without blocking. Must be called inside a tokio runtime.
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Self> {
        let listener = TcpListener::from_std(socket.into())?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` turns true; then open requests may finish within a second.
    pub(crate) async fn serve(self, router: Router, stop: watch::Receiver<bool>) {
        accept::serve(&self, router, stop).await;
    }
}

/// Finds out that a client vanished, also while nothing is sent to it.
fn watch(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new().with_time(IDLE);
    let keepalive = keepalive.with_interval(PAUSE).with_retries(PROBES);
    // Without it a client that vanished keeps its place for longer.
    let _ = socket.set_tcp_keepalive(&keepalive);
    let _ = socket.set_tcp_user_timeout(Some(STALLED));
}

impl Door for ApiListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<Option<(TcpStream, Option<Peer>)>> {
        let (stream, from) = self.listener.accept().await?;
        // Answers are small; a socket that refuses to be quick still works.
        let _ = stream.set_nodelay(true);
        watch(&stream);
        let address: IpAddr = from.ip().to_canonical();
        Ok(Some((stream, Some(Peer(address)))))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// What a listener answers to bytes, until it closes.
    async fn say(address: SocketAddr, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // A listener that has heard enough may close before the end.
        let _ = stream.write_all(bytes).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    }

    #[tokio::test]
    async fn clients_that_vanish_are_noticed() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let listener = ApiListener::new(socket.into()).unwrap();
        let _client = TcpStream::connect(listener.address()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap().unwrap();
        let socket = SockRef::from(&accepted);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), IDLE);
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(STALLED));
    }

    #[tokio::test]
    async fn requests_bring_their_address_and_heads_are_limited() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let listener = ApiListener::new(socket.into()).unwrap();
        let address = listener.address();
        let from = |request: axum::extract::Request| async move {
            let peer: Option<&Peer> = request.extensions().get();
            peer.map_or_else(String::new, |peer| peer.0.to_string())
        };
        let router = Router::new().route("/", axum::routing::get(from));
        let (stop, stopped) = watch::channel(false);
        let server = tokio::spawn(listener.serve(router, stopped));
        let get = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n";
        let answer = say(address, format!("{get}\r\n").as_bytes()).await;
        assert!(answer.ends_with("127.0.0.1"), "{answer}");
        let large = "a".repeat(20 * 1024);
        let answer = say(address, format!("{get}X: {large}\r\n\r\n").as_bytes()).await;
        assert!(!answer.contains("200 OK"), "{answer}");
        stop.send_replace(true);
        server.await.unwrap();
    }
}
