//! From patterns and links to what should be hooked. Pure.

use std::{collections::BTreeSet, net::IpAddr};

use super::{
    error::Error,
    hooks::{Target, Targets},
    pattern,
    status::InterfaceStatus,
    sysctl::Lan,
};
use crate::netlink::{Address, Link};

/// MTU of replies while nothing is hooked.
const MTU_DEFAULT: u32 = 1500;

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
    pub(super) link: Option<(u32, String)>,
    /// Named without wildcard: a failure counts.
    pub(super) plain: bool,
    pub(super) problem: Option<Error>,
}

/// Resolves patterns in order; an interface belongs to the first that fits.
pub(super) fn resolve(patterns: &[String], links: &[Link]) -> Resolved {
    let mut resolved = Resolved::default();
    let mut seen = BTreeSet::new();
    for pattern in patterns {
        let entry = |link| Entry {
            pattern: pattern.clone(),
            link,
            plain: pattern::is_plain(pattern),
            problem: None,
        };
        let mut found = false;
        for link in pattern::select(pattern, links) {
            found = true;
            if !seen.insert(link.index) {
                continue;
            }
            let mut entry = entry(Some((link.index, link.name.clone())));
            match pattern::layer(link.kind) {
                Some(layer) => {
                    let name = link.name.clone();
                    resolved.targets.insert(link.index, Target { name, layer });
                }
                None => {
                    entry.problem = Some(Error::LinkType {
                        name: link.name.clone(),
                        kind: link.kind,
                    });
                }
            }
            resolved.entries.push(entry);
        }
        if !found {
            resolved.entries.push(entry(None));
        }
    }
    resolved
}

impl Resolved {
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
                    attached: hooks.len() == 2,
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
        }
    }

    fn patterns(list: &[&str]) -> Vec<String> {
        list.iter().map(|p| (*p).to_owned()).collect()
    }

    #[test]
    fn missing_is_pending_and_the_first_pattern_wins() {
        let links = [link(2, "lan0", 1, 1500), link(3, "lan1", 1, 1400)];
        let r = resolve(&patterns(&["lan0", "lan*", "gone"]), &links);
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
        let mut wild = resolve(&patterns(&["w*"]), &links);
        assert!(wild.targets.is_empty());
        assert!(wild.take_failure().is_none());
        assert!(wild.statuses(|_| vec![])[0].problem.is_some());
        let mut named = resolve(&patterns(&["wlan0"]), &links);
        let e = named.take_failure().unwrap();
        assert!(e.to_string().contains("801"), "{e}");
    }

    #[test]
    fn nothing_hooked_has_a_default_mtu() {
        assert_eq!(resolve(&[], &[]).mtu(&[]), MTU_DEFAULT);
    }
}
