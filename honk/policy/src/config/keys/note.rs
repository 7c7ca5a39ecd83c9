//! Keys of annotations.

use super::{
    super::value::Unit::{Millis, Seconds},
    Built::{No, Yes},
    Key,
    Kind::*,
    Reload::Hot,
    row,
};

const MODES: &[&str] = &["append", "replace"];

/// Annotation of a `node` item.
#[rustfmt::skip] // a table reads better in rows
pub const NODE_NOTES: &[Key] = &[
    row("detour", Text, "none", Hot, No, "node or group this node is reached through"),
    row("enabled", Bool, "true", Hot, Yes, "whether the node exists"),
    row("bind_interface", Text, "", Hot, No, "interface its connections are bound to"),
];

/// Annotation of a `filter` line.
#[rustfmt::skip] // a table reads better in rows
pub const FILTER_NOTES: &[Key] = &[
    row("add_latency", Duration(Millis, i64::MIN, i64::MAX), "", Hot, Yes,
        "added to measured latencies in urltest ranking"),
];

/// Annotation of a `subscription` item.
#[rustfmt::skip] // a table reads better in rows
pub const SUBSCRIPTION_NOTES: &[Key] = &[
    row("type", Word(&["auto", "simple", "sip008", "clash", "singbox", "xray"], &[]), "auto", Hot,
        Yes, "format of the body"),
    row("update_interval", Duration(Seconds, 0, i64::MAX), "24h", Hot, Yes,
        "time between fetches; 0 is by hand only"),
    row("user_agent", Text, "", Hot, Yes, "what the server is told"),
    row("enabled", Bool, "true", Hot, Yes, "whether it is fetched and used"),
    row("allow_private", Bool, "false", Hot, Yes, "whether its host may be a private address"),
    row("use_detours", Bool, "true", Hot, No, "whether detours of its nodes are used"),
    row("detour", Text, "none", Hot, No, "node or group its nodes are reached through"),
    row("detour_mode", Word(MODES, &[]), "append", Hot, No, "whether it fills in or replaces"),
    row("register_detours", Bool, "false", Hot, No, "whether links become group members"),
    row("register_detours_auto", Bool, "false", Hot, No,
        "whether links become members of automatic groups"),
    row("fold", Word(&["none", "manual", "auto", "both"], &[]), "none", Hot, No,
        "replace its nodes by a group"),
    row("fold_name", Text, "", Hot, No, "name of that group"),
    row("fold_mode", Word(&["fastest", "load_balance"], &[]), "fastest", Hot, No,
        "how that group chooses"),
    row("import_groups", Bool, "false", Hot, No, "take groups of the body over"),
];
