//! The scenarios, by the numbers they have in the documents.

use super::{
    chance::Chance,
    world::{Loss, World},
};

/// A scenario that is played for every policy.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its number.
    pub number: u8,
    /// What happens in it.
    pub title: &'static str,
    /// Makes it.
    pub world: fn() -> World,
}

/// Those that every policy plays.
pub const ALL: [Scenario; 12] = [
    scenario(1, "one target degrades at one node", one_target),
    scenario(2, "a node flaps every minute", flapping),
    scenario(3, "slow and clean, fast and lossy", lossy),
    scenario(4, "cold start with 200 nodes", cold_start),
    scenario(5, "a flow a minute", quiet),
    scenario(6, "busy, a challenger gets faster", improving),
    scenario(7, "nine of ten are useless", useless),
    scenario(8, "five minutes of outage", outage),
    scenario(9, "probes fine, every dial fails often", all_failing),
    scenario(10, "one node loses IPv6", v6_lost),
    scenario(13, "probes fine, dials dead", dial_dead),
    scenario(14, "five equal nodes", equal),
];

const fn scenario(number: u8, title: &'static str, world: fn() -> World) -> Scenario {
    Scenario {
        number,
        title,
        world,
    }
}

/// SIM-01.
pub fn one_target() -> World {
    World::new(1800.0, 1.0, &[50.0, 70.0, 90.0]).loses(|node, flow| {
        let degraded = node == 0 && flow.target == 0 && flow.at >= 900.0;
        Loss::after(if degraded { 0.9 } else { 0.002 })
    })
}

/// SIM-02.
pub fn flapping() -> World {
    World::new(1800.0, 1.0, &[40.0, 70.0, 90.0]).loses(|node, flow| {
        let odd = (flow.at / 60.0) as u64 % 2 == 1;
        Loss::before(if node == 0 && odd { 0.95 } else { 0.0 })
    })
}

/// SIM-03.
pub fn lossy() -> World {
    World::new(3600.0, 1.0, &[200.0, 50.0, 120.0])
        .loses(|node, _| Loss::after([0.002, 0.1, 0.03][node]))
}

/// SIM-04.
pub fn cold_start() -> World {
    let mut chance = Chance::of(&[200]);
    let bases: Vec<f64> = (0..200).map(|_| 40.0 + 360.0 * chance.unit()).collect();
    World::new(3600.0, 0.767, &bases)
        .loses(|node, _| Loss::before([0.001, 0.001, 0.01, 0.05, 0.2][node % 5]))
}

/// SIM-05.
pub fn quiet() -> World {
    World::new(
        14_400.0,
        1.0 / 60.0,
        &[50.0, 65.0, 80.0, 95.0, 110.0, 125.0],
    )
    .loses(|_, _| Loss::before(0.002))
}

/// SIM-06.
pub fn improving() -> World {
    World::new(2400.0, 3.0, &[100.0, 100.0, 120.0])
        .takes(|node, at| match node {
            1 if at >= 600.0 => 40.0,
            2 => 120.0,
            _ => 100.0,
        })
        .loses(|_, _| Loss::before(0.002))
}

/// SIM-06 without any failure.
pub fn improving_cleanly() -> World {
    improving().loses(|_, _| Loss::default())
}

/// SIM-07.
pub fn useless() -> World {
    World::new(3600.0, 1.0, &[60.0; 10])
        .loses(|node, _| Loss::after(if node == 0 { 0.002 } else { 0.98 }))
}

/// SIM-08.
pub fn outage() -> World {
    let down = |node: usize, at: f64| node == 0 && (600.0..900.0).contains(&at);
    World::new(3600.0, 1.0, &[50.0, 90.0, 100.0])
        .loses(move |node, flow| Loss::before(if down(node, flow.at) { 1.0 } else { 0.002 }))
        .answers(move |node, at| !down(node, at))
}

/// SIM-09: dead by health.
pub fn all_dead() -> World {
    let down = |at: f64| (600.0..900.0).contains(&at);
    World::new(1500.0, 1.0, &[50.0, 70.0, 90.0])
        .loses(move |_, flow| Loss::before(f64::from(u8::from(down(flow.at)))))
        .answers(move |_, at| !down(at))
}

/// SIM-09: alive by health.
pub fn all_failing() -> World {
    World::new(1500.0, 1.0, &[50.0, 70.0, 90.0]).loses(|_, _| Loss::before(0.9))
}

/// SIM-10.
pub fn v6_lost() -> World {
    v6_lost_from(900.0)
}

/// SIM-10 from a moment on.
pub fn v6_lost_from(start: f64) -> World {
    World::new(1800.0, 1.0, &[50.0, 80.0, 90.0])
        .with_v6()
        .loses(move |node, flow| {
            let lost = node == 0 && flow.v6 && flow.at >= start;
            Loss::after(if lost { 0.98 } else { 0.002 })
        })
}

/// SIM-13.
pub fn dial_dead() -> World {
    World::new(3600.0, 1.0, &[40.0, 80.0, 90.0, 100.0]).loses(|node, flow| {
        let dead = node == 0 && flow.at >= 600.0;
        Loss::before(if dead { 1.0 } else { 0.002 })
    })
}

/// SIM-14.
pub fn equal() -> World {
    World::new(3600.0, 1.0, &[80.0; 5]).loses(|_, _| Loss::before(0.002))
}

/// SIM-15.
pub fn idle() -> World {
    World::new(10_800.0, 1.0, &[50.0, 70.0, 90.0]).quiet(|at| (1800.0..9000.0).contains(&at))
}
