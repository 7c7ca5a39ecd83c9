//! From patterns and links to what should be hooked. Pure.

use std::{
    collections::{BTreeSet, btree_map},
    net::IpAddr,
};

use super::{
    error::Error,
    hooks::{Target, Targets},
    object::{Place, Role},
    pattern,
    status::InterfaceStatus,
    sysctl::Lan,
};
use crate::netlink::{Address, Link};

/// MTU of replies while nothing is hooked.
const MTU_DEFAULT: u32 = 1500;

/// Name of the early drop program, which is not needed.
pub(super) const GUARD: &str = "xdp_guard";

/// Stands for the interfaces of the default routes.
pub(super) const AUTO: &str = "auto";

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Patterns {
    pub(super) lan: Vec<String>,
    pub(super) wan: Vec<String>,
}

impl Patterns {
    /// Whether default routes matter.
    pub(super) fn follows_routes(&self) -> bool {
        self.wan.iter().any(|p| p == AUTO)
    }
}

/// What a pattern list means at the moment.
#[derive(Debug, Default)]
pub(super) struct Resolved {
    pub(super) targets: Targets,
    pub(super) entries: Vec<Entry>,
}

/// An interface somebody asked for, or a pattern without one.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) pattern: String,
    pub(super) role: &'static str,
    pub(super) link: Option<(u32, String)>,
    /// Named without wildcard: a failure counts.
    pub(super) plain: bool,
    pub(super) problem: Option<Error>,
}

/// Resolves patterns in order; in each role an interface belongs to the first that fits.
/// `defaults` are the links of the default routes.
pub(super) fn resolve(patterns: &Patterns, links: &[Link], defaults: &[u32]) -> Resolved {
    let mut resolved = Resolved::default();
    for (role, list) in [(Role::Lan, &patterns.lan), (Role::Wan, &patterns.wan)] {
        let mut seen = BTreeSet::new();
        for pattern in list {
            let is_auto = role == Role::Wan && pattern == AUTO;
            let entry = |link| Entry {
                pattern: pattern.clone(),
                role: if role == Role::Lan { "lan" } else { "wan" },
                link,
                plain: !is_auto && pattern::is_plain(pattern),
                problem: None,
            };
            let found: Vec<&Link> = if is_auto {
                let meant = |link: &&Link| defaults.contains(&link.index);
                pattern::select("*", links).filter(meant).collect()
            } else {
                pattern::select(pattern, links).collect()
            };
            if found.is_empty() {
                resolved.entries.push(entry(None));
            }
            for link in found {
                if seen.insert(link.index) {
                    let entry = entry(Some((link.index, link.name.clone())));
                    resolved.add(role, link, entry);
                }
            }
        }
    }
    resolved
}

impl Resolved {
    fn add(&mut self, role: Role, link: &Link, mut entry: Entry) {
        match pattern::layer(link.kind) {
            Some(layer) => match self.targets.entry(link.index) {
                btree_map::Entry::Occupied(mut known) => known.get_mut().place.role = Role::Both,
                btree_map::Entry::Vacant(free) => {
                    let name = link.name.clone();
                    let place = Place { layer, role };
                    free.insert(Target { name, place });
                }
            },
            None => {
                entry.problem = Some(Error::LinkType {
                    name: link.name.clone(),
                    kind: link.kind,
                });
            }
        }
        self.entries.push(entry);
    }

    /// Interfaces that clients come in through.
    pub(super) fn lan_links(&self) -> impl Iterator<Item = u32> {
        let targets = self.targets.iter();
        targets.filter_map(|(index, t)| (t.place.role != Role::Wan).then_some(*index))
    }

    /// Whether an interface is both LAN and WAN.
    pub(super) fn one_armed(&self) -> bool {
        self.targets.values().any(|t| t.place.role == Role::Both)
    }

    /// Adds what the kernel said.
    pub(super) fn note(&mut self, failed: Vec<(u32, Error)>) {
        for (link, error) in failed {
            let entry = self
                .entries
                .iter_mut()
                .find(|e| e.link.as_ref().is_some_and(|(index, _)| *index == link));
            if let Some(entry) = entry {
                entry.problem.get_or_insert(error);
            }
        }
    }

    /// The first failure of an interface that was named.
    pub(super) fn take_failure(&mut self) -> Option<Error> {
        self.entries
            .iter_mut()
            .filter(|e| e.plain)
            .find_map(|e| e.problem.take())
    }

    /// For display; `hooks` tells what runs on an interface.
    pub(super) fn statuses(
        &self,
        hooks: impl Fn(u32) -> Vec<&'static str>,
    ) -> Vec<InterfaceStatus> {
        self.entries
            .iter()
            .map(|e| {
                let running = e.link.as_ref().map(|(index, _)| hooks(*index));
                let hooks = running.unwrap_or_default();
                InterfaceStatus {
                    name: e
                        .link
                        .as_ref()
                        .map_or_else(|| e.pattern.clone(), |(_, name)| name.clone()),
                    pattern: e.pattern.clone(),
                    role: e.role,
                    attached: hooks.iter().filter(|h| !h.starts_with(GUARD)).count() == 2,
                    hooks,
                    problem: e.problem.as_ref().map(ToString::to_string),
                    pending: e.link.is_none(),
                }
            })
            .collect()
    }

    /// Smallest MTU of what is hooked: replies must fit every way out.
    pub(super) fn mtu(&self, links: &[Link]) -> u32 {
        links
            .iter()
            .filter(|l| self.targets.contains_key(&l.index))
            .map(|l| l.mtu)
            .filter(|mtu| *mtu > 0)
            .min()
            .unwrap_or(MTU_DEFAULT)
    }

    /// Interfaces as far as host settings depend on them.
    pub(super) fn lan(&self, addresses: &[Address]) -> Vec<Lan> {
        self.targets
            .iter()
            .filter(|(_, target)| target.place.role != Role::Wan)
            .map(|(index, target)| Lan {
                name: target.name.clone(),
                v6: addresses
                    .iter()
                    .any(|a| a.link == *index && is_routed6(a.ip)),
            })
            .collect()
    }
}

fn is_routed6(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if !v6.is_unicast_link_local())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(index: u32, name: &str, kind: u16, mtu: u32) -> Link {
        Link {
            index,
            name: name.to_owned(),
            kind,
            mtu,
            mac: None,
            master: None,
            alias: None,
            up: true,
            xdp: None,
        }
    }

    fn both(lan: &[&str], wan: &[&str]) -> Patterns {
        let list = |l: &[&str]| l.iter().map(|p| (*p).to_owned()).collect();
        Patterns {
            lan: list(lan),
            wan: list(wan),
        }
    }

    fn patterns(lan: &[&str]) -> Patterns {
        both(lan, &[])
    }

    #[test]
    fn an_interface_of_both_lists_is_one_armed() {
        let links = [link(2, "a", 1, 1500), link(3, "b", 0xfffe, 1400)];
        let r = resolve(&both(&["a"], &["a", "b"]), &links, &[]);
        let role = |index| r.targets[&index].place.role;
        assert_eq!((role(2), role(3)), (Role::Both, Role::Wan));
        assert!(r.one_armed());
        assert_eq!(r.lan_links().collect::<Vec<_>>(), [2]);
        assert_eq!(r.lan(&[]).len(), 1);
        assert_eq!(r.mtu(&links), 1400);
        let roles: Vec<_> = r.statuses(|_| vec![]).iter().map(|s| s.role).collect();
        assert_eq!(roles, ["lan", "wan", "wan"]);
        assert!(!resolve(&both(&["a"], &["b"]), &links, &[]).one_armed());
    }

    #[test]
    fn auto_is_what_the_default_routes_use_and_pending_without() {
        let links = [link(2, "a", 1, 1500), link(3, "b", 1, 1500)];
        let auto = both(&[], &["auto"]);
        assert!(auto.follows_routes() && !both(&["auto"], &[]).follows_routes());
        let r = resolve(&auto, &links, &[3]);
        assert_eq!(r.targets.keys().copied().collect::<Vec<_>>(), [3]);
        let mut none = resolve(&auto, &links, &[]);
        assert!(none.targets.is_empty() && none.statuses(|_| vec![])[0].pending);
        assert!(none.take_failure().is_none());
    }

    #[test]
    fn missing_is_pending_and_the_first_pattern_wins() {
        let links = [link(2, "lan0", 1, 1500), link(3, "lan1", 1, 1400)];
        let r = resolve(&patterns(&["lan0", "lan*", "gone"]), &links, &[]);
        assert_eq!(r.targets.len(), 2);
        assert_eq!(r.mtu(&links), 1400);
        let s = r.statuses(|_| vec!["a", "b"]);
        assert_eq!(s.len(), 3);
        assert_eq!(
            (s[0].pattern.as_str(), s[1].pattern.as_str()),
            ("lan0", "lan*")
        );
        assert!(s[0].attached && !s[0].pending);
        assert!(s[2].pending && !s[2].attached && s[2].problem.is_none());
    }

    #[test]
    fn only_named_interfaces_fail() {
        let links = [link(2, "wlan0", 801, 1500)];
        let mut wild = resolve(&patterns(&["w*"]), &links, &[]);
        assert!(wild.targets.is_empty());
        assert!(wild.take_failure().is_none());
        assert!(wild.statuses(|_| vec![])[0].problem.is_some());
        let mut named = resolve(&patterns(&["wlan0"]), &links, &[]);
        let e = named.take_failure().unwrap();
        assert!(e.to_string().contains("801"), "{e}");
    }

    #[test]
    fn nothing_hooked_has_a_default_mtu() {
        assert_eq!(
            resolve(&Patterns::default(), &[], &[]).mtu(&[]),
            MTU_DEFAULT
        );
    }
}
