//! Clash and mihomo YAML: the list `proxies`.

use super::{
    Read,
    entry::{self, Content, Entry, on, text},
    shared,
};
use crate::{
    document::Tree,
    id::Secret,
    node::{
        AnyTls, EarlyData, Fault, Host, Hysteria2, Kind, Plugin, PortSet, Proxy, Quic, Shadowsocks,
        Sni, Tls, Transport, Trojan, Tuic, UdpOverTcp, Vless, VlessMode,
        fields::Fields,
        link::{self, stream},
        text::bandwidth,
        transport, value,
    },
};

pub(super) fn read(tree: &Tree) -> Read {
    let proxies = tree.get("proxies").map(Tree::items).unwrap_or_default();
    let mut read = Read::of(proxies.iter().map(|proxy| entry(proxy)));
    // Names that entries may use without being entries.
    for name in ["DIRECT", "COMPATIBLE"] {
        read.entries.push(Entry::without(name, Content::Service));
    }
    for name in ["REJECT", "REJECT-DROP", "PASS"] {
        read.entries.push(Entry::without(name, Content::Group));
    }
    let groups = tree
        .get("proxy-groups")
        .map(Tree::items)
        .unwrap_or_default();
    for group in groups.iter().take(super::MAX_ENTRIES) {
        if let Some(name) = group.text("name") {
            read.entries.push(Entry::without(name, Content::Group));
        }
    }
    read
}

fn entry(tree: &Tree) -> Entry {
    let tag = text(tree, &["name"]);
    let kind = tree.text("type").unwrap_or_default();
    let content = match kind {
        "direct" | "dns" => Some(Content::Service),
        "reject" | "reject-drop" => Some(Content::Group),
        _ => None,
    };
    if let Some(content) = content {
        return Entry::without(tag.unwrap_or_default(), content);
    }
    shared::entry(tree, (tag, kind), "dialer-proxy", proxy)
}

fn proxy(kind: &str, tree: &Tree) -> Result<Proxy, Fault> {
    let mut proxy = match kind {
        "ss" => shadowsocks(tree)?,
        "socks5" => {
            let login = entry::login(tree, "username", "password");
            let mut proxy = server(tree, Kind::Socks5(login))?;
            proxy.tls = maybe_tls(tree, &proxy.host, "sni")?;
            proxy
        }
        "http" => {
            let mut proxy = server(tree, shared::http(tree)?)?;
            proxy.tls = maybe_tls(tree, &proxy.host, "sni")?;
            proxy
        }
        "trojan" => trojan(tree)?,
        "vmess" => vmess(tree)?,
        "vless" => vless(tree)?,
        "hysteria2" => hysteria2(tree)?,
        "tuic" => tuic(tree)?,
        "anytls" => anytls(tree)?,
        _ => return Err(shared::unknown_type()),
    };
    if proxy.hint == crate::node::Hint::Both {
        proxy.hint = entry::hint(tree.text("udp"));
    }
    proxy.tuning.fast_open = on(tree, "tfo") || on(tree, "fast-open");
    proxy.tuning.multipath = on(tree, "mptcp");
    Ok(proxy)
}

fn server(tree: &Tree, kind: Kind) -> Result<Proxy, Fault> {
    entry::server(tree.text("server"), tree.text("port"), kind)
}

/// TLS when the entry asks for it.
fn maybe_tls(tree: &Tree, host: &Host, name: &str) -> Result<Option<Tls>, Fault> {
    let wanted = on(tree, "tls") || tree.at(&["reality-opts", "public-key"]).is_some();
    wanted.then(|| tls(tree, host, name)).transpose()
}

fn tls(tree: &Tree, host: &Host, name: &str) -> Result<Tls, Fault> {
    if text(tree, &["certificate", "private-key"]).is_some() {
        return Err(Fault::Unsupported("a client certificate".into()));
    }
    let sni = entry::sni(text(tree, &[name]), host)?;
    let mut tls = entry::plain(sni, on(tree, "skip-cert-verify"));
    tls.alpn = entry::alpn(tree.get("alpn"));
    if let Some(pin) = text(tree, &["fingerprint"]) {
        tls.pins = value::leaf_pins(pin)?;
    }
    tls.fingerprint = text(tree, &["client-fingerprint"]).and_then(value::fingerprint);
    tls.ca = text(tree, &["ca-str"]).map(str::to_owned);
    if let Some(ech) = tree.get("ech-opts") {
        tls.ech = entry::ech(on(ech, "enable"), text(ech, &["config"]))?;
    }
    if let Some(reality) = tree
        .get("reality-opts")
        .filter(|opts| opts.get("public-key").is_some())
    {
        tls.reality = Some(shared::reality(reality, "public-key", "short-id")?);
    }
    Ok(tls)
}

fn transport(tree: &Tree) -> Result<Transport, Fault> {
    let empty = Tree::Null;
    let options = |key: &str| tree.get(key).unwrap_or(&empty);
    match tree.text("network").unwrap_or_default() {
        "" | "tcp" => Ok(Transport::Tcp),
        "ws" => websocket(options("ws-opts")),
        "grpc" => Ok(Transport::Grpc {
            service: stream::grpc_service(
                text(options("grpc-opts"), &["grpc-service-name"]).map(str::to_owned),
            ),
            authority: None,
            multi: false,
        }),
        "h2" => {
            let options = options("h2-opts");
            Ok(Transport::H2 {
                path: transport::path(options.text("path").unwrap_or("/")).0,
                hosts: shared::hosts(options),
                method: None,
            })
        }
        "http" => Err(Fault::unsupported("header", "http")),
        other => Err(Fault::unsupported("transport", other)),
    }
}

fn websocket(options: &Tree) -> Result<Transport, Fault> {
    let (path, in_path) = transport::path(options.text("path").unwrap_or("/"));
    let (host, headers) = shared::headers(options);
    if on(options, "v2ray-http-upgrade") {
        return Ok(Transport::HttpUpgrade {
            path,
            host,
            headers,
            fast_open: on(options, "v2ray-http-upgrade-fast-open") || in_path.is_some(),
        });
    }
    let written = match text(options, &["max-early-data"]) {
        Some(max) => max
            .parse()
            .map_err(|_| "`max-early-data` is not a number")?,
        None => 0,
    };
    let header = text(options, &["early-data-header-name"]).map(str::to_owned);
    let early = match (written, in_path) {
        (0, None | Some(0)) => None,
        (0, Some(max)) => {
            let header = EarlyData::HEADER.to_owned();
            Some(stream::early_data(max.into(), Some(header)))
        }
        (max, _) => Some(stream::early_data(max, header)),
    };
    Ok(Transport::Ws {
        path,
        host,
        headers,
        early,
    })
}

fn shadowsocks(tree: &Tree) -> Result<Proxy, Fault> {
    let (cipher, password) = shared::cipher(tree, "cipher", "the cipher is missing")?;
    let plugin = match text(tree, &["plugin"]) {
        None => None,
        Some(name) => Some(plugin(name, tree)?),
    };
    let uot = match (
        on(tree, "udp-over-tcp"),
        text(tree, &["udp-over-tcp-version"]),
    ) {
        (false, _) => UdpOverTcp::Off,
        (true, Some("2")) => UdpOverTcp::V2,
        (true, _) => UdpOverTcp::V1,
    };
    let kind = Kind::Shadowsocks(Shadowsocks {
        cipher,
        password: value::password(cipher, password)?,
        plugin,
        uot,
    });
    server(tree, kind)
}

fn plugin(name: &str, tree: &Tree) -> Result<Plugin, Fault> {
    let empty = Tree::Null;
    let options = tree.get("plugin-opts").unwrap_or(&empty);
    let mut fields = Fields::tree(options);
    if name == "shadow-tls" && fields.get(&["version"]).is_none() {
        // What this format means by silence.
        fields.set("version", "2");
    }
    if let Some(headers) = options.get("headers") {
        let (host, more) = stream::header_list(headers);
        if !more.is_empty() {
            return Err(Fault::Unsupported("further headers".into()));
        }
        if let Some(host) = host.filter(|_| fields.get(&["host"]).is_none()) {
            fields.set("host", host);
        }
    }
    if let Some(pin) = fields.text(&["fingerprint"]) {
        fields.set("pinSHA256", pin);
    }
    if let Some(client) = text(tree, &["client-fingerprint"]) {
        fields.set("fp", client);
    }
    if let Some(alpn) = entry::alpn(options.get("alpn")) {
        fields.set("alpn", alpn.join(","));
    }
    link::plugin(name, &mut fields)
}

fn trojan(tree: &Tree) -> Result<Proxy, Fault> {
    let inner = match shared::enabled(tree, "ss-opts") {
        None => None,
        Some(options) => {
            let method = text(options, &["method"]).unwrap_or("aes-128-gcm");
            let cipher = value::cipher(method)?;
            if cipher.psk_len().is_some() {
                return Err(Fault::unsupported("inner cipher", method));
            }
            Some((cipher, entry::password(options, "password")?))
        }
    };
    let password = entry::password(tree, "password")?;
    let mut proxy = server(tree, Kind::Trojan(Trojan { password, inner }))?;
    proxy.tls = Some(tls(tree, &proxy.host, "sni")?);
    proxy.transport = transport(tree)?;
    Ok(proxy)
}

fn vmess(tree: &Tree) -> Result<Proxy, Fault> {
    if text(tree, &["alterId"]).is_some_and(|id| id.bytes().any(|b| b != b'0')) {
        return Err(Fault::Unsupported("alterId".into()));
    }
    let mut proxy = server(tree, shared::vmess(tree, "cipher")?)?;
    proxy.transport = transport(tree)?;
    // HTTP/2 exists over TLS only.
    proxy.tls = match &proxy.transport {
        Transport::H2 { .. } => Some(tls(tree, &proxy.host, "servername")?),
        _ => maybe_tls(tree, &proxy.host, "servername")?,
    };
    Ok(proxy)
}

fn vless(tree: &Tree) -> Result<Proxy, Fault> {
    if on(tree, "packet-addr") {
        return Err(Fault::unsupported("packet encoding", "packetaddr"));
    }
    let packets = match text(tree, &["packet-encoding"]) {
        Some("xudp") => Some(VlessMode::Xudp),
        Some("none") => Some(VlessMode::Native),
        Some(other) => return Err(Fault::unsupported("packet encoding", other)),
        None => on(tree, "xudp").then_some(VlessMode::Xudp),
    };
    let mux = match shared::enabled(tree, "smux") {
        None => None,
        Some(mux) => Some(shared::h2mux(mux)?),
    };
    let encryption = match text(tree, &["encryption"]) {
        None | Some("none") => None,
        Some(text) => Some(value::encryption(text)?),
    };
    let kind = Kind::Vless(Vless {
        user: value::user_id(tree.text("uuid").unwrap_or_default())?,
        flow: link::flow(tree.text("flow"))?,
        mode: mux.or(packets),
        encryption,
    });
    let mut proxy = server(tree, kind)?;
    proxy.transport = transport(tree)?;
    proxy.tls = maybe_tls(tree, &proxy.host, "servername")?;
    Ok(proxy)
}

fn hysteria2(tree: &Tree) -> Result<Proxy, Fault> {
    let ports = match text(tree, &["ports"]) {
        None => None,
        Some(list) => Some(PortSet::parse(&list.replace('/', ","), '-')?),
    };
    let first = shared::first_port(ports.as_ref());
    let hop_interval = match text(tree, &["hop-interval"]) {
        None => None,
        Some(text) => {
            // A range is drawn from: its shorter end is the most anyone waits.
            let shorter = text.split('-').next().unwrap_or(text);
            Some(link::hop_interval(shorter).ok_or("the hop interval is no duration")?)
        }
    };
    let rate = |key| bandwidth(tree.text(key).unwrap_or_default());
    let kind = Kind::Hysteria2(Hysteria2 {
        auth: Secret::new(text(tree, &["password", "auth"]).unwrap_or_default()),
        ports,
        hop_interval,
        obfs: link::obfs(tree.text("obfs"), tree.text("obfs-password"))?,
        up: rate("up")?,
        down: rate("down")?,
        fast_open: on(tree, "fast-open"),
        quic: Quic {
            mtu: text(tree, &["udp-mtu"]).and_then(stream::quic_mtu),
            ..Quic::default()
        },
    });
    let port = text(tree, &["port"]).or(first.as_deref());
    let mut proxy = entry::server(tree.text("server"), port, kind)?;
    proxy.tls = Some(tls(tree, &proxy.host, "sni")?);
    Ok(proxy)
}

fn tuic(tree: &Tree) -> Result<Proxy, Fault> {
    if text(tree, &["token"]).is_some() {
        return Err(Fault::Unsupported("version 4".into()));
    }
    if on(tree, "udp-over-stream") {
        return Err(Fault::Unsupported("UDP over stream".into()));
    }
    let heartbeat = match text(tree, &["heartbeat-interval"]) {
        None => None,
        Some(text) => Some(
            text.parse::<u32>()
                .map_err(|_| "the heartbeat is no number of milliseconds")?
                .clamp(1000, 86_400_000),
        ),
    };
    let kind = Kind::Tuic(Tuic {
        user: value::uuid(tree.text("uuid").unwrap_or_default())?,
        password: entry::password(tree, "password")?,
        congestion: shared::congestion(tree, "congestion-controller"),
        relay: link::relay(text(tree, &["udp-relay-mode"]))?,
        zero_rtt: on(tree, "reduce-rtt"),
        heartbeat_ms: heartbeat,
        quic: Quic::default(),
    });
    // `ip` is where to connect; the name stays what the certificate is for.
    let host = text(tree, &["ip", "server"]);
    let mut proxy = entry::server(host, tree.text("port"), kind)?;
    let name = entry::server(tree.text("server"), Some("1"), Kind::Layer)?.host;
    let mut tls = tls(tree, &name, "sni")?;
    if on(tree, "disable-sni") {
        tls.sni = Sni::Omit;
    }
    proxy.tls = Some(tls);
    proxy.tuning.fast_open = false;
    Ok(proxy)
}

fn anytls(tree: &Tree) -> Result<Proxy, Fault> {
    let number = |key| match text(tree, &[key]) {
        None => Ok(None),
        Some(text) => text
            .parse::<u32>()
            .map(Some)
            .map_err(|_| "a setting of idle sessions is no number"),
    };
    let min_idle = number("min-idle-session")?.map(|n| u16::try_from(n).unwrap_or(u16::MAX));
    let kind = Kind::AnyTls(AnyTls {
        password: entry::password(tree, "password")?,
        min_idle,
        check_interval: number("idle-session-check-interval")?,
        idle_timeout: number("idle-session-timeout")?,
    });
    let mut proxy = server(tree, kind)?;
    proxy.tls = Some(tls(tree, &proxy.host, "sni")?);
    Ok(proxy)
}
