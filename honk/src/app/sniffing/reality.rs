//! Whether a sniffed name exists: a client can write anything into its first bytes, and a name
//! that only the client knows must not choose the way out.
//!
//! A live lease or a cached answer is proof enough. Otherwise the name is looked up as if the
//! client had asked; the flow waits a moment, the lookup goes on for the flows behind it.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use tokio::{runtime::Handle, task::JoinSet};

use crate::flow::{ClientAddr, Names, Wake};

/// How long a name is known not to exist.
const ABSENT: Duration = Duration::from_secs(10);
/// Absent names remembered.
const MAX_ABSENT: usize = 4096;
/// Lookups at once; beyond them a name counts as not verified.
const MAX_CHECKS: usize = 256;

/// The answer of a lookup, once it is there.
pub(super) type Pending = Arc<OnceLock<bool>>;

/// What is known about a name.
#[derive(Debug)]
pub(super) enum Check {
    Verified,
    Unverified,
    Running(Pending),
}

/// Names and the lookups about them.
#[derive(Debug)]
pub(super) struct Reality {
    pub(super) names: Arc<dyn Names>,
    runtime: Handle,
    absent: Arc<Mutex<HashMap<Arc<str>, Instant>>>,
    checks: Mutex<JoinSet<()>>,
}

impl Reality {
    pub(super) fn new(names: Arc<dyn Names>, runtime: Handle) -> Self {
        Self {
            names,
            runtime,
            absent: Arc::default(),
            checks: Mutex::default(),
        }
    }

    /// Checks the name of a flow; `wake` is called when a running lookup ends.
    pub(super) fn check(
        &self,
        name: &Arc<str>,
        address: IpAddr,
        client: ClientAddr,
        wake: Wake,
    ) -> Check {
        if self.names.leased(name, address) || self.names.cached(name) {
            return Check::Verified;
        }
        let now = Instant::now();
        if lock(&self.absent)
            .get(name)
            .is_some_and(|until| *until > now)
        {
            return Check::Unverified;
        }
        let mut checks = lock(&self.checks);
        while checks.try_join_next().is_some() {}
        if checks.len() >= MAX_CHECKS {
            return Check::Unverified;
        }
        let Some(lookup) = self.names.exists(Arc::clone(name), client) else {
            return Check::Unverified;
        };
        let (pending, absent) = (Pending::default(), Arc::clone(&self.absent));
        let (answer, name) = (Arc::clone(&pending), Arc::clone(name));
        let task = async move {
            let exists = lookup.await;
            if exists == Some(false) {
                remember(&mut lock(&absent), name, Instant::now());
            }
            let _ = answer.set(exists == Some(true));
            wake();
        };
        checks.spawn_on(task, &self.runtime);
        Check::Running(pending)
    }
}

fn remember(absent: &mut HashMap<Arc<str>, Instant>, name: Arc<str>, now: Instant) {
    if absent.len() >= MAX_ABSENT {
        absent.retain(|_, until| *until > now);
    }
    // A flood of invented names costs lookups, not memory.
    if absent.len() < MAX_ABSENT {
        absent.insert(name, now + ABSENT);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_names_are_bounded_and_forgotten() {
        let (mut absent, start) = (HashMap::new(), Instant::now());
        for n in 0..MAX_ABSENT + 10 {
            remember(&mut absent, n.to_string().into(), start);
        }
        assert_eq!(absent.len(), MAX_ABSENT);
        remember(&mut absent, "late".into(), start + ABSENT);
        assert_eq!(absent.len(), 1);
    }
}
