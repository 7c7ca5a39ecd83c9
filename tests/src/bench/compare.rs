//! Rounds of one comparison: every engine once per round, order reversed in every other round.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::engine::{Engine, Running};
use super::seat::Seats;
use super::stats::{all_cpu_seconds, cpu_seconds, median, spread};
use super::{Line, ONE_SHOT, PARALLEL, SOURCE, Settings, load, relay_udp, target, upstream};
use crate::lab::{Lab, Profile, addr};
use crate::{scene, wait};

/// A figure with its unit.
type Metric = (&'static str, &'static str);
/// What is measured of connections.
pub(super) const TCP: &[Metric] = &[("tcp.1", "Gbit/s"), ("tcp.8", "Gbit/s"), ("conn", "conn/s")];
/// What is measured of datagrams: those that come back.
pub(super) const UDP: &[Metric] = &[("echo", "pps")];
/// A round in which others used more processor time than this is disturbed.
const FOREIGN_CORES: f64 = 0.25;
/// Rounds that must be undisturbed for a valid result.
const LEAST: usize = 3;

#[derive(Clone, Copy, Default)]
struct Sample {
    value: f64,
    cores: f64,
    failures: u64,
}

/// One run of one engine.
#[derive(Clone, Default)]
struct Run {
    /// One per metric.
    samples: Vec<Sample>,
    foreign: f64,
}

/// One run of every engine.
type Round = Vec<Run>;

/// Times of a run.
#[derive(Clone, Copy)]
pub(super) struct Pace {
    pub(super) warm: Duration,
    pub(super) measure: Duration,
}

/// What is compared, and where the load comes from.
pub(super) struct Case<'a> {
    pub(super) name: &'a str,
    /// [`TCP`] or [`UDP`].
    pub(super) metrics: &'static [Metric],
    /// The first one against each of the others.
    pub(super) engines: &'a [Engine],
    /// Ratios wanted of throughput and of connections.
    pub(super) targets: [f64; 2],
    pub(super) seats: Seats,
    /// The origins run on the upstream's host. What lies behind an upstream is the same for
    /// every engine, so the less of the machine it takes the more is seen of the engines.
    pub(super) origin_beside_upstream: bool,
}

/// Compares the first engine with each of the others.
pub(super) fn compare(case: &Case<'_>, settings: &Settings) -> Result<Vec<Line>> {
    let Case {
        name: case,
        metrics,
        engines,
        targets,
        seats,
        origin_beside_upstream: beside,
    } = *case;
    let (wanted, pace) = if settings.quick {
        (
            9,
            Pace {
                warm: Duration::from_millis(500),
                measure: Duration::from_millis(1500),
            },
        )
    } else {
        (
            7,
            Pace {
                warm: Duration::from_secs(3),
                measure: Duration::from_secs(8),
            },
        )
    };
    let chosen = |engine: &Engine| {
        settings.engines.is_empty() || settings.engines.iter().any(|name| name == engine.name())
    };
    let engines: Vec<Engine> = engines.iter().copied().filter(chosen).collect();
    let lab = Lab::new(Profile::Flat)?;
    let origin = if beside {
        lab.ip(
            &lab.hp,
            &format!("address add {}/32 dev lo\n", scene::PROXIED),
        )?;
        &lab.hp
    } else {
        &lab.ho
    };
    let _targets = target::Targets::start(origin, scene::PROXIED, seats)?;
    let _upstream = upstream::Upstream::start(&lab.hp, addr::HP)?;
    let mut rounds: Vec<Round> = Vec::new();
    while rounds.iter().filter(|round| clean(round)).count() < wanted && rounds.len() < 2 * wanted {
        let number = rounds.len() + 1;
        let mut round = vec![Run::default(); engines.len()];
        let mut order: Vec<usize> = (0..engines.len()).collect();
        if number.is_multiple_of(2) {
            order.reverse();
        }
        for at in order {
            let engine = engines[at];
            eprintln!(
                "{case}: round {number}, {} clean of {wanted}, {}",
                cleans(&rounds),
                engine.name()
            );
            round[at] = one_run(&lab, metrics, engine, pace, seats)
                .with_context(|| format!("{case} with {}", engine.name()))?;
        }
        rounds.push(round);
    }
    Ok(report(case, metrics, &engines, &rounds, targets))
}

fn clean(round: &Round) -> bool {
    round.iter().all(|run| run.foreign <= FOREIGN_CORES)
}

fn cleans(rounds: &[Round]) -> usize {
    rounds.iter().filter(|round| clean(round)).count()
}

fn one_run(lab: &Lab, metrics: &[Metric], engine: Engine, pace: Pace, seats: Seats) -> Result<Run> {
    let running = engine.start(lab)?;
    let all = all_cpu_seconds();
    let ours = || running.cpu_seconds() + cpu_seconds(std::process::id()).unwrap_or(0.0);
    let (own, start) = (ours(), std::time::Instant::now());
    let samples = if metrics == UDP {
        echoes(lab, &running, pace)
    } else {
        samples(lab, &running, pace, seats)
    };
    let samples = samples.with_context(|| running.log_tail())?;
    let foreign = (all_cpu_seconds() - all) - (ours() - own);
    let foreign = (foreign / start.elapsed().as_secs_f64()).max(0.0);
    if foreign > FOREIGN_CORES {
        eprintln!("    disturbed: other processes used {foreign:.2} cores");
    }
    Ok(Run { samples, foreign })
}

/// The figures of [`UDP`].
fn echoes(lab: &Lab, running: &Running, pace: Pace) -> Result<Vec<Sample>> {
    let to = scene::at(scene::PROXIED, SOURCE);
    wait::ok("a first datagram", Duration::from_secs(10), || {
        relay_udp::first(&lab.hc1, to)
    })?;
    let before = running.cpu_seconds();
    let (value, failures) = relay_udp::echoes(&lab.hc1, to, pace)?;
    let whole = (pace.warm + pace.measure).as_secs_f64();
    let cores = (running.cpu_seconds() - before) / whole;
    eprintln!("    echo {value:.0} pps, {failures} lost, {cores:.2} cores");
    Ok(vec![Sample {
        value,
        cores,
        failures,
    }])
}

/// The figures of [`TCP`].
fn samples(lab: &Lab, running: &Running, pace: Pace, seats: Seats) -> Result<Vec<Sample>> {
    let source = scene::at(scene::PROXIED, SOURCE);
    let one_shot = scene::at(scene::PROXIED, ONE_SHOT);
    let whole = (pace.warm + pace.measure).as_secs_f64();
    let mut samples = vec![Sample::default(); TCP.len()];
    for (at, streams) in [(0, 1), (1, 8)] {
        let before = running.cpu_seconds();
        let value = load::download(&lab.hc1, source, streams, pace, seats)?;
        let cores = (running.cpu_seconds() - before) / whole;
        samples[at] = Sample {
            value,
            cores,
            failures: 0,
        };
        eprintln!(
            "    {} {value:.2} {}, {cores:.2} cores",
            TCP[at].0, TCP[at].1
        );
    }
    let before = running.cpu_seconds();
    let rate = load::connections(&lab.hc1, one_shot, PARALLEL, pace.warm, pace.measure)?;
    if rate.per_second < 1.0 {
        bail!("no connection came through ({} failed)", rate.failed);
    }
    let cores = (running.cpu_seconds() - before) / whole;
    samples[2] = Sample {
        value: rate.per_second,
        cores,
        failures: rate.failed,
    };
    eprintln!(
        "    conn {:.0} conn/s, p50 {} us, p99 {} us, {} failed, {cores:.2} cores",
        rate.per_second, rate.p50_us, rate.p99_us, rate.failed
    );
    Ok(samples)
}

fn report(
    case: &str,
    metrics: &[Metric],
    engines: &[Engine],
    rounds: &[Round],
    targets: [f64; 2],
) -> Vec<Line> {
    let valid = cleans(rounds) >= LEAST;
    let used: Vec<&Round> = rounds
        .iter()
        .filter(|round| !valid || clean(round))
        .collect();
    let foreign = median(
        used.iter()
            .flat_map(|round| round.iter().map(|run| run.foreign)),
    );
    let mut lines = Vec::new();
    for (peer, engine) in engines.iter().enumerate().skip(1) {
        for (metric, (name, unit)) in metrics.iter().enumerate() {
            let of = |arm: usize| used.iter().map(move |round| round[arm].samples[metric]);
            let ratios = of(0)
                .zip(of(peer))
                .map(|(mine, theirs)| mine.value / theirs.value);
            lines.push(Line {
                schema: "honk.bench/1",
                case: format!("{case}.{name}"),
                value: median(of(0).map(|sample| sample.value)),
                unit,
                peer: engine.name(),
                peer_value: median(of(peer).map(|sample| sample.value)),
                ratio: median(ratios),
                target: if metric == 2 { targets[1] } else { targets[0] },
                met: false,
                runs: used.len(),
                spread: spread(of(0).map(|sample| sample.value)),
                peer_spread: spread(of(peer).map(|sample| sample.value)),
                cpu_cores: median(of(0).map(|sample| sample.cores)),
                peer_cpu_cores: median(of(peer).map(|sample| sample.cores)),
                failures: of(0).map(|sample| sample.failures).sum(),
                peer_failures: of(peer).map(|sample| sample.failures).sum(),
                foreign_cores: foreign,
                valid,
            });
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(mine: f64, theirs: f64, foreign: f64) -> Round {
        let run = |value| Run {
            samples: vec![
                Sample {
                    value,
                    cores: 0.0,
                    failures: 0,
                };
                TCP.len()
            ],
            foreign,
        };
        vec![run(mine), run(theirs)]
    }

    #[test]
    fn disturbed_rounds_do_not_count_when_enough_remain() {
        let engines = [Engine::HonkDirect, Engine::Kernel];
        let mut rounds = vec![round(9.0, 10.0, 0.0); 3];
        rounds.extend(vec![round(1.0, 10.0, 1.5); 5]);
        let lines = report("direct", TCP, &engines, &rounds, [0.97, 0.9]);
        assert!(
            lines
                .iter()
                .all(|line| line.valid && (line.ratio - 0.9).abs() < 1e-9)
        );
        let lines = report("direct", TCP, &engines, &rounds[2..], [0.97, 0.9]);
        assert!(lines.iter().all(|line| !line.valid));
    }
}
