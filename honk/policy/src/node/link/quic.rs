//! `hysteria2`, `tuic` and `juicity`: the protocols over QUIC.

use super::{
    Parts, login,
    stream::{self, Naming, PEER, SNI},
};
use crate::{
    id::Secret,
    node::{
        Congestion, Fault, Hysteria2, Juicity, Kind, Obfs, Pin, PortSet, Proxy, Sni, Tuic,
        UdpRelay,
        fields::{Fields, Out},
        text::{bandwidth, duration_ms, percent_encode, to_base64url},
        url::{self, Url},
        value,
    },
};

/// Longest pause between two hops, and longest heartbeat.
const DAY_MS: u32 = 86_400_000;

pub(super) fn hysteria2(scheme: &str, rest: &str) -> Result<Parts, Fault> {
    let mut url = url::split(rest)?;
    let old = url.query.has(&["auth", "protocol", "obfsParam"])
        || url.query.get(&["obfs"]) == Some("xplus");
    if scheme == "hysteria" && old {
        return Err(Fault::Unsupported("version 1".into()));
    }
    let (port, listed) = ports(&url)?;
    let kind = Kind::Hysteria2(Hysteria2 {
        auth: Secret::new(url.user()?),
        ports: match url.query.get(&["mport", "ports"]) {
            Some(text) => Some(PortSet::parse(text, '-')?),
            None => listed,
        },
        hop_interval: match url.query.get(&["mhop", "hop-interval"]) {
            None => None,
            Some(text) => Some(hop_interval(text).ok_or("the hop interval is no duration")?),
        },
        obfs: obfs(
            url.query.get(&["obfs"]),
            url.query.get(&["obfs-password", "obfs_password"]),
        )?,
        up: rate(&url.query, &["upmbps", "up"], "maxTx")?,
        down: rate(&url.query, &["downmbps", "down"], "maxRx")?,
        fast_open: url.query.flag("fastopen"),
        quic: stream::quic(&mut url.query)?,
    });
    let mut proxy = Proxy::new(url.host.clone(), port, kind);
    let server = proxy.host.clone();
    proxy.tls = Some(stream::tls(&mut url.query, &server, SNI)?);
    Parts::of(url, proxy)
}

/// The port of the node, and the list when the authority has one.
fn ports(url: &Url<'_>) -> Result<(u16, Option<PortSet>), Fault> {
    let text = url.port_text();
    if !text.contains([',', '-']) {
        return Ok((url.port()?.unwrap_or(443), None));
    }
    let list = PortSet::parse(text, '-')?;
    let first = text.split([',', '-']).next().and_then(crate::node::port);
    Ok((first.ok_or("the port list has no first port")?, Some(list)))
}

/// Seconds between hops, at least one.
pub(crate) fn hop_interval(text: &str) -> Option<u32> {
    let ms = duration_ms(text, 1000)?.min(DAY_MS);
    Some(ms.div_ceil(1000).max(1))
}

/// Obfuscation: never off because half of it is missing.
pub(crate) fn obfs(
    name: Option<&str>,
    password: Option<&str>,
) -> Result<Option<(Obfs, Secret)>, Fault> {
    let kind = match name {
        None | Some("" | "none") => None,
        Some("salamander") => Some(Obfs::Salamander),
        Some("gecko") => Some(Obfs::Gecko),
        Some(other) => return Err(Fault::unsupported("obfs", other)),
    };
    match (kind, password) {
        (None, None | Some("")) => Ok(None),
        (None, Some(_)) => Err("an obfs password without obfs".into()),
        (Some(_), None | Some("")) => Err("obfs without a password".into()),
        (Some(_), Some(password)) if password.len() < 4 => {
            Err("the obfs password is shorter than 4 bytes".into())
        }
        (Some(kind), Some(password)) => Ok(Some((kind, Secret::new(password)))),
    }
}

/// A limit: with a unit or in Mbit/s, else in bytes per second.
fn rate(fields: &Fields, keys: &[&str], bytes: &str) -> Result<Option<u64>, Fault> {
    if let Some(text) = fields.get(keys) {
        return Ok(bandwidth(text)?);
    }
    match fields.get(&[bytes]).map(str::parse::<u64>) {
        None | Some(Ok(0)) => Ok(None),
        Some(Ok(rate)) => Ok(Some(rate)),
        Some(Err(_)) => Err("the bandwidth is no number".into()),
    }
}

pub(super) fn write_hysteria2(
    proxy: &Proxy,
    hysteria: &Hysteria2,
    out: &mut Out,
) -> (&'static str, String) {
    if let Some(tls) = &proxy.tls {
        stream::write_tls(tls, &proxy.host, SNI, out);
    }
    out.some("mport", hysteria.ports.as_ref());
    out.some("mhop", hysteria.hop_interval);
    if let Some((kind, password)) = &hysteria.obfs {
        out.add("obfs", kind.name());
        out.add("obfs-password", password.reveal());
    }
    write_rate(hysteria.up, "upmbps", "maxTx", out);
    write_rate(hysteria.down, "downmbps", "maxRx", out);
    out.flag("fastopen", hysteria.fast_open);
    stream::write_quic(&hysteria.quic, out);
    let user = match hysteria.auth.reveal() {
        "" => String::new(),
        auth => format!("{}@", percent_encode(auth)),
    };
    ("hysteria2", user)
}

/// Whole Mbit/s are written as everyone does.
fn write_rate(rate: Option<u64>, mbps: &'static str, bytes: &'static str, out: &mut Out) {
    const MBIT: u64 = 125_000;
    match rate {
        None => {}
        Some(rate) if rate % MBIT == 0 => out.add(mbps, (rate / MBIT).to_string()),
        Some(rate) => out.add(bytes, rate.to_string()),
    }
}

/// User id and password; the colon between them may be encoded.
fn user_and_password(url: &Url<'_>) -> Result<(String, Option<String>), Fault> {
    let (user, password) = url
        .user_and_password()?
        .ok_or("user id and password are missing")?;
    Ok(match (password, user.split_once(':')) {
        (None, Some((user, password))) => (user.to_owned(), Some(password.to_owned())),
        (password, _) => (user, password),
    })
}

pub(super) fn tuic(rest: &str) -> Result<Parts, Fault> {
    let mut url = url::split(rest)?;
    let (user, password) = user_and_password(&url)?;
    let Some(password) = password else {
        return Err(Fault::Unsupported("version 4".into()));
    };
    let congestion = congestion(&mut url.query, Congestion::Cubic);
    let kind = Kind::Tuic(Tuic {
        user: value::uuid(&user)?,
        password: Secret::new(password),
        congestion,
        relay: relay(url.query.get(&["udp_relay_mode", "udp-relay-mode"]))?,
        zero_rtt: url.query.any(&["reduce_rtt", "reduce-rtt"]),
        heartbeat_ms: match url.query.get(&["heartbeat", "heartbeat-interval"]) {
            None => None,
            Some(text) => Some(heartbeat(text).ok_or("the heartbeat is no duration")?),
        },
        quic: stream::quic(&mut url.query)?,
    });
    let mut proxy = login::proxy(&url, 443, kind)?;
    let server = proxy.host.clone();
    let mut tls = stream::tls(&mut url.query, &server, PEER)?;
    if tls.alpn.is_none() && url.query.has(&["alpn"]) {
        tls.alpn = Some(Vec::new());
    }
    tls.insecure |= url.query.flag("disable_sni");
    proxy.tls = Some(tls);
    Parts::of(url, proxy)
}

/// Seconds; numbers too large for that are milliseconds.
fn heartbeat(text: &str) -> Option<u32> {
    let unit = match text.parse::<u32>() {
        Ok(1000..) => 1,
        _ => 1000,
    };
    duration_ms(text, unit).map(|ms| ms.clamp(1000, DAY_MS))
}

pub(crate) fn relay(text: Option<&str>) -> Result<UdpRelay, &'static str> {
    match text {
        None | Some("native") => Ok(UdpRelay::Native),
        Some("quic") => Ok(UdpRelay::Quic),
        Some(_) => Err("the UDP relay mode is neither native nor quic"),
    }
}

fn congestion(fields: &mut Fields, default: Congestion) -> Congestion {
    let keys = &["congestion_control", "congestion-controller"];
    let Some(name) = fields.get(keys) else {
        return default;
    };
    Congestion::parse(name).unwrap_or_else(|| {
        fields.note("an unknown congestion control: cubic is used");
        Congestion::Cubic
    })
}

pub(super) fn write_tuic(proxy: &Proxy, tuic: &Tuic, out: &mut Out) -> (&'static str, String) {
    if let Some(tls) = &proxy.tls {
        write_tuic_tls(proxy, tls, out);
    }
    if tuic.congestion != Congestion::Cubic {
        out.add("congestion_control", tuic.congestion.name());
    }
    if tuic.relay == UdpRelay::Quic {
        out.add("udp_relay_mode", "quic");
    }
    out.flag("reduce_rtt", tuic.zero_rtt);
    out.some("heartbeat", tuic.heartbeat_ms.map(|ms| format!("{ms}ms")));
    stream::write_quic(&tuic.quic, out);
    ("tuic", user(&tuic.user, &tuic.password))
}

/// `disable_sni` of TUIC means insecure as well; an address as name leaves only the name out.
fn write_tuic_tls(proxy: &Proxy, tls: &crate::node::Tls, out: &mut Out) {
    let omit = tls.sni == Sni::Omit && value::server_name(&proxy.host) != Sni::Omit;
    let mut tls = tls.clone();
    if omit && !tls.insecure {
        out.add("sni", "0.0.0.0");
        tls.sni = value::server_name(&proxy.host);
    }
    stream::write_tls(&tls, &proxy.host, PEER, out);
}

pub(super) fn juicity(rest: &str) -> Result<Parts, Fault> {
    let mut url = url::split(rest)?;
    let (user, password) = user_and_password(&url)?;
    let congestion = congestion(&mut url.query, Congestion::Bbr);
    let kind = Kind::Juicity(Juicity {
        user: value::uuid(&user)?,
        password: Secret::new(password.ok_or("the password is missing")?),
        congestion,
        quic: stream::quic(&mut url.query)?,
    });
    let mut proxy = login::proxy(&url, 443, kind)?;
    let server = proxy.host.clone();
    const NAMING: Naming<'_> = SNI;
    let mut tls = stream::tls(&mut url.query, &server, NAMING)?;
    if let Some(pin) = url.query.get(&["pinned_certchain_sha256"]) {
        let pin = value::digest(pin).ok_or("the certificate chain pin has not 32 bytes")?;
        tls.pins.push(Pin::Chain(pin));
    }
    proxy.tls = Some(tls);
    Parts::of(url, proxy)
}

pub(super) fn write_juicity(
    proxy: &Proxy,
    juicity: &Juicity,
    out: &mut Out,
) -> (&'static str, String) {
    if let Some(tls) = &proxy.tls {
        stream::write_tls(tls, &proxy.host, SNI, out);
        let chain = tls.pins.iter().find_map(|pin| match pin {
            Pin::Chain(pin) => Some(to_base64url(pin)),
            Pin::Leaf(_) | Pin::Key(_) => None,
        });
        out.some("pinned_certchain_sha256", chain);
    }
    if juicity.congestion != Congestion::Bbr {
        out.add("congestion_control", juicity.congestion.name());
    }
    stream::write_quic(&juicity.quic, out);
    ("juicity", user(&juicity.user, &juicity.password))
}

fn user(user: &crate::node::UserId, password: &Secret) -> String {
    format!("{}:{}@", user.0, percent_encode(password.reveal()))
}
