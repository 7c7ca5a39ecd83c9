//! Seeded faults of an upstream: what goes wrong, for how many connections, in which order.

use std::sync::{Mutex, PoisonError};
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
}

/// The fault plan of one upstream; changeable while it runs.
#[derive(Debug)]
pub struct Faults(Mutex<Plan>);

#[derive(Debug)]
struct Plan {
    fault: Fault,
    one_in: u32,
    state: u64,
}

impl Faults {
    /// No fault yet; `seed` fixes which connections are hit later.
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(Plan {
            fault: Fault::None,
            one_in: 1,
            state: seed | 1,
        }))
    }

    /// Applies `fault` to every connection from now on.
    pub fn set(&self, fault: Fault) {
        self.set_some(fault, 1);
    }

    /// Applies `fault` to one connection in `one_in`, chosen by the seed.
    pub fn set_some(&self, fault: Fault, one_in: u32) {
        let mut plan = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        plan.fault = fault;
        plan.one_in = one_in.max(1);
    }

    /// The fault of the next connection.
    pub fn next(&self) -> Fault {
        let mut plan = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // xorshift64: enough to spread faults, and the same seed gives the same run.
        plan.state ^= plan.state << 13;
        plan.state ^= plan.state >> 7;
        plan.state ^= plan.state << 17;
        if plan.state.is_multiple_of(u64::from(plan.one_in)) {
            plan.fault
        } else {
            Fault::None
        }
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
}
