//! The benchmark: honk against plain forwarding and against rivals, interleaved in one lab.
//!
//! Method: one engine at a time in the same gateway, order reversed every round (A B, B A, ..),
//! at least five rounds, medians. A run with failed connections is reported, never hidden.

mod engine;
mod load;
mod policy;
mod slab;
mod sock;
mod stats;
mod target;
mod upstream;

use std::io::Write;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use engine::{Engine, Running};
use serde::Serialize;
use stats::Series;

use crate::kernel_bench;
use crate::lab::{Lab, Profile, addr};
use crate::scene;

/// Port of the bulk source.
const SOURCE: u16 = 9001;
/// Port of the one-shot responder.
const ONE_SHOT: u16 = 9003;
/// Port of the upstream.
const UPSTREAM: u16 = 1085;
/// Short connections in flight.
const PARALLEL: usize = 256;

/// How to run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Names of cases (`direct`, `relay`, `datapath`, `policy`); all when empty.
    pub cases: Vec<String>,
    /// Only these engines (`kernel`, `honk`, `sing-box`, `mihomo`); all when empty.
    pub engines: Vec<String>,
    /// Short runs.
    pub quick: bool,
    /// Where JSON lines go; `-` is standard output.
    pub json: Option<String>,
}

/// One line of the result.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    schema: &'static str,
    case: String,
    value: f64,
    unit: &'static str,
    peer: &'static str,
    peer_value: f64,
    ratio: f64,
    target: f64,
    met: bool,
    runs: usize,
    spread: [f64; 2],
    peer_spread: [f64; 2],
    cpu_cores: f64,
    peer_cpu_cores: f64,
    failures: u64,
    peer_failures: u64,
}

/// Runs the wanted cases. A missed target is a result, not an error: `met` tells.
pub fn run(settings: &Settings) -> Result<()> {
    let wants = |case: &str| settings.cases.is_empty() || settings.cases.iter().any(|c| c == case);
    let mut sink = Sink::open(settings.json.as_deref())?;
    if wants("direct") {
        let engines = [Engine::HonkDirect, Engine::Kernel];
        sink.add(compare("direct", &engines, [0.97, 0.90], settings)?)?;
    }
    if wants("relay") {
        let engines = [Engine::HonkRelay, Engine::SingBox, Engine::Mihomo];
        sink.add(compare("relay", &engines, [1.0, 1.5], settings)?)?;
    }
    if wants("datapath") {
        let figures = datapath_figures(settings.quick)?;
        sink.add(figures.into_iter().map(figure_line).collect())?;
    }
    if wants("policy") {
        sink.add(policy::figures()?.into_iter().map(figure_line).collect())?;
    }
    print_table(&sink.lines);
    Ok(())
}

/// Where JSON lines go, each case as soon as it is measured.
struct Sink {
    json: Option<Box<dyn Write>>,
    lines: Vec<Line>,
}

impl Sink {
    fn open(file: Option<&str>) -> Result<Self> {
        let json: Option<Box<dyn Write>> = match file {
            None => None,
            Some("-") => Some(Box::new(std::io::stdout())),
            Some(file) => {
                let file =
                    std::fs::File::create(file).with_context(|| format!("cannot write {file}"))?;
                Some(Box::new(file))
            }
        };
        Ok(Self {
            json,
            lines: Vec::new(),
        })
    }

    fn add(&mut self, mut lines: Vec<Line>) -> Result<()> {
        for line in &mut lines {
            line.met = line.ratio >= line.target;
            if let Some(out) = &mut self.json {
                writeln!(out, "{}", serde_json::to_string(line)?)?;
            }
        }
        self.lines.extend(lines);
        Ok(())
    }
}

/// What is measured in each run.
const METRICS: [(&str, &str); 3] = [("tcp.1", "Gbit/s"), ("tcp.8", "Gbit/s"), ("conn", "conn/s")];

struct Arm {
    engine: Engine,
    series: [Series; METRICS.len()],
}

fn compare(
    case: &str,
    engines: &[Engine],
    targets: [f64; 2],
    settings: &Settings,
) -> Result<Vec<Line>> {
    let (rounds, warm, measure) = if settings.quick {
        (5, Duration::from_millis(700), Duration::from_secs(2))
    } else {
        (7, Duration::from_secs(3), Duration::from_secs(8))
    };
    let lab = Lab::new(Profile::Flat)?;
    let _targets = target::Targets::start(&lab.ho, scene::PROXIED)?;
    let _upstream = upstream::Upstream::start(&lab.hp, addr::HP)?;
    let chosen = |engine: &Engine| {
        settings.engines.is_empty() || settings.engines.iter().any(|name| name == engine.name())
    };
    let mut arms: Vec<Arm> = engines
        .iter()
        .copied()
        .filter(chosen)
        .map(|engine| Arm {
            engine,
            series: Default::default(),
        })
        .collect();
    for round in 0..rounds {
        let mut order: Vec<usize> = (0..arms.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for at in order {
            let arm = &mut arms[at];
            eprintln!(
                "{case}: round {} of {rounds}, {}",
                round + 1,
                arm.engine.name()
            );
            one_run(&lab, arm, warm, measure)
                .with_context(|| format!("{case} with {}", arm.engine.name()))?;
        }
    }
    Ok(report(case, &arms, targets))
}

fn one_run(lab: &Lab, arm: &mut Arm, warm: Duration, measure: Duration) -> Result<()> {
    let running = arm.engine.start(lab)?;
    measure_all(lab, arm, &running, warm, measure).with_context(|| running.log_tail())
}

fn measure_all(
    lab: &Lab,
    arm: &mut Arm,
    running: &Running,
    warm: Duration,
    measure: Duration,
) -> Result<()> {
    let source = scene::at(scene::PROXIED, SOURCE);
    let one_shot = scene::at(scene::PROXIED, ONE_SHOT);
    let whole = (warm + measure).as_secs_f64();
    for (at, streams) in [(0, 1), (1, 8)] {
        let before = running.cpu_seconds();
        let value = load::download(&lab.hc1, source, streams, warm, measure)?;
        arm.series[at].push(value, (running.cpu_seconds() - before) / whole, 0);
        eprintln!("    {} {value:.2} {}", METRICS[at].0, METRICS[at].1);
    }
    let before = running.cpu_seconds();
    let rate = load::connections(&lab.hc1, one_shot, PARALLEL, warm, measure)?;
    if rate.per_second < 1.0 {
        bail!("no connection came through ({} failed)", rate.failed);
    }
    arm.series[2].push(
        rate.per_second,
        (running.cpu_seconds() - before) / whole,
        rate.failed,
    );
    eprintln!(
        "    conn {:.0} conn/s, p50 {} us, p99 {} us, {} failed",
        rate.per_second, rate.p50_us, rate.p99_us, rate.failed
    );
    Ok(())
}

fn report(case: &str, arms: &[Arm], targets: [f64; 2]) -> Vec<Line> {
    let Some((own, peers)) = arms.split_first() else {
        return Vec::new();
    };
    let mut lines = Vec::new();
    for peer in peers {
        for (at, (metric, unit)) in METRICS.iter().enumerate() {
            let (mine, theirs) = (&own.series[at], &peer.series[at]);
            lines.push(Line {
                schema: "honk.bench/1",
                case: format!("{case}.{metric}"),
                value: mine.median(),
                unit,
                peer: peer.engine.name(),
                peer_value: theirs.median(),
                ratio: mine.median() / theirs.median(),
                target: if at == 2 { targets[1] } else { targets[0] },
                met: false,
                runs: mine.len(),
                spread: mine.spread(),
                peer_spread: theirs.spread(),
                cpu_cores: mine.cpu(),
                peer_cpu_cores: theirs.cpu(),
                failures: mine.failures(),
                peer_failures: theirs.failures(),
            });
        }
    }
    lines
}

/// Figures without a rival are compared with their target; the ratio is target over value.
/// A figure with an absolute target; smaller is better.
fn figure_line<S: Into<String>>(figure: (S, f64, &'static str, f64)) -> Line {
    let (case, value, unit, target) = figure;
    Line {
        schema: "honk.bench/1",
        case: case.into(),
        value,
        unit,
        peer: "target",
        peer_value: target,
        ratio: target / value,
        target: 1.0,
        met: false,
        runs: 1,
        spread: [value; 2],
        peer_spread: [target; 2],
        cpu_cores: 1.0,
        peer_cpu_cores: 0.0,
        failures: 0,
        peer_failures: 0,
    }
}

/// Nanoseconds per packet of the kernel programs, as far as they have a target.
fn datapath_figures(quick: bool) -> Result<Vec<(String, f64, &'static str, f64)>> {
    let figures = kernel_bench::run(quick)?.into_iter();
    Ok(figures
        .filter(|figure| figure.target > 0.0)
        .map(|figure| (figure.name, figure.ns.max(1.0), "ns", figure.target))
        .collect())
}

fn print_table(lines: &[Line]) {
    eprintln!();
    eprintln!(
        "{:<22} {:<9} {:>10} {:>10} {:>7} {:>7}  {:<7} {:>9} {:>9}  RESULT",
        "CASE", "PEER", "HONK", "PEER", "RATIO", "TARGET", "UNIT", "CPU", "PEER CPU"
    );
    for line in lines {
        let result = if line.met { "ok" } else { "missed" };
        eprintln!(
            "{:<22} {:<9} {:>10.2} {:>10.2} {:>7.3} {:>7.2}  {:<7} {:>9.2} {:>9.2}  {result}",
            line.case,
            line.peer,
            line.value,
            line.peer_value,
            line.ratio,
            line.target,
            line.unit,
            line.cpu_cores,
            line.peer_cpu_cores
        );
    }
}
