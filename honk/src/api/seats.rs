//! Places for connections of one listener. One that asks for nothing gives way to a new one.
//!
//! A client that opens connections and sends no request would otherwise hold all places until
//! the header deadline, and the command line would wait as long.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Connections closed between requests because another one needed the place.
static EVICTED: AtomicU64 = AtomicU64::new(0);

/// How many connections had to give way.
pub(crate) fn evicted() -> u64 {
    EVICTED.load(Ordering::Relaxed)
}

/// The places of a listener.
#[derive(Debug)]
pub(super) struct Seats {
    permits: Arc<Semaphore>,
    waiting: Mutex<Waiting>,
}

/// Connections between requests, the longest wait first.
#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    order: BTreeMap<u64, Arc<Notify>>,
}

/// The place of one connection.
#[derive(Debug)]
pub(super) struct Seat {
    seats: Arc<Seats>,
    leave: Arc<Notify>,
    /// Its position while no request is under way.
    position: Mutex<Option<u64>>,
    _permit: OwnedSemaphorePermit,
}

impl Seats {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            permits: Arc::new(Semaphore::new(limit)),
            waiting: Mutex::default(),
        })
    }

    /// A place; when all are taken, the connection that waits longest for a request goes. When
    /// all are at work, this waits.
    pub(super) async fn take(self: &Arc<Self>) -> Option<Seat> {
        let permits = Arc::clone(&self.permits);
        let permit = match Arc::clone(&permits).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                self.evict();
                permits.acquire_owned().await.ok()?
            }
        };
        let seat = Seat {
            seats: Arc::clone(self),
            leave: Arc::default(),
            position: Mutex::default(),
            _permit: permit,
        };
        seat.idle();
        Some(seat)
    }

    fn evict(&self) {
        let mut waiting = self.lock();
        if let Some((_, oldest)) = waiting.order.pop_first() {
            EVICTED.fetch_add(1, Ordering::Relaxed);
            // Kept until the connection looks, should it not be listening yet.
            oldest.notify_one();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    /// Ends when the connection must go.
    pub(super) async fn must_leave(&self) {
        self.leave.notified().await;
    }

    /// A request came: the connection stays until it is answered.
    pub(super) fn busy(&self) {
        if let Some(position) = self.position().take() {
            self.seats.lock().order.remove(&position);
        }
    }

    /// No request is under way.
    pub(super) fn idle(&self) {
        let mut waiting = self.seats.lock();
        let position = waiting.next;
        waiting.next += 1;
        waiting.order.insert(position, Arc::clone(&self.leave));
        drop(waiting);
        *self.position() = Some(position);
    }

    fn position(&self) -> std::sync::MutexGuard<'_, Option<u64>> {
        self.position.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.busy();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn the_longest_wait_gives_way_and_work_does_not() {
        let seats = Seats::new(2);
        let (a, b) = (seats.take().await.unwrap(), seats.take().await.unwrap());
        a.busy();
        let third = tokio::spawn({
            let seats = Arc::clone(&seats);
            async move { seats.take().await }
        });
        tokio::time::timeout(LONG, b.must_leave()).await.unwrap();
        drop(b);
        let c = third.await.unwrap().unwrap();
        // `a` was answered after `c` came: now `c` has waited longer.
        a.idle();
        let fourth = tokio::spawn({
            let seats = Arc::clone(&seats);
            async move { seats.take().await }
        });
        tokio::time::timeout(LONG, c.must_leave()).await.unwrap();
        drop(c);
        let d = fourth.await.unwrap().unwrap();
        drop((a, d));
        assert!(seats.lock().order.is_empty());
        assert_eq!(seats.permits.available_permits(), 2);
    }
}
