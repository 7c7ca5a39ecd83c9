//! The pure decisions in numbers: rule match, rule compilation. Wall time, best of several
//! batches, so that a busy machine disturbs little; fixed inputs.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use honk_policy::id::Ordinal;
use honk_policy::routing::compile::compile;
use honk_policy::routing::oracle::Oracle;
use honk_policy::routing::rule::{Action, Cond, FlowFacts, Prefix, RuleLine, RuleSet, Test};

const RULES: u32 = 1000;

/// Name, value, unit and the target of each figure; smaller is better.
pub(super) fn figures() -> Result<Vec<(&'static str, f64, &'static str, f64)>> {
    let rules = rules();
    let oracle = Oracle::new(&rules);
    let flows: Vec<FlowFacts> = (0..64).map(|n| flow(n * 17 % RULES)).collect();
    let one = best(40, || {
        for flow in &flows {
            black_box(oracle.eval(black_box(flow)));
        }
    });
    compile(&rules)
        .ok()
        .context("the benchmark's rules do not compile")?;
    let whole = best(10, || {
        let _ = black_box(compile(black_box(&rules)));
    });
    Ok(vec![
        (
            "policy.reference_match",
            one.as_secs_f64() * 1e9 / flows.len() as f64,
            "ns",
            100_000.0,
        ),
        ("policy.compile_1k", whole.as_secs_f64() * 1e3, "ms", 500.0),
    ])
}

/// The shortest of `rounds` runs.
fn best(rounds: usize, mut work: impl FnMut()) -> Duration {
    (0..rounds)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed()
        })
        .min()
        .unwrap_or_default()
}

fn rules() -> RuleSet {
    let line = |conds, ordinal| RuleLine {
        conds,
        action: Action {
            ordinal: Ordinal(ordinal),
            must: false,
            mark: 0,
        },
        text: String::new(),
        file: String::new(),
        line: 0,
    };
    let mut lines: Vec<RuleLine> = (0..RULES - 1)
        .map(|n| {
            let dest = Test::Dest(vec![Prefix {
                addr: mapped(10, n),
                len: 120,
            }]);
            let port = Test::DestPort(vec![(1 + n as u16, 2000 + n as u16)]);
            let conds = [dest, port].map(|test| Cond { not: false, test }).to_vec();
            line(conds, (2 + n % 200) as u8)
        })
        .collect();
    lines.push(line(Vec::new(), 0));
    RuleSet { lines }
}

fn flow(n: u32) -> FlowFacts {
    FlowFacts {
        src: mapped(192, 5),
        dst: mapped(10, n),
        sport: 40_000,
        dport: 1000,
        tcp: true,
        mac: [2, 0, 0, 0, 0, 1],
        dscp: 0,
        pname: [0; 16],
        domain: None,
    }
}

fn mapped(first: u8, n: u32) -> [u8; 16] {
    let mut address = [0; 16];
    address[10..12].copy_from_slice(&[0xff, 0xff]);
    address[12..].copy_from_slice(&[first, (n >> 8) as u8, n as u8, 0]);
    address
}
