//! Keys of one group.

use super::{
    super::value::Unit::{Millis, Seconds},
    Built::{No, NoOp, Yes},
    Key,
    Kind::*,
    Reload::Hot,
    row,
};

/// Keys of one group.
#[rustfmt::skip] // a table reads better in rows
pub const GROUP: &[Key] = &[
    row("policy", Own, "selector", Hot, Yes, "how a member is chosen"),
    row("filter", Own, "", Hot, Yes, "adds members; without any, all nodes are members"),
    row("default", Text, "", Hot, Yes, "member a selector starts with"),
    row("final", Text, "", Hot, Yes, "outbound used when no member is eligible"),
    row("check_url", Url, "", Hot, Yes, "target of health checks of this group"),
    row("tcp_check_url", CheckUrl, "", Hot, Yes, "dae spelling of `check_url`"),
    row("tolerance", Duration(Millis, 0, i64::MAX), "", Hot, Yes,
        "latency difference that makes urltest switch"),
    row("check_tolerance", Duration(Millis, 0, i64::MAX), "", Hot, Yes,
        "dae spelling of `tolerance`"),
    row("idle_timeout", Duration(Seconds, 0, i64::MAX), "", Hot, Yes,
        "inactivity after which urltest stops probing; 0 is never"),
    row("interrupt_connections", Bool, "false", Hot, Yes,
        "close affected flows when the selection changes"),
    row("icon", Text, "", Hot, Yes, "http(s) URL or data: URI shown by dashboards"),
    row("check_interval", Duration(Seconds, 0, i64::MAX), "", Hot, NoOp,
        "dae leftover: the global interval is used"),
    row("tcp_check_http_method", Word(super::global::METHODS, &[("", "HEAD")]), "", Hot, NoOp, "dae leftover: the global method is used"),
    row("udp_check_dns", CheckDns, "", Hot, NoOp, "dae leftover: the global server is used"),
    row("ping_url", Preset, "", Hot, Yes, "target of pings of this group"),
    row("ping_timeout", Duration(Millis, 0, i64::MAX), "", Hot, Yes, "deadline of one ping"),
    row("test_interval", Duration(Seconds, 0, i64::MAX), "", Hot, Yes, "period of group tests"),
    row("passive_check", Word(&["on", "off", "inherit"], &[]), "inherit", Hot, Yes,
        "learn health from business traffic"),
    row("mode", Word(&["counter", "round_robin", "least_test"], &[]), "counter", Hot, No,
        "how a loadbalance group spreads flows"),
    row("pool", Int(0, u32::MAX as u64), "3", Hot, No, "members a pool keeps in use"),
    row("pool_tolerance", Duration(Millis, 0, i64::MAX), "0", Hot, No,
        "latency difference inside a pool"),
    row("sticky", Words(STICKY), "process,domain", Hot, No, "what keeps flows on one member"),
    row("use_as_detour", Bool, "false", Hot, No, "whether the group may carry other nodes"),
    row("detour", Text, "none", Hot, No, "path of the members when dialed through this group"),
    row("detour_mode", Word(&["append", "replace"], &[]), "append", Hot, No,
        "whether it fills in or replaces"),
    row("use_detours", Bool, "true", Hot, No, "whether detours of members are used"),
    row("auto", Word(&["fastest", "load_balance", "off"], &[]), "off", Hot, No,
        "make an automatic twin group"),
    row("badge", Text, "", Hot, No, "mark of the group on dashboards"),
];

const STICKY: &[&str] = &[
    "process",
    "domain",
    "source_ip",
    "dest_ip",
    "dest_port",
    "none",
];

/// Keys of `auto_options` of a group.
#[rustfmt::skip] // a table reads better in rows
pub const AUTO_OPTIONS: &[Key] = &[
    row("check_url", Url, "", Hot, No, "target of its tests"),
    row("test_interval", Duration(Seconds, 0, i64::MAX), "15m", Hot, No, "period of its tests"),
    row("tolerance", Duration(Millis, 0, i64::MAX), "50", Hot, No, "its switch threshold"),
    row("idle_timeout", Duration(Seconds, 0, i64::MAX), "30m", Hot, No, "when its tests stop"),
    row("interrupt_connections", Bool, "false", Hot, No, "close flows when it switches"),
    row("pool", Int(0, u32::MAX as u64), "3", Hot, No, "members its pool keeps in use"),
    row("pool_tolerance", Duration(Millis, 0, i64::MAX), "0", Hot, No,
        "latency difference inside its pool"),
    row("sticky", Words(STICKY), "process,domain", Hot, No, "what keeps flows on one member"),
];
