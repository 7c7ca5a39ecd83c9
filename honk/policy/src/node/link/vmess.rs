//! `vmess`: base64 of a JSON object, the Shadowrocket form, and the URI form.
//!
//! All three are renamed to the keys of VLESS links and read by the same code.

use super::{
    Parts, login,
    stream::{self, Naming, SNI},
    vless,
};
use crate::{
    document::Tree,
    node::{
        Fault, Host, Kind, Proxy, Transport, Vmess, VmessCipher,
        fields::{Fields, Out},
        text::{base64_text, display_name, to_base64},
        url, value,
    },
};

/// As VLESS, but an empty server name is none.
const HOST: Naming<'_> = Naming {
    host_key: true,
    ..SNI
};

pub(super) fn read(rest: &str) -> Result<Parts, Fault> {
    let end = rest.find(['?', '#']).unwrap_or(rest.len());
    let (body, tail) = rest.split_at(end);
    if let Some((user, _)) = body.split_once('@')
        && value::uuid(user).is_ok()
    {
        return uri(rest);
    }
    let text = base64_text(body.trim_end_matches('/')).ok_or("it is not base64 of UTF-8 text")?;
    if text.trim_start().starts_with('{') {
        let (_, name) = url::fragment(tail);
        return json(&text, name);
    }
    shadowrocket(&text, tail)
}

fn uri(rest: &str) -> Result<Parts, Fault> {
    let mut url = url::split(rest)?;
    let kind = Kind::Vmess(Vmess {
        user: value::uuid(&url.user()?)?,
        cipher: cipher(url.query.get(&["encryption"]))?,
    });
    alter_id(&url.query)?;
    let mut proxy = login::proxy(&url, 443, kind)?;
    vless::secure(&mut url.query, &mut proxy, HOST)?;
    Parts::of(url, proxy)
}

fn cipher(name: Option<&str>) -> Result<VmessCipher, Fault> {
    let name = name.unwrap_or_default();
    VmessCipher::parse(name).ok_or_else(|| Fault::unsupported("cipher", name))
}

fn alter_id(fields: &Fields) -> Result<(), Fault> {
    match fields.get(&["aid", "alterId"]) {
        None => Ok(()),
        Some(text) if text.bytes().all(|b| b == b'0') => Ok(()),
        Some(_) => Err(Fault::Unsupported("alterId".into())),
    }
}

/// The object that v2rayN writes.
fn json(text: &str, fragment: Option<String>) -> Result<Parts, Fault> {
    let tree = Tree::json(text).map_err(|_| "it is not base64 of a JSON object")?;
    let mut fields = Fields::tree(&tree);
    alter_id(&fields)?;
    let host = url::bare_host(fields.get(&["add"]).ok_or("`add` is missing")?)?;
    let port = fields.get(&["port"]).and_then(crate::node::port);
    let port = port.ok_or("`port` is missing or not between 1 and 65535")?;
    let user = value::user_id(fields.get(&["id"]).ok_or("`id` is missing")?)?;
    let cipher = cipher(fields.get(&["scy", "security"]))?;
    let name = fields.get(&["ps"]).and_then(display_name).or(fragment);
    rename(&mut fields)?;
    let mut proxy = Proxy::new(host, port, Kind::Vmess(Vmess { user, cipher }));
    vless::secure(&mut fields, &mut proxy, HOST)?;
    stream::common(&mut fields, &mut proxy);
    Ok(Parts {
        proxy,
        name,
        notes: fields.notes,
    })
}

/// From the keys of the object to those of a link.
fn rename(fields: &mut Fields) -> Result<(), Fault> {
    let net = fields
        .text(&["net"])
        .unwrap_or_default()
        .to_ascii_lowercase();
    let kind = fields.text(&["type"]).unwrap_or_default();
    let host = fields.text(&["host"]).unwrap_or_default();
    let path = fields.text(&["path"]).unwrap_or_default();
    // Some programs swap the two.
    let (host, path) = match host.starts_with('/') && path.is_empty() {
        true => (path, host),
        false => (host, path),
    };
    match net.as_str() {
        "grpc" => {
            if fields.get(&["serviceName"]).is_none() {
                fields.set("serviceName", path.as_str());
            }
            if fields.get(&["authority"]).is_none() {
                fields.set("authority", host.as_str());
            }
            fields.set("mode", kind);
        }
        "" | "tcp" => fields.set("headerType", kind),
        _ => {}
    }
    fields.set("type", net);
    fields.set("host", host);
    fields.set("path", path);
    let tls = fields.text(&["tls"]).unwrap_or_default();
    fields.set(
        "security",
        match tls.to_ascii_lowercase().as_str() {
            "1" | "true" => "tls",
            "0" | "false" => "none",
            other => other,
        },
    );
    if fields.get(&["verify_cert"]) == Some("false") {
        fields.set("insecure", "1");
    }
    Ok(())
}

/// `base64(cipher:id@host:port)?remarks=..&obfs=..`
fn shadowrocket(text: &str, tail: &str) -> Result<Parts, Fault> {
    const WRONG: &str = "it is not base64 of `cipher:id@host:port`";
    let (user, server) = text.trim().rsplit_once('@').ok_or(WRONG)?;
    let (name, id) = user.split_once(':').ok_or(WRONG)?;
    let (tail, fragment) = url::fragment(tail);
    let mut fields = Fields::query(tail.strip_prefix('?').unwrap_or(tail));
    alter_id(&fields)?;
    let (host, port, _) = url::host_port(server)?;
    let kind = Kind::Vmess(Vmess {
        user: value::user_id(id)?,
        cipher: cipher(Some(name))?,
    });
    let port = match port {
        "" => 443,
        port => crate::node::port(port).ok_or("the port is not between 1 and 65535")?,
    };
    match fields.text(&["obfs"]).as_deref() {
        None | Some("none" | "tcp") => {}
        Some("websocket" | "ws") => fields.set("type", "ws"),
        Some("grpc") => fields.set("type", "grpc"),
        Some("h2") => fields.set("type", "h2"),
        Some("http") => return Err(Fault::unsupported("header", "http")),
        Some(other) => return Err(Fault::unsupported("transport", other)),
    }
    if let Some(host) = fields.text(&["obfsParam"]) {
        let object = Tree::json(&host).ok();
        let inner = object.as_ref().and_then(|tree| tree.text("Host"));
        let host = match &object {
            Some(Tree::Map(_)) => inner.unwrap_or_default().to_owned(),
            _ => host,
        };
        fields.set("host", host);
    }
    if fields.flag("tls") {
        fields.set("security", "tls");
    }
    let mut proxy = Proxy::new(host, port, kind);
    vless::secure(&mut fields, &mut proxy, HOST)?;
    stream::common(&mut fields, &mut proxy);
    let remarks = fields.get(&["remarks", "remark"]).and_then(display_name);
    Ok(Parts {
        proxy,
        name: remarks.or(fragment),
        notes: fields.notes,
    })
}

/// The object form; values are text, as every program reads it.
pub(super) fn write(proxy: &Proxy, vmess: &Vmess, name: &str) -> String {
    let mut stream = Out::default();
    vless::write_secure(proxy, HOST, &mut stream);
    stream::write_common(proxy, &mut stream);
    let mut object = serde_json::Map::new();
    let mut add = |key: &str, value: &str| {
        object.insert(key.to_owned(), value.into());
    };
    add("v", "2");
    add("ps", name);
    let host = match &proxy.host {
        Host::Ip(ip) => ip.to_string(),
        Host::Name(name) => name.clone(),
    };
    add("add", &host);
    add("port", &proxy.port.to_string());
    add("id", &vmess.user.0.to_string());
    add("aid", "0");
    add("scy", vmess.cipher.name());
    add("net", proxy.transport.name());
    add("type", "none");
    // Never absent: a host that starts with a slash would be taken for it.
    add(
        "path",
        if proxy.transport == Transport::Tcp {
            ""
        } else {
            "/"
        },
    );
    let grpc = matches!(proxy.transport, Transport::Grpc { .. });
    for (key, value) in &stream.0 {
        match *key {
            "type" => {}
            "security" => add("tls", value),
            "serviceName" => add("path", value),
            "authority" => add("host", value),
            "mode" if grpc => add("type", value),
            key => add(key, value),
        }
    }
    let text = serde_json::Value::Object(object).to_string();
    format!("vmess://{}", to_base64(text.as_bytes()))
}
