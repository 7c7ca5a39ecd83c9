//! The identity of a node: what is dialed, and as whom; not what it is called.
//!
//! A change of this file changes the identity of everyone's nodes, and with it their saved
//! choices. Values that are the default are left out, so that a new setting changes nobody.

use uuid::Uuid;

use super::{
    Flow, Kind, Node, Plugin, Proxy, Sni, Tls, Transport,
    text::{percent_encode, to_hex},
};
use crate::id::{NodeId, Secret};

/// Namespace of node identities.
const NAMESPACE: Uuid = Uuid::from_u128(0x0e5828b2_337a_4719_ac9b_2e22ca5bc9d2);

/// Identity of a built-in node.
pub fn built_in(name: &str) -> NodeId {
    NodeId(Uuid::new_v5(&NAMESPACE, format!("{name}||0||").as_bytes()))
}

impl Proxy {
    /// Identity over everything that makes two entries the same peer for dialing.
    pub fn id(&self) -> NodeId {
        let text = format!(
            "{}|{}|{}|{}|{}",
            self.kind.name(),
            self.host,
            self.port,
            sha256_hex(credentials(&self.kind).as_bytes()),
            shape(self)
        );
        NodeId(Uuid::new_v5(&NAMESPACE, text.as_bytes()))
    }
}

fn credentials(kind: &Kind) -> String {
    let join = |fields: &[&Secret]| {
        let fields: Vec<&str> = fields.iter().map(|field| field.reveal()).collect();
        fields.join("\0")
    };
    match kind {
        Kind::Socks5(login) | Kind::Http(login) | Kind::Naive(login) => login
            .as_ref()
            .map(|(user, password)| join(&[user, password]))
            .unwrap_or_default(),
        Kind::Socks4 { user, .. } => user.as_ref().map(|user| join(&[user])).unwrap_or_default(),
        Kind::Shadowsocks(ss) => join(&[&ss.password]),
        Kind::Trojan(trojan) => match &trojan.inner {
            Some((_, inner)) => join(&[&trojan.password, inner]),
            None => join(&[&trojan.password]),
        },
        Kind::Vmess(vmess) => vmess.user.0.to_string(),
        Kind::Vless(vless) => vless.user.0.to_string(),
        Kind::Hysteria2(hysteria) => join(&[&hysteria.auth]),
        Kind::Tuic(tuic) => format!("{}\0{}", tuic.user.0, tuic.password.reveal()),
        Kind::Juicity(juicity) => format!("{}\0{}", juicity.user.0, juicity.password.reveal()),
        Kind::AnyTls(anytls) => join(&[&anytls.password]),
        Kind::ShadowTls(password) => join(&[password]),
        Kind::SimpleObfs(_) | Kind::Layer => String::new(),
    }
}

/// Sorted `key=value` pairs, joined by `&`.
fn shape(proxy: &Proxy) -> String {
    let mut pairs = Vec::new();
    {
        let mut add = |key: &'static str, value: &str| {
            pairs.push(format!("{key}={}", percent_encode(value)));
        };
        transport(&proxy.transport, &mut add);
        if let Some(tls) = &proxy.tls {
            add("tls", "on");
            server_name("sni", tls, &mut add);
            if let Some(reality) = &tls.reality {
                add("pbk", &to_hex(&reality.public_key));
                add("sid", &to_hex(&reality.short_id));
            }
        }
        protocol(&proxy.kind, &mut add);
        let hop = |hop: &std::sync::Arc<Node>| hop.id.0.to_string();
        let via: Vec<String> = proxy.via.iter().map(hop).collect();
        if !via.is_empty() {
            add("via", &via.join(","));
        }
    }
    pairs.sort();
    pairs.join("&")
}

fn server_name(key: &'static str, tls: &Tls, add: &mut impl FnMut(&'static str, &str)) {
    match &tls.sni {
        Sni::Name(name) => add(key, name),
        Sni::Omit => add(key, "omit"),
    }
}

fn transport(transport: &Transport, add: &mut impl FnMut(&'static str, &str)) {
    match transport {
        Transport::Tcp => return,
        Transport::Ws {
            path,
            host,
            early,
            headers: _,
        } => {
            add("path", path);
            if let Some(host) = host {
                add("host", host);
            }
            if let Some(early) = early {
                add("ed", &early.max.to_string());
            }
        }
        Transport::HttpUpgrade {
            path,
            host,
            headers: _,
            fast_open: _,
        } => {
            add("path", path);
            if let Some(host) = host {
                add("host", host);
            }
        }
        Transport::Grpc {
            service,
            authority,
            multi: _,
        } => {
            add("service", service);
            if let Some(authority) = authority {
                add("authority", authority);
            }
        }
        Transport::H2 {
            path,
            hosts,
            method: _,
        } => {
            add("path", path);
            add("host", &hosts.join(","));
        }
    }
    add("type", transport.name());
}

fn protocol(kind: &Kind, add: &mut impl FnMut(&'static str, &str)) {
    match kind {
        Kind::Shadowsocks(ss) => {
            add("cipher", ss.cipher.name());
            match &ss.plugin {
                Some(Plugin::Obfs(obfs)) => {
                    add("plugin", if obfs.tls { "obfs-tls" } else { "obfs-http" });
                    add("plugin-host", &obfs.host);
                    add("plugin-path", &obfs.uri);
                }
                Some(Plugin::V2ray {
                    tls,
                    host,
                    path,
                    mux,
                }) => {
                    add("plugin", "v2ray");
                    add("plugin-host", host);
                    add("plugin-path", path);
                    add("plugin-tls", if tls.is_some() { "on" } else { "off" });
                    add("plugin-mux", if *mux { "on" } else { "off" });
                }
                Some(Plugin::ShadowTls { tls, password }) => {
                    add("plugin", "shadow-tls-3");
                    add("plugin-password", &sha256_hex(password.reveal().as_bytes()));
                    server_name("plugin-host", tls, add);
                }
                None => {}
            }
        }
        Kind::Trojan(trojan) => {
            if let Some((cipher, _)) = &trojan.inner {
                add("cipher", cipher.name());
            }
        }
        Kind::Vless(vless) => {
            match vless.flow {
                Flow::None => {}
                Flow::Vision => add("flow", "vision"),
                Flow::VisionUdp443 => add("flow", "vision-udp443"),
            }
            if let Some(mode) = vless.mode {
                add("mode", mode.name());
            }
            if let Some(encryption) = &vless.encryption {
                add("encryption", &sha256_hex(encryption.reveal().as_bytes()));
            }
        }
        Kind::Hysteria2(hysteria) => {
            if let Some((obfs, password)) = &hysteria.obfs {
                add("obfs", obfs.name());
                add("obfs-password", &sha256_hex(password.reveal().as_bytes()));
            }
            if let Some(ports) = &hysteria.ports {
                add("ports", &ports.to_string());
            }
        }
        Kind::ShadowTls(_) => add("version", "3"),
        Kind::SimpleObfs(obfs) => {
            add("obfs", if obfs.tls { "tls" } else { "http" });
            add("host", &obfs.host);
            add("path", &obfs.uri);
        }
        Kind::Socks4 { names, .. } => {
            if *names {
                add("names", "on");
            }
        }
        Kind::Socks5(_)
        | Kind::Http(_)
        | Kind::Naive(_)
        | Kind::Vmess(_)
        | Kind::Tuic(_)
        | Kind::Juicity(_)
        | Kind::AnyTls(_)
        | Kind::Layer => {}
    }
}

fn sha256_hex(bytes: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    to_hex(&Sha256::digest(bytes))
}
