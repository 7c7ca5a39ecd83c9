//! sing-box JSON: the list `outbounds`.

use super::{
    Read,
    entry::{self, Content, Entry, on, text},
    shared,
};
use crate::{
    document::Tree,
    id::Secret,
    node::{
        AnyTls, EarlyData, Fault, Hint, Host, Hysteria2, Kind, Pin, PortSet, Proxy, Quic,
        Shadowsocks, Sni, Tls, TlsVersion, Transport, Trojan, Tuic, UdpOverTcp, Vless, VlessMode,
        link::{self, stream},
        text::{bandwidth, duration_ms},
        transport, value,
    },
};

pub(super) fn read(tree: &Tree) -> Read {
    let holders = match tree {
        Tree::List(items) => items.iter().map(|item| &**item).collect(),
        tree => vec![tree],
    };
    let mut entries = Vec::new();
    for holder in holders {
        match holder.get("outbounds") {
            Some(list) => entries.extend(list.items().iter().map(|entry| &**entry)),
            None if holder.get("type").is_some() => entries.push(holder),
            None => {}
        }
    }
    Read::of(entries.into_iter().map(entry))
}

fn entry(tree: &Tree) -> Entry {
    let tag = text(tree, &["tag"]);
    let kind = tree.text("type").unwrap_or_default();
    let content = match kind {
        "direct" => Some(Content::Service),
        "block" | "dns" | "selector" | "urltest" => Some(Content::Group),
        _ => None,
    };
    if let Some(content) = content {
        return Entry::without(tag.unwrap_or_default(), content);
    }
    shared::entry(tree, (tag, kind), "detour", proxy)
}

fn proxy(kind: &str, tree: &Tree) -> Result<Proxy, Fault> {
    let mut proxy = match kind {
        "shadowsocks" => shadowsocks(tree)?,
        "socks" => socks(tree)?,
        "http" => {
            let mut proxy = server(tree, shared::http(tree)?)?;
            proxy.tls = tls(tree, &proxy.host)?;
            proxy
        }
        "naive" => {
            let login = entry::login(tree, "username", "password");
            always_tls(tree, server(tree, Kind::Naive(login))?)?
        }
        "trojan" => {
            let kind = Kind::Trojan(Trojan {
                password: entry::password(tree, "password")?,
                inner: None,
            });
            streamed(tree, server(tree, kind)?)?
        }
        "vmess" => vmess(tree)?,
        "vless" => vless(tree)?,
        "hysteria2" => hysteria2(tree)?,
        "tuic" => tuic(tree)?,
        "anytls" => anytls(tree)?,
        "shadowtls" => shadowtls(tree)?,
        _ => return Err(shared::unknown_type()),
    };
    proxy.hint = match text(tree, &["network"]) {
        Some("tcp") => Hint::Tcp,
        Some("udp") => Hint::Udp,
        _ => match tree.get("network").map(Tree::texts).as_deref() {
            Some(["tcp"]) => Hint::Tcp,
            Some(["udp"]) => Hint::Udp,
            _ => Hint::Both,
        },
    };
    proxy.tuning.fast_open = on(tree, "tcp_fast_open");
    proxy.tuning.multipath = on(tree, "tcp_multi_path");
    Ok(proxy)
}

fn server(tree: &Tree, kind: Kind) -> Result<Proxy, Fault> {
    entry::server(tree.text("server"), tree.text("server_port"), kind)
}

/// Transport and TLS.
fn streamed(tree: &Tree, mut proxy: Proxy) -> Result<Proxy, Fault> {
    proxy.transport = match tree.get("transport") {
        None => Transport::Tcp,
        Some(options) => transport(options)?,
    };
    proxy.tls = tls(tree, &proxy.host)?;
    Ok(proxy)
}

/// TLS that the protocol always has.
fn always_tls(tree: &Tree, mut proxy: Proxy) -> Result<Proxy, Fault> {
    let tls = tls(tree, &proxy.host)?;
    proxy.tls = Some(tls.ok_or("TLS is not enabled")?);
    Ok(proxy)
}

fn tls(tree: &Tree, host: &Host) -> Result<Option<Tls>, Fault> {
    let Some(options) = shared::enabled(tree, "tls") else {
        return Ok(None);
    };
    if options.get("client_certificate").is_some() || options.get("client_key").is_some() {
        return Err(Fault::Unsupported("a client certificate".into()));
    }
    let sni = entry::sni(text(options, &["server_name"]), host)?;
    let mut tls = entry::plain(sni, on(options, "insecure"));
    if on(options, "disable_sni") {
        tls.sni = Sni::Omit;
    }
    tls.alpn = entry::alpn(options.get("alpn"));
    if let Some(pins) = options.get("certificate_public_key_sha256") {
        for pin in pins.texts() {
            let pin = value::digest(pin).ok_or("a public key pin has not 32 bytes")?;
            tls.pins.push(Pin::Key(pin));
        }
    }
    if let Some(pem) = options.get("certificate") {
        tls.ca = Some(pem.texts().join("\n")).filter(|pem| !pem.is_empty());
    }
    let version = |key| text(options, &[key]).and_then(TlsVersion::parse);
    tls.min_version = version("min_version");
    tls.max_version = version("max_version");
    if let Some(ech) = options.get("ech") {
        let config = ech.get("config").map(|config| config.texts().join("\n"));
        let config = config.as_deref().filter(|config| !config.is_empty());
        tls.ech = entry::ech(on(ech, "enabled"), config)?;
    }
    if let Some(utls) = shared::enabled(options, "utls") {
        let name = text(utls, &["fingerprint"]).unwrap_or("chrome");
        tls.fingerprint = value::fingerprint(name);
    }
    if let Some(reality) = shared::enabled(options, "reality") {
        tls.reality = Some(shared::reality(reality, "public_key", "short_id")?);
    }
    Ok(Some(tls))
}

fn transport(options: &Tree) -> Result<Transport, Fault> {
    let (host, headers) = shared::headers(options);
    let path = |key| transport::path(options.text(key).unwrap_or("/")).0;
    match options.text("type").unwrap_or_default() {
        "" => Ok(Transport::Tcp),
        "ws" => {
            let max = match text(options, &["max_early_data"]) {
                Some(max) => max
                    .parse()
                    .map_err(|_| "`max_early_data` is not a number")?,
                None => 0,
            };
            // Without a name of a header the data is part of the path.
            let header = text(options, &["early_data_header_name"]).map(str::to_owned);
            let early: Option<EarlyData> = (max > 0).then(|| stream::early_data(max, header));
            Ok(Transport::Ws {
                path: path("path"),
                host,
                headers,
                early,
            })
        }
        "http" => {
            let method = text(options, &["method"]).filter(|method| stream::is_method(method));
            Ok(Transport::H2 {
                path: path("path"),
                hosts: shared::hosts(options),
                method: method.map(str::to_owned),
            })
        }
        "httpupgrade" => Ok(Transport::HttpUpgrade {
            path: path("path"),
            host: text(options, &["host"])
                .and_then(stream::host_header)
                .or(host),
            headers,
            fast_open: false,
        }),
        "grpc" => Ok(Transport::Grpc {
            service: stream::grpc_service(text(options, &["service_name"]).map(str::to_owned)),
            authority: None,
            multi: false,
        }),
        other => Err(Fault::unsupported("transport", other)),
    }
}

/// UDP over TCP: a switch, or a mapping with a version.
fn uot(tree: &Tree) -> UdpOverTcp {
    let Some(option) = tree.get("udp_over_tcp") else {
        return UdpOverTcp::Off;
    };
    let (enabled, version) = match option {
        Tree::Map(_) => (on(option, "enabled"), text(option, &["version"])),
        _ => (on(tree, "udp_over_tcp"), None),
    };
    match (enabled, version) {
        (false, _) => UdpOverTcp::Off,
        (true, Some("1")) => UdpOverTcp::V1,
        (true, _) => UdpOverTcp::V2,
    }
}

fn shadowsocks(tree: &Tree) -> Result<Proxy, Fault> {
    let (cipher, password) = shared::cipher(tree, "method", "the method is missing")?;
    let plugin = match text(tree, &["plugin"]) {
        None => None,
        Some(name) => {
            let options = text(tree, &["plugin_opts"]).unwrap_or_default();
            Some(link::plugin_text(name, options)?)
        }
    };
    let kind = Kind::Shadowsocks(Shadowsocks {
        cipher,
        password: value::password(cipher, password)?,
        plugin,
        uot: uot(tree),
    });
    // Behind a layer the address is that of the layer, and often not written here.
    if tree.get("detour").is_some() && tree.get("server").is_none() {
        return Ok(Proxy::new(Host::Name("detour.invalid".to_owned()), 1, kind));
    }
    server(tree, kind)
}

fn socks(tree: &Tree) -> Result<Proxy, Fault> {
    if uot(tree) != UdpOverTcp::Off {
        return Err(Fault::Unsupported("UDP over TCP".into()));
    }
    let login = entry::login(tree, "username", "password");
    let kind = match text(tree, &["version"]).unwrap_or("5") {
        "5" => Kind::Socks5(login),
        version @ ("4" | "4a") => Kind::Socks4 {
            user: login
                .map(|(user, _)| user)
                .filter(|user| !user.reveal().is_empty() && !user.reveal().contains('\0')),
            names: version == "4a",
        },
        other => return Err(Fault::unsupported("version", other)),
    };
    server(tree, kind)
}

fn vmess(tree: &Tree) -> Result<Proxy, Fault> {
    if text(tree, &["alter_id"]).is_some_and(|id| id != "0") {
        return Err(Fault::Unsupported("alterId".into()));
    }
    streamed(tree, server(tree, shared::vmess(tree, "security")?)?)
}

fn vless(tree: &Tree) -> Result<Proxy, Fault> {
    let flow = link::flow(tree.text("flow"))?;
    let packets = match tree.text("packet_encoding") {
        // What sing-box does when nothing is said.
        None | Some("xudp") => VlessMode::Xudp,
        Some("") => VlessMode::Native,
        Some(other) => return Err(Fault::unsupported("packet encoding", other)),
    };
    let mode = match shared::enabled(tree, "multiplex") {
        None => packets,
        Some(mux) => shared::h2mux(mux)?,
    };
    let kind = Kind::Vless(Vless {
        user: value::user_id(tree.text("uuid").unwrap_or_default())?,
        flow,
        mode: Some(mode),
        encryption: None,
    });
    streamed(tree, server(tree, kind)?)
}

fn hysteria2(tree: &Tree) -> Result<Proxy, Fault> {
    let ports = match tree.get("server_ports").map(Tree::texts) {
        Some(list) if !list.is_empty() => Some(PortSet::parse(&list.join(","), ':')?),
        _ => None,
    };
    let first = shared::first_port(ports.as_ref());
    let hop_interval = match text(tree, &["hop_interval"]) {
        None => None,
        Some(text) => Some(link::hop_interval(text).ok_or("the hop interval is no duration")?),
    };
    let (kind, password) = match tree.get("obfs") {
        None => (None, None),
        Some(obfs) => (obfs.text("type"), obfs.text("password")),
    };
    let rate = |key| bandwidth(tree.text(key).unwrap_or_default());
    let kind = Kind::Hysteria2(Hysteria2 {
        auth: Secret::new(tree.text("password").unwrap_or_default()),
        ports,
        hop_interval,
        obfs: link::obfs(kind, password)?,
        up: rate("up_mbps")?,
        down: rate("down_mbps")?,
        fast_open: false,
        quic: Quic::default(),
    });
    let port = text(tree, &["server_port"]).or(first.as_deref());
    always_tls(tree, entry::server(tree.text("server"), port, kind)?)
}

fn tuic(tree: &Tree) -> Result<Proxy, Fault> {
    if on(tree, "udp_over_stream") {
        return Err(Fault::Unsupported("UDP over stream".into()));
    }
    let heartbeat = match text(tree, &["heartbeat"]) {
        None => None,
        Some(text) => {
            let ms = duration_ms(text, 1000).ok_or("the heartbeat is no duration")?;
            Some(ms.clamp(1000, 86_400_000))
        }
    };
    let kind = Kind::Tuic(Tuic {
        user: value::uuid(tree.text("uuid").unwrap_or_default())?,
        password: Secret::new(tree.text("password").unwrap_or_default()),
        congestion: shared::congestion(tree, "congestion_control"),
        relay: link::relay(text(tree, &["udp_relay_mode"]))?,
        zero_rtt: on(tree, "zero_rtt_handshake"),
        heartbeat_ms: heartbeat,
        quic: Quic::default(),
    });
    always_tls(tree, server(tree, kind)?)
}

fn anytls(tree: &Tree) -> Result<Proxy, Fault> {
    let seconds = |key| match text(tree, &[key]) {
        None => Ok(None),
        Some(text) => duration_ms(text, 1000)
            .map(|ms| Some(ms.div_ceil(1000)))
            .ok_or("a duration of idle sessions is wrong"),
    };
    let min_idle = match text(tree, &["min_idle_session"]) {
        None => None,
        Some(text) => Some(
            text.parse()
                .map_err(|_| "`min_idle_session` is no number")?,
        ),
    };
    let kind = Kind::AnyTls(AnyTls {
        password: entry::password(tree, "password")?,
        min_idle,
        check_interval: seconds("idle_session_check_interval")?,
        idle_timeout: seconds("idle_session_timeout")?,
    });
    always_tls(tree, server(tree, kind)?)
}

/// A layer for the entries that name it as their detour.
fn shadowtls(tree: &Tree) -> Result<Proxy, Fault> {
    match text(tree, &["version"]) {
        Some("3") => {}
        // Silence means the first version.
        version => return Err(Fault::unsupported("version", version.unwrap_or("1"))),
    }
    let password = Secret::new(tree.text("password").unwrap_or_default());
    let proxy = server(tree, Kind::ShadowTls(password))?;
    let mut proxy = always_tls(tree, proxy)?;
    if let Some(tls) = &mut proxy.tls {
        // What the layer shows is the masquerade server's own business.
        tls.reality = None;
    }
    Ok(proxy)
}
