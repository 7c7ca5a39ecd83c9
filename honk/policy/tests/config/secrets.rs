//! No finding and no debug output contains a secret.

use super::lowered;

#[test]
fn links_are_never_shown() {
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
    ] {
        let (config, findings, _) = lowered(text);
        let shown = format!("{config:?} {findings:?}");
        assert!(!shown.contains("canary"), "{text}\n{shown}");
    }
}
