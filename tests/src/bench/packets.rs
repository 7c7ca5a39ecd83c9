//! Packets per second: dropped by the guard and by `lan_ingress`, and forwarded with NAT.
//!
//! Frames are injected with `BPF_PROG_TEST_RUN` in its live mode: what the XDP program passes goes
//! on into the stack as if the interface had received it. So no sender's cost is in the figures.
//! The way out is a veth whose far end throws everything away.

use std::os::fd::{AsFd as _, OwnedFd};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, anyhow};
use honk_common::outbound::{BLOCK, DIRECT};
use honk_common::param::{GATE_CLOSED, GATE_OPEN};
use honk_common::tables::RouteTables;
use honk_policy::routing::compile;
use honk_policy::routing::rule::{Prefix, RuleSet, Test};

use super::Line;
use super::stats::{median, spread};
use crate::kernel::packet::{Packet, udp};
use crate::kernel::{GUARD, Rig, sys};
use crate::kernel_bench::{LAN, line, net, rules, spread as networks};
use crate::{tcx, tool};

/// A blocked destination, and one beyond the way out.
const BLOCKED: &str = "203.0.113.9:9";
const OPEN: &str = "198.51.100.131:9";
const MASQUERADE: &str = "table ip nat {\nchain post {\n\
    type nat hook postrouting priority srcnat\noifname wan0 masquerade\n}\n}\n";

/// Measures in a thread of its own, which gets a network namespace of its own.
pub(super) fn lines(quick: bool) -> Result<Vec<Line>> {
    std::thread::spawn(move || measure(quick))
        .join()
        .map_err(|_| anyhow!("the measuring thread panicked"))?
}

struct Bench {
    rig: Rig,
    _sink: OwnedFd,
    frames: u32,
}

/// A frame, and the program that lets it in.
struct Shot<'a> {
    program: &'a OwnedFd,
    packet: &'a Packet,
}

fn measure(quick: bool) -> Result<Vec<Line>> {
    let (rounds, frames) = if quick { (5, 100_000) } else { (9, 1_000_000) };
    let mut bench = Bench::new(frames)?;
    let (few, many) = (compile(&few())?, compile(&many())?);
    let blocked = udp("10.66.0.2:4000", BLOCKED).payload(&[0; 22]);
    let small = udp("10.66.0.2:4000", OPEN).payload(&[0; 22]);
    let large = udp("10.66.0.2:4001", OPEN).payload(&[0; 1158]);
    let as_before = |p: &Packet| tcx::xdp_restore(&p.wire());
    let (pass, pass_small, pass_large) = (
        tcx::xdp_program(tcx::XDP_PASS)?,
        as_before(&small)?,
        as_before(&large)?,
    );
    let guard = bench.rig.program(GUARD).try_clone_to_owned()?;
    let shot = |program, packet| Shot { program, packet };
    let mut rates: [Vec<f64>; 7] = Default::default();
    for _ in 0..rounds {
        bench.rules(&few, 1)?;
        rates[0].push(bench.rate(GATE_OPEN, &shot(&guard, &blocked))?);
        rates[1].push(bench.rate(GATE_OPEN, &shot(&pass, &blocked))?);
        rates[2].push(bench.rate(GATE_CLOSED, &shot(&pass_small, &small))?);
        rates[3].push(bench.rate(GATE_OPEN, &shot(&pass_small, &small))?);
        rates[4].push(bench.rate(GATE_OPEN, &shot(&pass_large, &large))?);
        rates[5].push(bench.rate(GATE_CLOSED, &shot(&pass_large, &large))?);
        bench.rules(&many, 2)?;
        rates[6].push(bench.rate(GATE_OPEN, &shot(&pass_small, &small))?);
    }
    let [
        early,
        late,
        kernel,
        direct,
        direct_large,
        kernel_large,
        scaled,
    ] = rates;
    Ok(vec![
        row("guard.drop", "lan_ingress", &early, &late, 1.0),
        row("guard.drop", "kernel", &early, &kernel, 1.0),
        row("direct.udp.64", "kernel", &direct, &kernel, 0.9),
        row(
            "direct.udp.1200",
            "kernel",
            &direct_large,
            &kernel_large,
            0.9,
        ),
        row("scale.udp.64", "10 lines", &scaled, &direct, 0.95),
    ])
}

/// Ten lines, one of which blocks.
fn few() -> RuleSet {
    let mut all = vec![line(
        vec![Test::Dest(vec![net([203, 0, 113, 0], 24)])],
        BLOCK,
    )];
    for port in 1..9 {
        all.push(line(
            vec![Test::DestPort(vec![(port + 1000, port + 1000)])],
            BLOCK,
        ));
    }
    rules(all, DIRECT)
}

/// All the lines there may be, and 100,000 networks.
fn many() -> RuleSet {
    let nets: Vec<Prefix> = (0..100_000).map(networks).collect();
    let mut all = vec![line(vec![Test::Dest(nets)], BLOCK)];
    for port in 1..1023 {
        all.push(line(
            vec![Test::DestPort(vec![(port + 1000, port + 1000)])],
            BLOCK,
        ));
    }
    rules(all, DIRECT)
}

impl Bench {
    fn new(frames: u32) -> Result<Self> {
        let mut rig = Rig::new()?;
        rig.lan().configure([10, 66, 0, 1])?;
        for line in [
            "link add wan0 type veth peer name sink0",
            "address add 198.51.100.1/24 dev wan0",
            "link set wan0 up",
            "link set sink0 up",
            "neighbour add 198.51.100.131 lladdr 02:00:00:00:00:99 dev wan0 nud permanent",
        ] {
            tool::run(Command::new("ip").args(line.split(' ')))?;
        }
        tool::feed(Command::new("nft").args(["-f", "-"]), MASQUERADE)?;
        let sink = tcx::xdp_here("sink0", tcx::XDP_DROP)?;
        rig.attach_ingress(LAN, "lan0")?;
        Ok(Self {
            rig,
            _sink: sink,
            frames,
        })
    }

    fn rules(&mut self, tables: &RouteTables, generation: u32) -> Result<()> {
        self.rig.install(tables, generation)?;
        // The kernel frees the old lists on the same processors.
        std::thread::sleep(Duration::from_millis(500));
        Ok(())
    }

    /// Frames per second of processor time, in millions: other work on the machine does not count.
    fn rate(&self, gate: u32, shot: &Shot<'_>) -> Result<f64> {
        self.rig.put("GATE", &0u32, &gate);
        let (program, frame) = (shot.program.as_fd(), shot.packet.wire());
        let start = processor_seconds();
        sys::inject(program, &frame, self.rig.lan().index(), self.frames)?;
        Ok(f64::from(self.frames) / (processor_seconds() - start) / 1e6)
    }
}

/// Processor time of this thread.
fn processor_seconds() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

fn row(case: &str, peer: &'static str, ours: &[f64], theirs: &[f64], target: f64) -> Line {
    let of = |values: &[f64]| (median(values.to_vec()), spread(values.to_vec()));
    let ratios = ours.iter().zip(theirs).map(|(a, b)| a / b);
    let ((value, range), (peer_value, peer_spread)) = (of(ours), of(theirs));
    Line {
        schema: "honk.bench/1",
        case: case.to_owned(),
        value,
        unit: "Mpps",
        peer,
        peer_value,
        ratio: median(ratios),
        target,
        met: false,
        runs: ours.len(),
        spread: range,
        peer_spread,
        cpu_cores: 1.0,
        peer_cpu_cores: 1.0,
        failures: 0,
        peer_failures: 0,
        foreign_cores: 0.0,
        valid: true,
    }
}
