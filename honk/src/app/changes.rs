//! Tells the health engine when the network around the gateway changed.

use std::sync::Arc;

use tokio::sync::watch;

use super::engine::Engine;
use crate::netlink::Changes;

/// Runs until told to stop. Without a subscription nodes are still probed, only later.
pub(super) async fn run(engine: Arc<Engine>, mut stop: watch::Receiver<bool>) {
    let unnoticed = |error: &dyn std::fmt::Display| {
        tracing::warn!(target: "honk::health", %error, "changes of the network go unnoticed");
    };
    let changes = match Changes::open() {
        Ok(changes) => changes,
        Err(error) => return unnoticed(&error),
    };
    loop {
        let changed = tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return,
            changed = changes.next() => changed,
        };
        if let Err(error) = changed {
            return unnoticed(&error);
        }
        engine.network_changed();
    }
}
