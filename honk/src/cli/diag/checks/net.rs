//! Interfaces, host settings, firewall, routes and names.

use super::super::{Check, facts::Facts};
use crate::{
    datapath::inspect::{Hooks, Pair, Seen, Wanted, XDP},
    netlink::firewall::{BaseChain, FORWARD, INPUT, OUTPUT},
};

pub(super) fn private(facts: &Facts) -> Check {
    const ID: &str = "private-namespace";
    let pair = facts.look.as_ref().map(|l| l.pair);
    if pair == Some(Pair::Foreign) {
        return Check::fail(
            ID,
            "a link named honk0 exists that honk did not make: honk cannot start",
            "rename or delete it: ip link delete honk0",
        );
    }
    if facts.daemon.is_none() {
        return Check::skip(ID, "no daemon");
    }
    let repair = "honk repairs this within a minute; else restart it and see its log";
    match (pair, &facts.private) {
        (None, _) => Check::skip(ID, "links cannot be read"),
        (Some(Pair::Absent), _) => {
            Check::fail(ID, "link honk0 is gone: proxied flows are lost", repair)
        }
        (Some(Pair::Down), _) => {
            Check::fail(ID, "link honk0 is down: proxied flows are lost", repair)
        }
        (_, Some(Some(problem))) => {
            Check::fail(ID, format!("in the private namespace, {problem}"), repair)
        }
        (_, Some(None)) => Check::ok(ID, "link pair, rules and routes are in place"),
        (_, None) => Check::ok(
            ID,
            "link honk0 is up; the rest takes the rights of root to see",
        ),
    }
}

/// One check per interface or pattern.
pub(super) fn interfaces(facts: &Facts) -> Vec<Check> {
    const ID: &str = "interface";
    let Some(look) = &facts.look else {
        return vec![Check::skip(ID, "links cannot be read")];
    };
    if facts.config.revision.is_none() {
        return vec![Check::skip(ID, "no valid configuration says which ones")];
    }
    if look.interfaces.is_empty() {
        return vec![Check::fail(
            ID,
            "neither lan_interface nor wan_interface is set: nothing is intercepted",
            "set `lan_interface` to the interface that clients come in through",
        )];
    }
    look.interfaces
        .iter()
        .map(|w| interface(facts, w))
        .collect()
}

fn interface(facts: &Facts, wanted: &Wanted) -> Check {
    const ID: &str = "interface";
    let role = wanted.role.to_uppercase();
    let Some(link) = &wanted.link else {
        return missing(wanted);
    };
    let title = format!("{role} {}", link.name);
    if !link.supported {
        return Check::fail(
            ID,
            format!("{title}: link type {} is not understood", link.kind),
            "list an Ethernet, bridge, VLAN, PPP, TUN or WireGuard interface",
        );
    }
    if let Some(master) = &link.master
        && wanted.role == "lan"
    {
        return Check::warn(
            ID,
            format!(
                "{title} is a port of {master}: routed traffic of clients is seen there, not here"
            ),
            format!("list {master} instead"),
        );
    }
    if !link.up {
        return Check::warn(
            ID,
            format!("{title} is down"),
            format!("ip link set {} up", link.name),
        );
    }
    if wanted.role == "lan" && !link.v4 && !link.v6 {
        return Check::warn(
            ID,
            format!("{title} has no address: clients cannot use this gateway"),
            format!("give {} an address", link.name),
        );
    }
    hooked(facts, &title, link)
}

fn missing(wanted: &Wanted) -> Check {
    const ID: &str = "interface";
    let Wanted { pattern, role, .. } = wanted;
    if pattern == "auto" {
        return Check::warn(
            ID,
            format!(
                "{}: there is no default route to follow",
                role.to_uppercase()
            ),
            "it is followed when it appears; name the interface to be independent of it",
        );
    }
    Check::fail(
        ID,
        format!(
            "{} {pattern}: no such interface: nothing is intercepted there",
            role.to_uppercase()
        ),
        "check the name with `ip link`; honk hooks it within a second once it exists",
    )
}

fn hooked(facts: &Facts, title: &str, link: &Seen) -> Check {
    const ID: &str = "interface";
    let Some(Hooks {
        ours,
        missing,
        foreign,
    }) = &link.hooks
    else {
        return Check::ok(
            ID,
            format!("{title} is up; its programs take the rights of root to see"),
        );
    };
    let others = match foreign.as_slice() {
        [] => String::new(),
        list => format!("; other programs there: {}", list.join(", ")),
    };
    if facts.daemon.is_none() {
        return match ours.as_slice() {
            [] => Check::ok(ID, format!("{title} is up, without hooks of honk{others}")),
            list => Check::ok(
                ID,
                format!(
                    "{title} keeps hooks of a dead daemon: {}{others}",
                    list.join(", ")
                ),
            ),
        };
    }
    if missing.is_empty() {
        Check::ok(ID, format!("{title}: {}{others}", ours.join(", ")))
    } else {
        Check::fail(
            ID,
            format!(
                "{title}: not attached: {}: its traffic passes unjudged{others}",
                missing.join(", ")
            ),
            "honk attaches them again within a minute; `honk status` tells what is in the way",
        )
    }
}

/// Whether packets come as the programs expect them.
pub(super) fn frames(facts: &Facts) -> Check {
    const ID: &str = "frames";
    let Some(alive) = &facts.daemon else {
        return Check::skip(ID, "no daemon");
    };
    let count = |stat| alive.datapath.counters.get(stat).copied().unwrap_or(0);
    let (mended, lost) = (count("frame_mended"), count("frame_drop"));
    if mended + lost == 0 {
        return Check::ok(ID, "packets come with their link headers");
    }
    let wanted = facts.look.iter().flat_map(|l| &l.interfaces);
    let links = wanted.filter_map(|w| w.link.as_ref());
    let found = links.flat_map(|link| {
        let hooks = link.hooks.iter().flat_map(|h| &h.foreign);
        let xdp = hooks.filter(|h| h.starts_with(XDP) && h.ends_with("(generic)"));
        xdp.map(|h| format!("{h} on {}", link.name))
    });
    let found: Vec<_> = found.collect();
    let whose = match found.as_slice() {
        [] => "an XDP program in front of the stack".to_owned(),
        list => list.join(", "),
    };
    Check::warn(
        ID,
        format!(
            "{} packets came without their link header, and {lost} of them were dropped: {whose}",
            mended + lost
        ),
        "attach that program in the driver, or load it without support for fragments (xdp.frags)",
    )
}

fn setting<'a>(facts: &'a Facts, key: &str) -> Option<&'a str> {
    facts.settings.get(key).map(String::as_str)
}

fn lan(facts: &Facts) -> impl Iterator<Item = &Seen> {
    of(facts, "lan")
}

fn of<'a>(facts: &'a Facts, role: &'a str) -> impl Iterator<Item = &'a Seen> {
    let wanted = facts.look.iter().flat_map(|l| &l.interfaces);
    wanted
        .filter(move |w| w.role == role)
        .filter_map(|w| w.link.as_ref())
}

pub(super) fn forwarding(facts: &Facts) -> Check {
    const ID: &str = "forwarding";
    if lan(facts).next().is_none() {
        return Check::skip(ID, "no LAN interface");
    }
    let off = |key: &str| setting(facts, key) == Some("0");
    let fix = "set it for good in /etc/sysctl.d, or set auto_config_kernel_parameter: true";
    if off("net/ipv4/ip_forward") {
        return Check::fail(
            ID,
            "net.ipv4.ip_forward is 0: direct traffic of clients is not forwarded",
            fix,
        );
    }
    if let Some(link) = lan(facts).find(|l| off(&format!("net/ipv4/conf/{}/forwarding", l.name))) {
        let text = format!(
            "net.ipv4.conf.{}.forwarding is 0: its direct traffic is not forwarded",
            link.name
        );
        return Check::fail(ID, text, fix);
    }
    if lan(facts).any(|l| l.v6) && off("net/ipv6/conf/all/forwarding") {
        return Check::warn(
            ID,
            "net.ipv6.conf.all.forwarding is 0: direct IPv6 traffic of clients is not forwarded",
            fix,
        );
    }
    Check::ok(ID, "the host forwards")
}

pub(super) fn redirects(facts: &Facts) -> Check {
    const ID: &str = "redirects";
    let on = |key: &str| setting(facts, key) == Some("1");
    let all = on("net/ipv4/conf/all/send_redirects");
    let link = lan(facts).find(|l| all || on(&format!("net/ipv4/conf/{}/send_redirects", l.name)));
    match link {
        Some(link) => Check::warn(
            ID,
            format!(
                "the host may send ICMP redirects on {}: clients would go around it",
                link.name
            ),
            "set send_redirects to 0 for `all` and the interface, or auto_config_kernel_parameter: true",
        ),
        None => Check::ok(ID, "no ICMP redirects are sent"),
    }
}

pub(super) fn advertisements(facts: &Facts) -> Check {
    const ID: &str = "router-advertisements";
    let forwards = setting(facts, "net/ipv6/conf/all/forwarding").is_some_and(|v| v != "0");
    let ignored = of(facts, "wan").find(|l| {
        forwards
            && l.v6
            && setting(facts, &format!("net/ipv6/conf/{}/accept_ra", l.name)) == Some("1")
    });
    match ignored {
        Some(link) => Check::warn(
            ID,
            format!(
                "{} forwards and has accept_ra 1: a default route learned from the provider expires",
                link.name
            ),
            format!("sysctl -w net.ipv6.conf.{}.accept_ra=2", link.name),
        ),
        None => Check::ok(ID, "nothing is ignored that should be heard"),
    }
}

pub(super) fn firewall(facts: &Facts) -> Check {
    const ID: &str = "firewall";
    let dropping = |hook| {
        facts
            .chains
            .iter()
            .find(|c: &&BaseChain| c.drops && c.hook == hook)
    };
    let mark = facts.config.own_mark;
    if let Some(chain) = dropping(OUTPUT) {
        let dead = facts.daemon.as_ref().is_some_and(|d| {
            let mut nodes = d.nodes.iter().filter(|n| !n.builtin).peekable();
            nodes.peek().is_some() && nodes.all(|n| n.state == "dead")
        });
        let text = format!(
            "chain {} of table {} drops what the host sends unless a rule accepts it: honk's own connections need one",
            chain.name, chain.table
        );
        let fix = format!("add to that chain: meta mark and {mark:#x} == {mark:#x} accept");
        return if dead {
            Check::fail(ID, format!("{text}, and no node answers"), fix)
        } else {
            Check::warn(ID, text, fix)
        };
    }
    if let Some(chain) = dropping(FORWARD)
        && lan(facts).next().is_some()
    {
        return Check::warn(
            ID,
            format!(
                "chain {} of table {} drops what the host forwards unless a rule accepts it: proxied flows pass all the same, direct ones may not",
                chain.name, chain.table
            ),
            "make sure that it accepts new connections from LAN to WAN, and established ones back",
        );
    }
    match dropping(INPUT) {
        Some(chain) => Check::ok(
            ID,
            format!(
                "chain {} of table {} drops unasked input; replies must be accepted as established",
                chain.name, chain.table
            ),
        ),
        None => Check::ok(ID, "no chain drops by policy"),
    }
}

pub(super) fn route(facts: &Facts) -> Check {
    const ID: &str = "default-route";
    match &facts.look {
        None => Check::skip(ID, "routes cannot be read"),
        Some(look) if look.defaults.is_empty() => Check::fail(
            ID,
            "there is no default route: neither servers nor direct destinations can be reached",
            "bring up the WAN",
        ),
        Some(look) => Check::ok(ID, format!("through {}", look.defaults.join(" and "))),
    }
}

pub(super) fn names(facts: &Facts) -> Check {
    const ID: &str = "server-names";
    match (&facts.resolver, &facts.config.name) {
        (None, _) | (_, None) => Check::ok(ID, "no server has a name that must be resolved"),
        (Some((server, Ok(()))), Some(name)) => Check::ok(ID, format!("{server} resolves {name}")),
        (Some((server, Err(why))), Some(name)) => Check::warn(
            ID,
            format!("{server} does not resolve {name}: {why}"),
            "set bootstrap_resolver to a name server that answers here",
        ),
    }
}

pub(super) fn dns_path(facts: &Facts) -> Check {
    const ID: &str = "dns-path";
    let config = &facts.config;
    if !config.domain_rules || config.sniffs {
        return Check::ok(ID, "rules do not depend on queries alone");
    }
    if facts.serves_dns && config.wan.is_empty() {
        return Check::warn(
            ID,
            "a resolver on this gateway may answer the clients: honk does not see its queries, and domain rules match nothing",
            "set wan_interface, or dial_mode: domain, or give clients another name server",
        );
    }
    Check::ok(ID, "queries of clients pass honk")
}

pub(super) fn queues(facts: &Facts) -> Check {
    const ID: &str = "queues";
    let alone = facts
        .queues
        .iter()
        .find(|(_, count, spread)| *count == 1 && !spread && facts.cpus > 1);
    match alone {
        Some((name, ..)) => Check::new(
            ID,
            super::super::Verdict::Ok,
            format!(
                "{name} has one receive queue: one of {} CPUs takes all its packets",
                facts.cpus
            ),
            Some(format!(
                "under load, spread them: write a CPU mask to /sys/class/net/{name}/queues/rx-0/rps_cpus"
            )),
        ),
        None => Check::ok(ID, "packets are spread over CPUs"),
    }
}
