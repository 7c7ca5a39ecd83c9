//! No finding and no debug output contains a secret.

use honk_grammar::{diag, parse_text};
use honk_policy::config;

use super::{geodata, lowered};

#[test]
fn links_are_never_shown() {
    let mut leaks = Vec::new();
    for text in [
        "node { a: 'socks5://canary:canary@192.0.2.1:1080?canary=canary' }",
        "node { a: 'socks5://canary:canary@192.0.2.1:0' }",
        "node { 'socks5://canary:canary@192.0.2.1' 'socks5://canary:canary@192.0.2.1#x' }",
        "node { 'sss://canary@canary' 'ssr://canary' mux: canary }",
        "node { a: 'trojan://canary@h.example' b: 'trojan://canary@h.example' }",
        "node { 'socks5://canary@h.example:99999 -> ss://canary' }",
        "node { 'vmess://canary!' a: 'canary canary' }",
        "node { a: 'socks5://canary@h.example' -> x }",
        "subscription { 'https://canary:canary@s.example/canary?canary=canary#canary' }",
        "subscription { s: 'ftp://canary' 'file:///canary' 'https-file://s.example/canary' }",
        "dns { upstream { a: 'https://h.example/canary?canary' b: 'udp://canary@h' } }",
        "experimental { clash_api { secret: canary read_secret: 'canary' } }",
        "experimental { clash_api { external_controller: ':1' secret: canary } }",
        "group { g { icon: 'ftp://canary' } }",
        // Behind misspelt keys and lost colons.
        "experimental { clash_api { secrt: 'canary' } }",
        "experimental { clash_api { Secret: canary pasword: 'canary' } }",
        "experimental { clash_api { secret 'canary' } }",
        "experimental { clash_api { secret = canary } }",
        "experimental { clash_api { secret: canary canary } }",
        "experimental { secret: 'canary' clash_api { foo: 1 secret: 'canary' } }",
        "global { passwd: canary } node { a: 'socks5://192.0.2.1:1' [password: canary] }",
        // Tokens in paths, outside the section they belong to.
        "subscriptions { a: 'https://x.example/canary' }",
        "global { https://x.example/canary }",
        "node { a { url: 'https://x.example/canary' } }",
        "subscription { 'https://x.example/canary': a }",
        "global { 'https://x.example/canary': a log_level: 'https://x.example/canary' }",
        "group { 'https://x.example/canary' { policy: 'https://x.example/canary' foo: 1 } }",
        "experimental { 'https://x.example/canary' { } } routing { fallback: 'https://x.example/canary' }",
        // Links where names belong.
        "routing { fallback: 'ss://canary@h:1' }",
        "routing { dport(1) -> 'trojan://canary@h:1' }",
        "group { g { final: 'ss://canary' default: 'vless://canary@h' filter: name('ss://canary') } }",
        "group { g { filter: group('ss://canary') } 'ss://canary' { } 'ss://canary' { } }",
        "group { g { check_url: 'https://canary:canary@h/x?canary' policy: urltest tolerance: x://canary } }",
        "global { tcp_check_url: 'ftp://canary@h?canary' log_level: 'ss://canary' }",
        "global { 'ss://canary' bootstrap_resolver: 'https://canary@h' }",
        "dns { upstream { 'a b': 'ftp://canary@h' c: 'tls://h' -> 'ss://canary' } routing { request { fallback: 'ss://canary' } } }",
        "routing { domain(ss://canary) -> direct dip('ss://canary') -> direct domain(regex: 'ss://canary(') -> direct }",
        "include { 'ss://canary[' }",
        "ss://canary@h:1",
        "node { a: 'ss://canary@h:1' } }",
        "node { a: 'ss://canary@h:1' -> 'b' -> c }",
        "subscription { a: https://h/canary?canary=canary { } }",
        "chain { x { hops: 'ss://canary@h:1' } }",
        // The same server twice.
        "node { a: 'ss://YWVzLTEyOC1nY206Y2FuYXJ5Y2FuYXJ5@h:1' 'ss://YWVzLTEyOC1nY206Y2FuYXJ5Y2FuYXJ5@h:1' }",
        "node { a: 'vless://0a1b2c3d-0000-4000-8000-00000canary@h:1' }",
    ] {
        let (config, findings, _) = lowered(text);
        let mut shown = format!("{findings:?}");
        // A link in the place of a name is a name.
        if ![
            "final: ",
            "group { 'https",
            "'https://x.example/canary': a }",
        ]
        .iter()
        .any(|name| text.contains(name))
        {
            shown += &format!("{config:?}");
        }
        let parsed = parse_text("test.dae", text);
        let (_, findings) = config::lower(&parsed, &mut geodata::files());
        for found in &findings {
            shown += &diag::human(found, &parsed.sources);
            shown += &diag::short(found, &parsed.sources);
            shown += &format!("{:?}", diag::record(found, &parsed.sources));
        }
        if ["canary", "Y2FuYXJ5"]
            .iter()
            .any(|secret| shown.contains(secret))
        {
            leaks.push(format!("{text}\n{shown}"));
        }
    }
    assert!(leaks.is_empty(), "{}", leaks.join("\n\n"));
}
