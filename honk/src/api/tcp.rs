//! TCP listeners. Who may do what is the business of the [`guard`](super::guard).

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::OwnedFd,
};

use axum::Router;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
};

use super::{
    accept::{self, Door},
    guard::Peer,
};

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

impl Door for ApiListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<Option<(TcpStream, Option<Peer>)>> {
        let (stream, from) = self.listener.accept().await?;
        // Answers are small; a socket that refuses to be quick still works.
        let _ = stream.set_nodelay(true);
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
