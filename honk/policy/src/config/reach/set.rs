//! Sets of numbers: what is left of ports, addresses and such when all conditions are joined.

/// Sorted, disjoint, inclusive ranges that do not touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Set(Vec<(u128, u128)>);

impl Set {
    /// Of ranges in any order; those upside down hold nothing.
    pub(super) fn new(ranges: impl IntoIterator<Item = (u128, u128)>) -> Self {
        let mut ranges: Vec<_> = ranges.into_iter().filter(|(a, b)| a <= b).collect();
        ranges.sort_unstable();
        let mut set: Vec<(u128, u128)> = Vec::with_capacity(ranges.len());
        for (from, to) in ranges {
            match set.last_mut() {
                Some(last) if from <= last.1.saturating_add(1) => last.1 = last.1.max(to),
                _ => set.push((from, to)),
            }
        }
        Self(set)
    }

    /// Everything from 0 to `most`.
    pub(super) fn all(most: u128) -> Self {
        Self(vec![(0, most)])
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of ranges.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// What of 0 to `most` is not in it.
    pub(super) fn without(&self, most: u128) -> Self {
        let mut rest = Vec::with_capacity(self.0.len() + 1);
        let mut next = Some(0);
        for &(from, to) in &self.0 {
            if let Some(start) = next.filter(|start| *start < from) {
                rest.push((start, from - 1));
            }
            next = to.checked_add(1);
        }
        if let Some(start) = next.filter(|start| *start <= most) {
            rest.push((start, most));
        }
        Self(rest)
    }

    /// What is in both.
    pub(super) fn and(&self, other: &Self) -> Self {
        let (mut one, mut two) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut both = Vec::new();
        while let (Some(a), Some(b)) = (one.peek(), two.peek()) {
            let (from, to) = (a.0.max(b.0), a.1.min(b.1));
            if from <= to {
                both.push((from, to));
            }
            if a.1 <= b.1 {
                one.next();
            } else {
                two.next();
            }
        }
        Self(both)
    }

    /// Whether all of `other` is in it.
    pub(super) fn contains(&self, other: &Self) -> bool {
        other.0.iter().all(|(from, to)| {
            let at = self.0.partition_point(|range| range.1 < *from);
            self.0.get(at).is_some_and(|r| r.0 <= *from && *to <= r.1)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(set: &Set) -> Vec<u128> {
        (0..16)
            .filter(|n| set.contains(&Set::new([(*n, *n)])))
            .collect()
    }

    #[test]
    fn sets_hold_what_their_ranges_hold() {
        let set = Set::new([(9, 12), (3, 4), (5, 6), (8, 7), (10, 10)]);
        assert_eq!(members(&set), [3, 4, 5, 6, 9, 10, 11, 12]);
        assert_eq!(set.len(), 2);
        assert_eq!(members(&set.without(15)), [0, 1, 2, 7, 8, 13, 14, 15]);
        let other = Set::new([(0, 3), (6, 9), (12, 15)]);
        assert_eq!(members(&set.and(&other)), [3, 6, 9, 12]);
        assert!(set.contains(&set.and(&other)) && !set.contains(&other));
        assert!(Set::all(15).without(15).is_empty());
        assert_eq!(Set::default().without(15), Set::all(15));
        let most = Set::new([(1, u128::MAX)]);
        assert_eq!(most.without(u128::MAX), Set::new([(0, 0)]));
        assert!(Set::new([(u128::MAX, u128::MAX), (0, u128::MAX - 1)]) == Set::all(u128::MAX));
    }
}
