//! The slow clock of the daemon: rates, healing of kernel state, the service manager.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::watch;

use super::{
    engine::Engine,
    notify::{self, Task},
};

/// One step.
const TICK: Duration = Duration::from_secs(1);
/// Group slots are written again after this many steps.
const REWRITE_TICKS: u64 = 30;
/// The service manager hears a status after this many steps.
const STATUS_TICKS: u64 = 10;

/// Runs until told to stop.
pub(crate) async fn run(engine: Arc<Engine>, mut stop: watch::Receiver<bool>) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let watchdog = notify::watchdog_period();
    let mut pinged = Instant::now();
    let mut retired = BTreeMap::new();
    let mut told = String::new();
    for step in 0_u64.. {
        tokio::select! {
            _ = stop.wait_for(|s| *s) => return,
            _ = ticks.tick() => {}
        }
        let now = Instant::now();
        engine.measure(now);
        engine.fade();
        engine.dns.tick();
        engine.save_choices().await;
        if step % REWRITE_TICKS == REWRITE_TICKS - 1 {
            engine.rewrite_groups();
            engine.free_slots(&mut retired, now);
        }
        if step % STATUS_TICKS == 0 {
            tell(&engine, &mut told);
        }
        engine.beats.beat(Task::Sampler, now);
        if let Some(period) = watchdog
            && now.saturating_duration_since(pinged) + TICK > period
            && engine.beats.alive(now)
        {
            notify::watchdog();
            pinged = now;
        }
    }
}

fn tell(engine: &Engine, told: &mut String) {
    let snapshot = engine.snapshot();
    let text = format!(
        "generation {}, {} flows, {} nodes",
        snapshot.generation,
        engine.registry.open(),
        snapshot.groups.nodes().len()
    );
    if *told != text {
        notify::status(&text);
        *told = text;
    }
}
