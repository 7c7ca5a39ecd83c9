//! Score against other policies in virtual time: the same arrivals, nodes and luck for each.
//!
//! A [`World`] says how nodes behave. Flows arrive at random, are probed for health as in the
//! daemon, and meet at a node what they would meet whoever sent them there, so policies differ
//! by their choices only. Numbers of chance come from a seed: a run repeats exactly.

pub mod chance;
pub mod engine;
pub mod outcome;
mod player;
pub mod policy;
pub mod scenario;
mod table;
pub mod world;

pub use engine::Score;
pub use outcome::{Figures, Outcome, share};
pub use policy::Policy;
pub use table::{costs, csv, table};
pub use world::{Loss, World};

use chance::Chance;
use policy::{Fallback, Oracle, Random, Thompson, TwoChoices, Ucb1, UrlTest};

/// Who chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Score.
    Score,
    /// Lowest average of probes.
    UrlTest,
    /// First alive.
    Fallback,
    /// Any.
    Random,
    /// Upper confidence bounds.
    Ucb1,
    /// Draws from posteriors.
    Thompson,
    /// The faster of two.
    TwoChoices,
    /// Knows the world.
    Oracle,
}

impl Who {
    /// All, in the order of tables.
    pub const ALL: [Self; 8] = [
        Self::Score,
        Self::UrlTest,
        Self::Fallback,
        Self::Random,
        Self::Ucb1,
        Self::Thompson,
        Self::TwoChoices,
        Self::Oracle,
    ];

    /// As in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Score => "Score",
            Self::UrlTest => "urltest",
            Self::Fallback => "fallback",
            Self::Random => "random",
            Self::Ucb1 => "UCB1",
            Self::Thompson => "Thompson",
            Self::TwoChoices => "P2C",
            Self::Oracle => "oracle",
        }
    }
}

/// Plays a world once for a policy.
pub fn play(world: &World, seed: u64, who: Who) -> Outcome {
    let chance = Chance::of(&[seed, 4]);
    let n = world.nodes;
    match who {
        Who::Score => play_score(world, seed).0,
        Who::UrlTest => play_with(world, seed, &mut UrlTest::new(n)),
        Who::Fallback => play_with(world, seed, &mut Fallback::default()),
        Who::Random => play_with(world, seed, &mut Random(chance)),
        Who::Ucb1 => play_with(world, seed, &mut Ucb1::new(n)),
        Who::Thompson => play_with(world, seed, &mut Thompson::new(n, chance)),
        Who::TwoChoices => play_with(world, seed, &mut TwoChoices::new(n, chance)),
        Who::Oracle => play_with(world, seed, &mut Oracle(world)),
    }
}

/// Plays a world once for Score, and hands back what Score knows in the end.
pub fn play_score(world: &World, seed: u64) -> (Outcome, Score) {
    let mut score = Score::new(world.nodes);
    let outcome = play_with(world, seed, &mut score);
    (outcome, score)
}

/// Plays a world once for any policy.
pub fn play_with(world: &World, seed: u64, policy: &mut dyn Policy) -> Outcome {
    player::Player::new(world, seed, policy).play()
}

/// Means of the figures over these seeds.
pub fn figures(world: &World, seeds: impl Iterator<Item = u64>, who: Who) -> Figures {
    let all: Vec<Figures> = seeds.map(|seed| play(world, seed, who).figures()).collect();
    Figures::mean_of(&all)
}
