//! Everything Score tells about itself in numbers: neither a node nor a target is named.

use super::{
    budget::{Ledger, Yield},
    clock::T,
    compare::ComparisonStats,
    ids::GroupKey,
    reasons::ReasonStats,
};

/// All groups.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Every current group with policy `score`.
    pub groups: Vec<GroupStats>,
    /// Original flows, each once however many groups it passed.
    pub business_starts: u64,
    /// The stores.
    pub cache: CacheStats,
}

/// One group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupStats {
    /// Which one.
    pub group: GroupKey,
    /// Streams.
    pub tcp: NetworkStats,
    /// Datagrams.
    pub udp: NetworkStats,
}

/// One network of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NetworkStats {
    /// Choices and what led to them.
    pub reasons: ReasonStats,
    /// The budget of optional trials.
    pub budget: BudgetStats,
}

/// Budgets of the target families of one network, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetStats {
    /// Original flows, chosen trials among them.
    pub business_starts: u64,
    /// Families that have a budget.
    pub scopes: u64,
    /// Those whose trials are paused for low yield.
    pub paused_scopes: u64,
    /// Original flows per credit, the fewest of a family; 0 without one.
    pub earning_period: u64,
    /// Credit for the start, granted once.
    pub cold_allowance: u64,
    /// Of that, neither spent nor reserved.
    pub cold_available: u64,
    /// Earned credit neither spent nor reserved.
    pub earned_available: u64,
    /// Reservations whose work has not begun.
    pub reserved: u64,
    /// Credit spent.
    pub spent: u64,
    /// Trials whose work began.
    pub trial_starts: u64,
    /// Those paid by the allowance.
    pub cold: u64,
    /// Those paid by earned credit.
    pub periodic: u64,
    /// Retries and reroutes, which cost nothing.
    pub recovery: u64,
    /// Trials refused for credit or pause.
    pub budget_blocked: u64,
    /// Trials refused because their member was busy.
    pub in_flight_blocked: u64,
    /// Reservations given back.
    pub refunded: u64,
    /// Reservations and tracked trials that grew too old.
    pub expired: u64,
    /// Trials begun and not over.
    pub in_flight: u64,
    /// Trials that worked.
    pub trial_success: u64,
    /// Trials that did not.
    pub trial_failure: u64,
    /// Trials given up, or refused by their target.
    pub trial_cancelled: u64,
    /// Setups of trials by the power of two of their milliseconds; the last place takes the rest.
    pub trial_setup_histogram: [u64; 8],
    /// Milliseconds of them all.
    pub trial_setup_millis: u64,
    /// Milliseconds of all trials from start to end.
    pub trial_elapsed_millis: u64,
}

/// The stores of evidence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Cells of single targets.
    pub exact_cells: u64,
    /// Cells of groups and families.
    pub aggregate_cells: u64,
    /// Of the former, those that made room.
    pub exact_evictions: u64,
    /// Of the latter.
    pub aggregate_evictions: u64,
    /// The comparison store.
    pub comparison: ComparisonStats,
}

impl BudgetStats {
    /// Adds one family. `rate`: original flows of the group per second.
    pub(super) fn add(&mut self, now: T, ledger: &Ledger, rate: f64) {
        let totals = ledger.totals();
        let [cold, earned] = ledger.available();
        let period = ledger.period_at(now, rate);
        self.earning_period = match self.earning_period {
            0 => period,
            least => least.min(period),
        };
        for (sum, new) in [
            (&mut self.business_starts, totals.business_starts),
            (&mut self.scopes, 1),
            (
                &mut self.paused_scopes,
                u64::from(ledger.yields(now) == Yield::Paused),
            ),
            (&mut self.cold_allowance, ledger.cold_allowance()),
            (&mut self.cold_available, cold),
            (&mut self.earned_available, earned),
            (&mut self.reserved, ledger.reserved()),
            (&mut self.spent, ledger.spent()),
            (&mut self.trial_starts, totals.trial_starts),
            (&mut self.cold, totals.cold),
            (&mut self.periodic, totals.periodic),
            (&mut self.recovery, totals.recovery),
            (&mut self.budget_blocked, totals.budget_blocked),
            (&mut self.in_flight_blocked, totals.in_flight_blocked),
            (&mut self.refunded, totals.refunded),
            (&mut self.expired, totals.expired),
            (&mut self.in_flight, ledger.in_flight()),
            (&mut self.trial_success, totals.success),
            (&mut self.trial_failure, totals.failure),
            (&mut self.trial_cancelled, totals.cancelled),
            (&mut self.trial_setup_millis, totals.setup_millis),
            (&mut self.trial_elapsed_millis, totals.elapsed_millis),
        ] {
            *sum = sum.saturating_add(new);
        }
        for (sum, new) in self
            .trial_setup_histogram
            .iter_mut()
            .zip(totals.setup_histogram)
        {
            *sum = sum.saturating_add(new);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::score::outcome::Settled;

    #[test]
    fn families_are_added_up_and_the_fastest_period_shows() {
        let mut stats = BudgetStats::default();
        assert_eq!(stats.earning_period, 0);
        let (mut v4, v6) = (Ledger::new(4), Ledger::new(9));
        for _ in 0..16 {
            v4.earn(T::START, 0.0);
        }
        for ledger in [&v4, &v6] {
            stats.add(T::START, ledger, 0.0);
        }
        let expected = BudgetStats {
            business_starts: 16,
            scopes: 2,
            earning_period: 16,
            cold_allowance: 8,
            cold_available: 8,
            earned_available: 1,
            ..BudgetStats::default()
        };
        assert_eq!(stats, expected);
    }

    #[test]
    fn the_shortest_period_of_a_family_is_told() {
        let now = T::from_secs(1000);
        let slow = Ledger::new(2);
        let mut fast = Ledger::new(2);
        for attempt in 1..=3 {
            fast.settle(now, attempt, Settled::Success, 5.0);
        }
        for ledgers in [[&slow, &fast], [&fast, &slow]] {
            let mut stats = BudgetStats::default();
            for ledger in ledgers {
                stats.add(now, ledger, 5.0);
            }
            assert_eq!((stats.earning_period, stats.scopes), (8, 2));
            assert_eq!(stats.cold_allowance, 4);
        }
    }
}
