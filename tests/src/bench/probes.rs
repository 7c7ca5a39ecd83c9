//! What probing costs: 2,000 nodes, each asked every 30 s (performance case B18).
//!
//! All nodes are one server under different names, so that the far side is cheap. The start, when
//! everything is asked at once, is waited for and not counted.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::honk::Honk;
use crate::lab::{Lab, Profile, addr, origin_addresses};
use crate::scene::BLOCKED;
use crate::serve::{Origin, Proxy, ProxySettings};
use crate::wait;

const NODES: u32 = 2_000;
/// Share of one processor that probing may take.
const CORES: f64 = 0.05;
/// Probes that may be under way at a time.
const AT_ONCE: f64 = 64.0;
/// Time for the first round.
const PATIENCE: Duration = Duration::from_secs(180);

type Figure = (&'static str, f64, &'static str, f64);

/// Name, value, unit and target of each figure; smaller is better.
pub(super) fn figures(quick: bool) -> Result<Vec<Figure>> {
    let lab = Lab::new(Profile::Bridge)?;
    let _origin = Origin::start(&lab.ho, &origin_addresses())?;
    let settings = ProxySettings {
        login: None,
        seed: 1,
        log: None,
    };
    let _proxy = Proxy::start(&lab.hp, &[addr::HP], settings)?;
    let honk = Honk::start(&lab, &config()?)?;
    let answers = || honk.metric("honk_probes_total", "result=\"ok\"");
    wait::until("the first round of probes", PATIENCE, || {
        (answers().ok()? >= f64::from(2 * NODES)).then_some(())
    })?;
    // One period at least, so that every node has its turn.
    let time = Duration::from_secs(if quick { 35 } else { 120 });
    let (start, cpu, before) = (Instant::now(), honk.cpu_seconds()?, answers()?);
    let mut most: f64 = 1.0;
    while start.elapsed() < time {
        most = most.max(honk.metric("honk_probes_running", "")?);
        std::thread::sleep(Duration::from_millis(500));
    }
    let (took, cpu) = (start.elapsed().as_secs_f64(), honk.cpu_seconds()? - cpu);
    let asked = answers()? - before;
    let expected = f64::from(2 * NODES) * took / 30.0;
    ensure!(
        asked > expected / 2.0,
        "{asked} answers, not about {expected}"
    );
    Ok(vec![
        ("probes.cpu", cpu / took, "cores", CORES),
        ("probes.at_once", most, "probes", AT_ONCE),
    ])
}

fn config() -> Result<String> {
    let mut nodes = String::new();
    for n in 0..NODES {
        writeln!(nodes, " n{n}: 'socks5://u{n}:p@{}:1080'", addr::HP)?;
    }
    Ok(format!(
        "global {{\n lan_interface: lan\n log_level: warn\n auto_ping: false\n \
         check_interval: 30s\n tcp_check_url: 'http://{BLOCKED}/'\n udp_check_dns: '{BLOCKED}'\n}}\n\
         node {{\n{nodes}}}\n\
         group {{\n proxy {{\n policy: fallback\n }}\n}}\n\
         routing {{\n fallback: proxy\n}}\n"
    ))
}
