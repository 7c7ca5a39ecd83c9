//! The benchmark: honk against plain forwarding and against rivals, interleaved in one lab.
//!
//! Method: one engine at a time in the same gateway, order reversed every round (A B, B A, ..),
//! at least five rounds; the ratio is the median of the rounds' ratios. Rounds in which other
//! processes took processor time are repeated and left out, as long as enough others remain.
//! Failed connections are reported, never hidden.

mod compare;
mod engine;
mod flip;
mod groups;

mod load;
mod packets;
mod policy;
mod probes;
mod relay_udp;
mod score;
mod score_lab;
mod seat;
mod slab;
mod sock;
mod stats;
mod target;
mod upstream;

use std::io::Write;

use anyhow::{Context as _, Result};
use compare::{Case, TCP, UDP, compare};
use engine::Engine;
use seat::Seats;
use serde::Serialize;

use crate::kernel_bench;

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
    /// Names of cases (`direct`, `relay`, `udp`, `datapath`, `packets`, `policy`, `probes`, `score-lab`);
    /// all when empty.
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
    foreign_cores: f64,
    valid: bool,
}

/// Runs the wanted cases. A missed target is a result, not an error: `met` tells.
pub fn run(settings: &Settings) -> Result<()> {
    let wants = |case: &str| settings.cases.is_empty() || settings.cases.iter().any(|c| c == case);
    let mut sink = Sink::open(settings.json.as_deref())?;
    if wants("direct") {
        let case = Case {
            name: "direct",
            metrics: TCP,
            engines: &[Engine::HonkDirect, Engine::Kernel],
            targets: [0.97, 0.90],
            seats: Seats::Apart,
            origin_beside_upstream: false,
        };
        sink.add(compare(&case, settings)?)?;
    }
    if wants("relay") {
        let case = Case {
            name: "relay",
            metrics: TCP,
            engines: &[Engine::HonkRelay, Engine::SingBox, Engine::Mihomo],
            targets: [1.0, 1.5],
            seats: Seats::Free,
            origin_beside_upstream: true,
        };
        sink.add(compare(&case, settings)?)?;
    }
    if wants("udp") {
        let case = Case {
            name: "udp",
            metrics: UDP,
            engines: &[Engine::HonkRelay, Engine::SingBox, Engine::Mihomo],
            targets: [1.0, 1.0],
            seats: Seats::Free,
            origin_beside_upstream: true,
        };
        sink.add(compare(&case, settings)?)?;
    }
    if wants("datapath") {
        let figures = datapath_figures(settings.quick)?;
        sink.add(figures.into_iter().map(figure_line).collect())?;
    }
    if wants("packets") {
        sink.add(packets::lines(settings.quick)?)?;
    }
    if wants("policy") {
        sink.add(policy::figures()?.into_iter().map(figure_line).collect())?;
        sink.add(groups::figures()?.into_iter().map(figure_line).collect())?;
        sink.add(score::figures().into_iter().map(figure_line).collect())?;
    }
    if wants("probes") {
        let figures = probes::figures(settings.quick)?;
        sink.add(figures.into_iter().map(figure_line).collect())?;
    }
    if wants("score-lab") {
        sink.add(score_lab::lines(settings.quick)?)?;
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
        foreign_cores: 0.0,
        valid: true,
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
        let result = match (line.met, line.valid) {
            (true, true) => "ok",
            (false, true) => "missed",
            (_, false) => "disturbed by other processes",
        };
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
