//! Groups and health in virtual time: the pure engines against scripted worlds.
//!
//! A [`World`] says how each node behaves from when on; a [`Script`] adds what people do. A run
//! feeds the health engine with probes and flows as the daemon would, lets groups select, and
//! writes down what happened. Hours pass in milliseconds, and [`run`] plays every script twice:
//! two histories that differ are a defect by themselves.

mod history;
mod player;
pub mod score;
mod world;

pub use history::{Fact, History};
pub use world::{Act, Behaviour, Script, Sim, World};

use player::Player;

/// Plays a script twice and returns what happened.
///
/// # Panics
///
/// When the two runs differ.
pub fn run(world: &World, script: &Script) -> History {
    let [first, second] = [(); 2].map(|()| Player::new(world, script).play());
    assert!(first == second, "two runs of one script differ");
    first
}
