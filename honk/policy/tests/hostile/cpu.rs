//! Time that this thread was given a processor: what others do on the machine is not in it.

use rustix::time::{ClockId, clock_gettime};

/// Seconds of processor time that `work` took.
pub(crate) fn seconds(work: impl FnOnce()) -> f64 {
    let now = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
    };
    let start = now();
    work();
    now() - start
}
