//! The accept loop of every listener: places, deadlines, an end.

use std::{io, time::Duration};

use axum::Router;
use hyper::service::Service as _;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
    task::JoinSet,
};

use super::{
    guard::Peer,
    seats::{Seat, Seats},
    stall::Impatient,
};

/// Connections of one listener.
pub(super) const MAX_CONNECTIONS: usize = 64;
/// Time for a request head to arrive; also ends idle connections.
const HEADER_READ: Duration = Duration::from_secs(10);
/// Largest request head.
const HEADER_BYTES: usize = 16 * 1024;
/// Pause after a failed accept, so that a full descriptor table does not spin a CPU.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Something that clients connect to.
pub(super) trait Door: Send {
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The next client with its address, if it has one; `None` for a client that was refused.
    fn accept(
        &self,
    ) -> impl Future<Output = io::Result<Option<(Self::Stream, Option<Peer>)>>> + Send;
}

/// Serves until `stop` turns true; then open requests may finish within a second.
pub(super) async fn serve(door: &impl Door, router: Router, mut stop: watch::Receiver<bool>) {
    let seats = Seats::new(MAX_CONNECTIONS);
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            _ = stop.wait_for(|s| *s) => break,
            Some(_) = connections.join_next() => continue,
            accepted = door.accept() => accepted,
        };
        match accepted {
            Ok(Some((stream, peer))) => {
                let seat = tokio::select! {
                    _ = stop.wait_for(|s| *s) => break,
                    seat = seats.take() => seat,
                };
                let Some(seat) = seat else { break };
                let (router, stop) = (router.clone(), stop.clone());
                connections.spawn(connection(stream, peer, router, seat, stop));
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(target: "honk::api", %error, "accept failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    let _ = tokio::time::timeout(Duration::from_secs(1), async {
        while connections.join_next().await.is_some() {}
    })
    .await;
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Option<Peer>,
    router: Router,
    seat: Seat,
    mut stop: watch::Receiver<bool>,
) {
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_READ)
        .max_buf_size(HEADER_BYTES);
    let router = TowerToHyperService::new(router);
    let place = &seat;
    let service = hyper::service::service_fn(|mut request: hyper::Request<_>| {
        place.busy();
        if let Some(peer) = peer {
            request.extensions_mut().insert(peer);
        }
        let answer = router.call(request);
        async move {
            let answer = answer.await;
            place.idle();
            answer
        }
    });
    // An upgraded connection is its own task and gives the seat back; streams have a cap of
    // their own.
    let stream = TokioIo::new(Impatient::new(stream));
    let serving = builder.serve_connection(stream, service);
    let serving = serving.with_upgrades();
    let mut serving = std::pin::pin!(serving);
    tokio::select! {
        // A client that breaks off is its own affair.
        _ = serving.as_mut() => return,
        () = seat.must_leave() => return,
        _ = stop.wait_for(|s| *s) => {}
    }
    serving.as_mut().graceful_shutdown();
    let _ = serving.await;
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;
    use crate::{
        api::{Api, mask::Mask},
        app::testkit::{CONFIG, World},
    };

    // Nothing but the timers moves the clock.
    #[tokio::test(start_paused = true)]
    async fn who_does_not_read_loses_place_and_seat() {
        let world = World::new(CONFIG);
        let api = Api::new(world.engine.clone(), Mask::default(), Vec::new());
        // One line a second, or events of any kind.
        for path in ["/memory", "/api/v1/events"] {
            let (mut client, server) = tokio::io::duplex(1024);
            let seat = Seats::new(1).take().await.unwrap();
            let (_stop, stopped) = watch::channel(false);
            let served = connection(server, None, api.socket(), seat, stopped);
            let served = tokio::spawn(served);
            let ask = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
            client.write_all(ask.as_bytes()).await.unwrap();
            let ended = tokio::time::timeout(Duration::from_secs(3600), served).await;
            ended.expect("the connection ends").unwrap();
            assert_eq!(api.0.streams.open(), 0, "{path}");
        }
    }
}
