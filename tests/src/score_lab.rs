//! Score and urltest side by side: one daemon, two groups, two clients.
//!
//! Each group has four nodes of its own, real SOCKS5 servers that behave alike: one is fast and
//! loses flows, one is slow and clean, one breaks for a single target, one dies and returns. Both
//! clients make the same requests at the same times, so what differs is whom the groups choose.
//! Nothing is retried by the clients, and what honk itself saves counts as served.

mod client;
mod nodes;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::honk::Honk;
use crate::lab::{Lab, addr};
use crate::serve::Origin;
use crate::wait;

use client::Request;
pub use client::Tally;
use nodes::Nodes;

/// What is played.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Decides about arrivals, targets and losses.
    pub seed: u64,
    /// Time in which requests begin.
    pub length: Duration,
    /// Requests of each client.
    pub per_second: f64,
}

/// What the clients saw.
#[derive(Debug)]
pub struct Outcome {
    /// Through the Score group.
    pub score: Tally,
    /// Through the urltest group.
    pub urltest: Tally,
    /// What `honk group explain` said of the Score group at the end.
    pub explained: String,
    /// Choices of the Score group with a reason.
    pub choices: f64,
}

/// Puts the nodes' and targets' addresses into a lab and serves the targets.
pub fn prepare(lab: &Lab) -> Result<Origin> {
    lab.ip(&lab.hp, &nodes::addresses(&nodes::OF_SCORE))?;
    lab.ip(&lab.hp2, &nodes::addresses(&nodes::OF_URLTEST))?;
    lab.ip(&lab.ho, &client::addresses())?;
    let mut all = vec![nodes::CHECKED];
    all.extend(client::targets());
    Origin::start(&lab.ho, &all)
}

/// Plays once in a prepared lab.
pub fn play(lab: &Lab, plan: &Plan) -> Result<Outcome> {
    let mut score = Nodes::start(&lab.hp, &nodes::OF_SCORE, plan.seed)?;
    let mut urltest = Nodes::start(&lab.hp2, &nodes::OF_URLTEST, plan.seed)?;
    let honk = Honk::start(lab, &config())?;
    for ns in [&lab.hc1, &lab.hc2] {
        wait::ok("a first answer", Duration::from_secs(30), || {
            ns.run(client::once)
        })
        .with_context(|| honk.home.log_tail())?;
    }
    let requests = Request::schedule(plan);
    let begin = Instant::now();
    let clients = [&lab.hc1, &lab.hc2].map(|ns| client::Client::start(ns, &requests));
    let [mut first, mut second] = {
        let [first, second] = clients;
        [first?, second?]
    };
    // The last node is away in the middle third.
    for (part, alive) in [(1, false), (2, true)] {
        let at = plan.length * part / 3;
        std::thread::sleep(at.saturating_sub(begin.elapsed()));
        for nodes in [&mut score, &mut urltest] {
            nodes.mortal(alive)?;
        }
    }
    Ok(Outcome {
        score: first.end()?,
        urltest: second.end()?,
        explained: honk.home.must(&["group", "explain", "scored"])?,
        choices: honk.metric("honk_score_selections_total", "network=\"tcp\"")?,
    })
}

fn config() -> String {
    let (score, urltest) = (
        nodes::lines('s', &nodes::OF_SCORE),
        nodes::lines('u', &nodes::OF_URLTEST),
    );
    format!(
        "global {{
    lan_interface: lan
    log_level: info
    auto_ping: false
    check_interval: 5s
    tcp_check_url: 'http://{check}/'
    udp_check_dns: '{check}'
}}
node {{
{score}{urltest}}}
group {{
    scored {{
        filter: name(s1, s2, s3, s4)
        policy: score
    }}
    tested {{
        filter: name(u1, u2, u3, u4)
        policy: urltest
    }}
}}
routing {{
    sip({hc1}) -> scored
    sip({hc2}) -> tested
    fallback: direct
}}
",
        check = nodes::CHECKED,
        hc1 = addr::HC1,
        hc2 = addr::HC2,
    )
}
