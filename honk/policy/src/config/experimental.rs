//! `experimental`: subsections of declarations, and the rules of API listeners.

use std::net::IpAddr;

use honk_grammar::{ast::Item, diag::Diagnostic};

use super::{
    decl::{self, Fields},
    keys::EXPERIMENTAL,
    report::{Report, with_help},
    typed::Typed,
    value::{host_port, shortened},
};

/// Shortest secret of a listener that others can reach.
const MIN_SECRET: usize = 16;

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
    let Some(entry) = fields.get("external_controller") else {
        return;
    };
    for address in fields.list("external_controller").unwrap_or_default() {
        let Some(local) = is_local(address) else {
            let message = format!("bad listener address `{}`", shortened(address));
            let finding = Diagnostic::error("N715", "api-address", entry.value, message)
                .help("write `127.0.0.1:9090`, `[v6]:port` or `:port`");
            report.push(finding.about("experimental.clash_api", "external_controller"));
            continue;
        };
        let secret = match fields.get("secret").map(|entry| &entry.typed) {
            Some(Typed::Secret(secret)) => Some(secret.reveal().len()),
            _ => None,
        };
        let from_file = fields
            .text("secret_file")
            .is_some_and(|path| !path.is_empty());
        if !local && !from_file && secret.is_some_and(|len| len < MIN_SECRET) {
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
    if !text.is_empty() && is_local(text).is_none() {
        let message = format!("bad listener address `{}`", shortened(text));
        let finding = Diagnostic::error("N715", "api-address", entry.value, message);
        report.push(finding.about("experimental.metrics", "listen"));
    }
}

/// Whether only the gateway itself can reach `host:port`; `None` when it is no address.
fn is_local(text: &str) -> Option<bool> {
    let (host, port) = host_port(text)?;
    port?;
    match host {
        "" => Some(false),
        "localhost" => Some(true),
        host => host.parse::<IpAddr>().ok().map(|ip| ip.is_loopback()),
    }
}
