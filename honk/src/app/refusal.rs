//! Why flows are refused, as metrics and rooms of a flow's life call it.

use honk_policy::group::Refuse;

use crate::flow::Refusal;

/// Label values of `reason` of refused flows, in the order of [`refusal_index`].
pub(crate) const REFUSALS: [&str; 9] = [
    "blocked",
    "no_member",
    "all_dead",
    "udp_incapable",
    "final_missing",
    "final_cycle",
    "depth",
    "capacity",
    "stopping",
];

/// Place of a reason among [`REFUSALS`].
pub(super) fn refusal_index(refusal: Refusal) -> usize {
    match refusal {
        Refusal::Blocked => 0,
        Refusal::NoMember => 1,
        Refusal::AllDead => 2,
        Refusal::UdpIncapable => 3,
        Refusal::FinalMissing => 4,
        Refusal::FinalCycle => 5,
        Refusal::Depth => 6,
        Refusal::Capacity => 7,
        Refusal::Stopping => 8,
    }
}

/// The label value of a reason.
pub(super) fn name(refusal: Refusal) -> &'static str {
    REFUSALS[refusal_index(refusal)]
}

/// What the flow is told of a selection that failed.
pub(super) fn refusal(refuse: Refuse) -> Refusal {
    match refuse {
        Refuse::NoMember => Refusal::NoMember,
        Refuse::AllDead => Refusal::AllDead,
        Refuse::UdpIncapable => Refusal::UdpIncapable,
        Refuse::FinalMissing => Refusal::FinalMissing,
        Refuse::FinalCycle => Refusal::FinalCycle,
        Refuse::Depth => Refusal::Depth,
    }
}
