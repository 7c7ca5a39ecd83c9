//! Ranking, observing and ending flows of a Score group allocate nothing (S-401).

use honk_policy::score::Outcome;

use crate::{allocations, warm::Warm};

/// A flow; every fiftieth fails.
fn one(warm: &mut Warm, number: usize) {
    let outcome = if number.is_multiple_of(50) {
        Outcome::TargetTimeout
    } else {
        Outcome::Success
    };
    warm.serve(outcome);
}

#[test]
fn a_warm_flow_allocates_nothing() {
    for leaves in [3, 10, 100] {
        // Long enough for every member of the pool to have been asked about every target, and for
        // failures to have been seen.
        let mut warm = Warm::new(leaves, 4000);
        (0..1000).for_each(|number| one(&mut warm, number));
        let before = warm.trials;
        // Less than five minutes, so that the pool is not ranked anew.
        let used = allocations(|| (0..500).for_each(|number| one(&mut warm, number)));
        assert_eq!(used, 0, "{leaves} leaves");
        assert!(warm.trials > before, "trials are among them");
    }
}
