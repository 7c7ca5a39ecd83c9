//! Builds what a dial through a node needs, as far as that takes no socket: the one place that
//! tells whether a node can be built at all.
//!
//! Settings of a link were checked when it was read. What is found here is what only the dialer
//! knows: addresses no server can have, names that no resolver can be asked for, and what the
//! protocol cannot say.

use std::net::{IpAddr, SocketAddr};

use honk_policy::node::{Host, Node, Protocol};
use honk_wire::{
    Target,
    dns::{Kind, query},
    socks5::Mode,
};

use super::{handshake::Handshake, server::server};

/// The longest name that targets are asked for by.
const LONGEST: usize = 255;

/// Why a node cannot be built.
pub(crate) fn check(node: &Node) -> Result<(), String> {
    if !node.protocol.built() {
        let name = node.protocol.name();
        return Err(format!(
            "this build does not dial `{name}` nodes of this kind"
        ));
    }
    let Some(server) = server(&node.protocol) else {
        return Ok(());
    };
    match &server.host {
        Host::Ip(ip) => address(ip.to_canonical())?,
        Host::Name(name) => {
            let asked = query(0, name, Kind::A, &mut Vec::new());
            asked.map_err(|error| format!("the server's name cannot be looked up: {error}"))?;
        }
    }
    greeting(&node.protocol)
}

/// Refuses addresses that no TCP server answers at.
fn address(ip: IpAddr) -> Result<(), String> {
    let broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    let why = match ip {
        ip if ip.is_unspecified() => "is no server's",
        ip if ip.is_multicast() || broadcast => "is that of a group of hosts",
        _ => return Ok(()),
    };
    Err(format!("the address {ip} {why}"))
}

/// Writes the first flight of a stream, to the longest target there can be and to an address.
fn greeting(protocol: &Protocol) -> Result<(), String> {
    let name = "n".repeat(LONGEST);
    let any = SocketAddr::from(([192, 0, 2, 1], 65_535));
    for target in [Target::Name(&name, 65_535), Target::Ip(any)] {
        let begun = Handshake::start(protocol, &target, Mode::Serial, &mut Vec::new());
        begun.map_err(|error| error.detail.into_owned())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use honk_policy::{
        id::Secret,
        node::{Server, link},
    };

    use super::*;

    fn node(host: Host, auth: Option<(&str, &str)>) -> Node {
        let auth = auth.map(|(user, password)| (Secret::new(user), Secret::new(password)));
        let server = Server {
            host,
            port: 1080,
            auth,
        };
        Node::new("n".to_owned(), Protocol::Socks5(server))
    }

    fn ip(text: &str) -> Node {
        node(Host::Ip(text.parse().unwrap()), None)
    }

    #[test]
    fn ordinary_nodes_are_built() {
        for text in [
            "socks5://u:p@192.0.2.1:1080",
            "http://u:p@proxy.example:8080",
            "socks5://[2001:db8::1]",
            "socks5://127.0.0.1:9",
        ] {
            let node = Node::from(link::parse(text).unwrap());
            assert_eq!(check(&node), Ok(()), "{text}");
        }
        let builtin = Node::new("direct".to_owned(), Protocol::Direct);
        assert_eq!(check(&builtin), Ok(()));
    }

    #[test]
    fn addresses_of_no_server_are_rejected() {
        for text in [
            "0.0.0.0",
            "::",
            "224.0.0.1",
            "ff02::1",
            "255.255.255.255",
            "::ffff:0.0.0.0",
        ] {
            let why = check(&ip(text)).unwrap_err();
            assert!(why.starts_with("the address "), "{why}");
        }
    }

    #[test]
    fn what_the_protocol_or_the_resolver_cannot_say_is_rejected() {
        let long = "x".repeat(256);
        let login = node(Host::Ip([192, 0, 2, 1].into()), Some(("u", &long)));
        let why = check(&login).unwrap_err();
        assert!(why.contains("255 bytes") && !why.contains(&long), "{why}");
        let label = format!("{}.example", "a".repeat(64));
        let why = check(&node(Host::Name(label), None)).unwrap_err();
        assert!(why.contains("looked up"), "{why}");
    }

    #[test]
    fn protocols_that_this_build_does_not_dial_are_rejected() {
        let text = "trojan://secret@192.0.2.1:443?sni=x.example";
        let node = Node::from(link::parse(text).unwrap());
        if !node.protocol.built() {
            let why = check(&node).unwrap_err();
            assert!(why.contains("trojan") && !why.contains("secret"), "{why}");
        }
    }
}
