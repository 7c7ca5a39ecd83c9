//! The scene most tests and the demo play in: a lab with origins, two upstreams and a
//! configuration whose rules go by destination.
//!
//! | destination | outbound |
//! |---|---|
//! | `HO[0]`, `HO_V6[0]` | group `proxy`: `up1` (hp) by default, `up2` (hp2), `up3` (hp, HTTP) |
//! | `HO[1]`, `HO_V6[1]` | direct |
//! | `HO[2]` | block; what the daemon's own checks ask for through the upstreams |

use std::net::{IpAddr, SocketAddr};

use anyhow::Result;

use crate::honk::{Home, Honk};
use crate::lab::{Lab, Profile, addr, origin_addresses};
use crate::meter::Meter;
use crate::serve::{Origin, Proxy, ProxySettings};
use crate::skip;

/// User and password of both upstreams.
pub const LOGIN: (&str, &str) = ("ann", "secret");

/// Destination whose rule is the group `proxy`.
pub const PROXIED: IpAddr = addr::HO[0];
/// The same in IPv6.
pub const PROXIED_V6: IpAddr = addr::HO_V6[0];
/// Destination whose rule is direct.
pub const DIRECT: IpAddr = addr::HO[1];
/// The same in IPv6.
pub const DIRECT_V6: IpAddr = addr::HO_V6[1];
/// Destination whose rule is block.
pub const BLOCKED: IpAddr = addr::HO[2];

/// A lab with everything but the daemon running.
#[derive(Debug)]
pub struct Scene {
    /// Counts what crosses the ISP's side of the gateway.
    pub wan: Meter,
    /// The origins.
    pub origin: Origin,
    /// First upstream; `None` once killed.
    pub up1: Option<Proxy>,
    /// Second upstream; `None` once killed.
    pub up2: Option<Proxy>,
    /// The lab; last, so that it outlives what runs in it.
    pub lab: Lab,
}

/// Runs a test in a scene of its own: skips without root, and on failure shows the daemon's log
/// before it panics.
pub fn play(test: &str, act: impl FnOnce(&mut Scene) -> Result<()>) {
    play_with(test, Profile::Bridge, act);
}

/// The same with a profile.
pub fn play_with(test: &str, profile: Profile, act: impl FnOnce(&mut Scene) -> Result<()>) {
    if skip::without_root(test) {
        return;
    }
    let mut scene = Scene::with(profile).unwrap_or_else(|error| panic!("{test}: {error:#}"));
    if let Err(error) = act(&mut scene) {
        panic!("{test}: {error:#}\n{}", Home::new(&scene.lab).log_tail());
    }
}

impl Scene {
    /// Starts the daemon with the scene's configuration.
    pub fn honk(&self) -> Result<Honk> {
        Honk::start(&self.lab, &config())
    }

    /// Starts the daemon with further rules before the scene's own.
    pub fn honk_with(&self, rules: &str) -> Result<Honk> {
        Honk::start(&self.lab, &config_with(rules))
    }

    /// Builds the lab with a bridged LAN and starts origins, upstreams and the meter.
    pub fn new() -> Result<Self> {
        Self::with(Profile::Bridge)
    }

    /// The same with a profile.
    pub fn with(profile: Profile) -> Result<Self> {
        let lab = Lab::new(profile)?;
        let origin = Origin::start(&lab.ho, &origin_addresses())?;
        let up1 = Some(start_up1(&lab)?);
        let addresses = [addr::HP2, addr::HP2_V6];
        let up2 = Some(Proxy::start(&lab.hp2, &addresses, settings(2))?);
        let wan = Meter::start(&lab.hw, "w1")?;
        Ok(Self {
            wan,
            origin,
            up1,
            up2,
            lab,
        })
    }

    /// Starts the first upstream again after it was killed.
    pub fn revive_up1(&mut self) -> Result<()> {
        self.up1 = None;
        self.up1 = Some(start_up1(&self.lab)?);
        Ok(())
    }

    /// Packets on the WAN side that carry an origin's address.
    pub fn leaked(&self, origin: IpAddr) -> Result<u64> {
        self.wan.count(|tuple| tuple.touches(origin))
    }
}

fn start_up1(lab: &Lab) -> Result<Proxy> {
    Proxy::start(&lab.hp, &[addr::HP, addr::HP_V6], settings(1))
}

fn settings(seed: u64) -> ProxySettings {
    let login = Some((LOGIN.0.to_owned(), LOGIN.1.to_owned()));
    ProxySettings {
        login,
        seed,
        log: None,
    }
}

/// The configuration of the scene with the given rules before the usual ones.
pub fn config_with(rules: &str) -> String {
    config_of("lan", "", rules)
}

/// The configuration of the scene.
pub fn config() -> String {
    config_with("")
}

/// All parts free: LAN interfaces, further lines of `global`, further rules.
pub fn config_of(lan: &str, global: &str, rules: &str) -> String {
    let (user, password) = LOGIN;
    format!(
        "global {{
    lan_interface: {lan}
    log_level: info
    auto_ping: false
    tcp_check_url: 'http://{check}/'
    udp_check_dns: '{check}'
    {global}
}}
node {{
    up1: 'socks5://{user}:{password}@{hp}:1080'
    up2: 'socks5://{user}:{password}@{hp2}:1080'
    up3: 'http://{user}:{password}@{hp}:8080'
}}
group {{
    proxy {{
        filter: name(up1, up2, up3)
        policy: selector
        default: up1
    }}
}}
routing {{
    {rules}
    dip({PROXIED}, '{PROXIED_V6}') -> proxy
    dip({BLOCKED}) -> block
    fallback: direct
}}
",
        hp = addr::HP,
        hp2 = addr::HP2,
        check = BLOCKED,
    )
}

/// Both upstreams in one automatic group, `up1` first, checked through what is [`BLOCKED`] for
/// clients. `global` and `group` are further lines of these sections.
pub fn one_group(global: &str, group: &str) -> String {
    let (user, password) = LOGIN;
    format!(
        "global {{
    lan_interface: lan
    log_level: debug
    auto_ping: false
    tcp_check_url: 'http://{BLOCKED}/'
    udp_check_dns: '{BLOCKED}'
    {global}
}}
node {{
    up1: 'socks5://{user}:{password}@{hp}:1080'
    up2: 'socks5://{user}:{password}@{hp2}:1080'
}}
group {{
    proxy {{
        filter: name(up1, up2)
        {group}
    }}
}}
routing {{
    dip({PROXIED}) -> proxy
    fallback: direct
}}
",
        hp = addr::HP,
        hp2 = addr::HP2,
    )
}

/// A socket address of an origin.
pub fn at(ip: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(ip, port)
}
