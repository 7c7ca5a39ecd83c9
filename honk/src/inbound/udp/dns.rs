//! The datagrams of DNS: looked at on their way, and replies of honk's own.

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use honk_wire::dns::Explanation;
use tokio::sync::mpsc;

use super::{
    service::Service,
    table::{FlowId, UdpFlow},
    tunnel::Tunnel,
    upstream,
};
use crate::dns::{self, Ask, OwnReply, Reply};

/// How often queries that wait too long are looked for, and how often while none waits: far
/// less than the time a query has.
const TICK: Duration = Duration::from_millis(100);
const REST: Duration = Duration::from_secs(1);

impl Service {
    /// Looks at a datagram of a client; false when it goes no further.
    pub(super) fn ask(&self, flow: &UdpFlow, payload: &[u8], now: Instant) -> bool {
        if !dns::concerns(&flow.entry) {
            return true;
        }
        match self.dns.ask(flow.key.client, flow.key.target, payload, now) {
            Ask::Forward => true,
            Ask::Opaque => {
                flow.opaque.store(true, Relaxed);
                true
            }
            Ask::Refused => false,
        }
    }

    /// Tells a client whose flow was refused.
    pub(super) fn turn_down(&self, id: &FlowId, payload: &[u8], why: Explanation) {
        if id.target.port() == dns::PORT {
            self.dns.turned_down(id.client, id.target, payload, why);
        }
    }

    /// Looks at a datagram of a server before the client sees it.
    pub(super) fn answered(&self, tunnel: &Tunnel, source: SocketAddr, payload: &[u8]) -> Reply {
        if source.port() != dns::PORT {
            return Reply::Pass;
        }
        let flow = tunnel.flow_to(source);
        let Some(flow) = flow.filter(|flow| dns::concerns(&flow.entry)) else {
            return Reply::Pass;
        };
        let opaque = flow.opaque.load(Relaxed);
        let FlowId { client, target } = flow.key;
        self.dns.reply(client, target, payload, opaque)
    }
}

/// Sends replies of honk's own for ever.
pub(super) async fn answer(service: Arc<Service>, mut own: mpsc::Receiver<OwnReply>) {
    loop {
        let tick = if service.dns.waits() { TICK } else { REST };
        tokio::select! {
            Some(reply) = own.recv() => {
                upstream::deliver_own(&service, reply.client, reply.server, &reply.bytes).await;
            }
            () = tokio::time::sleep(tick) => service.dns.expire(Instant::now()),
        }
    }
}
