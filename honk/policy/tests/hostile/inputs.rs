//! Inputs that cost the most for their size, and what reads them. Each is a family: a function
//! from a size in bytes to a text of about that size.

use std::{collections::HashMap, hint::black_box};

use honk_grammar::{diag, format, parse_text};
use honk_policy::{
    config,
    group::GroupTable,
    id::Uuid,
    node::link,
    routing,
    subscription::{self, Format},
};

/// Who reads a text.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reader {
    /// The configuration: parsed, lowered, groups built, rules compiled, findings shown.
    Config,
    /// The configuration, written in its canonical form.
    Format,
    /// A share link.
    Link,
    /// A subscription body of a format.
    Body(Format),
}

/// A family of inputs.
#[derive(Clone, Copy)]
pub(crate) struct Family {
    pub(crate) name: &'static str,
    pub(crate) reader: Reader,
    pub(crate) make: fn(usize) -> String,
}

impl Family {
    /// Reads the member of a size; the text is made outside of what is measured.
    pub(crate) fn text(&self, size: usize) -> String {
        (self.make)(size)
    }
}

/// Everything the program does with such a text.
pub(crate) fn read(reader: Reader, text: &str) {
    match reader {
        Reader::Config => config_text(text),
        Reader::Format => drop(black_box(format(text))),
        Reader::Link => {
            if let Ok(found) = link::parse(text) {
                black_box(link::format(&found.into()));
            }
        }
        Reader::Body(format) => {
            for format in [Some(format), None] {
                if let Ok(body) = subscription::parse(text.as_bytes(), format) {
                    black_box(body.findings("tag"));
                }
            }
        }
    }
}

fn config_text(text: &str) {
    let parsed = parse_text("hostile.dae", text);
    let (config, mut findings) = config::lower(&parsed, &mut geodata());
    config::refuse_unbuilt(&mut findings);
    if let Some(config) = config {
        let (groups, found) = GroupTable::build(&config, None, &mut Uuid::new_v4);
        findings.extend(found);
        let rules = config.rules.map_ordinals(|o| groups.slot_of(o));
        drop(black_box(routing::compile(&rules)));
    }
    let (shown, _) = diag::arrange(findings);
    for finding in &shown {
        black_box(diag::human(finding, &parsed.sources));
        black_box(diag::record(finding, &parsed.sources));
    }
}

/// A file of 1500 codes, as many as the real one has.
fn geodata() -> HashMap<String, Vec<u8>> {
    let field = |content: &[u8]| [&[0x0a, content.len() as u8], content].concat();
    let entries = (0..1500).map(|n| field(&field(format!("code{n}").as_bytes())));
    let file: Vec<u8> = entries.flatten().collect();
    HashMap::from([
        ("geosite.dat".to_owned(), file.clone()),
        ("geoip.dat".to_owned(), file),
    ])
}

/// `head`, as many different pieces as there is room for, `tail`.
fn filled(size: usize, head: &str, piece: impl Fn(usize) -> String, tail: &str) -> String {
    let mut text = head.to_owned();
    for n in 0.. {
        let piece = piece(n);
        if text.len() + piece.len() + tail.len() > size {
            break;
        }
        text.push_str(&piece);
    }
    text + tail
}

fn repeated(size: usize, head: &str, piece: &str, tail: &str) -> String {
    filled(size, head, |_| piece.to_owned(), tail)
}

/// A part for names, a part for what refers to them.
fn halves(
    size: usize,
    first: (&str, fn(usize) -> String, &str),
    second: (&str, fn(usize) -> String, &str),
) -> String {
    filled(size / 2, first.0, first.1, first.2) + &filled(size / 2, second.0, second.1, second.2)
}

/// Short names that are all different.
fn word(n: usize) -> String {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut text = "w".to_owned();
    let mut n = n;
    while n > 0 {
        text.push(char::from(LETTERS[n % LETTERS.len()]));
        n /= LETTERS.len();
    }
    text
}

fn nodes(n: usize) -> String {
    format!("{}:http://{}\n", word(n), word(n))
}

const NODES: (&str, fn(usize) -> String, &str) = ("node{", nodes, "}");

macro_rules! families {
    ($reader:expr; $($name:literal: |$size:ident| $make:expr;)*) => {
        &[$(Family { name: $name, reader: $reader, make: |$size| $make }),*]
    };
}

const CONFIG: &[Family] = families! { Reader::Config;
    "open braces": |n| repeated(n, "", "a{", "");
    "deep sections": |n| repeated(n, "", "a{a{a{a{a{a{a{a{a{a{a{a{a{a{a{a{}}}}}}}}}}}}}}}}", "");
    "deep and broken": |n| repeated(n, "", "a{a{a{a{a{a{a{a{a{a{a{a{a{a{a{a{:}}}}}}}}}}}}}}}}", "");
    "deep upstreams": |n| repeated(n, "dns{upstream{", "a:b://c ", "[}}");
    "sections": |n| filled(n, "", |n| format!("{}{{}}", word(n)), "");
    "broken sections": |n| repeated(n, "", "a{:}", "");
    "broken links": |n| repeated(n, "", "a{://'}{'", "}");
    "broken secrets": |n| repeated(n, "a{", "secret:'\\'", "} b{:}");
    "broken on one line": |n| repeated(n, "a{:}", "x{secret: a://b 'c':}", "");
    "marked characters": |n| repeated(n, "a{", "\u{FF1A}", "}");
    "marked sections": |n| repeated(n, "", "a{\u{FF1A}}", "");
    "quotes": |n| repeated(n, "a{", "''", "}");
    "open quotes of links": |n| repeated(n, "node{\n", "'\n", "}");
    "open quotes of values": |n| repeated(n, "global{\n", "a: '\n", "}");
    "open quotes of rules": |n| repeated(n, "routing{\n", "a('\n", "}");
    "comments with slashes": |n| repeated(n, "global{\n", "// it's {\n", "}");
    "alternatives": |n| repeated(n, "group{a{filter:name(a)", " || name(a)", "}}");
    "rules of alternatives": |n| repeated(n, "routing{\n", "a()||b()->c\n", "}");
    "arrows": |n| repeated(n, "routing{a()", "->b", "}");
    "words joined by arrows": |n| repeated(n, "node{a", "->b", "}");
    "escaped quotes": |n| repeated(n, "a{x:'", "\\'", "'}");
    "block comments": |n| repeated(n, "global{a", "/**/", "}");
    "block comments between": |n| repeated(n, "global{", "a/**/", "}");
    "line comments": |n| repeated(n, "global{a", "#\n", "}");
    "blanks": |n| repeated(n, "global{a", " ", "}");
    "carriage returns": |n| repeated(n, "global{a", "\r", "}");
    "words": |n| repeated(n, "global{", "a ", "}");
    "words on lines": |n| repeated(n, "global{", "a\n", "}");
    "empty values": |n| repeated(n, "global{", "a: ", "}");
    "empty values on lines": |n| repeated(n, "global{", "a:\n", "}");
    "values on next lines": |n| repeated(n, "global{", "a:\nb\n", "}");
    "unknown keys": |n| filled(n, "global{", |n| format!("{}: 1 ", word(n)), "}");
    "long unknown keys": |n| filled(n, "global{", |n| format!("tproxy_port_protecx{}: 1 ", n % 9), "}");
    "repeated keys": |n| repeated(n, "global{", "mptcp:1 ", "}");
    "one long key": |n| repeated(n, "global{", "a", ":1}");
    "colons": |n| repeated(n, "global{log_level:a", ":a", "}");
    "double colons": |n| repeated(n, "global{log_level:a", "::", "}");
    "list elements": |n| filled(n, "global{lan_interface:a", |n| format!(",{}", word(n)), "}");
    "lists": |n| filled(n, "global{", |n| format!("lan_interface:{}\n", word(n)), "}");
    "empty elements": |n| repeated(n, "global{lan_interface:'a", ",", "'}");
    "broken list": |n| repeated(n, "global{lan_interface:a", ",a", ":}");
    "annotations": |n| repeated(n, "node{a:http://b [", "enabled:1,", "]}");
    "unknown annotations": |n| filled(n, "node{a:http://b [", |n| format!("{}:1,", word(n)), "]}");
    "calls": |n| repeated(n, "routing{a()", "&&a()", "->b}");
    "calls of one rule": |n| repeated(n, "routing{dport(1)", "&&dport(1)", "->block}");
    "port calls of one rule": |n| filled(n, "routing{dport(1)", |n| format!("&&dport({}-{})", n % 30000, 65535 - n % 30000), "->block}");
    "address calls of one rule": |n| filled(n, "routing{dip(::1)", |n| format!("&&!dip({n:x}::/16)"), "->block}");
    "nested calls of one rule": |n| filled(n, "routing{dip(::1)", |n| format!("&&sip(::/{})&&dip(::{n:x})", n % 128), "->block}");
    "name calls of one rule": |n| repeated(n, "routing{domain(a)", "&&domain(a)", "->block}");
    "mac calls of one rule": |n| filled(n, "routing{dport(1)", |n| format!("&&!mac({n:012x})"), "->block}");
    "process calls of one rule": |n| filled(n, "routing{dport(1)", |n| format!("&&!pname({})", word(n)), "->block}");
    "calls of one filter": |n| filled(n, "group{g{filter:name(a)", |n| format!("&&!name({})", word(n)), "}}");
    "calls of one query": |n| repeated(n, "dns{routing{request{qname(a)", "&&qname(a)", "->reject}}}");
    "rules on lines": |n| repeated(n, "routing{", "a()\n", "}");
    "broken rules on lines": |n| repeated(n, "routing{", "a(b c) -> d\n", "}");
    "rules without outbound": |n| repeated(n, "routing{", "a() ->\n", "}");
    "open calls": |n| repeated(n, "routing{", "a(b\n", "}");
    "broken and sound rules": |n| repeated(n, "routing{", "a(b c) -> d\nport(1) -> block\nport(2) -> block\n", "}");
    "broken groups": |n| filled(n, "group{", |n| format!("{}{{filter: a(b c)\npolicy: fixed}}\n", word(n)), "}");
    "broken nodes": |n| repeated(n, "node{", "a: 'b' -> c -> d\ne: http://f\n", "}");
    "semicolons": |n| repeated(n, "global{", "mptcp:1;", "}");
    "brackets behind a mistake": |n| repeated(n, "global{a(b c", "([", "}");
    "comments behind a mistake": |n| repeated(n, "routing{a()\n", "#\n", "b()\n}");
    "secret words": |n| repeated(n, "global{x:1 ", "secrt 'a' ", "y:1}");
    "secret words of many": |n| filled(n, "experimental{clash_api{", |n| format!("{}x{n}:1 ", word(n)), "}}");
    "calls without target": |n| repeated(n, "routing{a()", "&&a()", "}");
    "calls as value": |n| repeated(n, "global{x:a()", "&&a()", "&&}");
    "arguments": |n| repeated(n, "routing{dport(1", ",1", ")->block}");
    "arguments without end": |n| repeated(n, "routing{dport(1", ",1", "");
    "arguments without target": |n| repeated(n, "routing{dport(1", ",1", ")}");
    "unknown argument keys": |n| filled(n, "routing{domain(a", |n| format!(",{} : a", word(n)), ")->block}");
    "wrong arguments": |n| repeated(n, "routing{l4proto(x", ",x", ")->block}");
    "rules": |n| repeated(n, "routing{", "dport(1)->block ", "}");
    "rules without target": |n| repeated(n, "routing{", "a() ", "}");
    "unknown functions": |n| filled(n, "routing{", |n| format!("{}()->block ", word(n)), "}");
    "unknown targets": |n| halves(n, NODES, ("routing{", |n| format!("a()->x{} ", word(n)), "}"));
    "targets": |n| halves(n, NODES, ("routing{", |n| format!("port(1)->{} ", word(n)), "}"));
    "parameters": |n| repeated(n, "routing{port(1)->block(must", ",must", ")}");
    "unknown parameters": |n| filled(n, "routing{port(1)->block(must", |n| format!(",{}", word(n)), ")}");
    "prefixes": |n| filled(n, "routing{", |n| {
        format!("dip({}.{}.{}.0/24,{}.{n_}.0.0/16)->block ", n % 223 + 1, n / 223, n % 7, n % 251 + 1, n_ = n % 256)
    }, "}");
    "prefixes of one call": |n| filled(n, "routing{dip(::1", |n| format!(",{n:x}::/64"), ")->block}");
    "nested prefixes": |n| filled(n, "routing{", |n| {
        format!("dip({:x}::/{}) && sip({:x}::/{}) -> block ", n * 7 % 65536, n % 16 + 1, n * 13 % 65536, n % 16 + 1)
    }, "}");
    "ports": |n| filled(n, "routing{", |n| format!("port({}-{})->block ", n * 17 % 32768, 32768 + n * 29 % 32767), "}");
    "ports of both sides": |n| filled(n, "routing{", |n| {
        format!("port({}-{})&&sport({n}-{})->block ", n * 17 % 32768, 32768 + n * 29 % 32767, 32768 + n)
    }, "}");
    "macs": |n| filled(n, "routing{mac(000000000000", |n| format!(",{n:012x}"), ")->block}");
    "geodata": |n| filled(n, "routing{domain(geosite:a", |n| format!(",geosite:code{}x", n), ")->block}");
    "geodata of one code": |n| filled(n, "routing{", |n| format!("domain(geosite:code{})->block ", n % 9), "}");
    "geodata files": |n| filled(n, "routing{domain(geosite:a", |n| format!(",ext:'{}:b'", word(n)), ")->block}");
    "foreign names": |n| repeated(n, "routing{domain(", "ü", ")->block}");
    "foreign labels": |n| repeated(n, "routing{domain(a", ".日本", ")->block}");
    "names": |n| filled(n, "routing{domain(a", |n| format!(",{}", word(n)), ")->block}");
    "keywords": |n| filled(n, "routing{domain(a", |n| format!(",keyword:{}", word(n)), ")->block}");
    "patterns": |n| filled(n, "routing{domain(a", |n| format!(",regex:{}", word(n)), ")->block}");
    "classes": |n| filled(n, "routing{domain(a", |n| format!(",regex:'\\w{}'", word(n)), ")->block}");
    "large patterns": |n| filled(n, "routing{domain(a", |n| format!(",regex:'(a{{99}}{}){{99}}'", word(n)), ")->block}");
    "large foreign patterns": |n| filled(n, "routing{domain(a", |n| format!(",regex:'\\pL{{{}}}'", n + 40), ")->block}");
    "one large pattern": |n| repeated(n, "routing{domain(regex:'", "\\pL", "')->block}");
    "one branched pattern": |n| filled(n, "routing{domain(regex:'a", |n| format!("|{}", word(n)), "')->block}");
    "nested pattern": |n| {
        let depth = (n - 40) / 2;
        format!("routing{{domain(regex:'{}{}')->block}}", "(".repeat(depth), ")".repeat(depth))
    };
    "groups": |n| filled(n, "group{", |n| format!("{}{{}}", word(n)), "}");
    "same groups": |n| repeated(n, "group{", "a{}", "}");
    "group keys": |n| filled(n, "group{a{", |n| format!("{}:1 ", word(n)), "}}");
    "policies": |n| filled(n, "group{", |n| format!("{}{{policy:{}}}", word(n), word(n)), "}");
    "defaults": |n| halves(n, NODES, ("group{", |n| format!("{}{{default:x{}}}", word(n), word(n)), "}"));
    "finals": |n| halves(n, NODES, ("group{", |n| format!("{}{{final:x{}}}", word(n), word(n)), "}"));
    "nested groups": |n| {
        let count = (n as f64 / 5.0).sqrt() as usize;
        let list: String = (0..count.min(250)).map(|n| word(n) + ",").collect();
        filled(n + 100, "group{", |n| format!("{}{{filter:group({list})}}", word(n)), "}")
    };
    "group chain": |n| filled(n, "group{", |n| format!("{}{{filter:group({}) final:{}}}", word(n), word(n + 1), word(n / 2)), "}");
    "unknown groups": |n| halves(n, NODES, ("group{a{filter:group(a", |n| format!(",{}", word(n)), ")}}"));
    "groups of one text": |n| filled(n, "group{a{filter:group('a", |n| format!(",{}", word(n)), "')}}");
    "filters": |n| repeated(n, "group{a{", "filter:name(a) ", "}}");
    "broken filters": |n| filled(n, "group{a{", |n| format!("filter:{}() ", word(n)), "}}");
    "trailing filters": |n| repeated(n, "group{a{", "filter:name(a) b ", "}}");
    "member names": |n| halves(n, NODES, ("group{a{filter:name(a", |n| format!(",x{}", word(n)), ")}}"));
    "member keywords": |n| halves(n, NODES, ("group{a{filter:name(a", |n| format!(",keyword:x{}", word(n)), ")}}"));
    "member patterns": |n| halves(n, NODES, ("group{a{filter:name(a", |n| format!(",regex:x{}", word(n)), ")}}"));
    "member classes": |n| halves(n, NODES, ("group{a{filter:name(a", |n| format!(",regex:'\\w+x{}'", word(n)), ")}}"));
    "members of many": |n| halves(n, NODES, ("group{", |n| format!("{}{{filter:name(keyword:w)}}", word(n)), "}"));
    "large member patterns": |n| filled(n, "group{a{filter:name(a", |n| format!(",regex:'(\\pL{{9}}{}){{9}}'", word(n)), ")}}");
    "nodes": |n| filled(n, "node{", nodes, "}");
    "same nodes": |n| repeated(n, "node{", "a:http://a\n", "}");
    "skipped nodes": |n| repeated(n, "node{", "a:ssr://a\n", "}");
    "unknown schemes": |n| filled(n, "node{", |n| format!("{}://a\n", word(n)), "}");
    "unbuilt nodes": |n| halves(n, ("node{", |n| format!("{}:socks4://{}\n", word(n), word(n)), "}"),
        ("routing{", |n| format!("port(1)->{} ", word(n)), "}"));
    "mux": |n| repeated(n, "node{", "mux = true ", "}");
    "chains": |n| filled(n, "chain{", |n| format!("{}{{}}", word(n)), "}");
    "same chains": |n| repeated(n, "chain{", "a{}", "}");
    "watches": |n| filled(n, "watch{", |n| format!("{}{{}}", word(n)), "}");
    "subscriptions": |n| filled(n, "subscription{", |n| format!("{}:http://a/{n}\n", word(n)), "}");
    "same subscriptions": |n| repeated(n, "subscription{", "a:http://a\n", "}");
    "upstreams": |n| halves(n, ("dns{upstream{", |n| format!("{}:udp://1\n", word(n)), "}}"),
        ("dns{routing{response{upstream(a", |n| format!(",x{}", word(n)), ")->accept}}}"));
    "upstream parameters": |n| filled(n, "dns{upstream{a:'https://a/?", |n| format!("{}=1&", word(n)), "'}}");
    "answers": |n| halves(n, ("dns{upstream{", |n| format!("{}:udp://1\n", word(n)), "}}"),
        ("dns{routing{request{", |n| format!("qtype(a)->x{} ", word(n)), "}}}"));
    "types": |n| filled(n, "dns{routing{request{qtype(a", |n| format!(",{}", word(n)), ")->reject}}}");
    "internal names": |n| filled(n, "dns{upstream{u:udp://1}routing{request{node(a", |n| format!(",name_regex:'\\w{}'", word(n)), ")->u}}}");
    "times to live": |n| filled(n, "dns{fixed_domain_ttl{", |n| format!("{}:1 ", word(n)), "}}");
    "same times to live": |n| repeated(n, "dns{fixed_domain_ttl{", "a:1 ", "}}");
    "experiments": |n| filled(n, "experimental{", |n| format!("{}{{}}", word(n)), "}");
    "includes": |n| filled(n, "include{", |n| format!("{}.dae ", word(n)), "}");
    "stars": |n| repeated(n, "include{", "*", "}");
    "brackets": |n| repeated(n, "include{", "[a]", "}");
};

const LINKS: &[Family] = families! { Reader::Link;
    "hops": |n| repeated(n, "ss://a", "->ss://a", "");
    "arrows": |n| repeated(n, "ss://a", "->", "");
    "arrows with blanks": |n| repeated(n, "ss://a", "-> ", "");
    "settings": |n| filled(n, "vless://a@b:1?", |n| format!("{}=1&", word(n)), "");
    "same settings": |n| repeated(n, "vless://a@b:1?", "sni=a&", "");
    "settings of all": |n| filled(n, "hysteria2://a@b:1?", |n| format!("{}=%41&", word(n)), "");
    "percents": |n| repeated(n, "trojan://", "%41", "@b:1");
    "percents of the name": |n| repeated(n, "trojan://a@b:1#", "%f0%9f%87%ad", "");
    "at signs": |n| repeated(n, "trojan://", "@", "b:1");
    "colons of the user": |n| repeated(n, "tuic://", ":", "@b:1");
    "dots": |n| repeated(n, "trojan://a@b", ".b", ":1");
    "foreign host": |n| repeated(n, "trojan://a@", "ü", ":1");
    "foreign labels": |n| repeated(n, "trojan://a@b", ".日本", ":1");
    "ports": |n| filled(n, "hysteria2://a@b:1", |n| format!(",{}", n * 7919 % 65535 + 1), "");
    "port ranges": |n| filled(n, "hysteria2://a@b:1", |n| format!(",{}-65535", n % 65535 + 1), "");
    "protocols": |n| filled(n, "trojan://a@b:1?alpn=a", |n| format!(",{}", word(n)), "");
    "hosts": |n| filled(n, "vless://a@b:1?type=http&host=a", |n| format!(",{}", word(n)), "");
    "plugin settings": |n| filled(n, "ss://YWVzLTEyOC1nY206YQ@b:1?plugin=v2ray-plugin", |n| format!(";{}=1", word(n)), "");
    "escaped plugin": |n| repeated(n, "ss://YWVzLTEyOC1nY206YQ@b:1?plugin=v2ray-plugin", ";a=\\;", "");
    "base64": |n| repeated(n, "ss://", "YWFh", "");
    "base64 of braces": |n| repeated(n, "vmess://eyJ2", "W3tb", "");
    "vmess settings": |n| repeated(n, "vmess://", "eyJhIjoxLCJiIjoyfQ", "");
    "pins": |n| filled(n, "hysteria2://a@b:1?pinSHA256=", |n| format!("{n:064x},"), "");
    "encryption": |n| filled(n, "vless://a@b:1?encryption=mlkem768x25519plus.native.0rtt", |n| format!(".{}", word(n)), "");
    "ipv6": |n| repeated(n, "trojan://a@[", "1:", "]:1");
    "slashes": |n| repeated(n, "trojan://a@b:1", "/", "");
    "blanks": |n| repeated(n, "  ", " ", "trojan://a@b:1");
    "zero width": |n| repeated(n, "", "\u{200B}", "trojan://a@b:1");
};

const LIST: &[Family] = families! { Reader::Body(Format::List);
    "list of lines": |n| repeated(n, "a://b\n", "a\n", "");
    "list of links": |n| filled(n, "", |n| format!("http://{}\n", word(n)), "");
    "list of one link": |n| repeated(n, "", "http://a\n", "");
    "list of schemes": |n| filled(n, "", |n| format!("{}://a\n", word(n)), "");
    "list of malformed": |n| repeated(n, "", "ss://a\n", "");
    "list of comments": |n| repeated(n, "a://b\n", "#a=b\n", "");
    "list in base64": |n| repeated(n, "", "aHR0cDovL2EK", "");
    "list of chains": |n| repeated(n, "", "http://a->http://b->http://c\n", "");
    "list of arrows": |n| repeated(n, "a://b", "->", "");
};

const SIP008: &[Family] = families! { Reader::Body(Format::Sip008);
    "sip008 servers": |n| filled(n, "{\"servers\":[0", |n| {
        format!(",{{\"server\":\"a\",\"server_port\":{},\"method\":\"aes-128-gcm\",\"password\":\"a\"}}", n % 65535 + 1)
    }, "]}");
    "sip008 keys": |n| filled(n, "{\"servers\":[{\"server\":\"a\"", |n| format!(",\"{}\":1", word(n)), "}]}");
    "sip008 empty": |n| repeated(n, "{\"servers\":[{}", ",{}", "]}");
};

const JSON: &[Family] = families! { Reader::Body(Format::SingBox);
    "json depth": |n| repeated(n, "", "[", "");
    "json maps": |n| repeated(n, "", "{\"a\":", "");
    "json values": |n| repeated(n, "[0", ",0", "]");
    "json numbers": |n| repeated(n, "[1", "0", "]");
    "json floats": |n| repeated(n, "[1e-1", ",1e-300", "]");
    "json escapes": |n| repeated(n, "[\"", "\\u0041", "\"]");
    "singbox entries": |n| filled(n, "{\"outbounds\":[0", |n| {
        format!(",{{\"type\":\"http\",\"tag\":\"{}\",\"server\":\"{0}\",\"server_port\":1}}", word(n))
    }, "]}");
    "singbox detours": |n| filled(n, "{\"outbounds\":[0", |n| {
        format!(",{{\"type\":\"http\",\"tag\":\"{}\",\"server\":\"a\",\"server_port\":1,\"detour\":\"{}\"}}", word(n), word(n + 1))
    }, "]}");
    "singbox ring": |n| filled(n, "{\"outbounds\":[0", |n| {
        format!(",{{\"type\":\"http\",\"tag\":\"{}\",\"server\":\"a\",\"server_port\":1,\"detour\":\"{}\"}}", word(n), word(n / 2))
    }, "]}");
    "singbox layers": |n| filled(n, "{\"outbounds\":[0", |n| {
        format!(",{{\"type\":\"shadowtls\",\"tag\":\"{}\",\"server\":\"a\",\"server_port\":1,\"version\":3,\"password\":\"a\",\"detour\":\"{}\"}}", word(n), word(n + 1))
    }, "]}");
    "singbox types": |n| filled(n, "{\"outbounds\":[0", |n| format!(",{{\"type\":\"{}\"}}", word(n)), "]}");
    "singbox keys": |n| filled(n, "{\"outbounds\":[{\"type\":\"vless\"", |n| format!(",\"{}\":1", word(n)), "}]}");
};

const XRAY: &[Family] = families! { Reader::Body(Format::Xray);
    "xray entries": |n| filled(n, "{\"outbounds\":[0", |n| {
        format!(",{{\"protocol\":\"http\",\"tag\":\"{}\",\"settings\":{{\"servers\":[{{\"address\":\"{0}\",\"port\":1}}]}}}}", word(n))
    }, "]}");
    "xray servers": |n| filled(n, "{\"outbounds\":[{\"protocol\":\"http\",\"settings\":{\"servers\":[0", |n| {
        format!(",{{\"address\":\"{}\",\"port\":1}}", word(n))
    }, "]}}]}");
    "xray users": |n| filled(n, "{\"outbounds\":[{\"protocol\":\"vless\",\"settings\":{\"vnext\":[{\"address\":\"a\",\"port\":1,\"users\":[0", |n| {
        format!(",{{\"id\":\"{}\"}}", word(n))
    }, "]}]}}]}");
    "xray configurations": |n| repeated(n, "[0", ",{\"outbounds\":[{\"protocol\":\"http\"}]}", "]");
    "xray dialers": |n| filled(n, "{\"outbounds\":[0", |n| {
        format!(",{{\"protocol\":\"http\",\"tag\":\"{}\",\"settings\":{{\"servers\":[{{\"address\":\"a\",\"port\":1}}]}},\"streamSettings\":{{\"sockopt\":{{\"dialerProxy\":\"{}\"}}}}}}", word(n), word(n + 1))
    }, "]}");
};

const YAML: &[Family] = families! { Reader::Body(Format::Clash);
    "yaml depth": |n| repeated(n, "proxies: ", "[", "");
    "yaml maps": |n| repeated(n, "proxies: ", "{a: ", "");
    "yaml blocks": |n| repeated(n, "proxies:\n", "- ", "");
    "yaml keys": |n| repeated(n, "proxies:\n", "? ", "");
    "yaml flow keys": |n| repeated(n, "proxies: [", "? ", "]");
    "yaml values": |n| repeated(n, "proxies: [0", ",0", "]");
    "yaml lines": |n| repeated(n, "proxies:\n", "- a\n", "");
    "yaml folded": |n| repeated(n, "proxies: [a", "\n a", "]");
    "yaml quoted": |n| repeated(n, "proxies: [\"", "\\x41", "\"]");
    "yaml literal": |n| repeated(n, "proxies: [a]\nx: |\n", " a\n", "");
    "yaml blank literal": |n| repeated(n, "proxies: [a]\nx: |\n", "\n", "");
    "yaml indent": |n| repeated(n, "proxies:\n", " ", "- a");
    "yaml tags": |n| repeated(n, "proxies: [a", ",!a a", "]");
    "yaml anchors": |n| filled(n, "proxies: [a", |n| format!(",&{} a", word(n)), "]");
    "yaml aliases": |n| repeated(n, "x: &a [a]\nproxies: [*a", ",*a", "]");
    "yaml bomb": |n| filled(n, "x0: &x0 [a]\n", |n| format!("x{}: &x{0} [*x{n},*x{n},*x{n}]\n", n + 1), "proxies: [*x0]");
    "yaml merges": |n| repeated(n, "x: &a {a: a, b: b, c: c, d: d}\nproxies: [{", "<<: *a,", "}]");
    "yaml merged lists": |n| repeated(n, "x: &a {a: a}\nproxies: [{<<: [*a", ",*a", "]}]");
    "yaml comments": |n| repeated(n, "proxies: [a]", "\n#", "");
    "yaml documents": |n| repeated(n, "proxies: [a]", "\n---\n", "");
    "yaml colons": |n| repeated(n, "proxies: a", ":", "");
    "yaml spaced colons": |n| repeated(n, "proxies: [a", " :", "]");
    "yaml percent": |n| repeated(n, "proxies: [a]\n", "%a\n", "");
    "clash entries": |n| filled(n, "proxies:\n", |n| format!("- {{name: {}, type: http, server: {0}, port: 1}}\n", word(n)), "");
    "clash names": |n| filled(n, "proxies:\n", |n| format!("- {{name: a, type: http, server: {}, port: 1}}\n", word(n)), "");
    "clash dialers": |n| filled(n, "proxies:\n", |n| format!("- {{name: {}, type: http, server: a, port: 1, dialer-proxy: {}}}\n", word(n), word(n + 1)), "");
    "clash missing": |n| filled(n, "proxies:\n", |n| format!("- {{name: {}, type: http, server: a, port: 1, dialer-proxy: x{0}}}\n", word(n)), "");
    "clash groups": |n| filled(n, "proxies: [{name: a, type: http, server: a, port: 1}]\nproxy-groups:\n", |n| format!("- name: {}\n", word(n)), "");
    "clash types": |n| filled(n, "proxies:\n", |n| format!("- {{type: {}}}\n", word(n)), "");
    "clash keys": |n| filled(n, "proxies: [{type: vless", |n| format!(",{}: 1", word(n)), "}]");
};

/// All families.
pub(crate) fn families() -> impl Iterator<Item = Family> {
    let formatted = CONFIG.iter().map(|family| Family {
        reader: Reader::Format,
        ..*family
    });
    [CONFIG, LINKS, LIST, SIP008, JSON, XRAY, YAML]
        .into_iter()
        .flatten()
        .copied()
        .chain(formatted)
}
