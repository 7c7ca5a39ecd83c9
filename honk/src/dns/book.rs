//! The leases and their images in the kernel.

use std::{
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use honk_common::route::DomainVal;
use honk_policy::{
    dns::{Change, Leases, Lesson, Projection},
    routing::oracle::Oracle,
};

use super::{Known, Wanted, counters::Snapshot};

/// Entries written while others wait for the memory.
const PORTION: usize = 256;
/// How often leases that ended are looked for, in seconds.
const SWEEP: u64 = 10;
/// How often a failing map is told.
const TELL: Duration = Duration::from_secs(5);

/// Why the kernel did not take entries.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct MapFault(pub(crate) String);

/// The kernel map from addresses to what their names mean. Writes name the generation of
/// rules whose lines they are about; packets see them when the call returns.
pub(crate) trait DomainMap: Send + Sync + std::fmt::Debug + 'static {
    fn write(&self, generation: u32, set: &[(IpAddr, DomainVal)]) -> Result<(), MapFault>;
    fn delete(&self, generation: u32, gone: &[IpAddr]) -> Result<(), MapFault>;
    /// Whether the gateway itself has the address: flows to it meet no rule.
    fn is_own(&self, address: IpAddr) -> bool;
}

/// The image for one generation of rules.
#[derive(Debug)]
struct Plane {
    generation: u32,
    projection: Projection,
}

/// Leases, the image packets see, and the one of a reload under way.
#[derive(Debug)]
pub(super) struct Book {
    map: Arc<dyn DomainMap>,
    pub(super) leases: Leases,
    active: Option<Plane>,
    staged: Option<Plane>,
    /// When ended leases were looked for.
    swept: u64,
    failures: u64,
    told: Option<Instant>,
}

impl Book {
    pub(super) fn new(map: Arc<dyn DomainMap>, leases: Leases) -> Self {
        Self {
            map,
            leases,
            active: None,
            staged: None,
            swept: 0,
            failures: 0,
            told: None,
        }
    }

    /// Takes an answer in; the kernel knows what it means when this returns.
    pub(super) fn learn(&mut self, now: u64, lesson: &Lesson) {
        let map = Arc::clone(&self.map);
        let foreign = |(address, _): &&(IpAddr, u32)| !map.is_own(*address);
        let addresses: Vec<_> = lesson.addresses.iter().filter(foreign).copied().collect();
        if addresses.is_empty() && !lesson.addresses.is_empty() {
            return;
        }
        // Entries that an earlier write did not get through are due again.
        let mut concerned: Vec<_> = addresses.iter().map(|(a, _)| a.to_canonical()).collect();
        let lesson = Lesson {
            addresses,
            ..lesson.clone()
        };
        let touched = self.leases.learn(now, &lesson);
        concerned.extend(&touched);
        concerned.sort_unstable();
        concerned.dedup();
        self.touch(&touched);
        for which in [Which::Active, Which::Staged] {
            let Some((plane, leases)) = self.plane(which) else {
                continue;
            };
            let changes = plane.projection.changes_among(leases, &concerned);
            self.write(which, &changes);
        }
    }

    /// Forgets what has ended, if that was done long enough ago.
    pub(super) fn sweep(&mut self, now: u64) {
        if now < self.swept + SWEEP {
            return;
        }
        self.swept = now;
        let touched = self.leases.sweep(now);
        self.touch(&touched);
        for which in [Which::Active, Which::Staged] {
            if let Some((plane, leases)) = self.plane(which) {
                plane.projection.tidy(leases);
            }
        }
    }

    /// Writes some of what waits; false when nothing is left, or nothing can be written.
    pub(super) fn flush(&mut self) -> bool {
        let mut wrote = false;
        for which in [Which::Active, Which::Staged] {
            if let Some((plane, leases)) = self.plane(which) {
                let changes = plane.projection.changes(leases, PORTION);
                wrote |= !changes.is_empty() && self.write(which, &changes);
            }
        }
        wrote
    }

    pub(super) fn stage(&mut self, generation: u32, oracle: Arc<Oracle>) {
        self.staged = Some(Plane {
            generation,
            projection: Projection::new(oracle, &self.leases),
        });
    }

    /// Writes a portion to the staged bank; false when nothing is left.
    pub(super) fn fill_staged(&mut self) -> Result<bool, MapFault> {
        let Some((plane, leases)) = self.plane(Which::Staged) else {
            return Ok(false);
        };
        let changes = plane.projection.changes(leases, PORTION);
        if changes.is_empty() {
            return Ok(false);
        }
        self.put(Which::Staged, &changes)?;
        Ok(true)
    }

    pub(super) fn activated(&mut self) {
        if let Some(plane) = self.staged.take() {
            self.active = Some(plane);
        }
    }

    pub(super) fn unstage(&mut self) {
        self.staged = None;
    }

    pub(super) fn addresses(&self, now: u64, of: &Wanted) -> Vec<IpAddr> {
        match of {
            Wanted::All => self.leases.addresses().collect(),
            Wanted::Name(name) => {
                let views = self.leases.of_name(now, name);
                views.iter().map(|v| v.address).collect()
            }
            Wanted::Address(address) => {
                let views = self.leases.of_address(now, *address);
                views.first().map(|v| v.address).into_iter().collect()
            }
        }
    }

    pub(super) fn known(&mut self, now: u64, addresses: &[IpAddr]) -> Vec<Known> {
        let known = addresses.iter().map(|&address| Known {
            address,
            names: self.leases.of_address(now, address),
            value: match &mut self.active {
                Some(plane) => plane.projection.value(&self.leases, address),
                None => None,
            },
        });
        known.collect()
    }

    pub(super) fn measure(&self, snapshot: &mut Snapshot) {
        snapshot.leases = self.leases.len();
        snapshot.addresses = self.leases.address_count();
        snapshot.names = self.leases.name_count();
        snapshot.evicted = self.leases.evicted();
        snapshot.map_failures = self.failures;
        if let Some(active) = &self.active {
            snapshot.entries = active.projection.entries();
            snapshot.unwritten = active.projection.waiting();
            snapshot.ambiguous = active.projection.ambiguous();
        }
    }

    fn touch(&mut self, addresses: &[IpAddr]) {
        for plane in [&mut self.active, &mut self.staged].into_iter().flatten() {
            plane.projection.touch(addresses);
        }
    }

    fn plane(&mut self, which: Which) -> Option<(&mut Plane, &Leases)> {
        let plane = match which {
            Which::Active => &mut self.active,
            Which::Staged => &mut self.staged,
        };
        Some((plane.as_mut()?, &self.leases))
    }

    /// Writes changes; what fails waits for the next flush.
    fn write(&mut self, which: Which, changes: &[Change]) -> bool {
        let Err(error) = self.put(which, changes) else {
            return true;
        };
        // The bank of the generation before goes while the next one is already staged.
        if which == Which::Active && self.staged.is_some() {
            return false;
        }
        self.failures += 1;
        let now = Instant::now();
        let told = self.told.map(|at| now.saturating_duration_since(at));
        if told.is_none_or(|since| since >= TELL) {
            self.told = Some(now);
            tracing::warn!(target: "honk::dns", %error, "names of addresses wait to be written");
        }
        false
    }

    fn put(&mut self, which: Which, changes: &[Change]) -> Result<(), MapFault> {
        let map = Arc::clone(&self.map);
        let Some((plane, _)) = self.plane(which) else {
            return Ok(());
        };
        let (set, gone): (Vec<&Change>, Vec<&Change>) =
            changes.iter().partition(|c| c.value.is_some());
        // What goes makes room for what comes.
        if !gone.is_empty() {
            let gone: Vec<_> = gone.iter().map(|c| c.address).collect();
            map.delete(plane.generation, &gone)?;
        }
        if !set.is_empty() {
            let set = set.iter().filter_map(|c| Some((c.address, c.value?)));
            let set: Vec<_> = set.collect();
            map.write(plane.generation, &set)?;
        }
        plane.projection.confirm(changes);
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Active,
    Staged,
}
