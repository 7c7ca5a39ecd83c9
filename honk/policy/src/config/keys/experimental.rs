//! Keys of the subsections of `experimental`.

use super::{
    Built::{No, Yes},
    Key,
    Kind::*,
    Reload::{Hot, Restart},
    row,
};

/// Subsections of `experimental` with their keys.
#[rustfmt::skip] // a table reads better in rows
pub const EXPERIMENTAL: &[(&str, &[Key])] = &[
    ("clash_api", &[
        row("external_controller", Texts, "", Restart, Yes, "addresses of the TCP API"),
        row("external_controller_unix", Text, "", Restart, Yes,
            "path of the unix socket; empty for none, unset for `<runtime>/api.sock`"),
        row("secret", Secret, "", Restart, Yes,
            "token with full access; unset: made once; empty: none is asked on loopback"),
        row("secret_file", Text, "", Restart, Yes, "file whose first line is the token"),
        row("read_secret", Secret, "", Restart, Yes, "token that can only read"),
        row("external_ui", Text, "", Restart, Yes,
            "directory of a dashboard, served under `/ui/`; a relative one is below `<state>`"),
        row("external_ui_download_url", Text, "", Restart, No, "where the dashboard comes from"),
        row("external_ui_download_detour", Text, "", Restart, No, "outbound of that download"),
        row("default_mode", Word(&["Rule", "Global", "Direct"], &[]), "Rule", Restart, No,
            "mode at start"),
        row("allow_origins", Texts, "", Restart, Yes, "web origins that may use the API"),
        row("allow_private_network", Bool, "false", Restart, Yes,
            "answer private-network preflights"),
        row("allow_hosts", Texts, "", Restart, Yes, "further accepted Host names"),
        row("allow_restart", Bool, "false", Restart, No, "permit the restart call"),
        row("tls_cert", Text, "", Restart, No, "certificate of the TCP API"),
        row("tls_key", Text, "", Restart, No, "its key"),
    ]),
    ("metrics", &[
        row("listen", Text, "", Restart, Yes, "own metrics listener"),
        row("node_series", Word(&["full", "auto", "off"], &[]), "auto", Hot, No,
            "whether nodes have series of their own"),
        row("device_series", Bool, "false", Hot, No, "byte counters of LAN devices"),
    ]),
    ("web", &[row("enabled", Bool, "true", Restart, No, "serve the built-in page")]),
    ("log", &[
        row("format", Word(&["auto", "text", "json", "journald"], &[]), "auto", Restart, No,
            "form of log lines"),
        row("rate_limit", Text, "20/5s", Hot, No, "burst and window of one message"),
    ]),
    ("datapath", &[
        row("tcx_order", Word(&["last", "first"], &[]), "last", Restart, Yes,
            "place among other programs of an interface"),
        row("redirect_peer", Word(&["auto", "on", "off"], &[]), "auto", Restart, Yes,
            "hand packets over without the backlog"),
        row("udp_sockets", Int(0, 64), "0", Restart, Yes,
            "UDP receive sockets per family; 0 is one per CPU, at most 4"),
        row("xdp_guard", Bool, "false", Restart, Yes,
            "drop datagrams to blocked networks in front of the stack of LAN interfaces"),
    ]),
    ("cache_file", &[
        row("enabled", Bool, "true", Restart, No, "keep choices over restarts"),
        row("path", Path, "cache.db", Restart, No, "file below `data_dir`"),
        row("cache_id", Text, "", Restart, No, "namespace inside the file"),
        row("store_fakeip", Bool, "false", Restart, super::Built::NoOp, "no effect"),
        row("store_dns", Bool, "false", Restart, No, "keep DNS answers, too"),
    ]),
    ("udp_nfqueue", &[
        row("enabled", Bool, "", Restart, super::Built::Deprecated, "see `global.nfqueue_enable`"),
    ]),
];
