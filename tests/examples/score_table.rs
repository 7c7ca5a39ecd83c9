//! Prints the tables of `docs/SCORE.md`; `cargo xtask bench score` runs it. With `--csv` it prints
//! every run as comma-separated values instead.

use honk_tests::sim::score;

/// Runs of each scenario for each policy.
const SEEDS: u64 = 5;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let seeds = words.iter().find_map(|word| word.parse().ok());
    let seeds = seeds.unwrap_or(SEEDS);
    if words.iter().any(|word| word == "--csv") {
        print!("{}", score::csv(&score::scenario::ALL, seeds));
        return;
    }
    println!("{}", score::table(seeds));
    print!("{}", score::costs(seeds));
}
