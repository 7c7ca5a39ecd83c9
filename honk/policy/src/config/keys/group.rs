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
    row("tcp_check_http_method", Text, "", Hot, NoOp, "dae leftover: the global method is used"),
    row("udp_check_dns", CheckDns, "", Hot, NoOp, "dae leftover: the global server is used"),
    row("ping_url", Own, "", Hot, No, "target of pings of this group"),
    row("ping_timeout", Own, "", Hot, No, "deadline of one ping"),
    row("test_interval", Own, "", Hot, No, "period of group tests"),
    row("passive_check", Own, "", Hot, No, "learn health from business traffic"),
    row("mode", Own, "", Hot, No, "how a loadbalance group spreads flows"),
    row("pool", Own, "", Hot, No, "members a pool keeps in use"),
    row("pool_tolerance", Own, "", Hot, No, "latency difference inside a pool"),
    row("sticky", Own, "", Hot, No, "what keeps flows on one member"),
    row("use_as_detour", Own, "", Hot, No, "whether the group may carry other nodes"),
    row("detour", Own, "", Hot, No, "path of the members when dialed through this group"),
    row("detour_mode", Own, "", Hot, No, "whether it fills in or replaces"),
    row("use_detours", Own, "", Hot, No, "whether detours of members are used"),
    row("auto", Own, "", Hot, No, "make an automatic twin group"),
    row("badge", Own, "", Hot, No, "mark of the group on dashboards"),
];
