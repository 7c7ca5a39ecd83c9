//! `experimental`: subsections of declarations, and the rules of API listeners.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use honk_grammar::{ast::Item, diag::Diagnostic};

use super::{
    decl::{self, Fields},
    keys::EXPERIMENTAL,
    report::{Report, with_help},
    typed::Typed,
    value::{host_port, shortened},
};

/// Shortest secret of a listener that others can reach.
pub const MIN_SECRET: usize = 16;

/// Lowers the items of all `experimental` sections; the result is the values of each subsection.
pub(super) fn lower(report: &mut Report<'_>, items: &[Item]) -> Vec<(String, Fields)> {
    let mut bodies: Vec<(&'static str, &'static [super::keys::Key], Vec<Item>)> = Vec::new();
    let mut at = 0;
    while let Some(item) = items.get(at) {
        let Item::Sub(sub) = item else {
            at += report.misplaced("experimental", items, at);
            continue;
        };
        at += 1;
        let name = sub.name.text.as_str();
        let Some((known, table)) = EXPERIMENTAL.iter().find(|(known, _)| *known == name) else {
            let message = format!("unknown subsection `{}` is skipped", shortened(name));
            let finding = Diagnostic::warning("W216", "unknown-section", sub.name.span, message);
            let help = report.did_you_mean(name, EXPERIMENTAL.iter().map(|(name, _)| *name));
            let finding = with_help(finding, help);
            report.push(finding.about("experimental", name));
            continue;
        };
        if *known == "udp_nfqueue" {
            let message = "`udp_nfqueue` moved to `global.nfqueue_enable`";
            let finding = Diagnostic::warning("W213", "deprecated", sub.name.span, message);
            report.push(finding.about("experimental", name));
        }
        match bodies.iter_mut().find(|(name, ..)| name == known) {
            Some((.., items)) => items.extend(sub.items.iter().cloned()),
            None => bodies.push((known, table, sub.items.clone())),
        }
    }
    let mut sections = Vec::new();
    for (name, table, items) in bodies {
        let section = format!("experimental.{name}");
        let fields = decl::only(report, &section, table, &items);
        match name {
            "clash_api" => controllers(report, &fields),
            "metrics" => metrics(report, &fields),
            _ => {}
        }
        sections.push((section, fields));
    }
    sections
}

/// N714 and N715 of the API listeners: they stay closed, the daemon runs.
fn controllers(report: &mut Report<'_>, fields: &Fields) {
    paths(report, fields);
    origins(report, fields);
    let Some(entry) = fields.get("external_controller") else {
        return;
    };
    for address in fields.list("external_controller").unwrap_or_default() {
        let Some(local) = listen_address(address).map(|a| a.ip().is_loopback()) else {
            let message = format!("bad listener address `{}`", shortened(address));
            let finding = Diagnostic::error("N715", "api-address", entry.value, message)
                .help("write `127.0.0.1:9090`, `[v6]:port` or `:port`");
            report.push(finding.about("experimental.clash_api", "external_controller"));
            continue;
        };
        let from_file = fields
            .text("secret_file")
            .is_some_and(|path| !path.is_empty());
        let full = secret(fields, "secret").filter(|_| !from_file);
        let read = secret(fields, "read_secret").filter(|len| *len > 0);
        if !local
            && [full, read]
                .into_iter()
                .flatten()
                .any(|len| len < MIN_SECRET)
        {
            let message = format!(
                "`{}` is reachable by others and the secret is shorter than {MIN_SECRET} bytes: \
                 this listener stays closed",
                shortened(address)
            );
            let finding = Diagnostic::error("N714", "api-open", entry.value, message)
                .help("add `secret: '<16 or more random characters>'` to `clash_api`");
            report.push(finding.about("experimental.clash_api", "external_controller"));
        }
    }
}

fn metrics(report: &mut Report<'_>, fields: &Fields) {
    let Some((entry, text)) = fields.get("listen").zip(fields.text("listen")) else {
        return;
    };
    if !text.is_empty() && listen_address(text).is_none() {
        let message = format!("bad listener address `{}`", shortened(text));
        let finding = Diagnostic::error("N715", "api-address", entry.value, message);
        report.push(finding.about("experimental.metrics", "listen"));
    }
}

/// Files are named by absolute paths: the daemon has no directory of its own.
fn paths(report: &mut Report<'_>, fields: &Fields) {
    for key in ["secret_file", "external_controller_unix"] {
        let Some((entry, path)) = fields.get(key).zip(fields.text(key)) else {
            continue;
        };
        if !path.is_empty() && !path.starts_with('/') {
            let message = format!("`{key}`: expected an absolute path");
            let finding = Diagnostic::error("E408", "value-shape", entry.value, message);
            report.push(finding.about("experimental.clash_api", key));
        }
    }
}

/// Origins are compared as browsers send them; `*` lets every page try.
fn origins(report: &mut Report<'_>, fields: &Fields) {
    let Some(entry) = fields.get("allow_origins") else {
        return;
    };
    for origin in fields.list("allow_origins").unwrap_or_default() {
        let host = ["http://", "https://"]
            .iter()
            .find_map(|scheme| origin.strip_prefix(scheme));
        let host = host.map(|host| host.strip_suffix('/').unwrap_or(host));
        let finding = if origin == "*" {
            let message = match secret(fields, "secret") {
                Some(0) => "`*` has no effect without a secret",
                _ => "scripts of every page may try tokens and read answers",
            };
            Diagnostic::warning("", "cors-any", entry.value, message)
                .help("name the origins, such as `https://board.example`")
        } else if host.is_none_or(|host| host.is_empty() || host.contains(['/', '?', '#', '@'])) {
            let message = format!("`{}` is no web origin", shortened(origin));
            Diagnostic::error("E406", "value-shape", entry.value, message)
                .help("write scheme, host and port, such as `https://board.example:8443`")
        } else {
            continue;
        };
        report.push(finding.about("experimental.clash_api", "allow_origins"));
    }
}

/// Length of a declared secret.
fn secret(fields: &Fields, key: &str) -> Option<usize> {
    match fields.get(key).map(|entry| &entry.typed) {
        Some(Typed::Secret(secret)) => Some(secret.reveal().len()),
        _ => None,
    }
}

/// The address of a listener: `:port` is all of IPv4, `localhost` is 127.0.0.1.
pub fn listen_address(text: &str) -> Option<SocketAddr> {
    let (host, port) = host_port(text)?;
    let ip = match host {
        "" => Ipv4Addr::UNSPECIFIED.into(),
        "localhost" => Ipv4Addr::LOCALHOST.into(),
        host => host.parse::<IpAddr>().ok()?,
    };
    Some(SocketAddr::new(ip, port?))
}
