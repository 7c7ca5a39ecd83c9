//! Streams of JSON documents: messages of a WebSocket, or lines of one answer.

use std::{
    convert::Infallible,
    net::IpAddr,
    pin::Pin,
    time::{Duration, Instant},
};

use axum::{
    body::{Body, Bytes},
    extract::{
        FromRequestParts,
        ws::{Message, Utf8Bytes, WebSocket, WebSocketUpgrade},
    },
    http::{HeaderMap, HeaderValue, Method, header, request::Parts},
    response::{IntoResponse as _, Response},
};
use futures_util::{Stream, StreamExt as _, stream};
use serde_json::Value;
use tokio::time::{MissedTickBehavior, interval};

use super::{
    Shared,
    error::ApiError,
    events::{self, Place},
    guard::Peer,
    stall::STALLED,
};

/// Pause between questions whether a client still lives.
const PING: Duration = Duration::from_secs(30);
/// Silence after which it does not.
const SILENT: Duration = Duration::from_secs(95);
/// Largest message of a client: nothing is expected but answers to pings.
const MESSAGE: usize = 4096;

/// Documents in the order they are sent.
pub(super) type Documents = Pin<Box<dyn Stream<Item = Utf8Bytes> + Send>>;

/// How a client asked for a stream.
#[derive(Debug)]
pub(super) struct Wire {
    upgrade: Option<WebSocketUpgrade>,
    address: Option<IpAddr>,
}

/// Whether a request is the beginning of a WebSocket.
pub(super) fn is_upgrade(method: &Method, headers: &HeaderMap) -> bool {
    let asked = headers.get(header::UPGRADE);
    method == Method::GET && asked.is_some_and(|v| v.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

impl FromRequestParts<Shared> for Wire {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, shared: &Shared) -> Result<Self, Response> {
        let upgrade = match is_upgrade(&parts.method, &parts.headers) {
            false => None,
            true => {
                let upgrade = WebSocketUpgrade::from_request_parts(parts, shared).await;
                let upgrade = upgrade.map_err(|rejection| rejection.into_response())?;
                Some(upgrade.max_message_size(MESSAGE).max_frame_size(MESSAGE))
            }
        };
        let address = parts.extensions.get().map(|Peer(address)| *address);
        Ok(Self { upgrade, address })
    }
}

impl Wire {
    pub(super) fn is_socket(&self) -> bool {
        self.upgrade.is_some()
    }

    /// A place for the stream; 429 when all are taken.
    pub(super) fn place(&self, shared: &Shared) -> Result<Place, ApiError> {
        let place = shared.streams.take(self.address);
        place.ok_or_else(events::too_many)
    }

    /// Sends the documents for as long as the client listens.
    pub(super) fn carry(self, place: Place, documents: Documents) -> Response {
        if let Some(upgrade) = self.upgrade {
            return upgrade.on_upgrade(|socket| speak(socket, documents, place));
        }
        let lines = documents.map(move |document| {
            // Held until the stream is dropped.
            let _ = &place;
            Ok::<_, Infallible>(Bytes::from(format!("{document}\n")))
        });
        let mut response = Body::from_stream(lines).into_response();
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        response
    }
}

/// Ends with the stream, with the client, or when the client neither reads nor answers.
async fn speak(mut socket: WebSocket, mut documents: Documents, _place: Place) {
    let mut ping = interval(PING);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut heard = Instant::now();
    loop {
        let message = tokio::select! {
            document = documents.next() => match document {
                Some(document) => Message::Text(document),
                None => break,
            },
            said = socket.recv() => match said {
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => {
                    heard = Instant::now();
                    continue;
                }
            },
            _ = ping.tick() => {
                if heard.elapsed() > SILENT {
                    return;
                }
                Message::Ping(Bytes::new())
            }
        };
        let sent = tokio::time::timeout(STALLED, socket.send(message)).await;
        if !matches!(sent, Ok(Ok(()))) {
            return;
        }
    }
    // The client may be gone already.
    let _ = tokio::time::timeout(STALLED, socket.send(Message::Close(None))).await;
}

/// One document at once, then one at every tick.
pub(super) fn every(pause: Duration, make: impl FnMut() -> Value + Send + 'static) -> Documents {
    let mut ticks = interval(pause);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let documents = stream::unfold((ticks, make), |(mut ticks, mut make)| async move {
        ticks.tick().await;
        let document = Utf8Bytes::from(make().to_string());
        Some((document, (ticks, make)))
    });
    Box::pin(documents)
}

#[cfg(test)]
pub(super) mod tests {
    use std::net::SocketAddr;

    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpStream,
        sync::watch,
        task::JoinHandle,
    };

    use super::*;
    use crate::{
        api::{Api, mask::Mask, tcp::ApiListener},
        app::testkit::{CONFIG, World},
        testkit::soon,
    };

    pub(in super::super) const LONG: Duration = Duration::from_secs(30);

    /// Listens on loopback, without anybody at the door, until dropped.
    pub(in super::super) struct Served {
        pub(in super::super) address: SocketAddr,
        task: JoinHandle<()>,
        _stop: watch::Sender<bool>,
    }

    impl Served {
        pub(in super::super) fn new(router: axum::Router) -> Self {
            let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            socket.set_nonblocking(true).unwrap();
            let listener = ApiListener::new(socket.into()).unwrap();
            let address = listener.address();
            let (stop, stopped) = watch::channel(false);
            let task = tokio::spawn(listener.serve(router, stopped));
            Self {
                address,
                task,
                _stop: stop,
            }
        }

        pub(in super::super) fn world(world: &World) -> Self {
            let api = Api::new(world.engine.clone(), Mask::default(), Vec::new());
            Self::new(api.socket())
        }

        /// Asks for a WebSocket: the head of the answer, and what follows it.
        pub(in super::super) async fn socket(&self, path: &str, more: &str) -> (String, TcpStream) {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            let head = format!(
                "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                 Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\
                 {more}\r\n",
                self.address
            );
            stream.write_all(head.as_bytes()).await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let byte = tokio::time::timeout(LONG, stream.read_u8()).await.unwrap();
                head.push(byte.unwrap());
            }
            (String::from_utf8(head).unwrap(), stream)
        }
    }

    impl Drop for Served {
        fn drop(&mut self) {
            self.task.abort();
        }
    }

    /// The next text message of a server.
    pub(in super::super) async fn message(stream: &mut TcpStream) -> Value {
        let read = async {
            loop {
                let kind = stream.read_u8().await.unwrap();
                let length = match stream.read_u8().await.unwrap() {
                    126 => usize::from(stream.read_u16().await.unwrap()),
                    127 => usize::try_from(stream.read_u64().await.unwrap()).unwrap(),
                    short => usize::from(short),
                };
                let mut text = vec![0; length];
                stream.read_exact(&mut text).await.unwrap();
                if kind & 15 == 1 {
                    return serde_json::from_slice(&text).unwrap();
                }
            }
        };
        tokio::time::timeout(LONG, read).await.unwrap()
    }

    #[tokio::test]
    async fn streams_are_messages_or_lines_and_give_their_place_back() {
        let world = World::new(CONFIG);
        let api = Api::new(world.engine.clone(), Mask::default(), Vec::new());
        let served = Served::new(api.socket());
        let (head, mut stream) = served.socket("/memory", "").await;
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        for _ in 0..2 {
            assert!(message(&mut stream).await["inuse"].as_u64().unwrap() > 0);
        }
        assert_eq!(api.0.streams.open(), 1);
        // A close frame, masked as those of clients are.
        stream.write_all(&[0x88, 0x80, 1, 2, 3, 4]).await.unwrap();
        let mut rest = Vec::new();
        let closed = stream.read_to_end(&mut rest);
        let _ = tokio::time::timeout(LONG, closed).await.unwrap();

        let mut stream = TcpStream::connect(served.address).await.unwrap();
        let ask = b"GET /memory HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
        stream.write_all(ask).await.unwrap();
        let mut text = Vec::new();
        while !text.windows(6).any(|w| w == b"inuse\"") {
            let byte = tokio::time::timeout(LONG, stream.read_u8()).await.unwrap();
            text.push(byte.unwrap());
        }
        // That of the first one is back, this one's is taken.
        soon("a place is free", async || api.0.streams.open() == 1).await;
        drop(stream);
        soon("a place is free", async || api.0.streams.open() == 0).await;
    }

    #[tokio::test]
    async fn a_message_too_large_ends_the_stream() {
        let world = World::new(CONFIG);
        let served = Served::world(&world);
        let (head, mut stream) = served.socket("/logs?level=silent", "").await;
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        let mut frame = vec![0x81, 0xfe, 0xff, 0xff, 0, 0, 0, 0];
        frame.resize(8 + 0xffff, b'x');
        // The server may hang up before it has read all of it.
        let _ = stream.write_all(&frame).await;
        let mut rest = Vec::new();
        let closed = stream.read_to_end(&mut rest);
        let _ = tokio::time::timeout(LONG, closed).await.unwrap();
    }
}
