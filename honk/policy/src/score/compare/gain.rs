//! How much better a challenger is than the node held so far, on shared evidence.

use super::pair::{MetricPair, Pairing};
use crate::score::{
    consts::{W_LATENCY, W_RATE},
    snapshot::Snapshot,
};

/// A gain or loss of a direction, or a slower response, that counts.
const NOTABLE: f64 = 0.1;

/// Reliability of one side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Side {
    pub(super) reliability: f64,
    pub(super) qualified: bool,
}

impl From<&Snapshot> for Side {
    fn from(known: &Snapshot) -> Self {
        Self {
            reliability: known.reliability.rate,
            qualified: known.qualified,
        }
    }
}

/// The outcome.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::score) struct Gain {
    pub(in crate::score) value: f64,
    /// One direction gains and the other loses: reported, never hidden.
    pub(in crate::score) tradeoff: bool,
}

/// Gain of the challenger.
pub(in crate::score) fn gain(pair: &Pairing, incumbent: &Snapshot, challenger: &Snapshot) -> Gain {
    between(pair, incumbent.into(), challenger.into())
}

fn between(pair: &Pairing, incumbent: Side, challenger: Side) -> Gain {
    let qualified = incumbent.qualified && challenger.qualified;
    let reliability = if qualified {
        challenger.reliability - incumbent.reliability
    } else {
        0.0
    };
    let known = || [pair.up, pair.down].into_iter().flatten();
    let gains = known().any(|m| gains(&m));
    let loses = known().any(|m| m.challenger < (1.0 - NOTABLE) * m.incumbent);
    let keeps_up = |r: MetricPair| r.challenger <= (1.0 + NOTABLE) * r.incumbent;
    let admitted =
        gains && !loses && pair.response.is_some_and(keeps_up) && qualified && reliability >= 0.0;
    let direction = if admitted {
        known().map(|m| relative(&m)).fold(f64::MIN, f64::max)
    } else {
        0.0
    };
    let response = pair.response.map_or(0.0, |r| faster(&r));
    Gain {
        value: reliability + W_LATENCY * response + W_RATE * direction,
        tradeoff: gains && loses,
    }
}

/// Difference of the two speeds, as parts of the faster one's. Below a millisecond all are equal.
fn faster(m: &MetricPair) -> f64 {
    let best = m.incumbent.min(m.challenger).max(1.0);
    best / m.challenger.max(1.0) - best / m.incumbent.max(1.0)
}

fn gains(m: &MetricPair) -> bool {
    m.challenger - m.incumbent >= NOTABLE * m.incumbent && m.challenger > m.incumbent
}

fn relative(m: &MetricPair) -> f64 {
    (m.challenger - m.incumbent) / m.challenger.max(m.incumbent).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::super::pair::Basis;
    use super::*;
    use crate::score::clock::T;

    fn metric(incumbent: f64, challenger: f64) -> MetricPair {
        MetricPair {
            incumbent,
            challenger,
            reporters: 4,
            last: T::START,
            expires: T::from_secs(1),
        }
    }

    fn pair(response: (f64, f64), up: Option<(f64, f64)>, down: Option<(f64, f64)>) -> Pairing {
        let of = |(a, b)| metric(a, b);
        Pairing {
            basis: Basis::Target,
            partial: false,
            response: Some(of(response)),
            up: up.map(of),
            down: down.map(of),
        }
    }

    const SOUND: Side = Side {
        reliability: 0.99,
        qualified: true,
    };

    fn of(pair: &Pairing) -> f64 {
        between(pair, SOUND, SOUND).value
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-12
    }

    #[test]
    fn response_gains_have_the_published_values() {
        for (from, to, value) in [
            (100.0, 90.0, 0.003),
            (100.0, 85.0, 0.0045),
            (100.0, 80.0, 0.006),
            (100.0, 50.0, 0.015),
            (50.0, 60.0, -0.005),
            (0.4, 0.9, 0.0),
        ] {
            assert!(
                near(of(&pair((from, to), None, None)), value),
                "{from} to {to}"
            );
        }
    }

    #[test]
    fn direction_gains_have_the_published_values() {
        for (to, value) in [
            (12.5e6, 0.004),
            (15e6, 0.02 / 3.0),
            (11e6, 0.02 / 11.0),
            (10.99e6, 0.0),
        ] {
            let down = Some((10e6, to));
            assert!(
                near(of(&pair((50.0, 50.0), None, down)), value),
                "10 MB/s to {to}"
            );
            assert!(
                near(of(&pair((50.0, 50.0), down, None)), value),
                "upload to {to}"
            );
        }
    }

    #[test]
    fn a_direction_needs_the_response_and_the_reliability() {
        let down = Some((10e6, 20e6));
        let slower = pair((100.0, 110.1), None, down);
        assert!(of(&slower) < 0.0, "only the slower response counts");
        let nearly = pair((100.0, 110.0), None, down);
        assert!(of(&nearly) > 0.0);
        let even = pair((50.0, 50.0), None, down);
        let risky = Side {
            reliability: 0.98,
            ..SOUND
        };
        assert!(near(between(&even, SOUND, risky).value, -0.01));
        let new = Side {
            qualified: false,
            ..SOUND
        };
        assert!(near(between(&even, SOUND, new).value, 0.0));
        assert!(near(between(&even, new, SOUND).value, 0.0));
        let silent = Pairing {
            response: None,
            ..even
        };
        assert!(near(of(&silent), 0.0), "rates alone gain nothing");
    }

    #[test]
    fn opposing_directions_are_a_tradeoff_and_no_gain() {
        let opposed = pair((50.0, 50.0), Some((10e6, 8.9e6)), Some((10e6, 20e6)));
        let both = between(&opposed, SOUND, SOUND);
        assert!(both.tradeoff && near(both.value, 0.0));
        let slight = pair((50.0, 50.0), Some((10e6, 9e6)), Some((10e6, 20e6)));
        let one = between(&slight, SOUND, SOUND);
        assert!(!one.tradeoff && near(one.value, 0.01));
    }

    #[test]
    fn an_unknown_direction_is_neither_zero_nor_a_win() {
        let unknown = between(&pair((50.0, 50.0), None, Some((10e6, 5e6))), SOUND, SOUND);
        assert!(!unknown.tradeoff && near(unknown.value, 0.0));
    }

    #[test]
    fn reliability_counts_only_between_qualified_sides() {
        let even = pair((50.0, 50.0), None, None);
        let better = Side {
            reliability: 1.0,
            ..SOUND
        };
        assert!(near(between(&even, SOUND, better).value, 0.01));
        let unproven = Side {
            qualified: false,
            ..better
        };
        assert!(near(between(&even, SOUND, unproven).value, 0.0));
    }
}
