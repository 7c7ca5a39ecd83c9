//! What pings found: one map per group, one for measurements without a group.
//!
//! For people only: nothing here moves a selection. Every sample is of one group with its own
//! URL; a member that has none may show the newest one of another map, marked as such.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use crate::id::{GroupId, MemberId};

/// Samples kept in all maps together.
pub const MAX_SAMPLES: usize = 65_536;

/// Which map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Map {
    /// That of a group.
    Group(GroupId),
    /// For measurements without a group.
    Scratch,
}

/// Number of a run of measurements; what comes in late of an ended one is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(pub u64);

/// One measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Milliseconds, or why there are none.
    pub result: Result<u16, Arc<str>>,
    /// Unix time in milliseconds.
    pub at_ms: u64,
    /// What was fetched.
    pub url: Arc<str>,
    /// The deadline.
    pub timeout_ms: u32,
}

/// What a member shows in a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown<'a> {
    /// The sample.
    pub sample: &'a Measured,
    /// Where it is from, when it is not the map's own.
    pub foreign: Option<Map>,
}

/// All maps.
#[derive(Debug, Default)]
pub struct Measurements {
    maps: BTreeMap<Map, HashMap<MemberId, Measured>>,
    pending: BTreeMap<(Map, MemberId), RunId>,
    dropped: u64,
}

impl Measurements {
    /// A run begins: its members lose their own samples in its map and are pending.
    pub fn begin(&mut self, run: RunId, map: Map, members: &[MemberId]) {
        for member in members {
            if let Some(own) = self.maps.get_mut(&map) {
                own.remove(member);
            }
            self.pending.insert((map, *member), run);
        }
    }

    /// A result. False when the run has ended meanwhile, or there is no room.
    pub fn record(&mut self, run: RunId, map: Map, member: MemberId, sample: Measured) -> bool {
        if self.pending.get(&(map, member)) != Some(&run) {
            self.dropped += 1;
            return false;
        }
        self.pending.remove(&(map, member));
        self.store(map, member, sample)
    }

    /// A single measurement that belongs to no run.
    pub fn store(&mut self, map: Map, member: MemberId, sample: Measured) -> bool {
        let known = self.maps.get(&map).is_some_and(|m| m.contains_key(&member));
        if !known && self.len() >= MAX_SAMPLES {
            self.dropped += 1;
            return false;
        }
        self.maps.entry(map).or_default().insert(member, sample);
        true
    }

    /// A run ended, early or not: nothing of it is pending any more.
    pub fn retire(&mut self, run: RunId) {
        self.pending.retain(|_, of| *of != run);
    }

    /// What a member shows in a map.
    pub fn shown(&self, map: Map, member: MemberId) -> Option<Shown<'_>> {
        let own = self.maps.get(&map).and_then(|m| m.get(&member));
        if let Some(sample) = own {
            let foreign = None;
            return Some(Shown { sample, foreign });
        }
        let others = self.maps.iter().filter(|(other, _)| **other != map);
        let samples = others.filter_map(|(from, m)| Some((from, m.get(&member)?)));
        let (from, sample) = samples.max_by_key(|(_, sample)| sample.at_ms)?;
        let foreign = Some(*from);
        Some(Shown { sample, foreign })
    }

    /// All samples of a member, one of each map that has it.
    pub fn samples(&self, member: MemberId) -> impl Iterator<Item = &Measured> {
        self.maps.values().filter_map(move |map| map.get(&member))
    }

    /// Whether a run waits for this member.
    pub fn is_pending(&self, map: Map, member: MemberId) -> bool {
        self.pending.contains_key(&(map, member))
    }

    /// After an activation: groups that are gone lose their map, members theirs samples.
    pub fn retain(&mut self, groups: &BTreeMap<GroupId, BTreeSet<MemberId>>) {
        let all: BTreeSet<MemberId> = groups.values().flatten().copied().collect();
        self.maps.retain(|map, samples| match map {
            Map::Scratch => {
                samples.retain(|member, _| all.contains(member));
                true
            }
            Map::Group(id) => groups.get(id).is_some_and(|members| {
                samples.retain(|member, _| members.contains(member));
                true
            }),
        });
    }

    /// Samples in all maps.
    pub fn len(&self) -> usize {
        self.maps.values().map(HashMap::len).sum()
    }

    /// Whether nothing was measured yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Results that came too late, or found no room.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{NodeId, Uuid};

    fn member(n: u128) -> MemberId {
        MemberId::Node(NodeId(Uuid::from_u128(n)))
    }

    fn map(n: u128) -> Map {
        Map::Group(GroupId(Uuid::from_u128(n)))
    }

    fn sample(ms: u16, at_ms: u64) -> Measured {
        Measured {
            result: Ok(ms),
            at_ms,
            url: "http://check.test/".into(),
            timeout_ms: 5000,
        }
    }

    fn ms(all: &Measurements, of: Map, n: u128) -> Option<(u16, Option<Map>)> {
        let shown = all.shown(of, member(n))?;
        Some((shown.sample.result.clone().unwrap(), shown.foreign))
    }

    #[test]
    fn a_run_touches_only_its_members_in_its_own_map() {
        let mut all = Measurements::default();
        all.store(map(1), member(1), sample(10, 1));
        all.store(map(1), member(2), sample(20, 1));
        all.store(map(2), member(1), sample(30, 2));
        let run = RunId(1);
        all.begin(run, map(1), &[member(1)]);
        assert!(all.is_pending(map(1), member(1)) && !all.is_pending(map(1), member(2)));
        assert_eq!(ms(&all, map(1), 1), Some((30, Some(map(2)))), "foreign");
        assert!(all.record(run, map(1), member(1), sample(11, 3)));
        assert_eq!(ms(&all, map(1), 1), Some((11, None)));
        assert_eq!(ms(&all, map(1), 2), Some((20, None)));
        assert_eq!(ms(&all, map(2), 1), Some((30, None)));
    }

    #[test]
    fn late_results_of_an_ended_run_are_dropped() {
        let mut all = Measurements::default();
        all.begin(RunId(1), map(1), &[member(1), member(2)]);
        all.record(RunId(1), map(1), member(1), sample(10, 1));
        all.retire(RunId(1));
        assert!(!all.is_pending(map(1), member(2)));
        assert!(!all.record(RunId(1), map(1), member(2), sample(10, 1)));
        // A newer run of the same members is not answered by the older one.
        all.begin(RunId(2), map(1), &[member(2)]);
        assert!(!all.record(RunId(1), map(1), member(2), sample(10, 1)));
        assert_eq!(all.dropped(), 2);
        assert_eq!(ms(&all, map(1), 2), None);
    }

    #[test]
    fn the_newest_foreign_sample_is_shown() {
        let mut all = Measurements::default();
        all.store(map(1), member(1), sample(10, 5));
        all.store(Map::Scratch, member(1), sample(20, 9));
        assert_eq!(ms(&all, map(3), 1), Some((20, Some(Map::Scratch))));
    }

    #[test]
    fn what_is_gone_takes_its_samples_along() {
        let mut all = Measurements::default();
        for n in 1..=3 {
            all.store(map(1), member(n), sample(10, 1));
            all.store(map(2), member(n), sample(10, 1));
            all.store(Map::Scratch, member(n), sample(10, 1));
        }
        let group = GroupId(Uuid::from_u128(1));
        let left = BTreeMap::from([(group, BTreeSet::from([member(1), member(2)]))]);
        all.retain(&left);
        assert_eq!(all.len(), 4);
        assert_eq!(ms(&all, map(1), 3), None);
    }

    #[test]
    fn there_is_a_cap_on_samples() {
        let mut all = Measurements::default();
        for n in 0..MAX_SAMPLES as u128 {
            assert!(all.store(Map::Scratch, member(n), sample(10, 1)));
        }
        assert!(!all.store(map(1), member(1), sample(10, 1)));
        assert!(
            all.store(Map::Scratch, member(1), sample(11, 1)),
            "replaced"
        );
        assert_eq!((all.len(), all.dropped()), (MAX_SAMPLES, 1));
    }
}
