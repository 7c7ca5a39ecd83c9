//! `vless`: the keys that choose TLS, transport and how UDP is carried.

use super::{
    Parts, login,
    stream::{self, Naming, SNI},
};
use crate::node::{
    Fault, Flow, Kind, Proxy, Transport, Vless, VlessMode,
    fields::{Fields, Out},
    url, value,
};

/// Spellings of other programs that mean different things to each: refused.
pub(crate) const AMBIGUOUS: &[&str] = &[
    "mux",
    "smux",
    "multiplex",
    "udp-over-tcp",
    "udp_over_tcp",
    "packet-encoding",
    "packet_encoding",
    "packet-addr",
    "packet_addr",
    "xudp",
    "only-tcp",
    "only_tcp",
    "brutal",
    "brutal-opts",
    "brutal_opts",
    "max-connections",
    "max_connections",
    "min-streams",
    "min_streams",
    "max-streams",
    "max_streams",
];

/// The `host` of the transport is the server name unless a key says otherwise.
pub(super) const HOST: Naming<'_> = Naming {
    host_key: true,
    empty_omits: true,
    ..SNI
};

pub(super) fn read(rest: &str) -> Result<Parts, Fault> {
    let mut url = url::split(rest)?;
    let user = url.userinfo.ok_or("the user id is missing")?;
    if user.contains(':') {
        return Err("the user is not a single id".into());
    }
    if url.query.has(AMBIGUOUS) {
        return Err("a key for multiplexing or UDP is ambiguous: use `vless_mode`".into());
    }
    let kind = Kind::Vless(Vless {
        user: value::user_id(&url.user()?)?,
        flow: flow(url.query.get(&["flow"]))?,
        mode: mode(&url.query)?,
        encryption: match url.query.get(&["encryption"]) {
            None | Some("none") => None,
            Some(text) => Some(value::encryption(text)?),
        },
    });
    let mut proxy = login::proxy(&url, 443, kind)?;
    secure(&mut url.query, &mut proxy, HOST)?;
    Parts::of(url, proxy)
}

/// Transport and TLS by `type` and `security`.
pub(super) fn secure(
    fields: &mut Fields,
    proxy: &mut Proxy,
    naming: Naming<'_>,
) -> Result<(), Fault> {
    proxy.transport = stream::transport(fields)?;
    let naming = naming_for(&proxy.transport, naming);
    let server = proxy.host.clone();
    proxy.tls = match fields.text(&["security"]).as_deref() {
        None | Some("none") => None,
        Some("tls") => Some(stream::tls(fields, &server, naming)?),
        Some("reality") => Some(stream::reality(fields, &server, naming)?),
        Some(other) => return Err(Fault::unsupported("security", other)),
    };
    Ok(())
}

/// HTTP/2 chooses among several hosts: none of them is the server name.
fn naming_for<'a>(transport: &Transport, naming: Naming<'a>) -> Naming<'a> {
    Naming {
        host_key: naming.host_key && !matches!(transport, Transport::H2 { .. }),
        ..naming
    }
}

/// A flow; the ones that no server has any more are refused.
pub(crate) fn flow(text: Option<&str>) -> Result<Flow, Fault> {
    match text {
        None | Some("" | "none") => Ok(Flow::None),
        Some("xtls-rprx-vision") => Ok(Flow::Vision),
        Some("xtls-rprx-vision-udp443") => Ok(Flow::VisionUdp443),
        Some(_) => Err("the flow is not xtls-rprx-vision".into()),
    }
}

fn mode(fields: &Fields) -> Result<Option<VlessMode>, Fault> {
    if fields.all("vless_mode").count() > 1 || fields.all("packetEncoding").count() > 1 {
        return Err("the mode is written more than once".into());
    }
    let packets = match fields.get(&["packetEncoding"]) {
        None => None,
        Some("xudp") => Some(VlessMode::Xudp),
        Some("none") => Some(VlessMode::Native),
        Some(other) => return Err(Fault::unsupported("packet encoding", other)),
    };
    let written = match fields.get(&["vless_mode"]) {
        None => None,
        Some(name) => Some(VlessMode::parse(name).ok_or("`vless_mode` is unknown")?),
    };
    match (written, packets) {
        (Some(one), Some(other)) if one != other => {
            Err("`vless_mode` and `packetEncoding` contradict each other".into())
        }
        (written, packets) => Ok(written.or(packets)),
    }
}

pub(super) fn write(proxy: &Proxy, vless: &Vless, out: &mut Out) -> (&'static str, String) {
    write_secure(proxy, HOST, out);
    match vless.flow {
        Flow::None => {}
        Flow::Vision => out.add("flow", "xtls-rprx-vision"),
        Flow::VisionUdp443 => out.add("flow", "xtls-rprx-vision-udp443"),
    }
    out.some("vless_mode", vless.mode.map(VlessMode::name));
    out.some("encryption", vless.encryption.as_ref().map(|e| e.reveal()));
    ("vless", format!("{}@", vless.user.0))
}

/// Writes what [`secure`] reads.
pub(super) fn write_secure(proxy: &Proxy, naming: Naming<'_>, out: &mut Out) {
    stream::write_transport(&proxy.transport, out);
    if let Some(tls) = &proxy.tls {
        out.add(
            "security",
            if tls.reality.is_some() {
                "reality"
            } else {
                "tls"
            },
        );
        let naming = naming_for(&proxy.transport, naming);
        stream::write_tls(tls, &proxy.host, naming, out);
    }
}
