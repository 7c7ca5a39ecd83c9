//! Who answers faster, as a plain observation: no history, no protection, no floor.

/// Two nodes this close are equals.
const PRACTICAL: f64 = 0.1;

/// Response times of the selection and of another member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::score) enum Relation {
    /// The selection is faster.
    SelectedFaster,
    /// Neither.
    Equivalent,
    /// The other one is faster.
    ChallengerFaster,
}

/// Compares two response times of at least zero.
pub(in crate::score) fn relation(selected: f64, challenger: f64) -> Relation {
    let (low, high) = (selected.min(challenger), selected.max(challenger));
    let ulp = high.next_up() - high;
    if high - low <= PRACTICAL * low + 8.0 * ulp {
        Relation::Equivalent
    } else if selected < challenger {
        Relation::SelectedFaster
    } else {
        Relation::ChallengerFaster
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_percent_is_equal_in_both_directions_and_at_any_scale() {
        for scale in [1e-6, 1.0, 1e6] {
            let of = |a: f64, b: f64| relation(a * scale, b * scale);
            assert_eq!(of(100.0, 110.0), Relation::Equivalent);
            assert_eq!(of(110.0, 100.0), Relation::Equivalent);
            assert_eq!(of(100.0, 110.001), Relation::SelectedFaster);
            assert_eq!(of(110.001, 100.0), Relation::ChallengerFaster);
        }
        assert_eq!(relation(0.0, 0.0), Relation::Equivalent);
        assert_eq!(relation(0.0, 0.5), Relation::SelectedFaster);
        assert_eq!(relation(0.9, 0.4), Relation::ChallengerFaster);
    }
}
