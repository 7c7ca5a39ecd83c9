//! Prints the table of `docs/SCORE.md`; `cargo xtask bench score` runs it.

/// Runs of each scenario for each policy.
const SEEDS: u64 = 5;

fn main() {
    let seeds = std::env::args().nth(1).and_then(|n| n.parse().ok());
    print!("{}", honk_tests::sim::score::table(seeds.unwrap_or(SEEDS)));
}
