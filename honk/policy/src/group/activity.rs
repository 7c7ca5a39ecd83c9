//! Whether a group is in use: its health checks sleep while it is not.

use std::sync::atomic::{AtomicU8, Ordering};

const ASLEEP: u8 = 0;
const AWAKE: u8 = 1;
const USED: u8 = 2;

/// Use of one group by real traffic. It lives outside of the snapshots, as counters do.
#[derive(Debug)]
pub struct Activity(AtomicU8);

impl Default for Activity {
    fn default() -> Self {
        Self(AtomicU8::new(AWAKE))
    }
}

impl Activity {
    /// Notes a use; whether the group slept.
    pub(super) fn touch(&self) -> bool {
        // Nearly always nothing is to be written, and the line stays shared between cores.
        self.0.load(Ordering::Relaxed) != USED && self.0.swap(USED, Ordering::Relaxed) == ASLEEP
    }

    /// Whether it was used since the last call.
    pub fn take(&self) -> bool {
        let taken = self
            .0
            .compare_exchange(USED, AWAKE, Ordering::Relaxed, Ordering::Relaxed);
        taken.is_ok()
    }

    /// Sends it to sleep unless it was used in the meantime; whether it sleeps now.
    pub fn sleep(&self) -> bool {
        let slept = self
            .0
            .compare_exchange(AWAKE, ASLEEP, Ordering::Relaxed, Ordering::Relaxed);
        slept.map_or_else(|state| state == ASLEEP, |_| true)
    }

    /// Wakes it without a use.
    pub fn wake(&self) {
        let _ = self
            .0
            .compare_exchange(ASLEEP, AWAKE, Ordering::Relaxed, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_used_group_does_not_fall_asleep_and_the_next_use_wakes_it_once() {
        let activity = Activity::default();
        assert!(!activity.take());
        assert!(!activity.touch());
        assert!(!activity.sleep(), "it was used in the meantime");
        assert!(activity.take() && !activity.take());
        assert!(activity.sleep() && activity.sleep());
        assert!(activity.touch() && !activity.touch());
        assert!(activity.take() && activity.sleep());
        activity.wake();
        assert!(!activity.touch());
    }
}
