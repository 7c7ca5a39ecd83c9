//! Which combinations of settings make a node, and why others do not.
//!
//! A node that cannot be dialed as its author wrote it is no node: nothing is weakened to make it
//! fit.

use super::{Flow, Kind, Node, Plugin, Proxy, Transport, VlessMode};

/// Hops of a path at most, the node itself included.
const MAX_HOPS: usize = 12;

/// Why an entry is no node. Texts name settings and features, never values that are secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The entry is wrong.
    Wrong(&'static str),
    /// The entry needs what honk does not speak.
    Unsupported(String),
}

impl From<&'static str> for Fault {
    fn from(why: &'static str) -> Self {
        Self::Wrong(why)
    }
}

impl Fault {
    /// A feature with a value that may be shown if it looks like a word.
    pub(crate) fn unsupported(feature: &str, value: &str) -> Self {
        let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
        Self::Unsupported(match value.len() <= 32 && value.chars().all(word) {
            true => format!("{feature} `{value}`"),
            false => feature.to_owned(),
        })
    }
}

/// Refuses what cannot work.
pub(crate) fn check(proxy: &Proxy) -> Result<(), Fault> {
    let wrong = |why| Err(Fault::Wrong(why));
    if matches!(proxy.transport, Transport::H2 { .. }) && proxy.tls.is_none() {
        return Err(Fault::Unsupported("transport `h2` without TLS".into()));
    }
    if requested(proxy).any(|text| text.chars().any(char::is_control)) {
        return wrong("a path or host contains control characters");
    }
    match &proxy.kind {
        Kind::Vless(vless) => {
            use VlessMode::{Legacy, Native, Xudp};
            if vless.encryption.is_some() && !matches!(vless.mode, None | Some(Native | Legacy)) {
                return wrong("the encryption allows no other mode than native or legacy");
            }
            if vless.flow != Flow::None {
                if proxy.transport != Transport::Tcp {
                    return wrong("Vision needs raw TCP");
                }
                if proxy.tls.is_none() {
                    return wrong("Vision needs TLS or REALITY");
                }
                if vless.encryption.is_some() {
                    return Err(Fault::Unsupported("Vision over VLESS encryption".into()));
                }
                if !matches!(vless.mode, None | Some(Native | Legacy | Xudp)) {
                    return wrong("Vision cannot be multiplexed");
                }
            }
        }
        Kind::Trojan(_) if proxy.tls.is_none() && !covered(&proxy.via) => {
            return wrong("Trojan needs TLS");
        }
        Kind::Trojan(trojan) if trojan.password.reveal().is_empty() => {
            return wrong("the password is empty");
        }
        Kind::AnyTls(anytls) if anytls.password.reveal().is_empty() => {
            return wrong("the password is empty");
        }
        Kind::AnyTls(_) if proxy.tls.is_none() => return wrong("AnyTLS needs TLS"),
        kind if kind.is_quic() && proxy.tls.as_ref().is_none_or(|tls| tls.reality.is_some()) => {
            return wrong("the protocol needs the TLS of QUIC");
        }
        _ => {}
    }
    path(proxy)
}

/// Everything that is written into a request as it is.
fn requested(proxy: &Proxy) -> impl Iterator<Item = &str> {
    let mut texts: Vec<&str> = Vec::new();
    match &proxy.transport {
        Transport::Tcp => {}
        Transport::Ws { path, host, .. } | Transport::HttpUpgrade { path, host, .. } => {
            texts.push(path);
            texts.extend(host.as_deref());
        }
        Transport::Grpc {
            service, authority, ..
        } => {
            texts.push(service);
            texts.extend(authority.as_deref());
        }
        Transport::H2 { path, hosts, .. } => {
            texts.push(path);
            texts.extend(hosts.iter().map(String::as_str));
        }
    }
    match &proxy.kind {
        Kind::SimpleObfs(obfs) => texts.extend([&*obfs.host, &*obfs.uri]),
        Kind::Shadowsocks(ss) => match &ss.plugin {
            Some(Plugin::Obfs(obfs)) => texts.extend([&*obfs.host, &*obfs.uri]),
            Some(Plugin::V2ray { host, path, .. }) => texts.extend([&**host, &**path]),
            Some(Plugin::ShadowTls { .. }) | None => {}
        },
        _ => {}
    }
    texts.into_iter()
}

/// Whether the layer next to a node encrypts.
fn covered(via: &[std::sync::Arc<Node>]) -> bool {
    let Some(layer) = via.first().and_then(|hop| hop.protocol.proxy()) else {
        return false;
    };
    matches!(layer.kind, Kind::Layer) && layer.tls.is_some()
}

fn path(proxy: &Proxy) -> Result<(), Fault> {
    if proxy.via.is_empty() {
        return Ok(());
    }
    if proxy.via.len() >= MAX_HOPS {
        return Err(Fault::Wrong("the chain has more than 12 hops"));
    }
    let carries = proxy.carries_unhinted();
    if !carries.tcp && !carries.udp {
        let why = "a hop runs over UDP, which the hops before it do not carry";
        return Err(Fault::Wrong(why));
    }
    Ok(())
}
