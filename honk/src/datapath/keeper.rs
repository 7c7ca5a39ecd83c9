//! The keeper thread: reads the event ring, runs the janitor, rewrites group states that got
//! lost.

use std::{
    collections::HashMap,
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use honk_common::{counter::Stat, outbound::STATE_DEAD};

use super::{
    Shared, TARGET,
    events::Events,
    janitor::{Janitor, Load, TICK},
    status,
    wake::Wake,
};
use crate::netns;

/// Group states are compared with the kernel this often.
const HEAL: Duration = Duration::from_secs(30);

/// Handle on the thread.
#[derive(Debug)]
pub(super) struct Keeper {
    wake: Arc<Wake>,
    stop: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Keeper {
    pub(super) fn spawn(shared: Arc<Shared>, events: Events) -> io::Result<Self> {
        let wake = Arc::new(Wake::new()?);
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::Builder::new()
            .name("honk-keeper".to_owned())
            .spawn({
                let (wake, stop) = (Arc::clone(&wake), Arc::clone(&stop));
                move || {
                    netns::give_up_admin();
                    keep(&shared, events, &wake, &stop);
                }
            })?;
        Ok(Self {
            wake,
            stop,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Ends the thread and waits for it.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.wake.notify();
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

fn keep(shared: &Shared, mut events: Events, wake: &Wake, stop: &AtomicBool) {
    let mut janitor = Janitor::new(status::capacity(&shared.maps.flow));
    let mut inserted_at_scan = 0;
    let mut next = Instant::now() + TICK;
    let mut heal = Instant::now() + HEAL;
    while !stop.load(Ordering::Relaxed) {
        if let Err(e) = wake.wait(&[events.fd()], Some(next)) {
            tracing::error!(target: TARGET, error = %e, "the keeper cannot wait");
            return;
        }
        let now = Instant::now();
        events.drain(&shared.events, now);
        if now < next {
            continue;
        }
        next = now + TICK;
        let inserted = status::stat_of(&shared.maps, Stat::NewFlows, shared.cpus);
        let load = Load {
            overflow: status::stat_of(&shared.maps, Stat::FlowOverflow, shared.cpus),
            grown: inserted.saturating_sub(inserted_at_scan),
        };
        let maps = &shared.maps;
        if let Err(e) = janitor.tick(&maps.flow, &maps.ret, &shared.claims, &shared.tally, load) {
            tracing::warn!(target: TARGET, error = %e, "cannot look for idle flows");
        }
        if !janitor.at_rest() {
            inserted_at_scan = inserted;
        }
        if now >= heal {
            heal = now + HEAL;
            heal_groups(shared);
        }
    }
}

/// Writes group states that differ in the kernel from what was asked for.
pub(super) fn heal_groups(shared: &Shared) {
    let groups = shared.groups.lock().unwrap_or_else(PoisonError::into_inner);
    for (index, bits) in groups.iter() {
        match shared.maps.group_state.lookup(index) {
            Ok(Some(now)) if now == *bits => {}
            _ => {
                tracing::warn!(target: TARGET, index, "a group state was lost; written again");
                if let Err(e) = shared.maps.group_state.put(index, bits) {
                    tracing::warn!(target: TARGET, index, error = %e, "cannot write it");
                }
            }
        }
    }
}

/// The writes that `slots` needs: leaving DEAD first, entering DEAD last, so that no packet in
/// between is dropped which both states would let through.
pub(super) fn ordered(now: &HashMap<u32, u32>, slots: &[(u32, u32)]) -> Vec<(u32, u32)> {
    let mut writes: Vec<(u32, u32)> = slots
        .iter()
        .copied()
        .filter(|(index, bits)| now.get(index).copied().unwrap_or(0) != *bits)
        .collect();
    writes.sort_by_key(|(index, bits)| {
        let dead_before = now.get(index).copied().unwrap_or(0) & STATE_DEAD != 0;
        match (dead_before, bits & STATE_DEAD != 0) {
            (true, false) => 0,
            (false, true) => 2,
            _ => 1,
        }
    });
    writes
}

#[cfg(test)]
mod tests {
    use honk_common::outbound::STATE_DIRECT;

    use super::*;

    #[test]
    fn better_comes_first_and_equal_not_at_all() {
        let now = HashMap::from([(1, STATE_DEAD), (2, 0), (3, STATE_DIRECT), (4, STATE_DEAD)]);
        let asked = [
            (2, STATE_DEAD),
            (3, 0),
            (1, 0),
            (4, STATE_DEAD),
            (5, 0),
            (6, STATE_DIRECT),
        ];
        let writes = ordered(&now, &asked);
        assert_eq!(writes, [(1, 0), (3, 0), (6, STATE_DIRECT), (2, STATE_DEAD)]);
    }
}
