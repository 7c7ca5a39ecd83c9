//! Why a leaf was chosen, and the counters of it (section 18 of the design).

/// The one reason of a choice among several leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// A trial paid by the cold allowance.
    ColdExplore,
    /// A trial paid by earned credit.
    PeriodicExplore,
    /// The incumbent was outside normal eligibility; the best decided.
    IncumbentIneligible,
    /// The incumbent has an unresolved failure; the best decided.
    FreshFailureBypass,
    /// Nobody earned promotion, and the best lacked a comparison with the incumbent.
    InsufficientEvidenceHeld,
    /// Nobody earned promotion, and up and down disagree about a challenger.
    DirectionalTradeoffHeld,
    /// No comparison cleared the margin of the incumbent.
    IncumbentHeld,
    /// The best, without another eligible alternative.
    ReliabilityWinner,
    /// The best among alternatives, or a promoted challenger.
    PerformanceWinner,
}

impl Reason {
    /// All of them, in the order of the API.
    pub const ALL: [Self; 9] = [
        Self::ColdExplore,
        Self::PeriodicExplore,
        Self::IncumbentIneligible,
        Self::FreshFailureBypass,
        Self::InsufficientEvidenceHeld,
        Self::DirectionalTradeoffHeld,
        Self::IncumbentHeld,
        Self::ReliabilityWinner,
        Self::PerformanceWinner,
    ];

    /// As in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::ColdExplore => "coldExplore",
            Self::PeriodicExplore => "periodicExplore",
            Self::IncumbentIneligible => "incumbentIneligible",
            Self::FreshFailureBypass => "freshFailureBypass",
            Self::InsufficientEvidenceHeld => "insufficientEvidenceHeld",
            Self::DirectionalTradeoffHeld => "directionalTradeoffHeld",
            Self::IncumbentHeld => "incumbentHeld",
            Self::ReliabilityWinner => "reliabilityWinner",
            Self::PerformanceWinner => "performanceWinner",
        }
    }
}

/// What happened in one network of a group, since its name was configured. None ever wraps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReasonStats {
    /// Choices by reason, in the order of [`Reason::ALL`]. Each choice has one.
    pub reasons: [u64; 9],
    /// Ordinary moves from one leaf to another: no first choice, no trial.
    pub ordinary_switch: u64,
    /// Those of them that came back within eight choices.
    pub switch_flap: u64,
    /// Leaves that health or missing UDP kept out, by choice.
    pub dead_filtered: u64,
    /// Candidates that three failures excluded, by choice.
    pub fail_streak_excluded: u64,
    /// Candidates that were not to be explored yet, by choice.
    pub explore_backed_off: u64,
    /// Hints about carriers that were taken.
    pub carrier_pressure: u64,
    /// Those with grown round trips.
    pub carrier_rtt_pressure: u64,
    /// Those with losses.
    pub carrier_loss_pressure: u64,
    /// Trials that such a hint led to.
    pub carrier_validation: u64,
    /// Ordinary choices of a leaf that was not seen to work yet.
    pub provisional_selections: u64,
    /// Ordinary choices of a leaf that was.
    pub usable_selections: u64,
    /// Trials chosen.
    pub validation_selections: u64,
}

impl ReasonStats {
    /// A committed choice.
    pub(super) fn chosen(&mut self, reason: Reason) {
        bump(&mut self.reasons[reason as usize], 1);
        if matches!(reason, Reason::ColdExplore | Reason::PeriodicExplore) {
            bump(&mut self.validation_selections, 1);
        }
    }

    /// A committed move. `flap`: back to where it came from.
    pub(super) fn switched(&mut self, flap: bool) {
        bump(&mut self.ordinary_switch, 1);
        bump(&mut self.switch_flap, u64::from(flap));
    }

    /// Candidates that a choice did not have.
    pub(super) fn filtered(&mut self, dead: u64, excluded: u64, backed_off: u64) {
        bump(&mut self.dead_filtered, dead);
        bump(&mut self.fail_streak_excluded, excluded);
        bump(&mut self.explore_backed_off, backed_off);
    }

    /// A hint about a carrier.
    pub(super) fn pressure(&mut self, rtt: bool, loss: bool) {
        bump(&mut self.carrier_pressure, 1);
        bump(&mut self.carrier_rtt_pressure, u64::from(rtt));
        bump(&mut self.carrier_loss_pressure, u64::from(loss));
    }

    /// A trial that a hint led to.
    pub(super) fn validated_carrier(&mut self) {
        bump(&mut self.carrier_validation, 1);
    }

    /// An ordinary choice of a leaf that was seen to work, or not.
    pub(super) fn selected(&mut self, usable: bool) {
        bump(&mut self.usable_selections, u64::from(usable));
        bump(&mut self.provisional_selections, u64::from(!usable));
    }

    /// Choices with a reason.
    pub fn choices(&self) -> u64 {
        self.reasons.iter().fold(0, |a, &b| a.saturating_add(b))
    }
}

fn bump(count: &mut u64, by: u64) {
    *count = count.saturating_add(by);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_own_count() {
        let mut stats = ReasonStats::default();
        for (n, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, n);
            for _ in 0..=n {
                stats.chosen(reason);
            }
        }
        assert_eq!(stats.reasons, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!((stats.choices(), stats.validation_selections), (45, 3));
    }

    #[test]
    fn overlapping_counts_are_kept_apart() {
        let mut stats = ReasonStats::default();
        stats.switched(false);
        stats.switched(true);
        stats.pressure(true, true);
        stats.pressure(false, true);
        stats.selected(true);
        stats.selected(false);
        stats.filtered(u64::MAX, 2, 3);
        stats.filtered(1, 0, 0);
        stats.validated_carrier();
        let expected = ReasonStats {
            ordinary_switch: 2,
            switch_flap: 1,
            dead_filtered: u64::MAX,
            fail_streak_excluded: 2,
            explore_backed_off: 3,
            carrier_pressure: 2,
            carrier_rtt_pressure: 1,
            carrier_loss_pressure: 2,
            carrier_validation: 1,
            provisional_selections: 1,
            usable_selections: 1,
            ..ReasonStats::default()
        };
        assert_eq!(stats, expected);
    }
}
