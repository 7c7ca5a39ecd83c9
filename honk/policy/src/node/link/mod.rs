//! Share links: what they mean, and a link for every node.
//!
//! One file per family of protocols reads and writes its links. [`parse`] takes what a `node` line
//! or a line of a subscription holds, a single link or a chain `exit -> entry`. No error contains
//! any part of the link but its scheme and the names of settings and ciphers.

mod login;
mod quic;
mod ss;
pub(crate) mod stream;
#[cfg(test)]
pub(crate) mod tests;
mod trojan;
mod vless;
mod vmess;

use std::sync::Arc;

pub(crate) use self::{
    quic::{hop_interval, obfs, relay},
    ss::{plugin, plugin_text},
    vless::flow,
};
use super::{
    Fault, Kind, Node, Protocol, Proxy, check,
    fields::{Note, Out},
    text::{display_name, percent_encode},
    url::{self, Url},
};
use crate::id::NodeId;

pub use super::built_in;

/// What a link describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Scheme in lower case; of a chain that of its exit.
    pub scheme: String,
    /// Name from the fragment, else `scheme-host`; of a chain the names joined by `->`.
    pub name: String,
    /// Derived identity.
    pub id: NodeId,
    /// How the node is reached.
    pub protocol: Protocol,
    /// What was ignored or assumed.
    pub notes: Vec<&'static str>,
}

impl From<Link> for Node {
    fn from(link: Link) -> Self {
        Self {
            id: link.id,
            name: link.name,
            protocol: link.protocol,
            origin: None,
        }
    }
}

/// Why a link is no node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// Not a link at all.
    #[error("the link has no `scheme://`")]
    NoScheme,
    /// A scheme nobody knows.
    #[error("unknown link scheme `{scheme}`")]
    Unknown {
        /// As written, lower case.
        scheme: String,
    },
    /// A scheme honk will not serve.
    #[error("`{scheme}` nodes are not supported")]
    Unsupported {
        /// Lower case.
        scheme: String,
    },
    /// A served scheme with a feature honk does not speak.
    #[error("`{scheme}` nodes with {what} are not supported")]
    Feature {
        /// Lower case.
        scheme: String,
        /// The feature.
        what: String,
    },
    /// A served scheme with a wrong link.
    #[error("malformed `{scheme}` link: {why}")]
    Malformed {
        /// Lower case.
        scheme: String,
        /// The part and the reason.
        why: &'static str,
    },
    /// A hop of a chain is no node, so the chain is none.
    #[error("hop {hop}: {why}")]
    Hop {
        /// Place in the written order, from 1.
        hop: usize,
        /// What is wrong with it.
        why: Box<Self>,
    },
    /// The hops of a chain do not fit together.
    #[error("{0}")]
    Chain(&'static str),
}

impl LinkError {
    /// Whether the link may well be right, but honk does not speak what it describes.
    pub fn is_unsupported(&self) -> bool {
        match self {
            Self::Unsupported { .. } | Self::Feature { .. } => true,
            Self::NoScheme | Self::Unknown { .. } | Self::Malformed { .. } | Self::Chain(_) => {
                false
            }
            Self::Hop { why, .. } => why.is_unsupported(),
        }
    }
}

/// Every scheme of the language.
pub const SCHEMES: &[&str] = &[
    "ss",
    "shadowsocks",
    "trojan",
    "trojan-go",
    "vmess",
    "vless",
    "hysteria2",
    "hy2",
    "hysteria",
    "tuic",
    "juicity",
    "anytls",
    "socks5",
    "socks",
    "socks5h",
    "socks4",
    "socks4a",
    "http",
    "https",
    "naive+https",
    "shadowtls",
    "ssr",
    "shadowsocksr",
    "wireguard",
    "wg",
    "ssh",
    "snell",
    "mieru",
    "meek",
    "tor",
];

/// Schemes that are recognised and skipped.
const UNSUPPORTED: &[&str] = &[
    "ssr",
    "shadowsocksr",
    "wireguard",
    "wg",
    "ssh",
    "snell",
    "mieru",
    "meek",
    "tor",
];

/// Hops of a chain at most.
const MAX_HOPS: usize = 12;

/// What a protocol read from one link.
struct Parts {
    proxy: Proxy,
    name: Option<String>,
    notes: Vec<Note>,
}

impl Parts {
    /// The end of reading a link of the common form: what all protocols share.
    fn of(mut url: Url<'_>, mut proxy: Proxy) -> Result<Self, Fault> {
        stream::common(&mut url.query, &mut proxy);
        Ok(Self {
            proxy,
            name: url.name,
            notes: url.query.notes,
        })
    }
}

/// Reads one share link, or a chain of them.
pub fn parse(link: &str) -> Result<Link, LinkError> {
    let hops = hops(link);
    let [single] = hops.as_slice() else {
        return chain(&hops);
    };
    let (scheme, parts) = one(single)?;
    if parts.proxy.kind.is_layer() {
        let why = "a layer needs a protocol in front";
        return Err(LinkError::Malformed { scheme, why });
    }
    finish(scheme, parts)
}

/// Splits at every `->` that is followed by a `scheme://`, known or not: a misspelt hop must not
/// become part of a name and leave the chain shorter.
fn hops(text: &str) -> Vec<&str> {
    let mut hops = Vec::new();
    let (mut start, mut from) = (0, 0);
    while let Some(at) = text[from..].find("->").map(|at| at + from) {
        let next = text[at + 2..].trim_start();
        if url::scheme(next).is_some() {
            hops.push(text[start..at].trim());
            start = at + 2;
        }
        from = at + 2;
    }
    hops.push(text[start..].trim());
    hops
}

fn chain(hops: &[&str]) -> Result<Link, LinkError> {
    if hops.len() > MAX_HOPS {
        return Err(LinkError::Chain("the chain has more than 12 hops"));
    }
    let (mut via, mut names, mut notes) = (Vec::new(), Vec::new(), Vec::new());
    let mut exit = None;
    for (at, hop) in hops.iter().enumerate() {
        let wrong = |why| LinkError::Hop {
            hop: at + 1,
            why: Box::new(why),
        };
        let (scheme, mut parts) = one(hop).map_err(wrong)?;
        notes.append(&mut parts.notes);
        let name = name(&scheme, &mut parts);
        let is_layer = parts.proxy.kind.is_layer();
        match at {
            0 if is_layer => {
                let why = "a layer needs a protocol in front";
                return Err(wrong(LinkError::Malformed { scheme, why }));
            }
            0 => exit = Some((scheme, parts.proxy)),
            _ => {
                // Of a hop, everything but a missing TLS is judged here; what covers it is last.
                via.push((scheme, Node::new(name.clone(), parts.proxy.into()), at + 1));
            }
        }
        // Layers have no name of their own.
        if !is_layer {
            names.push(name);
        }
    }
    let Some((scheme, mut proxy)) = exit else {
        return Err(LinkError::NoScheme);
    };
    let hops: Vec<Arc<Node>> = via
        .iter()
        .map(|(_, hop, _)| Arc::new(hop.clone()))
        .collect();
    for (at, (scheme, hop, place)) in via.iter().enumerate() {
        if let Some(hop) = hop.protocol.proxy() {
            let mut whole = (*hop).clone();
            whole.via = hops[at + 1..].to_vec();
            check(&whole).map_err(|fault| LinkError::Hop {
                hop: *place,
                why: Box::new(refused(scheme.clone(), fault)),
            })?;
        }
    }
    proxy.via = hops;
    check(&proxy).map_err(|fault| LinkError::Hop {
        hop: 1,
        why: Box::new(refused(scheme.clone(), fault)),
    })?;
    let node = Node::new(names.join("->"), proxy.into());
    Ok(Link {
        scheme,
        name: node.name,
        id: node.id,
        protocol: node.protocol,
        notes,
    })
}

fn finish(scheme: String, mut parts: Parts) -> Result<Link, LinkError> {
    check(&parts.proxy).map_err(|fault| refused(scheme.clone(), fault))?;
    let name = name(&scheme, &mut parts);
    let node = Node::new(name, parts.proxy.into());
    Ok(Link {
        scheme,
        name: node.name,
        id: node.id,
        protocol: node.protocol,
        notes: parts.notes,
    })
}

/// The name that the link gives, else one made from its server; neither longer than a name may be.
fn name(scheme: &str, parts: &mut Parts) -> String {
    let default = || {
        let whole = format!("{scheme}-{}", parts.proxy.host);
        display_name(&whole).unwrap_or(whole)
    };
    parts.name.take().unwrap_or_else(default)
}

/// One link, without judging whether its settings fit together.
fn one(link: &str) -> Result<(String, Parts), LinkError> {
    let link = url::clean(link).map_err(|why| LinkError::Malformed {
        scheme: "share".to_owned(),
        why,
    })?;
    let (scheme, rest) = url::scheme(link).ok_or(LinkError::NoScheme)?;
    if UNSUPPORTED.contains(&scheme.as_str()) {
        return Err(LinkError::Unsupported { scheme });
    }
    let parts = match scheme.as_str() {
        "socks5" | "socks" | "socks5h" => login::socks5(rest),
        "socks4" | "socks4a" => login::socks4(&scheme, rest),
        "http" | "https" | "naive+https" => login::http(&scheme, rest),
        "ss" | "shadowsocks" => ss::read(rest),
        "trojan" | "trojan-go" => trojan::trojan(rest),
        "anytls" => trojan::anytls(rest),
        "vmess" => vmess::read(rest),
        "vless" => vless::read(rest),
        "hysteria2" | "hy2" | "hysteria" => quic::hysteria2(&scheme, rest),
        "tuic" => quic::tuic(rest),
        "juicity" => quic::juicity(rest),
        "shadowtls" => login::shadowtls(rest),
        "simpleobfs" | "simple-obfs" => login::simpleobfs(rest),
        "ws" | "wss" | "tls" | "utls" => login::layer(&scheme, rest),
        _ => return Err(LinkError::Unknown { scheme }),
    };
    match parts {
        Ok(parts) => Ok((scheme, parts)),
        Err(fault) => Err(refused(scheme, fault)),
    }
}

fn refused(scheme: String, fault: Fault) -> LinkError {
    match fault {
        Fault::Wrong(why) => LinkError::Malformed { scheme, why },
        Fault::Unsupported(what) => LinkError::Feature { scheme, what },
    }
}

/// A link that parses to the same node; `None` for built-ins. It is a secret.
///
/// A chain gets the names of its hops joined, whatever it was renamed to.
pub fn format(node: &Node) -> Option<String> {
    let proxy = node.protocol.proxy()?;
    let Some(last) = proxy.via.last() else {
        return Some(write(&proxy, &node.name));
    };
    let hops = proxy.via.iter().filter(|hop| !is_layer(hop));
    let suffix: String = hops.map(|hop| format!("->{}", hop.name)).collect();
    let name = node.name.strip_suffix(&suffix).unwrap_or(&node.name);
    let mut links = vec![write(&proxy, name)];
    for hop in &proxy.via {
        links.push(write(&*hop.protocol.proxy()?, &hop.name));
    }
    debug_assert!(!is_layer(last) || links.len() > 1);
    Some(links.join(" -> "))
}

fn is_layer(node: &Node) -> bool {
    let proxy = node.protocol.proxy();
    proxy.is_some_and(|proxy| proxy.kind.is_layer())
}

/// The link of one hop.
fn write(proxy: &Proxy, name: &str) -> String {
    let mut out = Out::default();
    let (scheme, user) = match &proxy.kind {
        Kind::Vmess(vmess) => return vmess::write(proxy, vmess, name),
        Kind::Socks5(_) | Kind::Socks4 { .. } | Kind::Http(_) | Kind::Naive(_) | Kind::Layer => {
            login::write(proxy, &mut out)
        }
        Kind::ShadowTls(_) | Kind::SimpleObfs(_) => login::write_layer(proxy, &mut out),
        Kind::Shadowsocks(ss) => ss::write(ss, &mut out),
        Kind::Trojan(trojan) => trojan::write_trojan(proxy, trojan, &mut out),
        Kind::AnyTls(anytls) => trojan::write_anytls(proxy, anytls, &mut out),
        Kind::Vless(vless) => vless::write(proxy, vless, &mut out),
        Kind::Hysteria2(hysteria) => quic::write_hysteria2(proxy, hysteria, &mut out),
        Kind::Tuic(tuic) => quic::write_tuic(proxy, tuic, &mut out),
        Kind::Juicity(juicity) => quic::write_juicity(proxy, juicity, &mut out),
    };
    stream::write_common(proxy, &mut out);
    let host = match &proxy.host {
        super::Host::Ip(ip) if ip.is_ipv6() => format!("[{ip}]"),
        host => host.to_string(),
    };
    let mut link = format!("{scheme}://{user}{host}:{}{}", proxy.port, out.query());
    if !name.is_empty() {
        link.push('#');
        link.push_str(&percent_encode(name));
    }
    link
}
