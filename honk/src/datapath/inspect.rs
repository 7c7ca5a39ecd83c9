//! What the kernel holds, seen from outside of a daemon (`honk diag`). Reads only.

use std::path::Path;

use super::{
    bpf,
    error::Error,
    hooks::{self, Method},
    lan::{self, Patterns},
    object::{self, Place},
    pair, pattern, pins, probe,
};
use crate::{
    netlink::{Address, Family, Link, Rtnl, Side},
    netns::{self, Netns},
};

/// An interface that the configuration means, or a pattern that means none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) pattern: String,
    /// `lan` or `wan`.
    pub(crate) role: &'static str,
    pub(crate) link: Option<Seen>,
}

/// An interface as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) name: String,
    pub(crate) up: bool,
    /// `ARPHRD_*`, and whether honk knows how packets of such links look.
    pub(crate) kind: u16,
    pub(crate) supported: bool,
    /// The bridge, bond or team it is a port of.
    pub(crate) master: Option<String>,
    pub(crate) v4: bool,
    /// A global IPv6 address.
    pub(crate) v6: bool,
    /// `None` where it may not be read.
    pub(crate) hooks: Option<Hooks>,
}

/// Programs on both sides of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hooks {
    /// Of honk, that are there.
    pub(crate) ours: Vec<String>,
    /// Of honk, that are not.
    pub(crate) missing: Vec<String>,
    /// Of others, as `side name`.
    pub(crate) foreign: Vec<String>,
}

/// The link pair and the namespace behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pair {
    Absent,
    /// A link of that name that honk did not make.
    Foreign,
    Down,
    Up,
}

/// Interfaces, default routes and the pair of the calling thread's namespace.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    pub(crate) interfaces: Vec<Wanted>,
    /// Interfaces of the best default routes.
    pub(crate) defaults: Vec<String>,
    pub(crate) pair: Pair,
}

/// How the name of an XDP program begins among foreign ones.
pub(crate) const XDP: &str = "xdp";

/// Looks at the interfaces that two lists mean.
pub(crate) fn look(lan: &[String], wan: &[String]) -> Result<Look, Error> {
    let mut rtnl = Rtnl::open()?;
    let links = rtnl.links()?;
    let addresses = rtnl.addresses()?;
    let defaults = rtnl.default_links()?;
    let patterns = Patterns {
        lan: lan.to_vec(),
        wan: wan.to_vec(),
    };
    let resolved = lan::resolve(&patterns, &links, &defaults);
    let mut interfaces = Vec::new();
    for entry in &resolved.entries {
        let found = entry.link.as_ref().map(|(index, _)| *index);
        let link = found.and_then(|index| links.iter().find(|l| l.index == index));
        let place = found.and_then(|index| resolved.targets.get(&index).map(|t| t.place));
        interfaces.push(Wanted {
            pattern: entry.pattern.clone(),
            role: entry.role,
            link: link.map(|link| seen(&mut rtnl, link, place, &links, &addresses)),
        });
    }
    let name = |index: &u32| links.iter().find(|l| l.index == *index);
    Ok(Look {
        interfaces,
        defaults: defaults
            .iter()
            .filter_map(name)
            .map(|l| l.name.clone())
            .collect(),
        pair: match links.iter().find(|l| l.name == pair::HOST) {
            None => Pair::Absent,
            Some(link) if !pair::is_ours(link) => Pair::Foreign,
            Some(link) if !link.up => Pair::Down,
            Some(_) => Pair::Up,
        },
    })
}

fn seen(
    rtnl: &mut Rtnl,
    link: &Link,
    place: Option<Place>,
    links: &[Link],
    addresses: &[Address],
) -> Seen {
    let own = |v6: bool| {
        addresses.iter().any(|a| {
            let global = match a.ip {
                std::net::IpAddr::V6(ip) => v6 && !ip.is_unicast_link_local(),
                std::net::IpAddr::V4(_) => !v6,
            };
            a.link == link.index && global
        })
    };
    let master = link.master;
    Seen {
        name: link.name.clone(),
        up: link.up,
        kind: link.kind,
        supported: pattern::layer(link.kind).is_some(),
        master: master.map(|m| {
            let found = links.iter().find(|l| l.index == m);
            found.map_or_else(|| m.to_string(), |l| l.name.clone())
        }),
        v4: own(false),
        v6: own(true),
        hooks: place.and_then(|place| programs(rtnl, link, place).ok()),
    }
}

fn programs(rtnl: &mut Rtnl, seen: &Link, place: Place) -> Result<Hooks, Error> {
    let link = seen.index;
    let filters = rtnl.filters(link)?;
    let mut hooks = Hooks::default();
    if let Some(xdp) = seen.xdp {
        let name = named(xdp.program)?;
        if !name.starts_with(lan::GUARD) {
            let mode = if xdp.generic { " (generic)" } else { "" };
            hooks.foreign.push(format!("{XDP} {name}{mode}"));
        }
    }
    for side in Side::BOTH {
        let expected = object::hook_name(side, place);
        let mut names: Vec<String> = Vec::new();
        match bpf::query_tcx(link, side) {
            Ok(hooked) => {
                for id in hooked.programs {
                    names.push(named(id)?);
                }
            }
            // A kernel without TCX has the filters.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {}
            Err(e) => return Err(Error::io("list programs")(e)),
        }
        let filters = filters.iter().filter(|f| f.side == side);
        names.extend(filters.map(|f| {
            let own = f.name.strip_prefix(hooks::FILTER_PREFIX);
            own.unwrap_or(&f.name).to_owned()
        }));
        let (own, others) = names
            .into_iter()
            .partition::<Vec<_>, _>(|name| object::is_hook(name));
        if own.iter().any(|name| name == expected) {
            hooks.ours.push(expected.to_owned());
        } else {
            hooks.missing.push(expected.to_owned());
        }
        let label = |name: String| format!("{} {name}", side.name());
        hooks.foreign.extend(others.into_iter().map(label));
    }
    Ok(hooks)
}

fn named(program: u32) -> Result<String, Error> {
    let name = bpf::program_name(program).map_err(Error::io("name a program"))?;
    Ok(if name.is_empty() {
        format!("#{program}")
    } else {
        name
    })
}

/// How programs can be attached on this kernel, found by doing it in a namespace of its own.
pub(crate) fn attachment() -> Result<&'static str, Error> {
    probe::platform()?;
    let netns = Netns::spawn(netns::current_inode()?)?;
    Ok(match probe::features(&netns, false)?.method {
        Method::Tcx => "tcx",
        Method::Clsact => "clsact",
    })
}

/// The capability that the calling thread lacks.
pub(crate) fn lacking() -> Option<&'static str> {
    match probe::capabilities() {
        Err(Error::Capability { missing }) => Some(missing),
        _ => None,
    }
}

/// Whether a directory is on a bpf file system.
pub(crate) fn is_bpffs(root: &Path) -> bool {
    pins::is_bpffs(root)
}

/// What is wrong inside the private namespace of a daemon; `Ok(None)`: nothing.
pub(crate) fn private_problem(pid: u32) -> std::io::Result<Option<String>> {
    let Some(namespace) = netns::foreign_to(pid)? else {
        return Ok(Some("no thread of the daemon lives in it".to_owned()));
    };
    netns::visit(&namespace, || inside().map_err(std::io::Error::other))?
}

fn inside() -> Result<Option<String>, Error> {
    let mut rtnl = Rtnl::open()?;
    match rtnl.link(pair::PEER)? {
        None => return Ok(Some(format!("link {} is gone", pair::PEER))),
        Some(link) if !link.up => return Ok(Some(format!("link {} is down", pair::PEER))),
        Some(_) => {}
    }
    let families = [Family::V4, Family::V6];
    for family in families.into_iter().take(1 + usize::from(pair::has_v6())) {
        if !rtnl.has_iif_rule(family, pair::PEER, pair::TABLE)? {
            let text = format!("the {family:?} rule for {} is gone", pair::PEER);
            return Ok(Some(text));
        }
    }
    Ok(None)
}
