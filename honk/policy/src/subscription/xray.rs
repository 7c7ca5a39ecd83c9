//! Xray and V2Ray JSON: the list `outbounds`, one configuration or an array of them.

use super::{
    Read, SCOPE,
    entry::{self, Content, Entry, Refusal, on, text},
};
use crate::{
    document::Tree,
    id::Secret,
    node::{
        EarlyData, Fault, Host, Hysteria2, Kind, Proxy, Quic, Shadowsocks, Tls, Transport, Trojan,
        UdpOverTcp, Vless, VlessMode, Vmess, VmessCipher,
        link::{self, stream},
        text::display_name,
        transport, value,
    },
};

pub(super) fn read(tree: &Tree) -> Read {
    let mut entries = Vec::new();
    match tree {
        Tree::List(items) => {
            for (at, config) in items.iter().enumerate() {
                match config.get("outbounds") {
                    // Tags repeat from one configuration to the next.
                    Some(list) => entries.extend(one_of(config, list, at)),
                    None => entries.push(entry(config, None, "")),
                }
                if entries.len() > 2 * super::MAX_ENTRIES {
                    break;
                }
            }
        }
        tree => match tree.get("outbounds") {
            Some(list) => entries.extend(list.items().iter().map(|tree| entry(tree, None, ""))),
            None => entries.push(entry(tree, None, "")),
        },
    }
    Read::of(entries.into_iter())
}

/// A configuration for a single node: its servers, the first or `proxy` under the name of the
/// configuration, and what that goes through.
fn one_of(config: &Tree, list: &Tree, at: usize) -> Vec<Entry> {
    let scope = format!("{at}{SCOPE}");
    let items = list.items();
    let service = |tree: &Tree| SERVICES.contains(&tree.text("protocol").unwrap_or_default());
    let main = items
        .iter()
        .position(|tree| tree.text("tag") == Some("proxy"))
        .or_else(|| items.iter().position(|tree| !service(tree)));
    let name = text(config, &["remarks", "ps", "name"]).and_then(display_name);
    let entries = items.iter().enumerate().map(|(place, tree)| {
        let name = name.as_deref().filter(|_| Some(place) == main);
        entry(tree, name, &scope)
    });
    // The others are there for the main one only.
    let mut entries: Vec<Entry> = entries.collect();
    let Some(main) = main else {
        return Vec::new();
    };
    let mut needed = vec![main];
    while let Some(target) = needed.last().and_then(|at| entries[*at].detour.clone()) {
        match entries.iter().position(|entry| entry.tag == target) {
            Some(next) if !needed.contains(&next) => needed.push(next),
            _ => break,
        }
    }
    let mut place = 0;
    entries.retain(|_| {
        place += 1;
        needed.contains(&(place - 1))
    });
    entries
}

/// Ways out without a server.
const SERVICES: &[&str] = &["freedom", "blackhole", "dns", "loopback", ""];

fn entry(tree: &Tree, name: Option<&str>, scope: &str) -> Entry {
    let kind = tree.text("protocol").unwrap_or_default();
    let tag = text(tree, &["tag"]).unwrap_or_default();
    let scoped = format!("{scope}{tag}");
    match kind {
        "freedom" => return Entry::without(&scoped, Content::Service),
        _ if SERVICES.contains(&kind) => return Entry::without(&scoped, Content::Group),
        _ => {}
    }
    let read = entry::sized(tree).and_then(|()| proxy(kind, tree));
    match read.and_then(entry::judged) {
        Ok(proxy) => {
            let shown = entry::shown(name.or(Some(tag)), &proxy);
            let detour = detour(tree).map(|target| format!("{scope}{target}"));
            let mut entry = Entry::of(&scoped, kind, Ok((proxy, detour)));
            entry.name = Some(shown);
            entry
        }
        Err(Fault::Unsupported(what)) if what.is_empty() => {
            Entry::without(&scoped, Content::Refused(Refusal::kind(kind)))
        }
        Err(fault) => Entry::of(&scoped, kind, Err(fault)),
    }
}

/// The entry that this one is reached through, by either of its spellings.
fn detour(tree: &Tree) -> Option<&str> {
    let sockopt = tree.at(&["streamSettings", "sockopt"]);
    sockopt
        .and_then(|options| text(options, &["dialerProxy"]))
        .or_else(|| text(tree.get("proxySettings")?, &["tag"]))
}

fn proxy(kind: &str, tree: &Tree) -> Result<Proxy, Fault> {
    let empty = Tree::Null;
    let settings = tree.get("settings").unwrap_or(&empty);
    let stream = tree.get("streamSettings").unwrap_or(&empty);
    let mux = tree.get("mux").is_some_and(|mux| on(mux, "enabled"));
    let mut proxy = match kind {
        "vmess" | "vless" => {
            let server = first(settings, "vnext");
            let user = first(server, "users");
            let kind = match kind {
                "vmess" => vmess(user)?,
                _ => vless(user, mux)?,
            };
            at(server, kind)?
        }
        "trojan" => {
            let server = first(settings, "servers");
            let kind = Kind::Trojan(Trojan {
                password: entry::password(server, "password")?,
                inner: None,
            });
            if text(server, &["flow"]).is_some() {
                return Err("Trojan has no `flow`".into());
            }
            at(server, kind)?
        }
        "shadowsocks" => {
            let server = first(settings, "servers");
            at(server, shadowsocks(server)?)?
        }
        "socks" | "http" => {
            let server = first(settings, "servers");
            let user = first(server, "users");
            let login = entry::login(user, "user", "pass");
            let kind = match kind {
                "socks" => Kind::Socks5(login),
                _ => Kind::Http(login),
            };
            at(server, kind)?
        }
        "hysteria" if text(settings, &["version"]) == Some("2") => hysteria2(settings, stream)?,
        // The protocol itself is what is missing, see `entry`.
        _ => return Err(Fault::Unsupported(String::new())),
    };
    if !proxy.kind.is_quic() {
        proxy.transport = transport(stream)?;
        proxy.tls = tls(stream, &proxy)?;
    }
    let plain = matches!(
        proxy.kind,
        Kind::Socks5(_) | Kind::Http(_) | Kind::Shadowsocks(_)
    );
    if plain && proxy.transport != Transport::Tcp {
        return Err(Fault::unsupported("transport", proxy.transport.name()));
    }
    if matches!(proxy.kind, Kind::Shadowsocks(_)) && proxy.tls.is_some() {
        return Err(Fault::unsupported("security", "tls"));
    }
    if let Some(sockopt) = stream.get("sockopt") {
        proxy.tuning.fast_open = on(sockopt, "tcpFastOpen");
        proxy.tuning.multipath = on(sockopt, "tcpMptcp");
    }
    Ok(proxy)
}

/// The first of a list, or the object itself in the flat form.
fn first<'a>(tree: &'a Tree, key: &str) -> &'a Tree {
    let list = tree.get(key).map(Tree::items).unwrap_or_default();
    list.first().map_or(tree, |item| item)
}

fn at(server: &Tree, kind: Kind) -> Result<Proxy, Fault> {
    entry::server(server.text("address"), server.text("port"), kind)
}

fn vmess(user: &Tree) -> Result<Kind, Fault> {
    if text(user, &["alterId"]).is_some_and(|id| id != "0") {
        return Err(Fault::Unsupported("alterId".into()));
    }
    let cipher = user.text("security").unwrap_or_default();
    Ok(Kind::Vmess(Vmess {
        user: value::user_id(user.text("id").unwrap_or_default())?,
        cipher: VmessCipher::parse(cipher).ok_or_else(|| Fault::unsupported("cipher", cipher))?,
    }))
}

fn vless(user: &Tree, mux: bool) -> Result<Kind, Fault> {
    let encryption = match text(user, &["encryption"]) {
        None | Some("none") => None,
        Some(text) => Some(value::encryption(text)?),
    };
    Ok(Kind::Vless(Vless {
        user: value::user_id(user.text("id").unwrap_or_default())?,
        flow: link::flow(user.text("flow"))?,
        mode: mux.then_some(VlessMode::MuxCool),
        encryption,
    }))
}

fn shadowsocks(server: &Tree) -> Result<Kind, Fault> {
    let cipher = entry::required(server, "method", "the method is missing")?;
    let cipher = value::cipher(cipher)?;
    let password = entry::required(server, "password", "the password is missing")?;
    let uot = match (on(server, "uot"), text(server, &["UoTVersion"])) {
        (false, _) => UdpOverTcp::Off,
        (true, Some("1")) => UdpOverTcp::V1,
        (true, _) => UdpOverTcp::V2,
    };
    Ok(Kind::Shadowsocks(Shadowsocks {
        cipher,
        password: value::password(cipher, password)?,
        plugin: None,
        uot,
    }))
}

fn hysteria2(settings: &Tree, stream: &Tree) -> Result<Proxy, Fault> {
    let options = stream.get("hysteriaSettings").unwrap_or(settings);
    let rate = |key| crate::node::text::bandwidth(options.text(key).unwrap_or_default());
    let kind = Kind::Hysteria2(Hysteria2 {
        auth: Secret::new(options.text("auth").unwrap_or_default()),
        ports: None,
        hop_interval: None,
        obfs: None,
        up: rate("up")?,
        down: rate("down")?,
        fast_open: false,
        quic: Quic::default(),
    });
    if stream.get("udpmasks").is_some() || options.get("udphop").is_some() {
        return Err(Fault::Unsupported("masks or port hopping".into()));
    }
    let mut proxy = at(settings, kind)?;
    proxy.tls = Some(tls_options(
        stream.get("tlsSettings").unwrap_or(&Tree::Null),
        &proxy.host,
    )?);
    Ok(proxy)
}

fn transport(stream: &Tree) -> Result<Transport, Fault> {
    let empty = Tree::Null;
    let settings = |key: &str| stream.get(key).unwrap_or(&empty);
    match text(stream, &["network", "method"]).unwrap_or("tcp") {
        "tcp" | "raw" => {
            let header = [settings("tcpSettings"), settings("rawSettings")];
            let header = header.iter().find_map(|s| s.at(&["header"])?.text("type"));
            match header {
                None | Some("" | "none") => Ok(Transport::Tcp),
                Some(kind) => Err(Fault::unsupported("header", kind)),
            }
        }
        "ws" | "websocket" => {
            let (path, host, headers, early) = request(settings("wsSettings"));
            let early = early
                .filter(|max| *max > 0)
                .map(|max| stream::early_data(max.into(), Some(EarlyData::HEADER.to_owned())));
            Ok(Transport::Ws {
                path,
                host,
                headers,
                early,
            })
        }
        "httpupgrade" => {
            let (path, host, headers, early) = request(settings("httpupgradeSettings"));
            Ok(Transport::HttpUpgrade {
                path,
                host,
                headers,
                fast_open: early.is_some_and(|max| max > 0),
            })
        }
        "grpc" | "gun" => {
            let options = settings("grpcSettings");
            let service = text(options, &["serviceName"]).map(str::to_owned);
            Ok(Transport::Grpc {
                service: stream::grpc_service(service),
                authority: text(options, &["authority"]).map(str::to_owned),
                multi: on(options, "multiMode"),
            })
        }
        "h2" | "http" => {
            let options = settings("httpSettings");
            let hosts = options.get("host").map(Tree::texts).unwrap_or_default();
            Ok(Transport::H2 {
                path: transport::path(options.text("path").unwrap_or("/")).0,
                hosts: hosts.iter().flat_map(|host| stream::hosts(host)).collect(),
                method: None,
            })
        }
        other => Err(Fault::unsupported("transport", other)),
    }
}

type Request = (String, Option<String>, Vec<(String, String)>, Option<u16>);

/// Path, host, headers and early data of an HTTP/1.1 request.
fn request(options: &Tree) -> Request {
    let (path, early) = transport::path(options.text("path").unwrap_or("/"));
    let (in_headers, headers) = match options.get("headers") {
        Some(headers) => stream::header_list(headers),
        None => (None, Vec::new()),
    };
    let host = text(options, &["host"]).and_then(stream::host_header);
    (path, host.or(in_headers), headers, early)
}

fn tls(stream: &Tree, proxy: &Proxy) -> Result<Option<Tls>, Fault> {
    let empty = Tree::Null;
    match text(stream, &["security"]).unwrap_or("none") {
        "none" => Ok(None),
        "tls" => {
            let options = stream.get("tlsSettings").unwrap_or(&empty);
            Ok(Some(tls_options(options, &proxy.host)?))
        }
        "reality" => {
            let options = stream.get("realitySettings").unwrap_or(&empty);
            if text(options, &["mldsa65Verify"]).is_some() {
                return Err(Fault::Unsupported("REALITY with ML-DSA-65".into()));
            }
            let mut tls = tls_options(options, &proxy.host)?;
            // `allowInsecure` and pins have no meaning beside REALITY.
            tls.insecure = false;
            tls.reality = Some(value::reality(
                text(options, &["publicKey", "password"]),
                text(options, &["shortId"]).unwrap_or_default(),
                text(options, &["spiderX"]),
            )?);
            Ok(Some(tls))
        }
        other => Err(Fault::unsupported("security", other)),
    }
}

fn tls_options(options: &Tree, server: &Host) -> Result<Tls, Fault> {
    let sni = entry::sni(text(options, &["serverName"]), server)?;
    let mut tls = entry::plain(sni, on(options, "allowInsecure"));
    tls.alpn = entry::alpn(options.get("alpn"));
    tls.fingerprint = text(options, &["fingerprint"]).and_then(value::fingerprint);
    if let Some(pins) = options.get("pinnedPeerCertSha256") {
        tls.pins = value::leaf_pins(&pins.texts().join(","))?;
    }
    tls.ech = stream::ech(text(options, &["echConfigList"]))?;
    Ok(tls)
}
