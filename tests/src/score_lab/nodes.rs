//! The four nodes of a group.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use anyhow::Result;

use super::client;
use crate::lab::addr;
use crate::netns::Netns;
use crate::serve::{Fault, Proxy, ProxySettings};

/// Beside the first upstream of the lab.
pub(super) const OF_SCORE: [IpAddr; 4] = row(11);
/// Beside the second one.
pub(super) const OF_URLTEST: [IpAddr; 4] = row(75);
/// Where checks go.
pub(super) const CHECKED: IpAddr = addr::HO[2];

/// How far away each one is.
const DISTANCES: [Duration; 4] = [
    Duration::from_millis(5),
    Duration::from_millis(80),
    Duration::from_millis(20),
    Duration::from_millis(12),
];
/// What the lossy one does to one connection in five: two of three are cut, one stalls.
const LOSSES: [Fault; 3] = [Fault::Cut, Fault::Delay(Duration::from_secs(1)), Fault::Cut];
const ONE_IN: u32 = 5;

const fn row(first: u8) -> [IpAddr; 4] {
    const fn at(last: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(198, 51, 100, last))
    }
    [at(first), at(first + 1), at(first + 2), at(first + 3)]
}

/// Lines for `ip -batch`.
pub(super) fn addresses(row: &[IpAddr; 4]) -> String {
    let lines = row
        .iter()
        .map(|ip| format!("address add {ip}/26 dev eth0\n"));
    lines.collect()
}

/// Lines of the section `node`.
pub(super) fn lines(letter: char, row: &[IpAddr; 4]) -> String {
    let mut text = String::new();
    for (n, ip) in row.iter().enumerate() {
        let _ = writeln!(text, "    {letter}{}: 'socks5://{ip}:1080'", n + 1);
    }
    text
}

/// Running nodes: lossy, slow, broken for one target, mortal.
pub(super) struct Nodes {
    ns: Netns,
    row: [IpAddr; 4],
    seed: u64,
    running: [Option<Proxy>; 4],
}

impl Nodes {
    pub(super) fn start(ns: &Netns, row: &[IpAddr; 4], seed: u64) -> Result<Self> {
        let mut nodes = Self {
            ns: ns.clone(),
            row: *row,
            seed,
            running: [None, None, None, None],
        };
        for n in 0..row.len() {
            nodes.running[n] = Some(nodes.one(n)?);
        }
        Ok(nodes)
    }

    fn one(&self, n: usize) -> Result<Proxy> {
        let settings = ProxySettings {
            // Mixed, because a small seed begins with runs of equal luck.
            seed: (self.seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15),
            ..ProxySettings::default()
        };
        let proxy = Proxy::start(&self.ns, &self.row[n..=n], settings)?;
        let faults = proxy.faults();
        faults.set_distance(DISTANCES[n]);
        match n {
            0 => faults.set_any(&LOSSES, ONE_IN),
            2 => faults.set_broken(client::target(0)),
            _ => {}
        }
        Ok(proxy)
    }

    /// Takes the mortal node away, or brings it back.
    pub(super) fn mortal(&mut self, alive: bool) -> Result<()> {
        let last = self.row.len() - 1;
        self.running[last] = None;
        if alive {
            self.running[last] = Some(self.one(last)?);
        }
        Ok(())
    }
}
