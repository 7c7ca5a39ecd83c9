//! What ordinary choices chose before, for each scope: the incumbent, and how often it changed.

use super::{
    cell::{Scope, TargetScope},
    consts::HISTORY,
    ids::{GroupKey, NodeKey, TargetId, mix},
    lru::{Key, Lru},
    targets::Targets,
};
use crate::id::{Family, Network};

/// Ordinary choices after a change within which going back is a flap (S-341).
const FLAP: u64 = 8;

/// Choices of every scope, the most recently used ones.
#[derive(Debug)]
pub(super) struct History {
    entries: Lru<HistoryKey, Entry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HistoryKey {
    group: GroupKey,
    network: Network,
    family: Option<Family>,
    target: Option<TargetId>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    current: NodeKey,
    previous: Option<NodeKey>,
    choices: u64,
    /// Choices there had been at the last change.
    changed_at: u64,
}

/// What a choice was to the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    /// The first of its scope, as far as is known.
    First,
    /// The same leaf.
    Stay,
    /// Another leaf.
    Switch,
    /// Back to the leaf before, soon after leaving it.
    Flap,
}

impl Key for HistoryKey {
    fn bits(&self) -> u64 {
        let target = self.target.map_or(0, |t| u64::from(t.0) + 1);
        let family = self.family.map_or(0, |f| f as u64 + 1);
        mix(
            target,
            u64::from(self.group.0) << 8 | family << 1 | self.network as u64,
        )
    }
}

impl HistoryKey {
    /// `None` for a target that nothing is kept of.
    fn of(scope: &Scope) -> Option<Self> {
        let target = match scope.target {
            TargetScope::Any => None,
            TargetScope::One(id) => Some(id),
            TargetScope::New => return None,
        };
        Some(Self {
            group: scope.group,
            network: scope.network,
            family: scope.family,
            target,
        })
    }
}

impl History {
    pub(super) fn new() -> Self {
        Self {
            entries: Lru::new(HISTORY),
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Histories given up for others.
    pub(super) fn evictions(&self) -> u64 {
        self.entries.evictions()
    }

    /// The leaf that served this scope last.
    pub(super) fn current(&self, scope: &Scope) -> Option<NodeKey> {
        let entry = self.entries.get(&HistoryKey::of(scope)?)?;
        Some(entry.current)
    }

    /// Notes an ordinary choice.
    pub(super) fn commit(&mut self, targets: &mut Targets, scope: &Scope, node: NodeKey) -> Move {
        let Some(key) = HistoryKey::of(scope) else {
            return Move::First;
        };
        let Some(slot) = self.entries.find(&key) else {
            self.begin(targets, key, node);
            return Move::First;
        };
        self.entries.touch(slot);
        let Some(entry) = self.entries.at_mut(slot) else {
            return Move::First;
        };
        entry.choices = entry.choices.saturating_add(1);
        if entry.current == node {
            return Move::Stay;
        }
        let back = entry.previous == Some(node) && entry.choices - entry.changed_at <= FLAP;
        *entry = Entry {
            current: node,
            previous: Some(entry.current),
            choices: entry.choices,
            changed_at: entry.choices,
        };
        if back { Move::Flap } else { Move::Switch }
    }

    /// Forgets scopes whose leaf, present or former, is no longer of the group.
    pub(super) fn retain(
        &mut self,
        targets: &mut Targets,
        keep: impl Fn(GroupKey, NodeKey) -> bool,
    ) {
        for slot in 0..self.entries.width() {
            let Some((key, entry)) = self.entries.at(slot) else {
                continue;
            };
            let of_group = |node| keep(key.group, node);
            if of_group(entry.current) && entry.previous.is_none_or(of_group) {
                continue;
            }
            let target = key.target;
            self.entries.remove(slot);
            if let Some(id) = target {
                targets.release(id);
            }
        }
    }

    fn begin(&mut self, targets: &mut Targets, key: HistoryKey, node: NodeKey) {
        if let Some(id) = key.target {
            targets.retain(id);
        }
        let first = Entry {
            current: node,
            previous: None,
            choices: 1,
            changed_at: 1,
        };
        let (_, evicted) = self.entries.insert(key, first);
        if let Some(id) = evicted.and_then(|(key, _)| key.target) {
            targets.release(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        id::{NodeId, Uuid},
        score::Target,
    };

    fn node(number: u128) -> NodeKey {
        NodeId(Uuid::from_u128(number)).into()
    }

    fn scope(target: TargetScope) -> Scope {
        Scope {
            group: GroupKey(1),
            network: Network::Tcp,
            family: Some(Family::V4),
            target,
        }
    }

    #[test]
    fn going_back_within_eight_choices_is_a_flap() {
        for (stays, want) in [(7, Move::Flap), (8, Move::Switch)] {
            let (mut history, mut targets) = (History::new(), Targets::new(0));
            let scope = scope(TargetScope::Any);
            let mut choose = |n| history.commit(&mut targets, &scope, node(n));
            assert_eq!(choose(1), Move::First);
            assert_eq!(choose(2), Move::Switch);
            for _ in 0..stays {
                assert_eq!(choose(2), Move::Stay);
            }
            assert_eq!(choose(1), want);
            assert_eq!(history.current(&scope), Some(node(1)));
        }
    }

    #[test]
    fn a_history_goes_with_the_leaf_before_too_and_stays_while_it_is_used() {
        let (mut history, mut targets) = (History::new(), Targets::new(0));
        let all = scope(TargetScope::Any);
        for n in [2, 1] {
            history.commit(&mut targets, &all, node(n));
        }
        history.retain(&mut targets, |_, n| n != node(3));
        assert_eq!(history.current(&all), Some(node(1)));
        history.retain(&mut targets, |_, n| n != node(2));
        assert_eq!(history.current(&all), None);
        let mut commit = |history: &mut History, port| {
            let id = targets.intern(Target::Name("a.example", port));
            history.commit(&mut targets, &scope(TargetScope::One(id)), node(1));
            id
        };
        let first = commit(&mut history, 1);
        let second = commit(&mut history, 2);
        for port in 3..=HISTORY as u16 {
            commit(&mut history, port);
        }
        commit(&mut history, 1);
        commit(&mut history, HISTORY as u16 + 1);
        let known = |id| history.current(&scope(TargetScope::One(id))).is_some();
        assert!(known(first) && !known(second));
    }

    #[test]
    fn histories_are_bounded_and_let_go_of_their_targets() {
        let (mut history, mut targets) = (History::new(), Targets::new(0));
        for port in 0..HISTORY as u16 + 10 {
            let id = targets.intern(Target::Name("a.example", port));
            history.commit(&mut targets, &scope(TargetScope::One(id)), node(1));
            targets.release(id);
        }
        assert_eq!((history.len(), history.evictions()), (HISTORY, 10));
        assert_eq!(targets.len(), HISTORY);
        history.retain(&mut targets, |_, n| n != node(1));
        assert_eq!((history.len(), targets.len()), (0, 0));
    }
}
