//! Conditions of traffic rules: one call to one test, argument by argument.
//!
//! Every argument that is not understood is an error at its own place; nothing is skipped.

use honk_grammar::{ast::Call, diag::Diagnostic};

use super::{
    GeoFile,
    args::Arguments,
    hints,
    matcher::{mac, one_of, ports},
    report::{Report, call_name, with_help},
    value,
};
use crate::routing::rule::{Cond, Test};

/// Functions of `routing`, aliases included.
pub(super) const FUNCTIONS: &[&str] = &[
    "domain",
    "dip",
    "ip",
    "sip",
    "dport",
    "port",
    "sport",
    "l4proto",
    "ipversion",
    "mac",
    "pname",
    "dscp",
];

/// Functions that exist in `dns.routing` only.
const DNS_ONLY: &[&str] = &["qname", "qtype", "upstream", "sub", "node", "subnode"];

/// A condition and the geodata codes of an address test that are still to be looked up.
pub(super) struct Lowered {
    pub(super) cond: Cond,
    pub(super) geo: Vec<GeoFile>,
}

/// Lowers one call; `None` after an error.
pub(super) fn lower(report: &mut Report<'_>, call: &Call) -> Option<Lowered> {
    let name = call.name.text.as_str();
    if !FUNCTIONS.contains(&name) {
        return unknown(report, call);
    }
    report.trailing_comma(call.trailing_comma);
    if call.args.is_empty() {
        let message = format!("`{}` has no argument", call_name(call));
        let finding = Diagnostic::error("E603", "argument-missing", call.span, message);
        report.push(finding.about("routing", name));
        return None;
    }
    let mut reader = Arguments {
        report,
        section: "routing",
        call,
        failed: false,
    };
    let mut geo = Vec::new();
    let test = match name {
        "domain" => Test::Domain(reader.names()),
        "dip" | "ip" => Test::Dest(reader.addresses(&["geoip", "ext"], &mut geo)),
        "sip" => Test::Source(reader.addresses(&["geoip"], &mut geo)),
        "dport" | "port" => Test::DestPort(reader.each(&[], |_, text| ports(text))),
        "sport" => Test::SourcePort(reader.each(&[], |_, text| ports(text))),
        "l4proto" => {
            let words = reader.each(&[], |_, text| one_of(text, &["tcp", "udp"]));
            Test::L4Proto {
                tcp: words.contains(&"tcp"),
                udp: words.contains(&"udp"),
            }
        }
        "ipversion" => {
            let words = reader.each(&[], |_, text| one_of(text, &["4", "6", "ipv4", "ipv6"]));
            let any = |a, b| words.iter().any(|w| *w == a || *w == b);
            Test::IpVersion {
                v4: any("4", "ipv4"),
                v6: any("6", "ipv6"),
            }
        }
        "mac" => Test::Mac(reader.each(&[], |_, text| mac(text))),
        "pname" => Test::ProcessName(process_names(&mut reader)),
        _ => Test::Dscp(reader.each(&[], |_, text| {
            let n = value::integer(text, 0, 63).map_err(|bad| bad.text)?;
            u8::try_from(n).map_err(|_| "expected an integer between 0 and 63".to_owned())
        })),
    };
    (!reader.failed).then_some(Lowered {
        cond: Cond {
            not: call.not,
            test,
        },
        geo,
    })
}

fn unknown(report: &mut Report<'_>, call: &Call) -> Option<Lowered> {
    let name = call.name.text.as_str();
    let finding = if DNS_ONLY.contains(&name) {
        let message = format!("`{}` is a function of `dns.routing`", call_name(call));
        let finding = Diagnostic::error("E605", "function-misplaced", call.name.span, message);
        match name {
            "qname" => finding.help("write `domain(...)`"),
            _ => finding,
        }
    } else {
        let message = format!("unknown function `{}`", call_name(call));
        let finding = Diagnostic::error("E601", "function-unknown", call.name.span, message);
        let help =
            hints::function(name).or_else(|| report.did_you_mean(name, FUNCTIONS.iter().copied()));
        with_help(finding, help)
    };
    report.push(finding.about("routing", name));
    None
}

/// Process names as the kernel compares them: 16 bytes, padded with NUL.
fn process_names(reader: &mut Arguments<'_, '_, '_>) -> Vec<[u8; 16]> {
    for arg in &reader.call.args {
        let text = arg.parts().1;
        if let Some((_, file)) = text.rsplit_once('/') {
            let message = format!(
                "`{}`: a process is known by its name, not by its path",
                call_name(reader.call)
            );
            let finding = Diagnostic::warning("", "pname-path", arg.span, message);
            let help =
                (!file.is_empty()).then(|| format!("write `pname({})`", value::shortened(file)));
            let finding = with_help(finding, help).about("routing", "pname");
            reader.report.push(finding);
        } else if text.len() > 16 {
            let message = "a process name longer than 16 bytes is cut";
            reader
                .report
                .warn("W611", "pname-truncated", arg.span, message);
        }
    }
    reader.each(&[], |_, text| {
        if text.is_empty() || text.contains('\0') {
            return Err("a process name cannot be empty");
        }
        let mut name = [0u8; 16];
        let len = text.len().min(16);
        name[..len].copy_from_slice(&text.as_bytes()[..len]);
        Ok(name)
    })
}
