//! The ceiling on proxied dials that run at once.
//!
//! A permit is held from connect until the server agreed or failed. Who finds none leaves a
//! claim and is handed the next free one, first come first served. There are never more
//! claims than flows, and flows are capped.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

/// Receives a permit that was not free at once.
pub(crate) trait Claim: Send {
    /// Called on the thread that gave the permit back; must not block.
    fn granted(self: Box<Self>, permit: Permit);
}

/// The permits of one daemon.
#[derive(Clone)]
pub(crate) struct Permits(Arc<Inner>);

struct Inner {
    used: AtomicUsize,
    limit: AtomicUsize,
    /// Length of `claims`, readable without the lock.
    waiting: AtomicUsize,
    claims: Mutex<VecDeque<Box<dyn Claim>>>,
}

/// The right to dial; dropping it passes the right on.
pub(crate) struct Permit(Arc<Inner>);

impl Permits {
    pub(crate) fn new(limit: usize) -> Self {
        Self(Arc::new(Inner {
            used: AtomicUsize::new(0),
            limit: AtomicUsize::new(limit.max(1)),
            waiting: AtomicUsize::new(0),
            claims: Mutex::new(VecDeque::new()),
        }))
    }

    /// A permit if one is free and nobody waits.
    pub(crate) fn try_take(&self) -> Option<Permit> {
        if self.0.waiting.load(SeqCst) > 0 {
            return None;
        }
        self.0.take().then(|| Permit(Arc::clone(&self.0)))
    }

    /// Waits in line.
    pub(crate) fn claim(&self, claim: Box<dyn Claim>) {
        {
            let mut claims = self.0.lock();
            claims.push_back(claim);
            self.0.waiting.store(claims.len(), SeqCst);
        }
        // A permit may have come back between the failed attempt and the claim.
        self.0.serve();
    }

    /// Changes the ceiling; running dials are not disturbed.
    pub(crate) fn set_limit(&self, limit: usize) {
        self.0.limit.store(limit.max(1), SeqCst);
        self.0.serve();
    }

    pub(crate) fn used(&self) -> usize {
        self.0.used.load(SeqCst)
    }

    pub(crate) fn limit(&self) -> usize {
        self.0.limit.load(SeqCst)
    }

    /// Dials that wait in line.
    pub(crate) fn waiting(&self) -> usize {
        self.0.waiting.load(SeqCst)
    }
}

impl Inner {
    fn take(&self) -> bool {
        let limit = self.limit.load(SeqCst);
        self.used
            .fetch_update(SeqCst, SeqCst, |n| (n < limit).then_some(n + 1))
            .is_ok()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Box<dyn Claim>>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands free permits to those who wait.
    fn serve(self: &Arc<Self>) {
        while self.waiting.load(SeqCst) > 0 {
            let claim = {
                let mut claims = self.lock();
                if claims.is_empty() || !self.take() {
                    return;
                }
                let claim = claims.pop_front();
                self.waiting.store(claims.len(), SeqCst);
                claim
            };
            // The permit is made even if there were no claim, so that it is given back.
            let permit = Permit(Arc::clone(self));
            if let Some(claim) = claim {
                claim.granted(permit);
            }
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.used.fetch_sub(1, SeqCst);
        if self.0.waiting.load(SeqCst) > 0 {
            self.0.serve();
        }
    }
}

impl std::fmt::Debug for Permit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Permit")
    }
}

impl std::fmt::Debug for Permits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Permits({}/{})", self.used(), self.limit())
    }
}

struct AsyncClaim(tokio::sync::oneshot::Sender<Permit>);

impl Claim for AsyncClaim {
    fn granted(self: Box<Self>, permit: Permit) {
        // A receiver that is gone drops the permit, which serves the next.
        let _ = self.0.send(permit);
    }
}

impl Permits {
    /// A permit for a task, in line with everybody else.
    pub(crate) async fn take(&self) -> Option<Permit> {
        if let Some(permit) = self.try_take() {
            return Some(permit);
        }
        let (sender, receiver) = tokio::sync::oneshot::channel();
        self.claim(Box::new(AsyncClaim(sender)));
        receiver.await.ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use super::*;

    struct Line(u32, SyncSender<(u32, Permit)>);

    impl Claim for Line {
        fn granted(self: Box<Self>, permit: Permit) {
            let _ = self.1.send((self.0, permit));
        }
    }

    fn line(permits: &Permits, n: u32) -> Receiver<(u32, Permit)> {
        let (sender, receiver) = sync_channel(1);
        permits.claim(Box::new(Line(n, sender)));
        receiver
    }

    #[test]
    fn the_ceiling_holds_and_the_line_is_served_in_order() {
        let permits = Permits::new(1);
        let first = permits.try_take().unwrap();
        assert!(permits.try_take().is_none());
        let (a, b) = (line(&permits, 1), line(&permits, 2));
        assert!(a.try_recv().is_err());
        drop(first);
        let (n, permit) = a.try_recv().unwrap();
        assert_eq!(n, 1);
        assert!(b.try_recv().is_err());
        drop(permit);
        assert_eq!(b.try_recv().unwrap().0, 2);
    }

    #[test]
    fn a_vanished_waiter_passes_its_permit_on() {
        let permits = Permits::new(1);
        let first = permits.try_take().unwrap();
        drop(line(&permits, 1));
        let b = line(&permits, 2);
        drop(first);
        assert_eq!(b.try_recv().unwrap().0, 2);
    }

    #[test]
    fn nobody_overtakes_the_line_and_a_raise_serves_it() {
        let permits = Permits::new(1);
        let held = permits.try_take().unwrap();
        let a = line(&permits, 1);
        permits.set_limit(2);
        assert!(a.try_recv().is_ok());
        drop(held);
        assert_eq!(permits.used(), 0);
    }

    #[test]
    fn many_threads_never_exceed_the_ceiling() {
        let permits = Permits::new(3);
        let peak = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for n in 0..500 {
                        let held = permits
                            .try_take()
                            .or_else(|| Some(line(&permits, n).recv().ok()?.1));
                        peak.fetch_max(permits.used(), SeqCst);
                        drop(held);
                    }
                });
            }
        });
        assert!(peak.load(SeqCst) <= 3);
        assert_eq!(permits.used(), 0);
    }
}
