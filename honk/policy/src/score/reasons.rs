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
