//! Geodata in rules: reads the codes that rules name, puts the lists into the rules, and says
//! what is missing.
//!
//! A missing code is an error, because a rule without its list would send traffic elsewhere
//! than its author meant. With `missing_geodata: skip` the whole rule never matches instead;
//! leaving out one value would turn `!domain(geosite: x)` into a rule that always does.

use honk_grammar::{ast::Span, diag::Diagnostic};

use super::{
    Dns, DnsRule, DnsTest, GeoFile, GeoUse, Global, MissingGeodata,
    report::{Report, with_help},
    value::shortened,
};
use crate::{
    geo::{self, Found, GeoSource, Lack, Unreadable, What},
    routing::rule::{Cond, DomainTest, Prefix, RuleSet, Test},
};

/// Where a rule names a code.
pub(super) struct Named {
    pub(super) what: What,
    pub(super) code: GeoFile,
    pub(super) span: Span,
    /// Section of the rule.
    pub(super) section: &'static str,
}

/// Fills the rules. `networks` are the places of address lists in `rules`.
pub(super) fn resolve(
    report: &mut Report<'_>,
    source: &mut dyn GeoSource,
    global: &Global,
    networks: &[GeoUse],
    rules: &mut RuleSet,
    dns: &mut Dns,
) {
    let named = std::mem::take(&mut report.geodata);
    // A `global` that could not be read may have said where the files are.
    if named.is_empty() || report.parsed.suspect("global") {
        return;
    }
    let wanted = named.iter().map(|named| (named.what, named.code.clone()));
    let found = geo::load(wanted, source, global.data_dir.as_deref());
    for named in &named {
        let finding = finding(named, &found, global.missing_geodata);
        report.found(finding.map(|f| f.about(named.section, &named.code.code)));
    }
    fill_rules(rules, networks, &found);
    for phase in [&mut dns.request, &mut dns.response] {
        phase.retain_mut(|rule| fill_dns(rule, &found).is_some());
    }
}

/// A condition that no flow satisfies.
fn never() -> Cond {
    let test = Test::L4Proto {
        tcp: false,
        udp: false,
    };
    Cond { not: false, test }
}

fn fill_rules(rules: &mut RuleSet, networks: &[GeoUse], found: &Found) {
    let mut dead = Vec::new();
    for place in networks {
        let line = rules.lines.get_mut(place.line);
        let Some(cond) = line.and_then(|line| line.conds.get_mut(place.cond)) else {
            continue;
        };
        if let Test::Dest(list) | Test::Source(list) = &mut cond.test
            && add_networks(list, &place.file, found).is_none()
        {
            dead.push(place.line);
        }
    }
    for (at, line) in rules.lines.iter_mut().enumerate() {
        for cond in &mut line.conds {
            if let Test::Domain(tests) = &mut cond.test
                && fill_names(tests, found).is_none()
            {
                dead.push(at);
            }
        }
    }
    for line in dead {
        rules.lines[line].conds = vec![never()];
    }
}

/// `None`: the rule must never match.
fn fill_dns(rule: &mut DnsRule, found: &Found) -> Option<()> {
    for cond in &mut rule.conds {
        match &mut cond.test {
            DnsTest::Name(tests) => fill_names(tests, found)?,
            DnsTest::Source(list, codes) | DnsTest::Address(list, codes) => {
                for code in std::mem::take(codes) {
                    add_networks(list, &code, found)?;
                }
            }
            DnsTest::Type(_) | DnsTest::Mac(_) | DnsTest::Upstream(_) | DnsTest::Internal(..) => {}
        }
    }
    Some(())
}

fn fill_names(tests: &mut [DomainTest], found: &Found) -> Option<()> {
    for test in tests {
        if let DomainTest::Geosite {
            file,
            code,
            attr,
            list,
        } = test
        {
            let code = GeoFile {
                file: file.clone(),
                code: code.clone(),
                attr: attr.clone(),
            };
            *list = found.sites.get(&code)?.as_ref().ok()?.list.clone();
        }
    }
    Some(())
}

fn add_networks(list: &mut Vec<Prefix>, code: &GeoFile, found: &Found) -> Option<()> {
    let networks = found.networks.get(code)?.as_ref().ok()?;
    list.extend_from_slice(networks);
    Some(())
}

/// What is to be said about a code at one place.
fn finding(named: &Named, found: &Found, rule: MissingGeodata) -> Option<Diagnostic> {
    let code = &named.code;
    let (unusable, len) = match named.what {
        What::Sites => match found.sites.get(code)? {
            Ok(names) => (names.unusable, names.list.len()),
            Err(lack) => return Some(missing(named, lack, rule)),
        },
        What::Networks => match found.networks.get(code)? {
            Ok(list) => (0, list.len()),
            Err(lack) => return Some(missing(named, lack, rule)),
        },
    };
    let (file, name) = (shortened(&code.file), shortened(&code.code));
    let message = match (&code.attr, len, unusable) {
        (_, _, 1..) => format!(
            "{unusable} values of `{name}` in `{file}` are no names and no patterns: they match nothing"
        ),
        (Some(attr), 0, _) => format!(
            "nothing of `{name}` in `{file}` has the attribute `{}`: it matches nothing",
            shortened(attr)
        ),
        (None, 0, _) => format!("`{name}` in `{file}` is empty: it matches nothing"),
        _ => return None,
    };
    Some(Diagnostic::warning(
        "W610",
        "geo-empty",
        named.span,
        message,
    ))
}

fn missing(named: &Named, lack: &Lack, rule: MissingGeodata) -> Diagnostic {
    let (file, name) = (shortened(&named.code.file), shortened(&named.code.code));
    let message = format!("geodata `{name}`: `{file}` {lack}");
    let help = match lack {
        Lack::Code { near: Some(near) } => Some(format!("did you mean `{near}`?")),
        Lack::File(Unreadable::Missing(_)) if rule == MissingGeodata::Error => {
            Some("with `missing_geodata: skip` such a rule never matches".to_owned())
        }
        _ => None,
    };
    // An inverse list is there; only its meaning is none of ours.
    let skip = rule == MissingGeodata::Skip && *lack != Lack::Inverse;
    let finding = match skip {
        true => {
            let message = format!("{message}; the rule never matches");
            Diagnostic::warning("W609", "geo-missing", named.span, message)
        }
        false => Diagnostic::error("E609", "geo-missing", named.span, message),
    };
    with_help(finding, help)
}
