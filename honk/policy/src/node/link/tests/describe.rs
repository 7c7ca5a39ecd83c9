//! A node as a list of `key=value`, credentials included, to say what a test expects.

use crate::node::{
    EarlyData, Ech, Hint, Kind, Node, Pin, Plugin, Protocol, Proxy, Sni, Tls, Transport,
    UdpOverTcp, VlessMode, text::to_hex,
};

/// Everything that tests look at.
pub(crate) fn describe(node: &Node) -> Vec<String> {
    let mut out = vec![format!("name={}", node.name)];
    let Some(proxy) = node.protocol.proxy() else {
        return out;
    };
    out.push(format!("tcp={}", node.protocol.tcp()));
    out.push(format!("udp={}", node.protocol.udp()));
    out.push(format!(
        "built={}",
        !matches!(node.protocol, Protocol::Proxy(_))
    ));
    whole(&proxy, &mut out);
    for (at, hop) in proxy.via.iter().enumerate() {
        let mut inner = vec![format!("name={}", hop.name)];
        if let Some(hop) = hop.protocol.proxy() {
            whole(&hop, &mut inner);
        }
        out.extend(inner.into_iter().map(|line| format!("via{at}.{line}")));
    }
    out
}

fn whole(proxy: &Proxy, out: &mut Vec<String>) {
    let mut add = |key: &str, value: String| out.push(format!("{key}={value}"));
    add("kind", proxy.kind.name().into());
    add("at", format!("{}:{}", proxy.host, proxy.port));
    add("transport", proxy.transport.name().into());
    add("tls", proxy.tls.is_some().to_string());
    match proxy.hint {
        Hint::Both => {}
        hint => add("hint", format!("{hint:?}")),
    }
    if proxy.tuning.fast_open {
        add("tfo", "on".into());
    }
    transport(&proxy.transport, out);
    if let Some(tls) = &proxy.tls {
        self::tls("", tls, out);
    }
    kind(&proxy.kind, out);
}

fn transport(transport: &Transport, out: &mut Vec<String>) {
    let mut add = |key: &str, value: String| out.push(format!("{key}={value}"));
    match transport {
        Transport::Tcp => {}
        Transport::Ws {
            path,
            host,
            headers,
            early,
        } => {
            add("path", path.clone());
            add("host", host.clone().unwrap_or_default());
            for (name, value) in headers {
                add(&format!("header.{name}"), value.clone());
            }
            if let Some(EarlyData { max, header }) = early {
                let header = header.clone().unwrap_or_default();
                add("early", format!("{max} {header}").trim().to_owned());
            }
        }
        Transport::Grpc {
            service,
            authority,
            multi,
        } => {
            add("service", service.clone());
            add("authority", authority.clone().unwrap_or_default());
            add("multi", multi.to_string());
        }
        Transport::HttpUpgrade {
            path,
            host,
            fast_open,
            ..
        } => {
            add("path", path.clone());
            add("host", host.clone().unwrap_or_default());
            add("fast", fast_open.to_string());
        }
        Transport::H2 { path, hosts, .. } => {
            add("path", path.clone());
            add("hosts", hosts.join(","));
        }
    }
}

fn tls(prefix: &str, tls: &Tls, out: &mut Vec<String>) {
    let mut add = |key: &str, value: String| out.push(format!("{prefix}{key}={value}"));
    let sni = match &tls.sni {
        Sni::Name(name) => name.clone(),
        Sni::Omit => String::new(),
    };
    add("sni", sni);
    if let Some(alpn) = &tls.alpn {
        add("alpn", alpn.join(","));
    }
    add("insecure", tls.insecure.to_string());
    for pin in &tls.pins {
        match pin {
            Pin::Leaf(pin) => add("leaf", to_hex(pin)),
            Pin::Chain(pin) => add("chain", to_hex(pin)),
            Pin::Key(pin) => add("key", to_hex(pin)),
        }
    }
    match &tls.ech {
        Ech::Off => {}
        Ech::Static(list) => add("ech", to_hex(list)),
        ech => add("ech", format!("{ech:?}")),
    }
    if let Some(fingerprint) = &tls.fingerprint {
        add("fp", fingerprint.clone());
    }
    if let Some(reality) = &tls.reality {
        add("pbk", to_hex(&reality.public_key));
        add("sid", to_hex(&reality.short_id));
        add("spx", reality.spider.clone());
    }
}

fn kind(kind: &Kind, out: &mut Vec<String>) {
    let mut add = |key: &str, value: String| out.push(format!("{key}={value}"));
    match kind {
        Kind::Socks5(login) | Kind::Http(login) | Kind::Naive(login) => {
            if let Some((user, password)) = login {
                add("user", user.reveal().into());
                add("password", password.reveal().into());
            }
        }
        Kind::Socks4 { user, names } => {
            add("names", names.to_string());
            if let Some(user) = user {
                add("user", user.reveal().into());
            }
        }
        Kind::Shadowsocks(ss) => {
            add("cipher", ss.cipher.name().into());
            add("password", ss.password.reveal().into());
            if ss.uot != UdpOverTcp::Off {
                add("uot", format!("{:?}", ss.uot));
            }
            plugin(ss.plugin.as_ref(), out);
        }
        Kind::Trojan(trojan) => {
            add("password", trojan.password.reveal().into());
            if let Some((cipher, password)) = &trojan.inner {
                add("inner", format!("{} {}", cipher.name(), password.reveal()));
            }
        }
        Kind::Vmess(vmess) => {
            add("user", vmess.user.0.to_string());
            add("cipher", vmess.cipher.name().into());
        }
        Kind::Vless(vless) => {
            add("user", vless.user.0.to_string());
            add("flow", format!("{:?}", vless.flow));
            add("mode", vless.mode.map_or("-", VlessMode::name).into());
        }
        Kind::Hysteria2(hysteria) => {
            add("auth", hysteria.auth.reveal().into());
            if let Some(ports) = &hysteria.ports {
                add("ports", ports.to_string());
            }
            if let Some(seconds) = hysteria.hop_interval {
                add("hop", seconds.to_string());
            }
            if let Some((obfs, password)) = &hysteria.obfs {
                add("obfs", format!("{} {}", obfs.name(), password.reveal()));
            }
            add("up", format!("{:?}", hysteria.up));
            add("down", format!("{:?}", hysteria.down));
        }
        Kind::Tuic(tuic) => {
            add("user", tuic.user.0.to_string());
            add("password", tuic.password.reveal().into());
            add("congestion", tuic.congestion.name().into());
            add("relay", format!("{:?}", tuic.relay));
            add("heartbeat", format!("{:?}", tuic.heartbeat_ms));
        }
        Kind::Juicity(juicity) => {
            add("user", juicity.user.0.to_string());
            add("password", juicity.password.reveal().into());
            add("congestion", juicity.congestion.name().into());
        }
        Kind::AnyTls(anytls) => {
            add("password", anytls.password.reveal().into());
            add("idle", format!("{:?}", anytls.idle_timeout));
        }
        Kind::ShadowTls(password) => add("password", password.reveal().into()),
        Kind::SimpleObfs(obfs) => {
            add("obfs", format!("{} {} {}", obfs.tls, obfs.host, obfs.uri));
        }
        Kind::Layer => {}
    }
}

fn plugin(plugin: Option<&Plugin>, out: &mut Vec<String>) {
    let mut add = |key: &str, value: String| out.push(format!("{key}={value}"));
    match plugin {
        None => add("plugin", "-".into()),
        Some(Plugin::Obfs(obfs)) => {
            let mode = if obfs.tls { "tls" } else { "http" };
            add("plugin", format!("obfs {mode} {} {}", obfs.host, obfs.uri));
        }
        Some(Plugin::V2ray {
            tls,
            host,
            path,
            mux,
        }) => {
            let over = if tls.is_some() { "wss" } else { "ws" };
            add("plugin", format!("{over} {host} {path} mux={mux}"));
            if let Some(tls) = tls {
                self::tls("plugin.", tls, out);
            }
        }
        Some(Plugin::ShadowTls { tls, password }) => {
            add("plugin", format!("shadow-tls {}", password.reveal()));
            self::tls("plugin.", tls, out);
        }
    }
}
