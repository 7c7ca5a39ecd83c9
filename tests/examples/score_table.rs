//! Prints the tables of `docs/SCORE.md`; `cargo xtask bench score` runs it.

use honk_tests::sim::score;

/// Runs of each scenario for each policy.
const SEEDS: u64 = 5;

fn main() {
    let seeds = std::env::args().nth(1).and_then(|n| n.parse().ok());
    let seeds = seeds.unwrap_or(SEEDS);
    println!("{}", score::table(seeds));
    print!("{}", score::costs(seeds));
}
