//! Whether a group is in use: its health checks sleep while it is not.

use std::sync::atomic::{AtomicBool, Ordering};

/// Use of one group by real traffic. It lives outside of the snapshots, as turns do.
#[derive(Debug, Default)]
pub struct Activity(AtomicBool);

impl Activity {
    /// Notes a use; true when it is the first one since somebody looked.
    pub(super) fn touch(&self) -> bool {
        // Nearly always nothing is to be written, and the line stays shared between cores.
        !self.0.load(Ordering::Relaxed) && !self.0.swap(true, Ordering::Relaxed)
    }

    /// Whether it was used since the last call.
    pub fn take(&self) -> bool {
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Relaxed)
    }
}
