//! What flows find out about nodes, for the health engine.
//!
//! Loops that carry flows must never wait, so the way out is a queue with a cap: what does not
//! fit is counted and lost. Good news repeats itself, so of it only some is told.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    time::{Duration, Instant},
};

use honk_policy::{
    health::Event,
    id::{Domain, Family},
    node::{Host, Node},
};
use tokio::sync::Notify;

use super::{
    error::{Blame, DialError},
    open::family_of,
    server::{ServerState, server},
};

/// Events that wait to be read.
pub(crate) const QUEUE: usize = 4096;
/// Good news of one node is told this often.
const QUIET: Duration = Duration::from_millis(50);

/// The feed.
#[derive(Debug)]
pub(crate) struct Feed {
    sender: SyncSender<Event>,
    receiver: Mutex<Receiver<Event>>,
    start: Instant,
    /// Something was put into the queue since it was last emptied.
    dirty: AtomicBool,
    wake: Notify,
    lost: AtomicU64,
}

/// When good news of a node was last told, and whether bad news came since.
#[derive(Debug, Default)]
pub(crate) struct Told {
    dialed_ms: AtomicU64,
    first_byte_ms: AtomicU64,
    answered_ms: [AtomicU64; 2],
    failed: AtomicBool,
}

impl Default for Feed {
    fn default() -> Self {
        let (sender, receiver) = sync_channel(QUEUE);
        Self {
            sender,
            receiver: Mutex::new(receiver),
            start: Instant::now(),
            dirty: AtomicBool::new(false),
            wake: Notify::new(),
            lost: AtomicU64::new(0),
        }
    }
}

impl Feed {
    /// A flow reached its target through a node.
    pub(crate) fn dialed(&self, server: &ServerState, family: Family, took: Duration) {
        let told = &server.told;
        let after_failure = told.failed.swap(false, Relaxed);
        if self.is_time(&told.dialed_ms) || after_failure {
            self.push(Event::Dialed {
                node: server.node.id,
                family,
                took: Some(took),
            });
        }
    }

    /// The first byte of an answer came through a node.
    pub(crate) fn first_byte(&self, server: &ServerState) {
        if self.is_time(&server.told.first_byte_ms) {
            self.push(Event::FirstByte {
                node: server.node.id,
            });
        }
    }

    /// A flow failed; told if the node is to blame.
    pub(crate) fn failed(&self, server: &ServerState, family: Family, error: &DialError) {
        if error.blame() == Blame::Node {
            server.told.failed.store(true, Relaxed);
            let node = server.node.id;
            self.push(Event::DialFailed { node, family });
        }
    }

    /// Datagrams came back through a node.
    pub(crate) fn answered(&self, server: &ServerState, family: Family, domain: Domain) {
        let at = usize::from(domain == Domain::DataUdp);
        if self.is_time(&server.told.answered_ms[at]) {
            let node = server.node.id;
            self.push(Event::Answered {
                node,
                family,
                domain,
            });
        }
    }

    /// A way for datagrams was not opened, which is bad news about DNS and other data alike.
    pub(crate) fn not_opened(&self, node: &Node, error: &DialError) {
        if error.blame() != Blame::Node {
            return;
        }
        // Where the server was not reached, it is not known over which family.
        let family = match server(&node.protocol).map(|s| &s.host) {
            Some(Host::Ip(ip)) => family_of(ip.to_canonical()),
            Some(Host::Name(_)) | None => Family::V4,
        };
        for domain in [Domain::DnsUdp, Domain::DataUdp] {
            let node = node.id;
            self.push(Event::Unanswered {
                node,
                family,
                domain,
            });
        }
    }

    fn is_time(&self, last: &AtomicU64) -> bool {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        let before = last.load(Relaxed);
        let due = before == 0 || now.saturating_sub(before) >= QUIET.as_millis() as u64;
        due && last
            .compare_exchange(before, now.max(1), Relaxed, Relaxed)
            .is_ok()
    }

    fn push(&self, event: Event) {
        if self.sender.try_send(event).is_err() {
            self.lost.fetch_add(1, Relaxed);
        }
        if !self.dirty.swap(true, Relaxed) {
            self.wake.notify_one();
        }
    }

    /// Completes when something is there.
    pub(crate) async fn changed(&self) {
        self.wake.notified().await;
    }

    /// Takes everything out.
    pub(crate) fn drain(&self) -> Vec<Event> {
        self.dirty.store(false, Relaxed);
        let receiver = self.receiver.lock().unwrap_or_else(PoisonError::into_inner);
        receiver.try_iter().take(QUEUE).collect()
    }

    /// Events that found the queue full.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use honk_policy::node::{Protocol, Server};

    use super::*;
    use crate::outbound::error::{Class, Stage};

    fn server() -> ServerState {
        let protocol = Protocol::Socks5(Server {
            host: Host::Ip([192, 0, 2, 1].into()),
            port: 1080,
            auth: None,
        });
        ServerState::new(Arc::new(Node::new("n".into(), protocol)))
    }

    #[test]
    fn good_news_is_told_once_in_a_while_and_again_after_bad_news() {
        let (feed, server) = (Feed::default(), server());
        let took = Duration::from_millis(1);
        for _ in 0..50 {
            feed.dialed(&server, Family::V4, took);
        }
        // A slow machine may let more than one quiet time pass.
        let first = feed.drain().len();
        assert!((1..50).contains(&first), "{first}");
        let error = DialError::timeout(Stage::Connect);
        feed.failed(&server, Family::V4, &error);
        feed.dialed(&server, Family::V4, took);
        let events = feed.drain();
        assert!(matches!(
            events[..],
            [Event::DialFailed { .. }, Event::Dialed { .. }]
        ));
    }

    #[test]
    fn only_failures_that_are_the_nodes_fault_are_told() {
        let (feed, server) = (Feed::default(), server());
        for class in [
            Class::TargetRefused,
            Class::LocalResource,
            Class::TargetTimeout,
        ] {
            feed.failed(&server, Family::V4, &DialError::new(class, ""));
        }
        assert_eq!(feed.drain(), []);
    }

    #[test]
    fn a_full_queue_loses_and_counts() {
        let (feed, server) = (Feed::default(), server());
        let error = DialError::timeout(Stage::Connect);
        for _ in 0..QUEUE + 7 {
            feed.failed(&server, Family::V4, &error);
        }
        assert_eq!(feed.lost(), 7);
        assert_eq!(feed.drain().len(), QUEUE);
        assert_eq!(feed.drain(), []);
    }

    #[tokio::test]
    async fn one_push_wakes_the_reader() {
        let (feed, server) = (Feed::default(), server());
        feed.first_byte(&server);
        feed.changed().await;
        assert_eq!(feed.drain().len(), 1);
    }
}
