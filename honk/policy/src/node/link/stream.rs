//! Transport, TLS and the settings every protocol may have, from and to the keys of links.
//!
//! VMess objects use the same keys after a renaming, so they are read here as well.

use crate::node::{
    EarlyData, Ech, Fault, Hint, Host, Pin, Proxy, Quic, Sni, Tls, Transport, Tuning,
    fields::{Fields, Out},
    text::{self, to_base64, to_base64url, to_hex},
    transport::{header, path},
    value,
};

/// All spellings of "do not verify"; one of them is enough.
const INSECURE: &[&str] = &[
    "allowInsecure",
    "allow_insecure",
    "insecure",
    "skipVerify",
    "skip-cert-verify",
    "skip_cert_verify",
];

/// Where the server name comes from when no key says it, and what an empty key means.
#[derive(Clone, Copy)]
pub(super) struct Naming<'a> {
    /// Keys, the strongest first.
    pub(super) keys: &'a [&'a str],
    /// The key `host` of the transport stands in.
    pub(super) host_key: bool,
    /// An empty key leaves the extension out.
    pub(super) empty_omits: bool,
}

/// Most protocols.
pub(super) const PEER: Naming<'_> = Naming {
    keys: &["peer", "sni"],
    host_key: false,
    empty_omits: false,
};

/// Those whose `sni` is stronger.
pub(super) const SNI: Naming<'_> = Naming {
    keys: &["sni", "peer", "servername"],
    ..PEER
};

/// Whether a value of `network` names networks rather than a transport.
fn is_hint(value: &str) -> bool {
    matches!(value, "udp" | "tcp,udp" | "udp,tcp")
}

/// The transport named by `type` or `network`.
pub(super) fn transport(fields: &Fields) -> Result<Transport, Fault> {
    let kind = fields
        .text(&["type"])
        .or_else(|| fields.text(&["network"]).filter(|value| !is_hint(value)));
    let kind = kind.unwrap_or_default().to_ascii_lowercase();
    let (path, in_path) = path(fields.get(&["path"]).unwrap_or("/"));
    let host = fields.get(&["host"]).and_then(host_header);
    let headers = headers(fields)?;
    let early = match fields.get(&["ed"]) {
        Some(text) => Some(text.parse::<u32>().map_err(|_| "`ed` is not a number")?),
        None => in_path.map(u32::from),
    };
    let early = early.filter(|bytes| *bytes > 0);
    match kind.as_str() {
        "" | "tcp" | "raw" | "original" => match fields.get(&["headerType"]) {
            None | Some("none") => Ok(Transport::Tcp),
            Some(kind) => Err(Fault::unsupported("header", kind)),
        },
        "ws" | "websocket" => Ok(Transport::Ws {
            path,
            host,
            headers,
            early: early.map(|bytes| early_data(bytes, eh(fields))),
        }),
        "httpupgrade" => Ok(Transport::HttpUpgrade {
            path,
            host,
            headers,
            fast_open: early.is_some(),
        }),
        "grpc" => {
            let service = fields.text(&["serviceName", "service_name"]);
            let from_path = || {
                let path = fields.get(&["path"])?;
                Some(path.strip_prefix('/').unwrap_or(path).to_owned())
            };
            Ok(Transport::Grpc {
                service: grpc_service(service.or_else(from_path)),
                authority: fields.text(&["authority"]),
                multi: fields.get(&["mode"]) == Some("multi"),
            })
        }
        "h2" | "http" => Ok(Transport::H2 {
            path,
            hosts: fields.get(&["host"]).map(hosts).unwrap_or_default(),
            method: fields.text(&["method"]).filter(|m| is_method(m)),
        }),
        other => Err(Fault::unsupported("transport", other)),
    }
}

/// `eh`: absent is the usual header, empty is the path.
fn eh(fields: &Fields) -> Option<String> {
    match fields.has(&["eh"]) {
        true => fields.text(&["eh"]),
        false => Some(EarlyData::HEADER.to_owned()),
    }
}

/// Early data, bounded.
pub(crate) fn early_data(bytes: u32, header: Option<String>) -> EarlyData {
    let token = |name: &String| header_name(name);
    EarlyData {
        max: u16::try_from(bytes).map_or(EarlyData::MAX, |bytes| bytes.min(EarlyData::MAX)),
        header: header.filter(token),
    }
}

fn header_name(name: &str) -> bool {
    let token = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    !name.is_empty() && name.len() <= 64 && name.bytes().all(token)
}

/// A method of HTTP/2 requests.
pub(crate) fn is_method(text: &str) -> bool {
    (1..=16).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_uppercase())
}

/// The service of gRPC, or its usual name.
pub(crate) fn grpc_service(text: Option<String>) -> String {
    text.filter(|text| !text.is_empty())
        .unwrap_or_else(|| "GunService".to_owned())
}

/// The first host of a list.
pub(crate) fn host_header(text: &str) -> Option<String> {
    hosts(text).into_iter().next()
}

pub(crate) fn hosts(text: &str) -> Vec<String> {
    let hosts = text.split(',').map(str::trim).filter(|h| !h.is_empty());
    hosts.map(str::to_owned).collect()
}

/// Further headers, as a JSON object in one value.
fn headers(fields: &Fields) -> Result<Vec<(String, String)>, Fault> {
    let Some(json) = fields.get(&["headers"]) else {
        return Ok(Vec::new());
    };
    let tree = crate::document::Tree::json(json).map_err(|_| "`headers` is not a JSON object")?;
    Ok(header_list(&tree).1)
}

/// The `Host` of a mapping of headers, and the others.
pub(crate) fn header_list(tree: &crate::document::Tree) -> (Option<String>, Vec<(String, String)>) {
    let crate::document::Tree::Map(pairs) = tree else {
        return (None, Vec::new());
    };
    let mut host = None;
    let mut list: Vec<(String, String)> = Vec::new();
    for (name, value) in pairs.iter().take(64) {
        // HTTP libraries write a list of values for one name.
        let Some(value) = value.texts().first().copied() else {
            continue;
        };
        if name.eq_ignore_ascii_case("host") {
            host = host_header(value);
        } else if let Some((name, value)) = header(name, value)
            && list.len() < 32
            && !list.iter().any(|(known, _)| *known == name)
        {
            list.push((name, value));
        }
    }
    list.sort();
    (host, list)
}

/// TLS towards `server`.
pub(super) fn tls(fields: &mut Fields, server: &Host, naming: Naming<'_>) -> Result<Tls, Fault> {
    let sni = match fields.get(naming.keys) {
        Some(name) => value::sni(name)?,
        None if naming.empty_omits && fields.has(naming.keys) => Sni::Omit,
        None => fallback(fields, server, naming),
    };
    let mut tls = Tls::new(sni);
    if fields.flag("disable_sni") {
        tls.sni = Sni::Omit;
    }
    let alpn = fields.get(&["alpn"]).map(hosts);
    tls.alpn = alpn.filter(|alpn| !alpn.is_empty());
    tls.insecure = fields.any(INSECURE);
    if let Some(pins) = fields.get(&["pinSHA256", "pin_sha256"]) {
        tls.pins = value::leaf_pins(pins)?;
    }
    if let Some(keys) = fields.get(&["pin_public_key"]) {
        for key in keys.split(',') {
            let digest = value::digest(key).ok_or("a public key pin has not 32 bytes")?;
            tls.pins.push(Pin::Key(digest));
        }
    }
    tls.ca = fields.text(&["ca"]);
    tls.ech = ech(fields.get(&["ech", "ech_config", "echconfig", "echConfigList"]))?;
    tls.fingerprint = client(fields);
    tls.min_version = version(fields, "min_version")?;
    tls.max_version = version(fields, "max_version")?;
    Ok(tls)
}

/// As [`tls`], with REALITY.
pub(super) fn reality(
    fields: &mut Fields,
    server: &Host,
    naming: Naming<'_>,
) -> Result<Tls, Fault> {
    if fields.get(&["pqv"]).is_some() {
        return Err(Fault::Unsupported("REALITY with ML-DSA-65".into()));
    }
    let mut tls = tls(fields, server, naming)?;
    tls.reality = Some(value::reality(
        fields.get(&["pbk"]),
        fields.get(&["sid"]).unwrap_or_default(),
        fields.get(&["spx"]),
    )?);
    Ok(tls)
}

fn fallback(fields: &Fields, server: &Host, naming: Naming<'_>) -> Sni {
    let host = fields.get(&["host"]).filter(|_| naming.host_key);
    let host = host.and_then(|hosts| hosts.split(',').next());
    host.and_then(host_name)
        .unwrap_or_else(|| value::server_name(server))
}

/// A host header without its port, if it can be a server name.
pub(crate) fn host_name(host: &str) -> Option<Sni> {
    let (host, _, _) = crate::node::url::host_port(host.trim()).ok()?;
    Some(value::server_name(&host))
}

/// Encrypted Client Hello: a switch, or a list of configurations.
pub(crate) fn ech(value: Option<&str>) -> Result<Ech, &'static str> {
    match value {
        None | Some("0" | "false" | "none") => Ok(Ech::Off),
        Some("1" | "true" | "enabled") => Ok(Ech::Discover),
        Some("force") => Ok(Ech::Require),
        // Xray names the resolver to ask.
        Some(query) if query.contains("://") => Ok(Ech::Discover),
        Some(list) => match text::base64(list) {
            Some(list) if list.len() > 3 => Ok(Ech::Static(list)),
            _ => Err("the ECH configuration is not base64"),
        },
    }
}

fn client(fields: &mut Fields) -> Option<String> {
    let utls = fields.get(&["tlsImplementation"]) == Some("utls");
    let text = match fields.text(&["utlsImitate"]) {
        Some(text) => text,
        None => fields
            .text(&["fp"])
            .or_else(|| utls.then(|| "chrome".to_owned()))?,
    };
    let known = value::fingerprint(&text);
    if known.is_none() {
        fields.note("an unknown client fingerprint is ignored");
    }
    known
}

fn version(fields: &Fields, key: &str) -> Result<Option<crate::node::TlsVersion>, &'static str> {
    match fields.get(&[key]) {
        None => Ok(None),
        Some(text) => crate::node::TlsVersion::parse(text)
            .map(Some)
            .ok_or("the TLS version is neither 1.2 nor 1.3"),
    }
}

/// Networks and socket options.
pub(super) fn common(fields: &mut Fields, proxy: &mut Proxy) {
    let network = fields.get(&["network"]).unwrap_or_default();
    proxy.hint = match network {
        "udp" => Hint::Udp,
        _ => Hint::Both,
    };
    if fields.get(&["udp"]).is_some() && !fields.flag("udp") {
        proxy.hint = Hint::Tcp;
    }
    proxy.tuning = Tuning {
        fast_open: fields.flag("tfo"),
        multipath: fields.flag("mptcp"),
    };
}

/// Settings of QUIC.
pub(super) fn quic(fields: &mut Fields) -> Result<Quic, &'static str> {
    let window = |key| match fields.get(&[key]) {
        None => Ok(None),
        Some(text) => text
            .parse::<u32>()
            .ok()
            .filter(|bytes| (16 << 10..=1 << 30).contains(bytes))
            .map(Some)
            .ok_or("a receive window is not between 16 KiB and 1 GiB"),
    };
    let mtu = match fields.get(&["mtu"]) {
        None => None,
        Some(text) => Some(quic_mtu(text).ok_or("`mtu` is not between 1200 and 65527")?),
    };
    Ok(Quic {
        mtu,
        stream_window: window("initStreamReceiveWindow")?,
        connection_window: window("initConnReceiveWindow")?,
        fixed_mtu: fields.flag("disablePathMTUDiscovery"),
    })
}

pub(crate) fn quic_mtu(text: &str) -> Option<u16> {
    text.parse().ok().filter(|mtu| (1200..=65527).contains(mtu))
}

/// Writes what [`transport`] reads.
pub(super) fn write_transport(transport: &Transport, out: &mut Out) {
    if *transport != Transport::Tcp {
        out.add("type", transport.name());
    }
    match transport {
        Transport::Tcp => {}
        Transport::Ws {
            path,
            host,
            headers,
            early,
        } => {
            write_request(path, host.as_deref(), headers, out);
            if let Some(early) = early {
                out.add("ed", early.max.to_string());
                match early.header.as_deref() {
                    Some(EarlyData::HEADER) => {}
                    header => out.add("eh", header.unwrap_or_default()),
                }
            }
        }
        Transport::HttpUpgrade {
            path,
            host,
            headers,
            fast_open,
        } => {
            write_request(path, host.as_deref(), headers, out);
            if *fast_open {
                out.add("ed", "2560");
            }
        }
        Transport::Grpc {
            service,
            authority,
            multi,
        } => {
            out.add("serviceName", service);
            out.some("authority", authority.as_ref());
            if *multi {
                out.add("mode", "multi");
            }
        }
        Transport::H2 {
            path,
            hosts,
            method,
        } => {
            write_request(
                path,
                Some(hosts.join(",")).as_deref().filter(|h| !h.is_empty()),
                &[],
                out,
            );
            out.some("method", method.as_ref());
        }
    }
}

fn write_request(path: &str, host: Option<&str>, headers: &[(String, String)], out: &mut Out) {
    if path != "/" {
        out.add("path", path);
    }
    out.some("host", host);
    if !headers.is_empty() {
        let map: serde_json::Map<_, _> = headers
            .iter()
            .map(|(name, value)| (name.clone(), value.as_str().into()))
            .collect();
        out.add("headers", serde_json::Value::Object(map).to_string());
    }
}

/// Writes what [`tls`] and [`reality`] read.
pub(super) fn write_tls(tls: &Tls, server: &Host, naming: Naming<'_>, out: &mut Out) {
    let default = value::server_name(server);
    match &tls.sni {
        // The `host` key may stand in, so the name is written whenever that is possible.
        sni if *sni == default && !naming.host_key => {}
        Sni::Name(name) => out.add("sni", name),
        Sni::Omit if naming.empty_omits => out.add("sni", ""),
        Sni::Omit => out.add("disable_sni", "1"),
    }
    if let Some(alpn) = &tls.alpn {
        out.add("alpn", alpn.join(","));
    }
    out.flag("insecure", tls.insecure);
    let (mut leafs, mut keys) = (Vec::new(), Vec::new());
    for pin in &tls.pins {
        match pin {
            Pin::Leaf(pin) => leafs.push(to_hex(pin)),
            Pin::Key(pin) => keys.push(to_hex(pin)),
            // Juicity writes its own.
            Pin::Chain(_) => {}
        }
    }
    if !leafs.is_empty() {
        out.add("pinSHA256", leafs.join(","));
    }
    if !keys.is_empty() {
        out.add("pin_public_key", keys.join(","));
    }
    out.some("ca", tls.ca.as_ref());
    match &tls.ech {
        Ech::Off => {}
        Ech::Discover => out.add("ech", "1"),
        Ech::Require => out.add("ech", "force"),
        Ech::Static(list) => out.add("ech", to_base64(list)),
    }
    out.some("fp", tls.fingerprint.as_ref());
    out.some("min_version", tls.min_version.map(|v| v.name()));
    out.some("max_version", tls.max_version.map(|v| v.name()));
    if let Some(reality) = &tls.reality {
        out.add("pbk", to_base64url(&reality.public_key));
        let id = &reality.short_id;
        let used = id
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |at| at + 1);
        if used > 0 {
            out.add("sid", to_hex(&id[..used]));
        }
        if reality.spider != "/" {
            out.add("spx", &reality.spider);
        }
    }
}

/// Writes what [`common`] reads.
pub(super) fn write_common(proxy: &Proxy, out: &mut Out) {
    match proxy.hint {
        Hint::Both => {}
        Hint::Tcp => out.add("udp", "0"),
        Hint::Udp => out.add("network", "udp"),
    }
    out.flag("tfo", proxy.tuning.fast_open);
    out.flag("mptcp", proxy.tuning.multipath);
}

/// Writes what [`quic`] reads.
pub(super) fn write_quic(quic: &Quic, out: &mut Out) {
    out.some("mtu", quic.mtu);
    out.some("initStreamReceiveWindow", quic.stream_window);
    out.some("initConnReceiveWindow", quic.connection_window);
    out.flag("disablePathMTUDiscovery", quic.fixed_mtu);
}
