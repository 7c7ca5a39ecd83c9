//! Kernel slots: a name keeps its number as long as the process lives.
//!
//! Flow entries in the kernel carry the number, so it must not change its meaning under
//! them. The slot of a vanished group stays out of use until the caller knows that no entry
//! carries it.

use std::{collections::BTreeSet, sync::Arc};

use honk_common::outbound::{USER_FIRST, USER_LAST};

use crate::id::Ordinal;

/// A slot whose group is gone but whose number may still stand in flow entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retired {
    /// Name of the group that had it; it gets the slot back when it returns.
    pub name: Arc<str>,
    /// The slot.
    pub slot: Ordinal,
}

/// Slots for `names`, in order: the old one, else the lowest free. `None` when all numbers
/// are in use or retired. `retired` loses the names that are back.
pub(super) fn assign(
    names: &[Arc<str>],
    held: impl Fn(&str) -> Option<Ordinal>,
    retired: &mut Vec<Retired>,
) -> Vec<Option<Ordinal>> {
    let kept: Vec<Option<Ordinal>> = names
        .iter()
        .map(|name| {
            let back = retired.iter().position(|r| r.name == *name);
            held(name).or_else(|| back.map(|at| retired.remove(at).slot))
        })
        .collect();
    let used: BTreeSet<u8> = kept.iter().flatten().map(|o| o.0).collect();
    let retired: BTreeSet<u8> = retired.iter().map(|r| r.slot.0).collect();
    let is_free = |slot: &u8| !used.contains(slot) && !retired.contains(slot);
    let mut free = (USER_FIRST..=USER_LAST).filter(is_free).map(Ordinal);
    kept.into_iter()
        .map(|slot| slot.or_else(|| free.next()))
        .collect()
}
