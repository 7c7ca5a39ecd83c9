//! Following the detours that entries of one body name among themselves.
//!
//! An entry whose way is broken anywhere is dropped as a whole: it never becomes shorter, and
//! never direct.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
    sync::Arc,
};

use super::{
    Member, SCOPE,
    entry::{Content, Entry},
};
use crate::{
    config::value::shortened,
    node::{Kind, Node, Plugin, Proxy, check},
};

/// Hops behind a node at most.
const MAX_VIA: usize = 11;

/// Entries that are dropped because of one target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dropped {
    reason: Reason,
    target: String,
    names: Vec<String>,
    pub(super) holders: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reason {
    Missing,
    Illegal,
    Own,
    Deep,
    Ring,
    Unusable,
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.reason {
            Reason::Missing => "is missing",
            Reason::Illegal => "is no server",
            Reason::Own => "is the entry itself",
            Reason::Deep => "is more than 12 hops away",
            Reason::Ring => "leads back to itself",
            Reason::Unusable => "cannot carry it",
        };
        let names: Vec<String> = self.names.iter().map(|name| shortened(name)).collect();
        let more = match self.holders - self.names.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        write!(
            f,
            "detour target `{}` {why}; not used, so that nothing goes direct: {}{more}",
            shortened(&self.target),
            names.join(", ")
        )
    }
}

/// The nodes of all entries, and what was dropped.
pub(super) fn resolve(entries: &[Entry]) -> (Vec<Member>, Vec<Dropped>) {
    let mut tags = HashMap::new();
    for (at, entry) in entries.iter().enumerate() {
        tags.entry(entry.tag.as_str()).or_insert(at);
    }
    let graph = Graph {
        entries,
        tags,
        bare: bare(entries),
    };
    let mut links = HashSet::new();
    let mut members = Vec::new();
    let mut dropped: BTreeMap<(Reason, String), Dropped> = BTreeMap::new();
    for (at, entry) in entries.iter().enumerate() {
        let (name, built) = match &entry.content {
            Content::Node(node) => {
                members.push((at, (**node).clone()));
                continue;
            }
            Content::Proxy(proxy) => (entry.shown().to_owned(), graph.build(at, proxy, &mut links)),
            Content::Layer(_) | Content::Service | Content::Group | Content::Refused(_) => continue,
        };
        match built {
            Ok(proxy) => members.push((at, Node::new(name, proxy.into()))),
            Err((reason, target)) => {
                let target = target.rsplit(SCOPE).next().unwrap_or_default().to_owned();
                let key = (reason, target.clone());
                let drop = dropped.entry(key).or_insert_with(|| Dropped {
                    reason,
                    target,
                    names: Vec::new(),
                    holders: 0,
                });
                drop.holders += 1;
                if drop.names.len() < 5 {
                    drop.names.push(name);
                }
            }
        }
    }
    let member = |(at, node): (usize, Node)| Member {
        is_link: links.contains(&at) || node.name.starts_with("⚙ "),
        node,
    };
    let dropped = dropped.into_values().collect();
    (members.into_iter().map(member).collect(), dropped)
}

/// Every entry as a hop, without its own detour.
fn bare(entries: &[Entry]) -> Vec<Option<Arc<Node>>> {
    let hop = |entry: &Entry| match &entry.content {
        Content::Proxy(proxy) | Content::Layer(proxy) => {
            let proxy = (**proxy).clone();
            Some(Arc::new(Node::new(entry.shown().to_owned(), proxy.into())))
        }
        Content::Node(_) | Content::Service | Content::Group | Content::Refused(_) => None,
    };
    // Only what others name is needed.
    let named: HashSet<&str> = entries.iter().filter_map(|e| e.detour.as_deref()).collect();
    let hops = entries
        .iter()
        .map(|entry| match named.contains(entry.tag.as_str()) {
            true => hop(entry),
            false => None,
        });
    hops.collect()
}

struct Graph<'a> {
    entries: &'a [Entry],
    tags: HashMap<&'a str, usize>,
    bare: Vec<Option<Arc<Node>>>,
}

impl Graph<'_> {
    /// A proxy with the whole way to it; the entries on it are noted as links.
    fn build(
        &self,
        start: usize,
        proxy: &Proxy,
        links: &mut HashSet<usize>,
    ) -> Result<Proxy, (Reason, String)> {
        let mut proxy = proxy.clone();
        let mut path = vec![start];
        let mut at = start;
        while let Some(target) = &self.entries[at].detour {
            let fail = |reason| Err((reason, target.clone()));
            let Some(&next) = self.tags.get(target.as_str()) else {
                return fail(Reason::Missing);
            };
            if next == start && at == start {
                return fail(Reason::Own);
            }
            if path.contains(&next) {
                return fail(Reason::Ring);
            }
            match (&self.entries[next].content, &self.bare[next]) {
                // A direct way out of the provider's file: the path ends here.
                (Content::Service, _) => break,
                (Content::Group | Content::Node(_), _) => return fail(Reason::Illegal),
                (Content::Refused(_), _) | (_, None) => return fail(Reason::Missing),
                (Content::Layer(layer), Some(_)) if shadow_tls(&mut proxy, layer, at == start) => {}
                (Content::Layer(_) | Content::Proxy(_), Some(hop)) => {
                    proxy.via.push(Arc::clone(hop));
                }
            }
            if proxy.via.len() > MAX_VIA {
                return fail(Reason::Deep);
            }
            path.push(next);
            at = next;
        }
        if let Err(_unfit) = check(&proxy) {
            let target = self.entries[start].detour.clone();
            return Err((Reason::Unusable, target.unwrap_or_default()));
        }
        links.extend(&path[1..]);
        Ok(proxy)
    }
}

/// Shadowsocks that goes through a ShadowTLS entry is one node at the address of that entry.
fn shadow_tls(proxy: &mut Proxy, layer: &Proxy, next: bool) -> bool {
    let (Kind::ShadowTls(password), Some(tls)) = (&layer.kind, &layer.tls) else {
        return false;
    };
    let Kind::Shadowsocks(ss) = &mut proxy.kind else {
        return false;
    };
    if !next || ss.plugin.is_some() {
        return false;
    }
    ss.plugin = Some(Plugin::ShadowTls {
        tls: Box::new(tls.clone()),
        password: password.clone(),
    });
    proxy.host = layer.host.clone();
    proxy.port = layer.port;
    proxy.tuning = layer.tuning;
    true
}
