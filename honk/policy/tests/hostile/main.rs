//! No text may cost more than in proportion to its size: four times the text may not take ten
//! times as long. Processor time is compared with itself, so a slow or busy machine changes
//! nothing; `cargo xtask bench config` holds the same families against 50 ms.

mod cpu;
mod inputs;

use inputs::{Family, families, read};

const SMALL: usize = 4 << 10;
const LARGE: usize = 16 << 10;
/// Growth that is allowed: linear is 4, quadratic 16.
const MOST: f64 = 10.0;
/// What takes less than this many seconds says nothing about growth.
const NOTHING: f64 = 0.02;
/// The machine may disturb a measurement; it does not disturb all of them.
const TRIES: usize = 8;

/// Seconds for a size.
fn cost(family: &Family, size: usize) -> f64 {
    let text = family.text(size);
    cpu::seconds(|| read(family.reader, &text))
}

/// How the cost grows; the least of several tries.
fn growth(family: &Family) -> f64 {
    let (mut small, mut large) = (f64::MAX, f64::MAX);
    for _ in 0..TRIES {
        large = large.min(cost(family, LARGE));
        small = small.min(cost(family, SMALL));
        if large < NOTHING || large / small < MOST {
            return 1.0;
        }
    }
    large / small
}

#[test]
fn cost_grows_with_the_size_and_not_with_its_square() {
    let bad: Vec<String> = families()
        .map(|family| (family, growth(&family)))
        .filter(|(_, growth)| *growth >= MOST)
        .map(|(family, growth)| format!("{} ({:?}): {growth:.1}", family.name, family.reader))
        .collect();
    assert!(bad.is_empty(), "four times the size costs {bad:#?}");
}
