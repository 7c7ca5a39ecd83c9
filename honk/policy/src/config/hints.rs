//! What people write who know another program: the words it uses, and ours.

use std::net::IpAddr;

/// What to write instead of an unknown function of `routing`.
pub(super) fn function(name: &str) -> Option<String> {
    let text = match name.to_ascii_lowercase().as_str() {
        "geosite" => "write `domain(geosite: code)`",
        "geoip" => "write `dip(geoip: code)`, or `sip(geoip: code)` for clients",
        "suffix" | "domain_suffix" | "host" => "write `domain(suffix: name)`",
        "keyword" | "domain_keyword" => "write `domain(keyword: text)`",
        "full" => "write `domain(full: name)`",
        "regex" | "domain_regex" => "write `domain(regex: 'pattern')`",
        "cidr" | "ip_cidr" | "ipcidr" | "ip_cidr6" | "dst" | "dest" => "write `dip(10.0.0.0/8)`",
        "src" | "source" | "source_ip" | "src_ip_cidr" | "source_ip_cidr" => {
            "write `sip(10.0.0.0/8)`"
        }
        "process" | "process_name" => "write `pname(name)`",
        "network" | "proto" | "protocol" => "write `l4proto(tcp)` or `l4proto(udp)`",
        "dst_port" | "dest_port" => "write `dport(443)`",
        "src_port" | "source_port" => "write `sport(443)`",
        "tos" => "write `dscp(n)`",
        _ => return None,
    };
    Some(text.to_owned())
}

/// What to do about a value that a function of `routing` does not take.
pub(super) fn argument(function: &str, text: &str) -> Option<String> {
    let address = text
        .split('/')
        .next()
        .is_some_and(|ip| ip.parse::<IpAddr>().is_ok());
    match function {
        "domain" | "qname" if address => Some("addresses are matched by `dip(...)`".to_owned()),
        "domain" | "qname" => {
            let name = text
                .strip_prefix("*.")
                .or_else(|| text.strip_prefix("+."))?;
            Some(format!("write `{name}`: it matches the names below it too"))
        }
        "dip" | "ip" | "sip" if !address && text.contains(|c: char| c.is_ascii_alphabetic()) => {
            Some("names are matched by `domain(...)`".to_owned())
        }
        "dport" | "port" | "sport" => {
            Some("write a port or a range, as in `80, 8000-8999`".to_owned())
        }
        _ => None,
    }
}

/// What to do about a name for `full:`, which takes no wildcard.
pub(super) fn full(text: &str) -> Option<String> {
    let below = text.trim_start_matches(['*', '+']);
    let name = below
        .strip_prefix('.')
        .filter(|name| *below != *text && !name.contains('*'))?;
    Some(format!(
        "`full:` is one name; `suffix: .{name}` matches those below it, `suffix: {name}` that one too"
    ))
}

/// What is wrong with a link because of what stands at its end or in front of it.
pub(super) fn link(text: &str) -> Option<String> {
    if matches!(text, "-" | "*") {
        return Some(format!("no `{text}` is needed in front of an item"));
    }
    let last = text
        .chars()
        .next_back()
        .filter(|c| matches!(c, ',' | ';'))?;
    Some(format!(
        "items are not separated: remove the `{last}` at its end"
    ))
}

/// Words that join two conditions or values elsewhere.
pub(super) fn is_joint(word: &str) -> bool {
    matches!(word, "||" | "|" | "or" | "and")
}

/// What to do about a word behind the value of a key, which is part of it.
pub(super) fn behind(key: &str, value: &str, word: &str) -> String {
    let number = value.chars().all(|c| c.is_ascii_digit() || c == '.');
    match word {
        "ms" | "s" | "m" | "h" | "us" if number => format!("write `{value}{word}` without a blank"),
        _ => format!("a value with blanks is quoted: `{key}: '{value} {word}'`"),
    }
}
