//! SOCKS5 servers on loopback for tests of this room and of those above.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use honk_policy::{
    id::NodeId,
    node::{Host, Node, Protocol, Server},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, UdpSocket},
    task::JoinSet,
};

/// What a server does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Does {
    Serve,
    /// Accepts, reads, says nothing.
    Silence,
    /// Refuses the target.
    Refuse,
    /// Serves, then sends no HTTP.
    Garbage,
    /// Serves, then ends without an answer.
    HangUp,
}

/// A SOCKS5 server that is its own origin: HTTP over CONNECT, DNS over its relay.
pub(crate) struct Upstream {
    pub(crate) node: Arc<Node>,
    pub(crate) at: SocketAddr,
    does: Arc<Mutex<Does>>,
    /// Connections that are open now.
    pub(crate) open: Arc<AtomicUsize>,
    /// Connections so far.
    pub(crate) accepted: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl Upstream {
    pub(crate) async fn start(name: &str) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let at = listener.local_addr().unwrap();
        let does = Arc::new(Mutex::new(Does::Serve));
        let (open, accepted) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut tasks = JoinSet::new();
        let shared = (Arc::clone(&does), Arc::clone(&open), Arc::clone(&accepted));
        tasks.spawn(async move {
            let mut flows = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (does, open) = (*shared.0.lock().unwrap(), Arc::clone(&shared.1));
                shared.2.fetch_add(1, SeqCst);
                open.fetch_add(1, SeqCst);
                flows.spawn(async move {
                    let _ = serve(stream, does).await;
                    open.fetch_sub(1, SeqCst);
                });
            }
        });
        let server = Server {
            host: Host::Ip(at.ip()),
            port: at.port(),
            auth: None,
        };
        Self {
            node: Arc::new(Node::new(name.to_owned(), Protocol::Socks5(server))),
            at,
            does,
            open,
            accepted,
            _tasks: tasks,
        }
    }

    pub(crate) fn does(&self, does: Does) {
        *self.does.lock().unwrap() = does;
    }

    pub(crate) fn id(&self) -> NodeId {
        self.node.id
    }
}

async fn serve(mut stream: TcpStream, does: Does) -> std::io::Result<()> {
    let mut buffer = [0; 1024];
    if does == Does::Silence {
        while stream.read(&mut buffer).await? > 0 {}
        return Ok(());
    }
    stream.read_exact(&mut buffer[..3]).await?;
    stream.write_all(&[5, 0]).await?;
    stream.read_exact(&mut buffer[..5]).await?;
    let command = buffer[1];
    let rest = match buffer[3] {
        1 => 3 + 2,
        3 => usize::from(buffer[4]) + 2,
        _ => 15 + 2,
    };
    stream.read_exact(&mut buffer[..rest]).await?;
    if does == Does::Refuse {
        return stream.write_all(&[5, 5, 0, 1, 0, 0, 0, 0, 0, 0]).await;
    }
    if command == 3 {
        return relay(stream).await;
    }
    stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
    let mut seen = Vec::new();
    while !seen.ends_with(b"\r\n\r\n") && (does != Does::Garbage || seen.is_empty()) {
        let n = stream.read(&mut buffer).await?;
        if n == 0 {
            return Ok(());
        }
        seen.extend_from_slice(&buffer[..n]);
    }
    if does == Does::HangUp {
        return Ok(());
    }
    let answer: &[u8] = match does {
        Does::Garbage => b"SSH-2.0-nothing\r\n",
        _ => b"HTTP/1.1 503 Not Today\r\n\r\n",
    };
    stream.write_all(answer).await
}

/// Answers any DNS query that comes through the relay: no such name.
async fn relay(mut control: TcpStream) -> std::io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let port = socket.local_addr()?.port().to_be_bytes();
    let reply = [5, 0, 0, 1, 127, 0, 0, 1, port[0], port[1]];
    control.write_all(&reply).await?;
    let (mut packet, mut end) = ([0; 2048], [0; 1]);
    loop {
        tokio::select! {
            got = socket.recv_from(&mut packet) => {
                let (n, from) = got?;
                // Header of an IPv4 target: 10 bytes; then the query.
                packet[12] |= 0x80;
                packet[13] = 3;
                socket.send_to(&packet[..n], from).await?;
            }
            _ = control.read(&mut end) => return Ok(()),
        }
    }
}
