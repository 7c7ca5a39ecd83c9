//! The first member that may serve, kept for as long as it may.

/// The pinned member while it is eligible, else the first of `count` that is (G-145).
pub(super) fn first(
    pinned: Option<u32>,
    count: u32,
    mut eligible: impl FnMut(u32) -> bool,
) -> Option<u32> {
    let holds = pinned.filter(|pin| eligible(*pin));
    holds.or_else(|| (0..count).find(|at| eligible(*at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_holds_while_it_is_eligible_and_moves_to_the_first_otherwise() {
        let first = |pin, eligible: &[u32]| first(pin, 3, |at| eligible.contains(&at));
        assert_eq!(first(None, &[1, 2]), Some(1));
        assert_eq!(first(Some(2), &[0, 1, 2]), Some(2));
        assert_eq!(first(Some(0), &[1, 2]), Some(1));
        assert_eq!(first(Some(0), &[]), None);
    }
}
