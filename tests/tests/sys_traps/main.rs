//! Traps of the datapath, one test each, named by their number in the datapath specification.
//!
//! Here are those whose acceptance needs only LAN scope and the running daemon; the ones that a
//! single program run can prove are in the kernel tests.

mod handback;
mod host;
mod icmp;
mod rules;
mod scope;
mod tcp;
mod udp;
mod wire;

use std::net::IpAddr;

use anyhow::{Context as _, Result, ensure};
use honk_tests::client;
use honk_tests::lab::addr;
use honk_tests::netns::Netns;
use honk_tests::scene::{DIRECT, DIRECT_V6, PROXIED, PROXIED_V6};

/// The scene's verdicts hold for this client: TCP and UDP, both families.
fn verdicts_hold(ns: &Netns) -> Result<()> {
    let tcp = |ip: IpAddr| ns.run(|| client::whoami_tcp(ip)).map(|seen| seen.ip());
    let udp = |ip: IpAddr| ns.run(|| client::whoami_udp(ip)).map(|seen| seen.ip());
    for (ip, wanted) in [
        (PROXIED, addr::HP),
        (PROXIED_V6, addr::HP_V6),
        (DIRECT, addr::HG_WAN),
    ] {
        let (by_tcp, by_udp) = (tcp(ip)?, udp(ip)?);
        ensure!(
            by_tcp == wanted,
            "TCP to {ip}: the origin saw {by_tcp}, not {wanted}"
        );
        ensure!(
            by_udp == wanted,
            "UDP to {ip}: the origin saw {by_udp}, not {wanted}"
        );
    }
    tcp(DIRECT_V6).context("direct TCP over IPv6")?;
    udp(DIRECT_V6).context("direct UDP over IPv6").map(drop)
}
