//! One entry of a structured body, before its detour is followed.

use std::rc::Rc;

use crate::{
    document::Tree,
    id::Secret,
    node::{
        Ech, Fault, Hint, Host, Kind, Node, Proxy, Sni, Tls, check, link::stream,
        text::display_name, url, value,
    },
};

/// Longest text of one entry, all values together.
const MAX_ENTRY: usize = 16 << 10;
/// Most values of one entry.
const MAX_VALUES: usize = 1024;

/// A named entry.
pub(super) struct Entry {
    /// The name by which others refer to it.
    pub(super) tag: String,
    /// The name to show, if it is another one.
    pub(super) name: Option<String>,
    pub(super) content: Content,
    /// The entry it is reached through.
    pub(super) detour: Option<String>,
}

pub(super) enum Content {
    /// A server.
    Proxy(Box<Proxy>),
    /// A node that is complete already.
    Node(Box<Node>),
    /// A layer that other entries name as their detour; no node by itself.
    Layer(Box<Proxy>),
    /// A way out without a server: whoever goes through it goes directly.
    Service,
    /// What is neither a server nor a way out.
    Group,
    Refused(Refusal),
}

/// Why an entry is skipped, without any of its text.
pub(super) enum Refusal {
    Malformed(String),
    Unsupported(String),
}

impl Entry {
    /// The name of its node.
    pub(super) fn shown(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.tag)
    }

    /// The result of reading an entry of a kind.
    pub(super) fn of(tag: &str, kind: &str, read: Result<(Proxy, Option<String>), Fault>) -> Self {
        let (content, detour) = match read {
            Ok((proxy, detour)) => match proxy.kind.is_layer() {
                true => (Content::Layer(Box::new(proxy)), detour),
                false => (Content::Proxy(Box::new(proxy)), detour),
            },
            Err(fault) => (Content::Refused(Refusal::of(kind, fault)), None),
        };
        Self {
            tag: tag.to_owned(),
            name: None,
            content,
            detour,
        }
    }

    /// An entry without a server.
    pub(super) fn without(tag: &str, content: Content) -> Self {
        Self {
            tag: tag.to_owned(),
            name: None,
            content,
            detour: None,
        }
    }
}

impl Refusal {
    pub(super) fn of(kind: &str, fault: Fault) -> Self {
        match fault {
            Fault::Wrong(why) if kind.is_empty() => {
                Self::Malformed(format!("malformed without a type: {why}"))
            }
            Fault::Wrong(why) => Self::Malformed(format!("malformed `{kind}`: {why}")),
            Fault::Unsupported(what) => Self::Unsupported(format!("`{kind}` with {what}")),
        }
    }

    /// A kind of entry that honk does not speak.
    pub(super) fn kind(kind: &str) -> Self {
        match Fault::unsupported("type", kind) {
            Fault::Unsupported(what) => Self::Unsupported(what),
            Fault::Wrong(why) => Self::Malformed(why.to_owned()),
        }
    }
}

/// Refuses an entry that is larger than any real one. Every alias counts, so that the work is
/// bounded by these limits and not by what aliases unfold to.
pub(super) fn sized(tree: &Tree) -> Result<(), Fault> {
    let (mut bytes, mut values) = (0, 1);
    let mut rest = vec![tree];
    while let Some(tree) = rest.pop() {
        match tree {
            Tree::Null => {}
            Tree::Text(text) => bytes += text.len(),
            Tree::List(items) => {
                values += items.len();
                rest.extend(items.iter().take(MAX_VALUES).map(Rc::as_ref));
            }
            Tree::Map(pairs) => {
                values += pairs.len();
                bytes += pairs.iter().map(|(key, _)| key.len()).sum::<usize>();
                rest.extend(pairs.iter().take(MAX_VALUES).map(|(_, v)| Rc::as_ref(v)));
            }
        }
        if bytes > MAX_ENTRY || values > MAX_VALUES {
            return Err(Fault::Wrong("it is longer than 16 KiB"));
        }
    }
    Ok(())
}

/// A boolean of any spelling; absent is false.
pub(super) fn on(tree: &Tree, key: &str) -> bool {
    tree.text(key).is_some_and(is_true)
}

pub(super) fn is_true(text: &str) -> bool {
    matches!(
        text.to_ascii_lowercase().as_str(),
        "1" | "true" | "yes" | "on"
    )
}

/// Text that is not empty.
pub(super) fn text<'a>(tree: &'a Tree, keys: &[&str]) -> Option<&'a str> {
    keys.iter()
        .filter_map(|key| tree.text(key))
        .find(|text| !text.is_empty())
}

/// Text that must be there, empty or not.
pub(super) fn required<'a>(
    tree: &'a Tree,
    key: &str,
    missing: &'static str,
) -> Result<&'a str, Fault> {
    tree.text(key).ok_or(Fault::Wrong(missing))
}

/// A secret that must be there.
pub(super) fn password(tree: &Tree, key: &str) -> Result<Secret, Fault> {
    required(tree, key, "the password is missing").map(Secret::new)
}

/// Username and password, if there are any.
pub(super) fn login(tree: &Tree, user: &str, password: &str) -> Option<(Secret, Secret)> {
    let pair = (text(tree, &[user]), text(tree, &[password]));
    (pair != (None, None)).then(|| {
        let (user, password) = pair;
        (
            Secret::new(user.unwrap_or_default()),
            Secret::new(password.unwrap_or_default()),
        )
    })
}

/// Refuses a login that the protocol cannot carry.
pub(super) fn check_login(kind: &Kind) -> Result<(), Fault> {
    match kind {
        Kind::Socks5(Some((user, password)))
            if user.reveal().len().max(password.reveal().len()) > value::MAX_LOGIN =>
        {
            Err("user name and password have at most 255 bytes each".into())
        }
        Kind::Http(Some((user, _))) | Kind::Naive(Some((user, _)))
            if user.reveal().contains(':') =>
        {
            Err("the user name contains a colon".into())
        }
        _ => Ok(()),
    }
}

/// A server at host and port.
pub(super) fn server(host: Option<&str>, port: Option<&str>, kind: Kind) -> Result<Proxy, Fault> {
    let host = url::bare_host(host.ok_or("the server is missing")?)?;
    let port = port.and_then(crate::node::port);
    let port = port.ok_or("the port is missing or not between 1 and 65535")?;
    check_login(&kind)?;
    Ok(Proxy::new(host, port, kind))
}

/// The name to show; entries without one are called by type and host.
pub(super) fn shown(name: Option<&str>, proxy: &Proxy) -> String {
    name.and_then(display_name)
        .unwrap_or_else(|| format!("{}-{}", proxy.kind.name(), proxy.host))
}

/// A server name, or that of the host.
pub(super) fn sni(name: Option<&str>, host: &Host) -> Result<Sni, Fault> {
    match name.filter(|name| !name.is_empty()) {
        Some(name) => Ok(value::sni(name)?),
        None => Ok(value::server_name(host)),
    }
}

/// Protocols to offer.
pub(super) fn alpn(list: Option<&Tree>) -> Option<Vec<String>> {
    let texts = list?.texts();
    let split = texts.iter().flat_map(|text| stream::hosts(text));
    Some(split.collect()).filter(|list: &Vec<String>| !list.is_empty())
}

/// TCP only, when the author says so.
pub(super) fn hint(udp: Option<&str>) -> Hint {
    match udp.map(is_true) {
        Some(false) => Hint::Tcp,
        Some(true) | None => Hint::Both,
    }
}

/// ECH by a list of configurations, or by what the DNS says.
pub(super) fn ech(on: bool, config: Option<&str>) -> Result<Ech, Fault> {
    match (on, config) {
        (false, _) => Ok(Ech::Off),
        (true, None) => Ok(Ech::Discover),
        (true, Some(config)) => {
            let body = config.lines().filter(|line| !line.starts_with("-----"));
            Ok(stream::ech(Some(&body.collect::<String>()))?)
        }
    }
}

/// Ordinary TLS of a QUIC protocol and others that always have it.
pub(super) fn plain(sni: Sni, insecure: bool) -> Tls {
    Tls {
        insecure,
        ..Tls::new(sni)
    }
}

/// The last look at a node.
pub(super) fn judged(proxy: Proxy) -> Result<Proxy, Fault> {
    check(&proxy)?;
    Ok(proxy)
}
