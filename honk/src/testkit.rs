//! Waiting in tests: for a condition, up to an end that only a failing test reaches.

use std::time::{Duration, Instant};

/// How long a test waits for something that must happen. The kernel takes namespaces apart one
/// by one, for everybody on the machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(2);

/// Holds the thread until a condition is true.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        in_time(what, deadline);
        std::thread::sleep(PAUSE);
    }
}

/// The same for a task, while others go on.
pub(crate) async fn soon(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition().await {
        in_time(what, deadline);
        tokio::time::sleep(PAUSE).await;
    }
}

fn in_time(what: &str, deadline: Instant) {
    assert!(Instant::now() < deadline, "{what}: did not happen in time");
}
