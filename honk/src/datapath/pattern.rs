//! Which interfaces a list of patterns means. `*` stands for any text, `?` for one character.

use super::{object::Layer, pair};
use crate::netlink::{ARPHRD_ETHER, Link};

/// Whether `name` fits `pattern` as a whole.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    // Where to continue when the text after the last `*` does not fit.
    let mut retry = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p + 1, n));
                p += 1;
            }
            Some(c) if *c == b'?' || *c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => {
                let Some((back, start)) = retry else {
                    return false;
                };
                retry = Some((back, start + 1));
                p = back;
                n = start + 1;
            }
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

/// Whether the pattern names exactly one interface.
pub(super) fn is_plain(pattern: &str) -> bool {
    !pattern.contains(['*', '?'])
}

/// How packets of a link look, or none for link types that are not understood.
pub(super) fn layer(kind: u16) -> Option<Layer> {
    /// ppp, ipip, ip6tnl, sit, gre, raw IP, gre6, none (tun, wireguard).
    const HEADERLESS: [u16; 8] = [512, 768, 769, 776, 778, 519, 823, 0xfffe];
    if kind == ARPHRD_ETHER {
        Some(Layer::L2)
    } else {
        HEADERLESS.contains(&kind).then_some(Layer::L3)
    }
}

/// The links a pattern means. A wildcard leaves out members of a bridge, bond or team: their
/// master sees the traffic. Loopback and honk's own link are never meant.
pub(super) fn select<'a>(
    pattern: &'a str,
    links: &'a [Link],
) -> impl Iterator<Item = &'a Link> + 'a {
    const LOOPBACK: u16 = 772;
    links.iter().filter(move |link| {
        link.kind != LOOPBACK
            && link.name != pair::HOST
            && matches(pattern, &link.name)
            && (is_plain(pattern) || link.master.is_none())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(name: &str, kind: u16, master: Option<u32>) -> Link {
        Link {
            index: 1,
            name: name.to_owned(),
            kind,
            mtu: 1500,
            mac: None,
            master,
            alias: None,
            up: true,
            xdp: None,
        }
    }

    #[test]
    fn wildcards() {
        for (pattern, name, expected) in [
            ("lan", "lan", true),
            ("lan", "lan0", false),
            ("lan*", "lan", true),
            ("lan*", "lan0.7", true),
            ("*", "x", true),
            ("*", "", true),
            ("", "", true),
            ("", "x", false),
            ("?", "", false),
            ("eth?", "eth1", true),
            ("eth?", "eth10", false),
            ("*0", "br-a0", true),
            ("*0", "br-a01", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXcYb", false),
            ("a**", "a", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn a_hostile_pattern_is_not_slow() {
        let pattern = "*a".repeat(2000);
        let name = "a".repeat(1999);
        assert!(!matches(&pattern, &name));
    }

    #[test]
    fn members_loopback_and_own_links_are_left_out() {
        let links = [
            link("lo", 772, None),
            link("honk0", 1, None),
            link("eth0", 1, Some(9)),
            link("eth1", 1, None),
        ];
        let names =
            |p: &str| -> Vec<String> { select(p, &links).map(|l| l.name.clone()).collect() };
        assert_eq!(names("*"), ["eth1"]);
        assert_eq!(names("eth0"), ["eth0"], "an explicit member is meant");
        assert!(names("lo").is_empty() && names("honk0").is_empty());
    }

    #[test]
    fn link_types_decide_the_program() {
        assert_eq!(layer(1), Some(Layer::L2));
        assert_eq!(layer(512), Some(Layer::L3));
        assert_eq!(layer(0xfffe), Some(Layer::L3));
        assert_eq!(layer(801), None, "802.11 is not guessed at");
    }
}
