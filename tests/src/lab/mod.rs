//! The lab: namespaces for two clients, the gateway, the ISP, two upstreams and the origins.
//!
//! ```text
//! hc1 10.66.0.11 fd66::11 --lp1+                203.0.113.2 / .1        +-wp-- hp  198.51.100.10 2001:db8:51::10
//! hc2 10.66.0.12 fd66::12 --lp2+- lan - hg - wan ------------- w1 - hw -+-wq-- hp2 198.51.100.74 2001:db8:52::10
//!                                      wan2 192.0.2.2 -------- w2       +-wo-- ho  198.51.100.130-132 2001:db8:80::130-131
//! ```
//!
//! Names carry a random id, so labs run side by side. The lab is taken down when it is dropped,
//! and by a watching shell when its process dies in any way.

mod guard;
mod plan;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::netns::Netns;
use crate::tool;
pub use guard::sweep;

/// How clients reach the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// `lan` is a bridge with both clients behind it.
    Bridge,
    /// `lan` is the plain end of the first client's cable; the second client has none.
    Flat,
}

/// Roles of the namespaces, in the order they are made.
const ROLES: [&str; 7] = ["hc1", "hc2", "hg", "hw", "hp", "hp2", "ho"];

/// Addresses of the lab, see the picture above.
pub mod addr {
    use super::{IpAddr, Ipv4Addr, Ipv6Addr};

    const fn v4(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(a, b, c, d))
    }

    const fn v6(a: u16, b: u16, c: u16, last: u16) -> IpAddr {
        IpAddr::V6(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, last))
    }

    /// First client.
    pub const HC1: IpAddr = v4(10, 66, 0, 11);
    /// First client.
    pub const HC1_V6: IpAddr = v6(0xfd66, 0, 0, 0x11);
    /// Second client.
    pub const HC2: IpAddr = v4(10, 66, 0, 12);
    /// Second client.
    pub const HC2_V6: IpAddr = v6(0xfd66, 0, 0, 0x12);
    /// Gateway, LAN side.
    pub const HG_LAN: IpAddr = v4(10, 66, 0, 1);
    /// Gateway, LAN side.
    pub const HG_LAN_V6: IpAddr = v6(0xfd66, 0, 0, 1);
    /// Gateway, WAN side: what origins see of masqueraded clients.
    pub const HG_WAN: IpAddr = v4(203, 0, 113, 2);
    /// First upstream.
    pub const HP: IpAddr = v4(198, 51, 100, 10);
    /// First upstream.
    pub const HP_V6: IpAddr = v6(0x2001, 0xdb8, 0x51, 0x10);
    /// Second upstream.
    pub const HP2: IpAddr = v4(198, 51, 100, 74);
    /// Second upstream.
    pub const HP2_V6: IpAddr = v6(0x2001, 0xdb8, 0x52, 0x10);
    /// Origins.
    pub const HO: [IpAddr; 3] = [
        v4(198, 51, 100, 130),
        v4(198, 51, 100, 131),
        v4(198, 51, 100, 132),
    ];
    /// Origins.
    pub const HO_V6: [IpAddr; 2] = [
        v6(0x2001, 0xdb8, 0x80, 0x130),
        v6(0x2001, 0xdb8, 0x80, 0x131),
    ];
}

/// A built lab.
#[derive(Debug)]
pub struct Lab {
    /// First LAN client.
    pub hc1: Netns,
    /// Second LAN client.
    pub hc2: Netns,
    /// The gateway honk runs on.
    pub hg: Netns,
    /// The ISP's router.
    pub hw: Netns,
    /// First upstream proxy.
    pub hp: Netns,
    /// Second upstream proxy.
    pub hp2: Netns,
    /// Origins.
    pub ho: Netns,
    profile: Profile,
    guard: guard::Guard,
}

impl Lab {
    /// Builds a lab with a fresh id and takes it down when it is dropped.
    pub fn new(profile: Profile) -> Result<Self> {
        sweep();
        Self::build(profile, guard::Guard::temporary()?)
    }

    /// Builds a lab that stays until [`Lab::down`]; `id` becomes part of the names.
    pub fn up(profile: Profile, id: &str) -> Result<Self> {
        Self::build(profile, guard::Guard::lasting(id)?)
    }

    /// Takes down the lasting lab `id`.
    pub fn down(id: &str) -> Result<()> {
        guard::remove_lasting(id)
    }

    /// Ids of the lasting labs that are up.
    pub fn lasting() -> Vec<String> {
        guard::lasting_ids()
    }

    fn build(profile: Profile, guard: guard::Guard) -> Result<Self> {
        let names: Vec<String> = ROLES.iter().map(|role| guard.name(role)).collect();
        for name in &names {
            tool::ip(&format!("netns add {name}"))?;
        }
        let open = |role: &str| Netns::open(&guard.name(role));
        let lab = Self {
            hc1: open("hc1")?,
            hc2: open("hc2")?,
            hg: open("hg")?,
            hw: open("hw")?,
            hp: open("hp")?,
            hp2: open("hp2")?,
            ho: open("ho")?,
            profile,
            guard,
        };
        plan::apply(&lab).with_context(|| format!("cannot build lab {}", lab.guard.id()))?;
        Ok(lab)
    }

    /// The profile it was built with.
    pub fn profile(&self) -> Profile {
        self.profile
    }

    /// Its id, part of every name.
    pub fn id(&self) -> &str {
        self.guard.id()
    }

    /// A folder of its own for configurations, sockets and logs; removed with the lab.
    pub fn dir(&self) -> &Path {
        self.guard.dir()
    }

    /// A bpf file system of its own, so that labs do not share pins.
    pub fn bpffs(&self) -> PathBuf {
        self.guard.bpffs()
    }

    /// All namespaces with their roles.
    pub fn all(&self) -> [(&'static str, &Netns); 7] {
        [
            ("hc1", &self.hc1),
            ("hc2", &self.hc2),
            ("hg", &self.hg),
            ("hw", &self.hw),
            ("hp", &self.hp),
            ("hp2", &self.hp2),
            ("ho", &self.ho),
        ]
    }

    /// Feeds lines to `ip -batch` inside a namespace.
    pub fn ip(&self, ns: &Netns, lines: &str) -> Result<()> {
        let mut command = std::process::Command::new("ip");
        tool::feed(command.args(["-n", ns.name(), "-batch", "-"]), lines).map(drop)
    }

    /// Lets IPv4 keep the client's address: no masquerade, and the ISP knows the LAN.
    pub fn without_nat(&self) -> Result<()> {
        self.nft(&self.hg, "delete table ip labnat\n")?;
        self.ip(&self.hw, "route add 10.66.0.0/24 via 203.0.113.2\n")
    }

    /// Feeds a ruleset to `nft -f` inside a namespace.
    pub fn nft(&self, ns: &Netns, rules: &str) -> Result<()> {
        tool::feed(ns.command("nft").args(["-f", "-"]), rules).map(drop)
    }
}

/// Origin addresses of both families.
pub fn origin_addresses() -> Vec<IpAddr> {
    addr::HO.into_iter().chain(addr::HO_V6).collect()
}
