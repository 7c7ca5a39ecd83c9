//! The wiring of the lab as text for `ip -batch` and `nft -f`.

use std::time::Duration;

use anyhow::{Context as _, Result};

use super::{Lab, Profile};
use crate::netns::Netns;
use crate::{tool, wait};

/// Sets switches, cables, addresses, routes and the gateway's masquerade.
pub(super) fn apply(lab: &Lab) -> Result<()> {
    for (role, ns) in lab.all() {
        switches(role, ns)?;
    }
    tool::feed(
        std::process::Command::new("ip").args(["-batch", "-"]),
        &cables(lab),
    )?;
    for (ns, lines) in [
        (&lab.hg, gateway(lab.profile())),
        (&lab.hw, ISP.into()),
        (
            &lab.hp,
            host(
                "eth0",
                "198.51.100.10/26",
                "198.51.100.1",
                "2001:db8:51::",
                "10",
            ),
        ),
        (
            &lab.hp2,
            host(
                "eth0",
                "198.51.100.74/26",
                "198.51.100.65",
                "2001:db8:52::",
                "10",
            ),
        ),
        (&lab.ho, ORIGINS.into()),
        (
            &lab.hc1,
            host("eth0", "10.66.0.11/24", "10.66.0.1", "fd66::", "11"),
        ),
    ] {
        lab.ip(ns, &lines)?;
    }
    let second = match lab.profile() {
        Profile::Bridge => host("eth0", "10.66.0.12/24", "10.66.0.1", "fd66::", "12"),
        Profile::Flat => "link set lo up\n".into(),
    };
    lab.ip(&lab.hc2, &second)?;
    for (_, ns) in lab.all() {
        settled(ns)?;
    }
    lab.nft(&lab.hg, MASQUERADE)
}

/// Waits until every cable is up at both ends and has its link-local address.
fn settled(ns: &Netns) -> Result<()> {
    wait::until("the links to come up", Duration::from_secs(10), || {
        let links = tool::run(ns.command("ip").args(["-brief", "address", "show"])).ok()?;
        let ready = |line: &str| {
            let mut words = line.split_whitespace();
            let (name, state) = (words.next().unwrap_or_default(), words.next());
            name == "lo" || (state == Some("UP") && line.contains("fe80::"))
        };
        links.lines().all(ready).then_some(())
    })
    .with_context(|| format!("links of {}", ns.name()))
}

/// Duplicate address detection is off before any link is up: first IPv6 packets must not fail.
fn switches(role: &str, ns: &Netns) -> Result<()> {
    let router = matches!(role, "hg" | "hw");
    let forwarding = if router { "1" } else { "0" };
    ns.run(|| -> Result<()> {
        for (key, value) in [
            ("ipv6/conf/all/accept_dad", "0"),
            ("ipv6/conf/default/accept_dad", "0"),
            ("ipv6/conf/default/accept_ra", "0"),
            ("ipv6/conf/default/router_solicitations", "0"),
            ("ipv4/conf/all/rp_filter", "0"),
            ("ipv4/conf/default/rp_filter", "0"),
            ("ipv4/ip_forward", forwarding),
            ("ipv6/conf/all/forwarding", forwarding),
            ("ipv4/ip_local_port_range", "10000 65000"),
            ("core/somaxconn", "4096"),
            ("ipv4/tcp_max_syn_backlog", "8192"),
            ("ipv4/icmp_ratelimit", "0"),
        ] {
            std::fs::write(format!("/proc/sys/net/{key}"), value)?;
        }
        // Where the kernel has it, bridged frames would pass the IP hooks before the TC ones.
        for family in ["ip", "ip6"] {
            let _ = std::fs::write(
                format!("/proc/sys/net/bridge/bridge-nf-call-{family}tables"),
                "0",
            );
        }
        Ok(())
    })
}

fn cables(lab: &Lab) -> String {
    let name = |ns: &Netns| ns.name().to_owned();
    let (hg, hw) = (name(&lab.hg), name(&lab.hw));
    let mut text = String::new();
    let mut cable = |ns: &str, end: &str, peer: &Netns, peer_end: &str| {
        text.push_str(&format!(
            "link add name {end} netns {ns} type veth peer name {peer_end} netns {}\n",
            peer.name()
        ));
    };
    match lab.profile() {
        Profile::Bridge => {
            cable(&hg, "lp1", &lab.hc1, "eth0");
            cable(&hg, "lp2", &lab.hc2, "eth0");
        }
        Profile::Flat => cable(&hg, "lan", &lab.hc1, "eth0"),
    }
    cable(&hg, "wan", &lab.hw, "w1");
    cable(&hg, "wan2", &lab.hw, "w2");
    cable(&hw, "wp", &lab.hp, "eth0");
    cable(&hw, "wq", &lab.hp2, "eth0");
    cable(&hw, "wo", &lab.ho, "eth0");
    text
}

fn gateway(profile: Profile) -> String {
    let lan = match profile {
        Profile::Bridge => {
            "link add name lan address 02:66:00:00:00:01 type bridge forward_delay 0 \
             mcast_snooping 0\n\
             link set lp1 master lan up\nlink set lp2 master lan up\n"
        }
        Profile::Flat => "link set lan address 02:66:00:00:00:01\n",
    };
    format!(
        "link set lo up\n{lan}\
         link set lan up\n\
         address add 10.66.0.1/24 dev lan\naddress add fd66::1/64 dev lan nodad\n\
         link set wan up\nlink set wan2 up\n\
         address add 203.0.113.2/24 dev wan\naddress add 2001:db8:113::2/64 dev wan nodad\n\
         address add 192.0.2.2/24 dev wan2\n\
         route add default via 203.0.113.1\nroute add default via 2001:db8:113::1\n"
    )
}

/// The ISP knows no route to the private LAN, so the gateway must masquerade IPv4.
const ISP: &str = "link set lo up\n\
    link set w1 up\nlink set w2 up\nlink set wp up\nlink set wq up\nlink set wo up\n\
    address add 203.0.113.1/24 dev w1\naddress add 2001:db8:113::1/64 dev w1 nodad\n\
    address add 192.0.2.1/24 dev w2\n\
    address add 198.51.100.1/26 dev wp\naddress add 2001:db8:51::1/64 dev wp nodad\n\
    address add 198.51.100.65/26 dev wq\naddress add 2001:db8:52::1/64 dev wq nodad\n\
    address add 198.51.100.129/25 dev wo\naddress add 2001:db8:80::1/64 dev wo nodad\n\
    route add fd66::/64 via 2001:db8:113::2\n";

const ORIGINS: &str = "link set lo up\nlink set eth0 up\n\
    address add 198.51.100.130/25 dev eth0\naddress add 198.51.100.131/25 dev eth0\n\
    address add 198.51.100.132/25 dev eth0\n\
    address add 2001:db8:80::130/64 dev eth0 nodad\naddress add 2001:db8:80::131/64 dev eth0 nodad\n\
    route add default via 198.51.100.129\nroute add default via 2001:db8:80::1\n";

const MASQUERADE: &str = "table ip labnat {\n\
    chain postrouting {\n\
    type nat hook postrouting priority srcnat; policy accept;\n\
    oifname { \"wan\", \"wan2\" } masquerade\n\
    }\n}\n";

/// A host with one cable; its v6 router is `::1` of the same prefix. Clients get fixed MACs.
fn host(link: &str, address: &str, router: &str, prefix: &str, last: &str) -> String {
    let mac = if prefix == "fd66::" {
        format!("link set {link} address 02:66:00:00:00:{last}\n")
    } else {
        String::new()
    };
    format!(
        "link set lo up\n{mac}link set {link} up\n\
         address add {address} dev {link}\naddress add {prefix}{last}/64 dev {link} nodad\n\
         route add default via {router}\nroute add default via {prefix}1\n"
    )
}
