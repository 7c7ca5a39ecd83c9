//! `trojan` and `anytls`: a password inside TLS.

use super::{
    Parts, login,
    stream::{self, Naming, PEER, SNI},
};
use crate::{
    id::Secret,
    node::{
        AnyTls, Fault, Kind, Proxy, Trojan,
        fields::{Fields, Out},
        text::{duration_ms, percent_encode},
        url, value,
    },
};

/// AnyTLS: an address or nothing as server name leaves the extension out.
const ANYTLS: Naming<'_> = Naming {
    empty_omits: true,
    ..SNI
};

pub(super) fn trojan(rest: &str) -> Result<Parts, Fault> {
    let mut url = url::split(rest)?;
    let inner = inner(&url.query)?;
    let password = Secret::new(url.user()?);
    let mut proxy = login::proxy(&url, 443, Kind::Trojan(Trojan { password, inner }))?;
    if url.query.get(&["flow"]).is_some() {
        return Err("Trojan has no `flow`".into());
    }
    proxy.transport = stream::transport(&url.query)?;
    let server = proxy.host.clone();
    proxy.tls = match url.query.text(&["security"]).as_deref() {
        None | Some("tls") => Some(stream::tls(&mut url.query, &server, PEER)?),
        Some("reality") => Some(stream::reality(&mut url.query, &server, PEER)?),
        // Only a layer that encrypts makes this legal, see `check`.
        Some("none") => None,
        Some(other) => return Err(Fault::unsupported("security", other)),
    };
    Parts::of(url, proxy)
}

/// `encryption=ss;method;password` of trojan-go.
fn inner(fields: &Fields) -> Result<Option<(crate::node::Cipher, Secret)>, Fault> {
    let Some(text) = fields.get(&["encryption"]).filter(|text| *text != "none") else {
        return Ok(None);
    };
    let mut parts = text.splitn(3, ';');
    match (parts.next(), parts.next(), parts.next()) {
        (Some("ss"), Some(method), Some(password)) => {
            let cipher = value::cipher(method)?;
            if cipher.psk_len().is_some() {
                return Err(Fault::unsupported("inner cipher", method));
            }
            Ok(Some((cipher, Secret::new(password))))
        }
        (Some("ss"), ..) => Err("`encryption` is not `ss;method;password`".into()),
        _ => Err(Fault::Unsupported("inner encryption of that kind".into())),
    }
}

pub(super) fn write_trojan(
    proxy: &Proxy,
    trojan: &Trojan,
    out: &mut Out,
) -> (&'static str, String) {
    match &proxy.tls {
        None => out.add("security", "none"),
        Some(tls) => {
            if tls.reality.is_some() {
                out.add("security", "reality");
            }
            stream::write_tls(tls, &proxy.host, PEER, out);
        }
    }
    stream::write_transport(&proxy.transport, out);
    if let Some((cipher, password)) = &trojan.inner {
        let text = format!("ss;{};{}", cipher.name(), password.reveal());
        out.add("encryption", text);
    }
    ("trojan", userinfo(&trojan.password))
}

pub(super) fn anytls(rest: &str) -> Result<Parts, Fault> {
    let mut url = url::split(rest)?;
    let seconds = |fields: &Fields, key| match fields.get(&[key]) {
        None => Ok(None),
        Some(text) => duration_ms(text, 1000)
            .map(|ms| Some(ms.div_ceil(1000)))
            .ok_or("a duration of idle sessions is wrong"),
    };
    let min_idle = match url.query.get(&["min_idle_session"]) {
        None => None,
        Some(text) => Some(
            text.parse()
                .map_err(|_| "`min_idle_session` is no number")?,
        ),
    };
    let kind = Kind::AnyTls(AnyTls {
        password: Secret::new(url.user()?),
        min_idle,
        check_interval: seconds(&url.query, "idle_session_check_interval")?,
        idle_timeout: seconds(&url.query, "idle_session_timeout")?,
    });
    let mut proxy = login::proxy(&url, 443, kind)?;
    let server = proxy.host.clone();
    proxy.tls = match url.query.text(&["security"]).as_deref() {
        None | Some("tls") => Some(stream::tls(&mut url.query, &server, ANYTLS)?),
        Some("reality") => Some(stream::reality(&mut url.query, &server, ANYTLS)?),
        Some("none") => None,
        Some(other) => return Err(Fault::unsupported("security", other)),
    };
    Parts::of(url, proxy)
}

pub(super) fn write_anytls(
    proxy: &Proxy,
    anytls: &AnyTls,
    out: &mut Out,
) -> (&'static str, String) {
    if let Some(tls) = &proxy.tls {
        if tls.reality.is_some() {
            out.add("security", "reality");
        }
        stream::write_tls(tls, &proxy.host, ANYTLS, out);
    }
    out.some("min_idle_session", anytls.min_idle);
    out.some("idle_session_check_interval", anytls.check_interval);
    out.some("idle_session_timeout", anytls.idle_timeout);
    ("anytls", userinfo(&anytls.password))
}

fn userinfo(password: &Secret) -> String {
    match password.reveal() {
        "" => String::new(),
        password => format!("{}@", percent_encode(password)),
    }
}
