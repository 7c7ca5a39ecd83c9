//! What the inbound side counts.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

macro_rules! counters {
    ($(#[$doc:meta])* $live:ident, $copy:ident { $($(#[$field_doc:meta])* $field:ident,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        pub(crate) struct $live { $($(#[$field_doc])* pub(crate) $field: Count,)* }

        /// The same, copied out.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(crate) struct $copy { $($(#[$field_doc])* pub(crate) $field: u64,)* }

        impl $live {
            pub(crate) fn snapshot(&self) -> $copy {
                $copy { $($field: self.$field.get(),)* }
            }
        }
    };
}

counters! {
    /// TCP counters.
    TcpCounters, TcpSnapshot {
        /// Connections accepted.
        accepted,
        /// Connections reset because admission refused them.
        refused,
        /// Connections reset because the flow cap was reached.
        capacity,
        /// Failed accepts; shortage of descriptors counts here.
        accept_errors,
        /// Connections reset because the process had no descriptor left.
        shed,
        /// Dials that failed.
        dial_failed,
        /// Flows that got a pipe at least once.
        spliced,
    }
}

counters! {
    /// UDP counters; the drop causes follow `honk_udp_drops_total`.
    UdpCounters, UdpSnapshot {
        /// Datagrams received from clients.
        received,
        /// Messages from clients that held several datagrams.
        joined,
        /// Datagrams sent to clients.
        replied,
        /// Datagrams that found their flow.
        hits,
        /// Datagrams that began a flow.
        misses,
        /// Receive calls that failed.
        receive_errors,
        /// Dropped: the destination was missing, doubled, cut or impossible.
        drop_malformed,
        /// Dropped: no room for another flow or tunnel.
        drop_capacity,
        /// Dropped: the client has its share of the flows.
        drop_client_share,
        /// Dropped: admission refused the flow, now or a moment ago.
        drop_policy,
        /// Dropped: the queue of the flow was full.
        drop_flow_queue,
        /// Dropped: all queues together were full.
        drop_global_queue,
        /// Dropped: the tunnel was gone or its dial failed.
        drop_closed,
        /// Dropped on the way out: the system took no more.
        drop_send,
        /// Dropped replies: malformed, a fragment, of the wrong family or source.
        drop_reply,
        /// Dropped replies: no socket with the right source port.
        drop_reply_socket,
        /// Flows whose first datagrams were held to find a name.
        held,
        /// Flows decided without a name because no more could be held.
        holds_full,
        /// Flows that were handed back to the kernel.
        handed_back,
        /// Flows that were relayed because they could not be handed back.
        hand_backs_failed,
        /// Flows that were relayed because too many were being handed back.
        hand_backs_full,
        /// Dropped: could not be sent in the client's name.
        drop_hand_back,
        /// Quiet tunnels closed because a new one needed their place.
        tunnels_evicted,
        /// Tunnels refused: a client had its share or the table was full, and nothing quiet.
        tunnels_refused,
    }
}

/// A counter many threads add to.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn inc(&self) {
        self.add(1);
    }

    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A cap with the number of things under it. A [`Seat`] gives its place back.
#[derive(Debug)]
pub(crate) struct Cap {
    used: AtomicUsize,
    limit: usize,
}

impl Cap {
    pub(crate) fn new(limit: usize) -> std::sync::Arc<Self> {
        std::sync::Arc::new(Self {
            used: AtomicUsize::new(0),
            limit,
        })
    }

    pub(crate) fn take(self: &std::sync::Arc<Self>) -> Option<Seat> {
        let grant = |n| (n < self.limit).then_some(n + 1);
        self.used.fetch_update(Relaxed, Relaxed, grant).ok()?;
        Some(Seat(std::sync::Arc::clone(self)))
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Relaxed)
    }
}

/// One place under a [`Cap`].
#[derive(Debug)]
pub(crate) struct Seat(std::sync::Arc<Cap>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.used.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cap_is_reached_and_seats_come_back() {
        let cap = Cap::new(2);
        let (a, b) = (cap.take(), cap.take());
        assert!(a.is_some() && b.is_some() && cap.take().is_none());
        drop(a);
        assert!(cap.take().is_some());
    }
}
