//! Keys of sections that are typed and not served yet: `chain`, `speedtest`, `watch`, `bypass`.

use super::{
    super::value::Unit::{Millis, Seconds},
    Built::Section,
    Key,
    Kind::*,
    Reload::Hot,
    row,
};

/// Keys of one chain.
#[rustfmt::skip] // a table reads better in rows
pub const CHAIN: &[Key] = &[
    row("hops", Texts, "", Hot, Section, "positions in packet order"),
    row("enabled", Bool, "true", Hot, Section, "whether the chain exists"),
    row("idle_timeout", Duration(Seconds, 0, i64::MAX), "", Hot, Section, "life of idle links"),
    row("strip_evasion", Bool, "", Hot, Section, "drop evasion options inside tunnels"),
    row("strip", Texts, "", Hot, Section, "options dropped or kept"),
];

/// Keys of `speedtest` itself.
#[rustfmt::skip] // a table reads better in rows
pub const SPEEDTEST: &[Key] = &[
    row("server", Text, "", Hot, Section, "server that is used"),
    row("streams", Word(&["1", "4", "10"], &[]), "4", Hot, Section, "connections at the same time"),
];

/// Keys of a speed test server.
#[rustfmt::skip] // a table reads better in rows
pub const SPEEDTEST_SERVER: &[Key] = &[
    row("ping_url", Url, "", Hot, Section, "URL of the latency measurement"),
    row("download_url", Url, "", Hot, Section, "URL that is downloaded"),
    row("upload_url", Url, "", Hot, Section, "URL that is uploaded to"),
    row("upload_method", Word(&["POST", "PUT"], &[]), "POST", Hot, Section, "method of the upload"),
];

/// Keys of `watch` itself.
#[rustfmt::skip] // a table reads better in rows
pub const WATCH: &[Key] = &[
    row("enabled", Bool, "false", Hot, Section, "whether anything is watched"),
    row("check_interval", Duration(Seconds, 0, i64::MAX), "300s", Hot, Section,
        "time between checks while healthy"),
    row("failure_interval", Duration(Seconds, 0, i64::MAX), "60s", Hot, Section,
        "time between checks while degraded"),
    row("cooldown", Duration(Seconds, 0, i64::MAX), "900s", Hot, Section, "pause after a heal"),
    row("check_timeout", Duration(Seconds, 0, i64::MAX), "15s", Hot, Section, "deadline of a fetch"),
    row("max_retries", Int(0, 1000), "3", Hot, Section, "failures that queue a heal"),
    row("heal_validation_tries", Int(0, 1000), "3", Hot, Section, "fetches a strategy must pass"),
    row("verify_tries", Int(0, 1000), "2", Hot, Section, "tries per address after a heal"),
    row("domains", Texts, "", Hot, Section, "domains watched one by one"),
    row("write", Word(&["overlay", "source"], &[]), "overlay", Hot, Section, "where a heal writes"),
    row("probe", Word(&["engine", "lan"], &[]), "engine", Hot, Section, "how checks are sent"),
    row("trusted_dns", Text, "https://1.1.1.1/dns-query", Hot, Section, "resolver of discovery"),
    row("ca_bundle", Path, "", Hot, Section, "further root certificates"),
];

/// Keys of one watch set; `targets` holds routing conditions.
#[rustfmt::skip] // a table reads better in rows
pub const WATCH_SET: &[Key] = &[
    row("enabled", Bool, "true", Hot, Section, "whether the set is watched"),
    row("outbound", Text, "", Hot, Section, "outbound whose strategy is healed"),
    row("targets", Own, "", Hot, Section, "conditions of the generated rules"),
    row("addresses", Texts, "", Hot, Section, "pages that are fetched"),
    row("keep_working", Bool, "false", Hot, Section, "heal the set on failure"),
    row("candidates", Texts, "", Hot, Section, "strategies a heal may try"),
];

/// Keys of one bypass outbound; values that are functions are read with their technique.
#[rustfmt::skip] // a table reads better in rows
pub const BYPASS: &[Key] = &[
    row("ports", Texts, "80,443", Hot, Section, "TCP ports the technique acts on"),
    row("protocols", Words(&["tls", "http", "any"]), "tls,http", Hot, Section,
        "protocols the technique acts on"),
    row("rst_protect", Bool, "false", Hot, Section, "tolerate forged resets"),
    row("quic", CallText, "drop", Hot, Section, "what happens to QUIC"),
    row("udp", CallText, "pass", Hot, Section, "what happens to other UDP"),
    row("ip_block_detect", Word(&["on", "off"], &[]), "off", Hot, Section, "leave dead addresses out"),
    row("tls_versions", Word(&["any", "1.2", "1.3"], &[]), "any", Hot, Section,
        "TLS versions of discovery"),
    row("split", Texts, "", Hot, Section, "positions of segment cuts"),
    row("disorder", Bool, "false", Hot, Section, "send pieces out of order"),
    row("tlsrec", Texts, "", Hot, Section, "positions of record cuts"),
    row("oob", Text, "", Hot, Section, "position of an urgent byte"),
    row("oob_byte", Text, "a", Hot, Section, "that byte"),
    row("disoob", Text, "", Hot, Section, "position of an urgent byte that gets lost"),
    row("fake", CallText, "", Hot, Section, "decoy"),
    row("fake_hold", Duration(Millis, 1, 50), "3ms", Hot, Section, "life of a decoy"),
    row("delay", IntRange(0, 500), "", Hot, Section, "milliseconds between pieces"),
    row("drop_sack", Bool, "false", Hot, Section, "ignore selective acknowledgements"),
    row("mss", Int(88, 1460), "", Hot, Section, "largest segment"),
    row("tls_minor", Int(0, 255), "", Hot, Section, "version byte of records"),
    row("http", Words(&["hostcase", "domcase", "hostnospace", "hosttab", "hostdot",
        "methodspace", "methodeol", "unixeol"]), "", Hot, Section, "rewriting of request heads"),
    row("http_hostspell", Text, "", Hot, Section, "spelling of the Host header"),
    row("http_hostpad", Int(0, 65_535), "", Hot, Section, "padding of the request head"),
    row("dns", CallText, "", Hot, Section, "upstream of its names"),
    row("pin", Texts, "", Hot, Section, "fixed addresses"),
];

/// Keys of `escalate`.
#[rustfmt::skip] // a table reads better in rows
pub const ESCALATE: &[Key] = &[
    row("to", Text, "", Hot, Section, "outbound that takes over"),
    row("handshake_retries", Int(0, 1000), "3", Hot, Section, "unanswered handshakes"),
    row("handshake_wait", Duration(Seconds, 0, i64::MAX), "5s", Hot, Section, "wait for an answer"),
    row("resets", Int(0, 1000), "3", Hot, Section, "forged resets"),
    row("reset_window", Duration(Seconds, 0, i64::MAX), "60s", Hot, Section, "window of resets"),
    row("connect_failures", Int(0, 1000), "3", Hot, Section, "unanswered connects"),
    row("dns_failures", Int(0, 1000), "3", Hot, Section, "unusable answers"),
    row("remember", Duration(Seconds, 0, i64::MAX), "1h", Hot, Section, "time it stays"),
];
