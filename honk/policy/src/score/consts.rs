//! Every number of Score. None of them can be configured (S-001): a group that learns must behave
//! the same everywhere, and a figure that helps one network hurts the next.

/// Half-life of business reliability, seconds (S-040).
pub(super) const H_REL: f64 = 1800.0;
/// Age at which performance is forgotten, seconds (S-041).
pub(super) const A_PERF: f64 = 120.0;
/// Half-life of the rate of original business, seconds (S-203).
pub(super) const H_RATE: f64 = 300.0;
/// Half-life of outcomes of trials, seconds (S-203).
pub(super) const H_TRIAL: f64 = 600.0;
/// A qualification lease, and the silence that breaks availability, seconds (S-260, S-283).
pub(super) const LEASE: u64 = 60;
/// Width of a block of business comparison, seconds (S-152).
pub(super) const BLOCK: u64 = 15;
/// Blocks of a comparison (S-151).
pub(super) const BLOCKS: usize = 4;
/// Effective completions that give a layer its whole weight and holding its whole margin.
pub(super) const N_FULL: f64 = 8.0;
/// Effective useful completions that qualify a cold candidate (S-115).
pub(super) const N_QUAL: f64 = 4.0;
/// Distinct reporters that prove availability, recovery or a side of a pair.
pub(super) const REPORTERS: u8 = 4;
/// Gain a challenger must show over a mature incumbent (S-140).
pub(super) const MARGIN: f64 = 0.005;
/// How close to the best a candidate must come to be admitted (S-121).
pub(super) const BAND: f64 = 0.05;
/// Width of the reliability bounds, in standard deviations (S-043).
pub(super) const Z: f64 = 1.64;
/// Effective completions from which a candidate counts as tried.
pub(super) const N_TRAIN: f64 = 0.5;
/// Pseudo-successes of the group and family layers (S-044).
pub(super) const KAPPA: f64 = 8.0;
/// Pseudo-successes of the exact layer (S-044).
pub(super) const KAPPA_EXACT: f64 = 16.0;
/// Weight of latency in utility and gain (S-133, S-162).
pub(super) const W_LATENCY: f64 = 0.03;
/// Weight of rates in utility and gain (S-133, S-162).
pub(super) const W_RATE: f64 = 0.02;
/// Weight at which a running mean stops growing (S-042).
pub(super) const WM_MAX: f64 = 4.0;
/// Failures in a row that exclude a candidate while another is healthy (S-121).
pub(super) const STREAK_OUT: u32 = 3;
/// First pause after a failure, seconds (S-280).
pub(super) const BACKOFF: u64 = 300;
/// Longest pause after failures, seconds (S-280).
pub(super) const BACKOFF_MAX: u64 = 21_600;
/// Age at which an unbegun reservation and the tracking of begun work end, seconds (S-215).
pub(super) const TRACKED: u64 = 60;
/// How long a sudden slowness counts, seconds (S-116).
pub(super) const DEGRADED: u64 = 120;
/// How long a hint about a carrier counts, seconds (S-312).
pub(super) const PRESSURE: u64 = 60;
/// Shortest window of transfer, seconds (S-064).
pub(super) const WINDOW_MIN: u64 = 1;
/// Longest window of transfer, seconds (S-064).
pub(super) const WINDOW_MAX: u64 = 10;
/// Bytes a direction needs in a window (S-064).
pub(super) const WINDOW_BYTES: u64 = 65_536;
/// Least time between two publications of received data by one reporter, seconds (S-070).
pub(super) const RX_EVERY: u64 = 1;
/// Serial members of a serving pool (S-181).
pub(super) const POOL_MAX: usize = 25;
/// Cells of the exact store, and as many of the aggregate store (S-300).
pub const CELLS: usize = 4096;
/// Entries of choice history.
pub(super) const HISTORY: usize = 4096;
/// Cells of the comparison store (S-150).
pub const COMPARISONS: usize = 512;
/// Bytes of the comparison store with everything its cells own (S-150).
pub(super) const COMPARISON_BYTES: usize = 1_048_576;
/// Longest name that is a target of its own (S-022).
pub(super) const HOST_MAX: usize = 255;
/// Attempts known at one time; one more goes on unscored and is counted.
pub(super) const WORKS: usize = 16_384;
/// Score groups one attempt can pass through (the depth of nesting).
pub(super) const NESTING: usize = 8;
/// Groups with evidence: as many as there can be groups.
pub(super) const GROUPS: usize = 250;
