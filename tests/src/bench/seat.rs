//! Where the load's threads run.
//!
//! One bulk stream has two ends. When the scheduler puts both on one CPU the stream runs at half
//! the speed of a round in which it does not, and that says nothing about the gateway. Where the
//! gateway itself is no process, both ends therefore get a CPU each; a relay is a process that
//! needs a CPU too, and there the scheduler decides for every engine alike.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Whether the ends of a stream are kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seats {
    /// The scheduler decides.
    Free,
    /// Senders on the first CPU, readers on the others.
    Apart,
}

/// An end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Sender,
    Reader(usize),
}

impl Seats {
    /// Seats the calling thread; on a machine with one CPU there is nothing to decide.
    pub(super) fn take(self, end: End) {
        if self == Self::Free {
            return;
        }
        let Ok(all) = sched_getaffinity(None) else {
            return;
        };
        let cpus: Vec<usize> = (0..CpuSet::MAX_CPU)
            .filter(|cpu| all.is_set(*cpu))
            .collect();
        let Some(cpu) = seat(&cpus, end) else {
            return;
        };
        let mut only = CpuSet::new();
        only.set(cpu);
        // Without a seat the round is only noisier.
        let _ = sched_setaffinity(None, &only);
    }
}

fn seat(cpus: &[usize], end: End) -> Option<usize> {
    let (first, others) = cpus.split_first()?;
    match end {
        _ if others.is_empty() => None,
        End::Sender => Some(*first),
        End::Reader(n) => others.get(n % others.len()).copied(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_stay_off_the_senders_cpu() {
        assert_eq!(seat(&[], End::Sender), None);
        assert_eq!(seat(&[3], End::Reader(0)), None);
        assert_eq!(seat(&[2, 5], End::Sender), Some(2));
        assert_eq!(seat(&[2, 5], End::Reader(7)), Some(5));
        assert_eq!(seat(&[0, 1, 2], End::Reader(1)), Some(2));
    }
}
