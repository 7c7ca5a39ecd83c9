//! `socks5`, `socks4`, `http`, `https` and `naive+https`: protocols with user and password.

use super::{
    Parts,
    stream::{self, PEER, SNI},
};
use crate::{
    id::Secret,
    node::{
        Fault, Host, Kind, Login, Proxy, Sni, Tls, Transport,
        fields::{Fields, Out},
        text::{base64_text, percent_encode},
        url::{self, Url},
        value::MAX_LOGIN,
    },
};

pub(super) fn socks5(rest: &str) -> Result<Parts, Fault> {
    let whole = unwrapped(rest);
    let mut url = url::split(whole.as_deref().unwrap_or(rest))?;
    let wrapped = url
        .userinfo
        .filter(|info| !info.contains(':'))
        .and_then(base64_text)
        .filter(|text| text.contains(':'));
    let auth = match wrapped {
        Some(text) => {
            let (user, password) = text.split_once(':').unwrap_or((&text, ""));
            Some((user.to_owned(), password.to_owned()))
        }
        None => login(&url)?,
    };
    if let Some((user, password)) = &auth
        && user.len().max(password.len()) > MAX_LOGIN
    {
        return Err("user name and password have at most 255 bytes each".into());
    }
    let mut proxy = proxy(&url, 1080, Kind::Socks5(auth.map(secret)))?;
    if url.query.flag("tls") {
        let server = proxy.host.clone();
        proxy.tls = Some(stream::tls(&mut url.query, &server, SNI)?);
    }
    Parts::of(url, proxy)
}

pub(super) fn socks4(scheme: &str, rest: &str) -> Result<Parts, Fault> {
    let url = url::split(rest)?;
    let user = login(&url)?.map(|(user, _)| user);
    if user.as_ref().is_some_and(|user| user.contains('\0')) {
        return Err("the user id contains a zero byte".into());
    }
    let kind = Kind::Socks4 {
        user: user.filter(|user| !user.is_empty()).map(Secret::new),
        names: scheme == "socks4a",
    };
    let proxy = proxy(&url, 1080, kind)?;
    Parts::of(url, proxy)
}

pub(super) fn http(scheme: &str, rest: &str) -> Result<Parts, Fault> {
    let mut url = url::split(rest)?;
    let auth = login(&url)?;
    if auth.as_ref().is_some_and(|(user, _)| user.contains(':')) {
        return Err("the user name contains a colon".into());
    }
    let auth = auth.map(secret);
    let (port, kind) = match scheme {
        "http" => (80, Kind::Http(auth)),
        "https" => (443, Kind::Http(auth)),
        _ => (443, Kind::Naive(auth)),
    };
    let mut proxy = proxy(&url, port, kind)?;
    if scheme != "http" {
        let server = proxy.host.clone();
        proxy.tls = Some(stream::tls(&mut url.query, &server, SNI)?);
    }
    Parts::of(url, proxy)
}

/// `ws`, `wss`, `tls` and `utls`: layers to the right of another link.
pub(super) fn layer(scheme: &str, rest: &str) -> Result<Parts, Fault> {
    let mut url = url::split(rest)?;
    let port = if scheme == "ws" { 80 } else { 443 };
    let mut proxy = proxy(&url, port, Kind::Layer)?;
    if matches!(scheme, "ws" | "wss") {
        if !matches!(url.path, "" | "/") && !url.query.has(&["path"]) {
            let path = crate::node::text::percent_decode(url.path);
            let path = String::from_utf8(path).map_err(|_| "the path is not UTF-8")?;
            url.query.set("path", path);
        }
        url.query.set("type", "ws");
        proxy.transport = stream::transport(&url.query)?;
    }
    if scheme != "ws" {
        let server = proxy.host.clone();
        proxy.tls = Some(stream::tls(&mut url.query, &server, SNI)?);
    }
    if scheme == "utls"
        && let Some(tls) = &mut proxy.tls
        && tls.fingerprint.is_none()
    {
        tls.fingerprint = Some("chrome".to_owned());
    }
    // The target of a layer is its own server: nothing is asked of it over UDP.
    Parts::of(url, proxy)
}

/// Scheme and user of those protocols.
pub(super) fn write(proxy: &Proxy, out: &mut Out) -> (&'static str, String) {
    let scheme = match (&proxy.kind, &proxy.tls, &proxy.transport) {
        (Kind::Socks5(_), _, _) => "socks5",
        (Kind::Socks4 { names: true, .. }, _, _) => "socks4a",
        (Kind::Socks4 { .. }, _, _) => "socks4",
        (Kind::Naive(_), _, _) => "naive+https",
        (Kind::Layer, None, _) => "ws",
        (Kind::Layer, Some(_), Transport::Ws { .. }) => "wss",
        (Kind::Layer, Some(_), _) => "tls",
        (_, Some(_), _) => "https",
        (_, None, _) => "http",
    };
    let user = match &proxy.kind {
        Kind::Socks5(login) | Kind::Http(login) | Kind::Naive(login) => login
            .as_ref()
            .map(|(user, password)| {
                let user = percent_encode(user.reveal());
                // A colon keeps a user that looks like base64 from being decoded.
                format!("{user}:{}@", percent_encode(password.reveal()))
            })
            .unwrap_or_default(),
        Kind::Socks4 { user, .. } => user
            .as_ref()
            .map(|user| format!("{}@", percent_encode(user.reveal())))
            .unwrap_or_default(),
        _ => String::new(),
    };
    if let Some(tls) = &proxy.tls {
        out.flag("tls", matches!(proxy.kind, Kind::Socks5(_)));
        stream::write_tls(tls, &proxy.host, SNI, out);
    }
    if matches!(proxy.kind, Kind::Layer) {
        let mut inner = Out::default();
        stream::write_transport(&proxy.transport, &mut inner);
        out.0
            .extend(inner.0.into_iter().filter(|(key, _)| *key != "type"));
    }
    (scheme, user)
}

/// A proxy at the place of a link, with the settings all protocols have.
pub(super) fn proxy(url: &Url<'_>, port: u16, kind: Kind) -> Result<Proxy, Fault> {
    let port = url.port()?.unwrap_or(port);
    Ok(Proxy::new(url.host.clone(), port, kind))
}

fn login(url: &Url<'_>) -> Result<Option<(String, String)>, Fault> {
    let pair = url.user_and_password()?;
    Ok(pair.map(|(user, password)| (user, password.unwrap_or_default())))
}

fn secret((user, password): (String, String)) -> Login {
    (Secret::new(user), Secret::new(password))
}

/// `base64(userinfo@host:port)`, written without `@`.
pub(super) fn unwrapped(rest: &str) -> Option<String> {
    let end = rest.find(['#', '?', '/']).unwrap_or(rest.len());
    let (body, tail) = rest.split_at(end);
    if body.contains(['@', ':', '[']) {
        return None;
    }
    let text = base64_text(body)?;
    let plain = !text.contains(['#', '?']) && !text.chars().any(char::is_control);
    (plain && text.contains('@')).then(|| format!("{text}{tail}"))
}

/// `shadowtls://password@host:port?sni=&version=3`: a layer.
pub(super) fn shadowtls(rest: &str) -> Result<Parts, Fault> {
    let mut url = url::split(rest)?;
    match url.query.get(&["version"]) {
        None | Some("3") => {}
        Some(version) => return Err(Fault::unsupported("ShadowTLS version", version)),
    }
    let password = Secret::new(url.user()?);
    let mut proxy = proxy(&url, 443, Kind::ShadowTls(password))?;
    let server = proxy.host.clone();
    let naming = stream::Naming {
        empty_omits: true,
        ..SNI
    };
    proxy.tls = Some(stream::tls(&mut url.query, &server, naming)?);
    Parts::of(url, proxy)
}

/// `simpleobfs://host:port?obfs=http|tls&host=&uri=`: a layer.
pub(super) fn simpleobfs(rest: &str) -> Result<Parts, Fault> {
    let url = url::split(rest)?;
    let obfs = obfs(&url.query)?;
    let port = if obfs.tls { 443 } else { 80 };
    let proxy = proxy(&url, port, Kind::SimpleObfs(obfs))?;
    Parts::of(url, proxy)
}

/// simple-obfs from its options.
pub(super) fn obfs(fields: &Fields) -> Result<crate::node::SimpleObfs, Fault> {
    let tls = match fields.get(&["obfs", "mode"]) {
        None | Some("http") => false,
        Some("tls") => true,
        Some(other) => return Err(Fault::unsupported("obfs", other)),
    };
    let host = fields.text(&["obfs-host", "host"]);
    let uri = fields.text(&["obfs-path", "obfs-uri", "uri", "path"]);
    Ok(crate::node::SimpleObfs {
        tls,
        host: host.unwrap_or_else(|| OBFS_HOST.to_owned()),
        uri: uri.unwrap_or_else(|| "/".to_owned()),
    })
}

/// What simple-obfs shows when nothing is said.
pub(super) const OBFS_HOST: &str = "cloudflare.com";

/// Writes a ShadowTLS or simple-obfs layer.
pub(super) fn write_layer(proxy: &Proxy, out: &mut Out) -> (&'static str, String) {
    if let Kind::SimpleObfs(obfs) = &proxy.kind {
        out.add("obfs", if obfs.tls { "tls" } else { "http" });
        if obfs.host != OBFS_HOST {
            out.add("host", &obfs.host);
        }
        if obfs.uri != "/" {
            out.add("uri", &obfs.uri);
        }
        return ("simpleobfs", String::new());
    }
    let password = match &proxy.kind {
        Kind::ShadowTls(password) => percent_encode(password.reveal()),
        _ => String::new(),
    };
    if let Some(tls) = &proxy.tls {
        let naming = stream::Naming {
            empty_omits: true,
            ..SNI
        };
        stream::write_tls(tls, &proxy.host, naming, out);
    }
    out.add("version", "3");
    ("shadowtls", format!("{password}@"))
}

/// TLS of a masquerade handshake: only what is shown.
pub(super) fn masquerade(fields: &mut Fields, host: &str) -> Result<Tls, Fault> {
    let server = Host::Name(String::new());
    fields.set("sni", host);
    let mut tls = stream::tls(fields, &server, PEER)?;
    if matches!(&tls.sni, Sni::Name(name) if name.is_empty()) {
        tls.sni = Sni::Omit;
    }
    Ok(tls)
}
