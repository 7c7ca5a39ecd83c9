//! `ss`: SIP002 links, the legacy form that is base64 as a whole, and SIP003 plugins.

use super::{
    Parts, login,
    stream::{self, SNI},
};
use crate::{
    id::Secret,
    node::{
        Fault, Kind, Plugin, Proxy, Shadowsocks, Sni, Tls, UdpOverTcp,
        fields::{Fields, Out},
        text::{base64_text, display_name, percent_decode, percent_encode, to_base64url},
        url, value,
    },
};

/// What v2ray-plugin asks for when nothing is said.
const V2RAY_HOST: &str = "cloudfront.com";

pub(super) fn read(rest: &str) -> Result<Parts, Fault> {
    if let Some(parts) = legacy(rest) {
        return parts;
    }
    let mut url = url::split(rest)?;
    let port = url.port()?.ok_or("the port is missing")?;
    let (cipher, password) = userinfo(url.userinfo.ok_or("cipher and password are missing")?)?;
    let proxy = build(&cipher, &password, url.host.clone(), port, &mut url.query)?;
    Parts::of(url, proxy)
}

/// `base64(method:password@host:port)`, if that is what it is.
fn legacy(rest: &str) -> Option<Result<Parts, Fault>> {
    let (before, name) = url::fragment(rest);
    let (body, query) = before.split_once('?').unwrap_or((before, ""));
    if body.contains('@') {
        return None;
    }
    let text = base64_text(body).or_else(|| base64_text(body.split('/').next()?))?;
    let (text, inner_name) = match text.split_once('#') {
        Some((text, name)) => (text, display_name(name)),
        None => (text.as_str(), None),
    };
    let (user, server) = text.rsplit_once('@')?;
    let (cipher, password) = user.split_once(':')?;
    let read = || {
        let (host, port, _) = url::host_port(server.split('/').next().unwrap_or(server))?;
        let port = crate::node::port(port).ok_or("the port is missing or wrong")?;
        let mut fields = Fields::query(query);
        let mut proxy = build(cipher, password, host, port, &mut fields)?;
        stream::common(&mut fields, &mut proxy);
        Ok(Parts {
            proxy,
            name: name.clone().or_else(|| inner_name.clone()),
            notes: fields.notes,
        })
    };
    Some(read())
}

/// Cipher and password, plain or in base64.
fn userinfo(info: &str) -> Result<(String, String), Fault> {
    let decoded = String::from_utf8(percent_decode(info)).map_err(|_| "the user is not UTF-8")?;
    let pair = |text: &str| {
        let (cipher, password) = text.split_once(':')?;
        Some((cipher.to_owned(), password.to_owned()))
    };
    match pair(&decoded) {
        Some((cipher, password)) if known(&cipher) => Ok((cipher, password)),
        _ => base64_text(&decoded)
            .and_then(|text| pair(&text))
            .ok_or_else(|| "cipher and password are neither plain nor base64".into()),
    }
}

fn known(cipher: &str) -> bool {
    crate::node::Cipher::parse(cipher).is_some() || value::is_old_cipher(cipher)
}

fn build(
    cipher: &str,
    password: &str,
    host: crate::node::Host,
    port: u16,
    fields: &mut Fields,
) -> Result<Proxy, Fault> {
    let cipher = value::cipher(cipher)?;
    match fields.get(&["type"]) {
        None | Some("tcp") => {}
        Some(kind) => return Err(Fault::unsupported("transport", kind)),
    }
    let plugin = match fields.text(&["plugin"]) {
        None => None,
        Some(text) => {
            let (name, options) = text.split_once(';').unwrap_or((&text, ""));
            let more = fields.text(&["plugin-opts", "plugin_opts"]);
            let options = match (options, more) {
                ("", Some(more)) => more,
                (options, _) => options.to_owned(),
            };
            Some(plugin_text(name, &options)?)
        }
    };
    let on = fields.any(&["uot", "udp-over-tcp"]);
    let uot = match fields.get(&["udp-over-tcp-version"]) {
        _ if !on => UdpOverTcp::Off,
        Some("1") => UdpOverTcp::V1,
        _ => UdpOverTcp::V2,
    };
    let kind = Kind::Shadowsocks(Shadowsocks {
        cipher,
        password: value::password(cipher, password)?,
        plugin,
        uot,
    });
    Ok(Proxy::new(host, port, kind))
}

/// `k=v;flag;...` of SIP003, with `\` before a character that is meant literally.
fn options(text: &str) -> Fields {
    let (mut key, mut value) = (String::new(), None::<String>);
    let mut fields = Fields::default();
    let mut chars = text.chars();
    loop {
        let (c, literal) = match chars.next() {
            Some('\\') => (chars.next(), true),
            c => (c, false),
        };
        match (c, &mut value) {
            (Some('='), None) if !literal => value = Some(String::new()),
            (Some(';') | None, _) if !literal || c.is_none() => {
                if !key.is_empty() {
                    let value = value.take().unwrap_or_else(|| "1".to_owned());
                    fields.set(key.trim(), value);
                }
                key.clear();
                value = None;
                if c.is_none() {
                    return fields;
                }
            }
            (Some(c), Some(value)) => value.push(c),
            (Some(c), None) => key.push(c),
            (None, _) => return fields,
        }
    }
}

/// A plugin with its options as one text.
pub(crate) fn plugin_text(name: &str, text: &str) -> Result<Plugin, Fault> {
    plugin(name, &mut options(text))
}

/// A plugin by name with its options; an unknown one makes the node unsupported.
pub(crate) fn plugin(name: &str, fields: &mut Fields) -> Result<Plugin, Fault> {
    match name.trim().to_ascii_lowercase().as_str() {
        "obfs-local" | "simple-obfs" | "simpleobfs" | "obfs" => {
            Ok(Plugin::Obfs(login::obfs(fields)?))
        }
        "v2ray-plugin" => v2ray(fields),
        "shadow-tls" | "shadowtls" | "sstls" => {
            match fields.get(&["version"]) {
                None | Some("3") => {}
                Some(version) => return Err(Fault::unsupported("ShadowTLS version", version)),
            }
            let host = fields.text(&["host"]).unwrap_or_default();
            let password = fields.text(&["password"]).unwrap_or_default();
            let tls = login::masquerade(fields, &host)?;
            if tls.sni == Sni::Omit && host.is_empty() {
                return Err("the plugin shadow-tls needs a host".into());
            }
            Ok(Plugin::ShadowTls {
                tls: Box::new(tls),
                password: Secret::new(password),
            })
        }
        name => Err(Fault::unsupported("plugin", name)),
    }
}

fn v2ray(fields: &mut Fields) -> Result<Plugin, Fault> {
    match fields.get(&["mode"]) {
        None | Some("websocket" | "ws") => {}
        Some(mode) => return Err(Fault::unsupported("v2ray-plugin mode", mode)),
    }
    let host = fields.text(&["host"]);
    let host = host.unwrap_or_else(|| V2RAY_HOST.to_owned());
    let (path, _) = crate::node::transport::path(fields.get(&["path"]).unwrap_or("/"));
    let mux = fields
        .get(&["mux"])
        .is_none_or(|mux| !matches!(mux, "0" | "false"));
    let tls = match fields.flag("tls") {
        true => {
            let sni = stream::host_name(&host).ok_or("the plugin host is not a host name")?;
            let mut tls = stream::tls(fields, &url::bare_host(V2RAY_HOST)?, SNI)?;
            tls.sni = sni;
            Some(Box::new(tls))
        }
        false => None,
    };
    Ok(Plugin::V2ray {
        tls,
        host,
        path,
        mux,
    })
}

pub(super) fn write(ss: &Shadowsocks, out: &mut Out) -> (&'static str, String) {
    if let Some(plugin) = &ss.plugin {
        out.add("plugin", written(plugin));
    }
    out.flag("uot", ss.uot != UdpOverTcp::Off);
    if ss.uot == UdpOverTcp::V1 {
        out.add("udp-over-tcp-version", "1");
    }
    let pair = format!("{}:{}", ss.cipher.name(), ss.password.reveal());
    let user = match ss.cipher.psk_len() {
        Some(_) => percent_encode(&pair),
        None => to_base64url(pair.as_bytes()),
    };
    ("ss", format!("{user}@"))
}

fn written(plugin: &Plugin) -> String {
    let mut text = match plugin {
        Plugin::Obfs(_) => "obfs-local",
        Plugin::V2ray { .. } => "v2ray-plugin",
        Plugin::ShadowTls { .. } => "shadow-tls",
    }
    .to_owned();
    let mut add = |key: &str, value: &str| {
        text.push(';');
        text.push_str(key);
        if value.is_empty() {
            return;
        }
        text.push('=');
        for c in value.chars() {
            if matches!(c, ';' | '=' | '\\') {
                text.push('\\');
            }
            text.push(c);
        }
    };
    match plugin {
        Plugin::Obfs(obfs) => {
            add("obfs", if obfs.tls { "tls" } else { "http" });
            if obfs.host != login::OBFS_HOST {
                add("obfs-host", &obfs.host);
            }
            if obfs.uri != "/" {
                add("obfs-uri", &obfs.uri);
            }
        }
        Plugin::V2ray {
            tls,
            host,
            path,
            mux,
        } => {
            if tls.is_some() {
                add("tls", "");
            }
            if host != V2RAY_HOST {
                add("host", host);
            }
            if path != "/" {
                add("path", path);
            }
            if !mux {
                add("mux", "0");
            }
            if let Some(tls) = tls {
                tls_options(tls, &mut add);
            }
        }
        Plugin::ShadowTls { tls, password } => {
            match &tls.sni {
                Sni::Name(name) => add("host", name),
                // An address is never sent as a name.
                Sni::Omit => add("host", "0.0.0.0"),
            }
            if !password.reveal().is_empty() {
                add("password", password.reveal());
            }
            add("version", "3");
            tls_options(tls, &mut add);
        }
    }
    text
}

/// TLS of a plugin, but for the server name.
fn tls_options(tls: &Tls, add: &mut impl FnMut(&str, &str)) {
    let mut out = Out::default();
    let nowhere = crate::node::Host::Name(String::new());
    stream::write_tls(tls, &nowhere, SNI, &mut out);
    for (key, value) in &out.0 {
        if !matches!(*key, "sni" | "disable_sni") {
            add(key, value);
        }
    }
}
