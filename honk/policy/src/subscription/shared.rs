//! What Clash and sing-box entries have in common: the same values under other keys.

use super::entry::{self, Content, Entry, Refusal, on, text};
use crate::{
    document::Tree,
    node::{
        Cipher, Congestion, Fault, Kind, PortSet, Proxy, Reality, VlessMode, Vmess, VmessCipher,
        link::stream, value,
    },
};

/// Reads an entry: `proxy` makes the server of its kind, `detour` is the key of the one it is
/// reached through.
pub(super) fn entry(
    tree: &Tree,
    (tag, kind): (Option<&str>, &str),
    detour: &str,
    proxy: fn(&str, &Tree) -> Result<Proxy, Fault>,
) -> Entry {
    let read = entry::sized(tree).and_then(|()| proxy(kind, tree));
    match read.and_then(entry::judged) {
        Ok(proxy) => {
            let tag = entry::shown(tag, &proxy);
            let detour = text(tree, &[detour]).map(str::to_owned);
            Entry::of(&tag, kind, Ok((proxy, detour)))
        }
        Err(Fault::Unsupported(what)) if what.is_empty() => Entry::without(
            tag.unwrap_or_default(),
            Content::Refused(Refusal::kind(kind)),
        ),
        Err(fault) => Entry::of(tag.unwrap_or_default(), kind, Err(fault)),
    }
}

/// The type itself is what is missing, see [`entry`].
pub(super) fn unknown_type() -> Fault {
    Fault::Unsupported(String::new())
}

/// An HTTP proxy with nothing but its login.
pub(super) fn http(tree: &Tree) -> Result<Kind, Fault> {
    if matches!(tree.get("headers"), Some(Tree::Map(pairs)) if !pairs.is_empty()) {
        return Err(Fault::Unsupported("further headers".into()));
    }
    Ok(Kind::Http(entry::login(tree, "username", "password")))
}

/// The host among the headers of a transport, and the others.
pub(super) fn headers(options: &Tree) -> (Option<String>, Vec<(String, String)>) {
    let headers = options.get("headers");
    headers.map_or_else(Default::default, stream::header_list)
}

/// Names an HTTP/2 transport chooses from.
pub(super) fn hosts(options: &Tree) -> Vec<String> {
    let hosts = options.get("host").map(Tree::texts).unwrap_or_default();
    hosts.iter().flat_map(|host| stream::hosts(host)).collect()
}

/// REALITY by the keys of its two values.
pub(super) fn reality(options: &Tree, key: &str, id: &str) -> Result<Reality, Fault> {
    let id = text(options, &[id]).unwrap_or_default();
    Ok(value::reality(text(options, &[key]), id, None)?)
}

/// Cipher and password of Shadowsocks.
pub(super) fn cipher<'a>(
    tree: &'a Tree,
    key: &str,
    missing: &'static str,
) -> Result<(Cipher, &'a str), Fault> {
    let cipher = value::cipher(entry::required(tree, key, missing)?)?;
    let password = entry::required(tree, "password", "the password is missing")?;
    Ok((cipher, password))
}

/// VMess with the cipher of a key.
pub(super) fn vmess(tree: &Tree, key: &str) -> Result<Kind, Fault> {
    let cipher = tree.text(key).unwrap_or_default();
    Ok(Kind::Vmess(Vmess {
        user: value::user_id(tree.text("uuid").unwrap_or_default())?,
        cipher: VmessCipher::parse(cipher).ok_or_else(|| Fault::unsupported("cipher", cipher))?,
    }))
}

/// The first of several ports: what is dialed where no single one is written.
pub(super) fn first_port(ports: Option<&PortSet>) -> Option<String> {
    let (port, _) = ports?.ranges().first()?;
    Some(port.to_string())
}

/// Congestion control by name; what is not known is the usual one.
pub(super) fn congestion(tree: &Tree, key: &str) -> Congestion {
    let name = text(tree, &[key]);
    name.and_then(Congestion::parse)
        .unwrap_or(Congestion::Cubic)
}

/// What is switched on by `enabled`.
pub(super) fn enabled<'a>(tree: &'a Tree, key: &str) -> Option<&'a Tree> {
    tree.get(key).filter(|options| on(options, "enabled"))
}

/// Multiplexing of sing-mux: the only kind a VLESS node can have.
pub(super) fn h2mux(mux: &Tree) -> Result<VlessMode, Fault> {
    match text(mux, &["protocol"]) {
        None | Some("h2mux") => {}
        Some(other) => return Err(Fault::unsupported("multiplexing", other)),
    }
    let brutal = [mux.get("brutal-opts"), mux.get("brutal")];
    if brutal
        .into_iter()
        .flatten()
        .any(|brutal| on(brutal, "enabled"))
    {
        return Err(Fault::unsupported("multiplexing", "brutal"));
    }
    if on(mux, "only-tcp") {
        return Err(Fault::unsupported("multiplexing", "only-tcp"));
    }
    Ok(match on(mux, "padding") {
        true => VlessMode::H2muxPadded,
        false => VlessMode::H2mux,
    })
}
