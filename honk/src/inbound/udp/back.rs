//! Flows that turned out direct after userspace had taken their first datagrams: handed back to
//! the kernel, which carries them on as if it had known from the start.
//!
//! The datagrams leave the private namespace in the client's name and are put on the way the
//! client's own took, so forwarding, firewall and address translation see the client. A flow that
//! cannot go back is relayed.

use std::{
    io,
    net::UdpSocket,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use honk_policy::id::Network;

use super::{
    service::Service,
    shares::Place,
    table::{FlowId, Found, UdpFlow, lock},
};
use crate::{
    flow::{ClientAddr, CloseReason, NewFlow, OrigDst, Route},
    inbound::counters::Seat,
    socket::{
        mmsg::{BATCH, Joining, Outgoing, V6, send},
        speak_for,
    },
};

/// Datagrams that wait for the socket they leave by.
const MAX_WAITING: usize = 64;
/// Datagrams that come after those: the client's own pass already, these were on their way.
const MAX_LATE: usize = 64;
/// How long such datagrams are taken, and those sent may take to reach their way.
pub(crate) const LINGER: Duration = Duration::from_secs(1);

/// A flow on its way back.
#[derive(Debug)]
pub(super) struct Back(Mutex<State>);

#[derive(Debug)]
enum State {
    /// The socket is being made.
    Waiting(Vec<Box<[u8]>>),
    Open(Mouth, usize),
    /// Carried here after all, or gone for good.
    Over,
}

/// A socket that speaks in a client's name.
#[derive(Debug)]
struct Mouth {
    socket: UdpSocket,
    /// Longest payload that leaves in one packet: a fragment would not find its way.
    longest: usize,
}

impl Service {
    /// Hands a flow back with the datagrams that came so far, which need no account any more.
    pub(super) fn begin_back(
        self: &Arc<Self>,
        id: FlowId,
        route: Route,
        place: Place,
        datagrams: Vec<Box<[u8]>>,
        now: Instant,
    ) {
        let Some(seat) = self.room_to_wait(&datagrams) else {
            self.counters.hand_backs_full.inc();
            self.carry_after_all(id, route, place, &datagrams, now);
            return;
        };
        let back = Arc::new(Back(Mutex::new(State::Waiting(datagrams))));
        self.table.set_back(id, &back);
        let service = Arc::clone(self);
        self.spawn(async move {
            if service.go_back(id, &back, route, place).await {
                tokio::time::sleep(service.linger).await;
                *lock(&back.0) = State::Over;
                service.table.unset_back(&id, &back);
                service.admission.handed_back(&new_flow(id));
            }
            drop(seat);
        });
    }

    fn room_to_wait(&self, datagrams: &[Box<[u8]>]) -> Option<Seat> {
        let seat = self.backs.take()?;
        self.backlog.take(size(datagrams)).then_some(seat)
    }

    /// Sends what waits in the client's name; false when the flow is relayed instead.
    async fn go_back(
        self: &Arc<Self>,
        id: FlowId,
        back: &Arc<Back>,
        route: Route,
        place: Place,
    ) -> bool {
        let dscp = route.back.map_or(0, |back| back.dscp);
        let maker = self.replies.maker();
        let make = move || -> io::Result<Mouth> {
            let FlowId { client, target } = id;
            let v6 = V6::of(client) == V6::Yes;
            let socket = maker.bind(v6, client.port(), Some(client.ip()))?;
            let longest = speak_for(&socket, target, dscp)?;
            Ok(Mouth { socket, longest })
        };
        let mouth = tokio::task::spawn_blocking(make).await;
        let mouth = mouth.map_err(io::Error::other).and_then(|made| made);
        // Held until all that waits is on its way, so that nothing overtakes it.
        let mut state = lock(&back.0);
        let State::Waiting(datagrams) = std::mem::replace(&mut *state, State::Over) else {
            return false;
        };
        self.backlog.give_back(size(&datagrams));
        let fits = |mouth: &Mouth| datagrams.iter().all(|d| d.len() <= mouth.longest);
        let mouth = mouth
            .inspect_err(|error| tracing::debug!(client = %id.client, %error, "no_hand_back"))
            .ok()
            .filter(fits)
            .filter(|_| self.admission.hand_back(&new_flow(id), route.mark));
        let Some(mouth) = mouth else {
            self.counters.hand_backs_failed.inc();
            self.carry_after_all(id, route, place, &datagrams, Instant::now());
            self.table.unset_back(&id, back);
            return false;
        };
        self.counters.handed_back.inc();
        let bytes = size(&datagrams) as u64;
        let sent = mouth.say(datagrams.iter().map(|d| &**d));
        self.counters
            .drop_hand_back
            .add((datagrams.len() - sent) as u64);
        *state = State::Open(mouth, 0);
        drop(state);
        route.guard.entry.counters.add_up(bytes);
        route.guard.close(CloseReason::HandedBack);
        true
    }

    /// Relays a flow that cannot go back.
    fn carry_after_all(
        self: &Arc<Self>,
        id: FlowId,
        route: Route,
        place: Place,
        datagrams: &[Box<[u8]>],
        now: Instant,
    ) {
        match self.enlist(id, Ok(route), place, now) {
            Ok(flow) => self.send_all(&flow, datagrams, now),
            // The first was counted.
            Err(_) => {
                let rest = datagrams.len().saturating_sub(1);
                self.counters.drop_policy.add(rest as u64);
            }
        }
    }

    /// Another datagram of a flow on its way back. Returns the flow if it is relayed after all.
    pub(super) fn sent_back(
        &self,
        id: &FlowId,
        back: &Back,
        datagram: &[u8],
        now: Instant,
    ) -> Option<Arc<UdpFlow>> {
        let mut state = lock(&back.0);
        match &mut *state {
            State::Waiting(waiting) if waiting.len() >= MAX_WAITING => {
                self.counters.drop_flow_queue.inc();
            }
            State::Waiting(waiting) => {
                if self.backlog.take(datagram.len()) {
                    waiting.push(datagram.into());
                } else {
                    self.counters.drop_global_queue.inc();
                }
            }
            State::Open(mouth, late) => {
                *late += 1;
                let fits = *late <= MAX_LATE && datagram.len() <= mouth.longest;
                if !fits || mouth.say([datagram].into_iter()) == 0 {
                    self.counters.drop_hand_back.inc();
                }
            }
            State::Over => {
                drop(state);
                if let Found::Live(flow) = self.table.find(id, now) {
                    return Some(flow);
                }
                self.counters.drop_closed.inc();
            }
        }
        None
    }
}

impl Mouth {
    /// Sends in order and returns how many the system took; it stops at the first it did not.
    fn say<'a>(&self, datagrams: impl Iterator<Item = &'a [u8]>) -> usize {
        let out: Vec<_> = datagrams
            .map(|payload| Outgoing {
                to: None,
                from: None,
                header: &[],
                payload,
            })
            .collect();
        let mut sent = 0;
        for chunk in out.chunks(BATCH) {
            match send(&self.socket, chunk, &Joining::off()) {
                Ok(n) => sent += n,
                Err(_) => break,
            }
        }
        sent
    }
}

fn size(datagrams: &[Box<[u8]>]) -> usize {
    datagrams.iter().map(|d| d.len()).sum()
}

fn new_flow(FlowId { client, target }: FlowId) -> NewFlow {
    NewFlow {
        network: Network::Udp,
        client: ClientAddr(client),
        target: OrigDst(target),
    }
}
