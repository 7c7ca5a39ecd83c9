//! `global`: from declared values to the settings the daemon runs with.

use std::net::SocketAddr;

use honk_grammar::{ast::Item, diag::Diagnostic};

use super::{
    DialMode, Global, MissingGeodata, OnCrash,
    decl::{self, Fields},
    interfaces,
    keys::GLOBAL,
    report::Report,
    value,
};

/// Mark of honk's own sockets unless configured.
pub const OWN_MARK: u32 = 0x100;

impl Default for Global {
    fn default() -> Self {
        Self {
            tproxy_port: 12345,
            own_mark: OWN_MARK,
            flow_entries: 262_144,
            log_level: "info".to_owned(),
            lan_interface: Vec::new(),
            wan_interface: Vec::new(),
            auto_config_kernel_parameter: false,
            data_dir: None,
            on_crash: OnCrash::Block,
            drain_timeout_ms: 5_000,
            bootstrap: vec![
                SocketAddr::from(([119, 29, 29, 29], 53)),
                SocketAddr::from(([223, 5, 5, 5], 53)),
            ],
            fallback_resolver: Some(SocketAddr::from(([8, 8, 8, 8], 53))),
            max_concurrent_dials: 64,
            log_flows: false,
            disable_thp: true,
            nfqueue_enable: true,
            missing_geodata: MissingGeodata::Error,
            dial_mode: DialMode::Ip,
            sniffing_timeout_ms: 30,
        }
    }
}

/// Lowers the items of all `global` sections.
pub(super) fn lower(report: &mut Report<'_>, items: &[Item]) -> (Global, Fields) {
    let fields = decl::only(report, "global", GLOBAL, items);
    let mut global = Global::default();
    if let Some(port) = fields.int("tproxy_port") {
        global.tproxy_port = u16::try_from(port).unwrap_or(global.tproxy_port);
    }
    if let Some(mark) = fields.int("so_mark_from_dae").filter(|mark| *mark != 0) {
        global.own_mark = u32::try_from(mark).unwrap_or(OWN_MARK);
    }
    if let Some(entries) = fields.int("bpf_conn_state_map_size") {
        global.flow_entries = u32::try_from(entries).unwrap_or(global.flow_entries);
    }
    if let Some(level) = fields.text("log_level") {
        global.log_level = level.to_owned();
    }
    if let Some(list) = fields.list("lan_interface") {
        global.lan_interface = list.to_vec();
    }
    if let Some(list) = fields.list("wan_interface") {
        global.wan_interface = list.to_vec();
    }
    if let Some(on) = fields.bool("auto_config_kernel_parameter") {
        global.auto_config_kernel_parameter = on;
    }
    interfaces::check(report, &fields);
    global.data_dir = fields.text("data_dir").map(str::to_owned);
    if fields.text("on_crash") == Some("direct") {
        global.on_crash = OnCrash::Direct;
    }
    if let Some(ms) = fields.millis("drain_timeout") {
        global.drain_timeout_ms = u64::try_from(ms).unwrap_or(0);
    }
    if let Some(list) = fields
        .list("bootstrap_resolver")
        .filter(|list| !list.is_empty())
    {
        global.bootstrap = list.iter().filter_map(|text| resolver(text)).collect();
    }
    if let Some(entry) = fields.get("bootstrap_resolver") {
        let tcp = |text: &String| text.starts_with("tcp://");
        if fields
            .list("bootstrap_resolver")
            .is_some_and(|list| list.iter().any(tcp))
        {
            let what = "a `tcp://` entry of `global.bootstrap_resolver` is";
            report.unbuilt("global", "bootstrap_resolver", entry.key, what);
        }
    }
    if let Some(text) = fields.text("fallback_resolver") {
        global.fallback_resolver = resolver(text);
    }
    if let Some(on) = fields.bool("log_flows") {
        global.log_flows = on;
    }
    if let Some(on) = fields.bool("disable_thp") {
        global.disable_thp = on;
    }
    if let Some(on) = fields.bool("nfqueue_enable") {
        global.nfqueue_enable = on;
    }
    if fields.text("missing_geodata") == Some("skip") {
        global.missing_geodata = MissingGeodata::Skip;
    }
    match fields.text("dial_mode") {
        Some("domain") => global.dial_mode = DialMode::Domain,
        Some("domain+") => global.dial_mode = DialMode::DomainPlus,
        Some("domain++") => global.dial_mode = DialMode::DomainPlusPlus,
        _ => {}
    }
    if let Some(ms) = fields.millis("sniffing_timeout") {
        global.sniffing_timeout_ms = u32::try_from(ms).unwrap_or(u32::MAX);
    }
    if let Some(dials) = fields.int("max_concurrent_dials") {
        global.max_concurrent_dials = u32::try_from(dials).unwrap_or(u32::MAX).max(1);
        if dials == 0 {
            note(report, &fields, "max_concurrent_dials", "0 acts as 1");
        }
    }
    if fields
        .text("utls_imitate")
        .is_some_and(|word| !word.starts_with("chrome"))
    {
        note(
            report,
            &fields,
            "utls_imitate",
            "only `chrome*` is imitated; Chrome is used",
        );
    }
    (global, fields)
}

/// W214 on the value of a key.
fn note(report: &mut Report<'_>, fields: &Fields, key: &str, text: &str) {
    if let Some(entry) = fields.get(key) {
        let finding = Diagnostic::warning(
            "W214",
            "ignored-key",
            entry.value,
            format!("`{key}`: {text}"),
        );
        report.push(finding.about("global", key));
    }
}

/// A resolver whose text was checked before.
fn resolver(text: &str) -> Option<SocketAddr> {
    let bare = text
        .strip_prefix("udp://")
        .or_else(|| text.strip_prefix("tcp://"));
    value::address(bare.unwrap_or(text), 53).ok()
}
