//! How often an address may ask, and how often it may guess.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use governor::{
    Quota, RateLimiter, clock::MonotonicClock, middleware::NoOpMiddleware,
    state::keyed::HashMapStateStore,
};

/// Addresses that are kept apart; a request of one more is refused while all of them are busy.
const ADDRESSES: usize = 4096;
/// Wrong tokens of an address in [`WINDOW`] before it has to wait.
pub(super) const GUESSES: u32 = 10;
/// Time in which guesses count, and for which an address that guessed has to wait.
pub(super) const WINDOW: Duration = Duration::from_secs(60);

type Keyed =
    RateLimiter<IpAddr, HashMapStateStore<IpAddr>, MonotonicClock, NoOpMiddleware<Instant>>;

/// Requests per address.
pub(super) struct Rate(Keyed);

impl std::fmt::Debug for Rate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rate")
            .field("addresses", &self.0.len())
            .finish()
    }
}

impl Rate {
    pub(super) fn new(quota: Quota) -> Self {
        Self(Keyed::new(
            quota,
            HashMapStateStore::default(),
            MonotonicClock,
        ))
    }

    /// Whether one more request is in order.
    pub(super) fn permits(&self, address: IpAddr) -> bool {
        if self.0.len() >= ADDRESSES {
            // Those that have been quiet for a while are as good as unknown.
            self.0.retain_recent();
        }
        self.0.len() < ADDRESSES && self.0.check_key(&address).is_ok()
    }
}

/// Wrong tokens per address.
#[derive(Debug, Default)]
pub(super) struct Guesses(Mutex<HashMap<IpAddr, Guess>>);

#[derive(Clone, Copy, Debug)]
struct Guess {
    count: u32,
    /// Of the first one; of the last one once there were too many.
    since: Instant,
}

impl Guesses {
    /// Whether the address has to wait.
    pub(super) fn exhausted(&self, address: IpAddr, now: Instant) -> bool {
        let mut guesses = self.lock();
        let Some(guess) = guesses.get(&address).copied() else {
            return false;
        };
        if now.saturating_duration_since(guess.since) >= WINDOW {
            guesses.remove(&address);
            return false;
        }
        guess.count >= GUESSES
    }

    /// A wrong token. True when the address has to wait from now on.
    pub(super) fn wrong(&self, address: IpAddr, now: Instant) -> bool {
        let mut guesses = self.lock();
        let fresh = |g: &Guess| now.saturating_duration_since(g.since) < WINDOW;
        if guesses.len() >= ADDRESSES && !guesses.contains_key(&address) {
            guesses.retain(|_, g| fresh(g));
            // Still full: the one who began first has the least left to wait.
            if guesses.len() >= ADDRESSES
                && let Some(oldest) = guesses.iter().min_by_key(|(_, g)| g.since)
            {
                let oldest = *oldest.0;
                guesses.remove(&oldest);
            }
        }
        let guess = guesses.entry(address).or_insert(Guess {
            count: 0,
            since: now,
        });
        if !fresh(guess) {
            *guess = Guess {
                count: 0,
                since: now,
            };
        }
        guess.count += 1;
        if guess.count == GUESSES {
            guess.since = now;
        }
        guess.count == GUESSES
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<IpAddr, Guess>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::{net::Ipv4Addr, num::NonZeroU32};

    use super::*;

    fn address(n: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from_bits(n))
    }

    #[test]
    fn each_address_has_its_own_rate_and_there_is_a_cap_on_addresses() {
        let two = Quota::per_hour(NonZeroU32::new(2).unwrap());
        let rate = Rate::new(two);
        assert!(rate.permits(address(1)) && rate.permits(address(1)));
        assert!(!rate.permits(address(1)));
        for n in 2..=ADDRESSES as u32 {
            assert!(rate.permits(address(n)), "{n}");
        }
        assert!(!rate.permits(address(0)), "no room, and all are busy");
        assert_eq!(rate.0.len(), ADDRESSES);
    }

    #[test]
    fn ten_wrong_tokens_within_a_minute_cost_a_minute() {
        let (guesses, start) = (Guesses::default(), Instant::now());
        let at = |s| start + Duration::from_secs(s);
        for n in 1..GUESSES {
            assert!(!guesses.wrong(address(1), at(0)), "{n}");
            assert!(!guesses.exhausted(address(1), at(0)));
        }
        assert!(guesses.wrong(address(1), at(30)));
        assert!(guesses.exhausted(address(1), at(89)));
        assert!(!guesses.exhausted(address(2), at(30)));
        assert!(!guesses.exhausted(address(1), at(90)));
        assert!(!guesses.wrong(address(1), at(90)), "counted afresh");
    }

    #[test]
    fn old_guesses_do_not_count() {
        let (guesses, start) = (Guesses::default(), Instant::now());
        for n in 0..u64::from(GUESSES) * 3 {
            let now = start + Duration::from_secs(7 * n);
            assert!(!guesses.wrong(address(1), now), "{n}");
        }
    }

    #[test]
    fn there_is_a_cap_on_guessing_addresses() {
        let (guesses, start) = (Guesses::default(), Instant::now());
        for n in 0..=ADDRESSES as u32 {
            guesses.wrong(address(n), start + Duration::from_millis(n.into()));
        }
        let map = guesses.lock();
        assert_eq!(map.len(), ADDRESSES);
        assert!(!map.contains_key(&address(0)) && map.contains_key(&address(1)));
    }
}
