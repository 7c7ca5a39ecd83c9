//! Seeded faults of an upstream: what goes wrong, for how many connections, in which order.

use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What an upstream does to a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// Nothing: serve it.
    #[default]
    None,
    /// Wait before the handshake.
    Delay(Duration),
    /// Accept and close at once.
    Drop,
    /// Accept and reset.
    Rst,
    /// Accept, read, never answer.
    Blackhole,
    /// Refuse the request with the protocol's own error.
    Refuse,
    /// Relay at most this many bytes per second towards the origin.
    SlowRead(u32),
    /// Accept the request, and reset once the client says something.
    Cut,
}

/// The fault plan of one upstream; changeable while it runs.
#[derive(Debug)]
pub struct Faults(Mutex<Plan>);

#[derive(Debug)]
struct Plan {
    /// One of these.
    faults: Vec<Fault>,
    one_in: u32,
    state: u64,
    distance: Duration,
    broken: Option<IpAddr>,
}

impl Faults {
    /// No fault yet; `seed` fixes which connections are hit later.
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(Plan {
            faults: Vec::new(),
            one_in: 1,
            state: seed | 1,
            distance: Duration::ZERO,
            broken: None,
        }))
    }

    /// Applies `fault` to every connection from now on.
    pub fn set(&self, fault: Fault) {
        self.set_some(fault, 1);
    }

    /// Applies `fault` to one connection in `one_in`, chosen by the seed.
    pub fn set_some(&self, fault: Fault, one_in: u32) {
        self.set_any(&[fault], one_in);
    }

    /// Applies one of `faults` to one connection in `one_in`, both chosen by the seed.
    pub fn set_any(&self, faults: &[Fault], one_in: u32) {
        let mut plan = self.plan();
        plan.faults = faults.to_vec();
        plan.one_in = one_in.max(1);
    }

    /// Makes every connection wait so long before its handshake.
    pub fn set_distance(&self, distance: Duration) {
        self.plan().distance = distance;
    }

    /// From now on connections to this target are cut.
    pub fn set_broken(&self, target: IpAddr) {
        self.plan().broken = Some(target);
    }

    pub(super) fn distance(&self) -> Duration {
        self.plan().distance
    }

    /// What becomes of a connection to `target` that would otherwise meet `fault`.
    pub(super) fn towards(&self, target: IpAddr, fault: Fault) -> Fault {
        match self.plan().broken == Some(target) {
            true => Fault::Cut,
            false => fault,
        }
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fault of the next connection.
    pub fn next(&self) -> Fault {
        let mut plan = self.plan();
        // xorshift64: enough to spread faults, and the same seed gives the same run.
        plan.state ^= plan.state << 13;
        plan.state ^= plan.state >> 7;
        plan.state ^= plan.state << 17;
        if plan.faults.is_empty() || !plan.state.is_multiple_of(u64::from(plan.one_in)) {
            return Fault::None;
        }
        let which = (plan.state >> 32) % plan.faults.len() as u64;
        plan.faults[which as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_hits_the_same_connections() {
        let run = |seed| {
            let faults = Faults::new(seed);
            faults.set_some(Fault::Rst, 4);
            (0..200)
                .map(|_| faults.next() == Fault::Rst)
                .collect::<Vec<_>>()
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
        let hits = run(7).into_iter().filter(|hit| *hit).count();
        assert!((20..80).contains(&hits), "{hits} of 200");
    }

    #[test]
    fn all_of_several_faults_occur() {
        let faults = Faults::new(3);
        faults.set_any(&[Fault::Cut, Fault::Drop], 2);
        let seen: Vec<Fault> = (0..100).map(|_| faults.next()).collect();
        for fault in [Fault::Cut, Fault::Drop, Fault::None] {
            assert!(seen.contains(&fault), "{fault:?}");
        }
    }
}
