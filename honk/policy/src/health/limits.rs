//! Thresholds, pauses and caps of the health engine.

use std::time::Duration;

use crate::id::Domain;

/// Probes under way at a time (seed: groups; performance case B18).
pub const MAX_PROBES: usize = 64;
/// Things probed; beyond it new ones are not, and count as unknown, which is alive.
pub const MAX_TARGETS: usize = 65_536;
/// Targets of group tests that are taken up in one turn, so that what a death decides need not
/// wait until the tests of hundreds of groups have begun.
pub(super) const TAKEN_UP: usize = 4_096;
/// Samples kept of one node for people to look at.
pub const HISTORY: usize = 10;

/// Probe failures in a row that mean death.
pub(super) const PROBE_DEATH: u8 = 3;
/// Successes in a row that bring a dead one back.
pub(super) const RECOVERY: u8 = 2;
/// A new node's failures do not count this long, unless the probe was asked for.
pub(super) const GRACE: Duration = Duration::from_secs(60);
/// First pause before a dead one is probed again.
pub(super) const BACKOFF: Duration = Duration::from_secs(5);
/// Longest pause before a dead one is probed again.
pub(super) const BACKOFF_MAX: Duration = Duration::from_secs(300);
/// One that dies again this soon after it came back goes on with its old pauses.
pub(super) const RELAPSE: Duration = Duration::from_secs(300);
/// Pause before the failed probe of a selected node is confirmed.
pub(super) const CONFIRM: Duration = Duration::from_millis(500);
/// Pause before the second of the successes that a dead one needs.
pub(super) const SECOND: Duration = Duration::from_secs(1);
/// Longest pause after a failure that did not kill yet.
pub(super) const RETRY: Duration = Duration::from_secs(5);
/// Something overdue for longer means that the process, or the machine, was asleep.
pub(super) const ASLEEP: Duration = Duration::from_secs(10);
/// What became due meanwhile is spread over this.
pub(super) const SPREAD: Duration = Duration::from_secs(30);
/// Changes of the network closer together than this count as one.
pub(super) const LINK_QUIET: Duration = Duration::from_secs(2);
/// A family without an address of the server is looked at again this often.
pub(super) const ABSENT: Duration = Duration::from_secs(600);
/// Strikes of a node that answers its probes are forgotten after this long without another:
/// a node nobody selects any more has no traffic to make them good with.
pub(super) const FORGET: Duration = Duration::from_secs(600);

/// Failures of other UDP in a row that mean death while the UDP probe says dead, too: an
/// unanswered datagram proves little, both together prove enough.
pub(super) const DOUBTED_DEATH: u16 = 3;

/// Failures of real traffic in a row that mean death.
pub(super) fn traffic_death(domain: Domain) -> u16 {
    match domain {
        Domain::Tcp => 10,
        Domain::DnsUdp => 3,
        Domain::DataUdp => 50,
    }
}
