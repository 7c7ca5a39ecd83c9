//! Rules of `dns.routing`: what happens to a query, and to an answer.

use std::collections::HashSet;

use honk_grammar::{
    ast::{Call, Decl, Item, Lit, Rule, Span, Value},
    diag::Diagnostic,
};

use super::value::{RECORD_TYPES, record_type};
use crate::{
    config::{
        GeoFile,
        args::Arguments,
        decl::repeated,
        matcher::{Near, Wrong, mac},
        report::{Report, call_name, with_help},
        value::{Letters, shortened},
    },
    routing::rule::{DomainTest, Prefix},
};

/// Rules per phase.
const MAX_RULES: usize = 1024;

/// Which rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Of queries.
    Request,
    /// Of answers.
    Response,
}

impl Phase {
    fn section(self) -> &'static str {
        match self {
            Self::Request => "dns.routing.request",
            Self::Response => "dns.routing.response",
        }
    }

    fn functions(self) -> &'static [&'static str] {
        match self {
            Self::Request => &["qname", "qtype", "sip", "mac", "sub", "node", "subnode"],
            Self::Response => &["qname", "qtype", "upstream", "ip"],
        }
    }

    fn actions(self) -> &'static [&'static str] {
        match self {
            Self::Request => &["asis", "reject"],
            Self::Response => &["accept", "reject"],
        }
    }
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsRule {
    /// All must hold.
    pub conds: Vec<DnsCond>,
    /// What follows.
    pub action: DnsAction,
}

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsCond {
    /// Written with `!`.
    pub not: bool,
    /// The values, any of which may match.
    pub test: DnsTest,
}

/// Values of one condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DnsTest {
    /// `qname`.
    Name(Vec<DomainTest>),
    /// `qtype`.
    Type(Vec<u16>),
    /// `sip`: the client, with geodata codes until they are looked up.
    Source(Vec<Prefix>, Vec<GeoFile>),
    /// `mac` of the client.
    Mac(Vec<[u8; 6]>),
    /// `upstream`: who answered.
    Upstream(Vec<String>),
    /// `ip`: some address of the answer, with geodata codes until they are looked up.
    Address(Vec<Prefix>, Vec<GeoFile>),
    /// `sub`, `node`, `subnode`: names the daemon itself looks up; no value matches all.
    Internal(InternalName, Vec<(String, String)>),
}

/// Which internal names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InternalName {
    /// Hosts of subscription URLs.
    Subscription,
    /// Hosts of nodes.
    Node,
    /// Hosts of nodes of subscriptions.
    SubscriptionNode,
}

/// What happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DnsAction {
    /// The query goes where the client sent it.
    Asis,
    /// An empty answer.
    Reject,
    /// NXDOMAIN.
    RejectName,
    /// REFUSED.
    Refuse,
    /// The answer is delivered.
    Accept,
    /// The query goes to that upstream.
    Upstream(String),
}

/// What rules may refer to.
pub(super) struct Context<'a> {
    pub(super) upstreams: &'a HashSet<&'a str>,
    pub(super) first_upstream: Option<Span>,
    pub(super) bind: bool,
}

/// Lowers `routing` of `dns`.
pub(super) fn lower(
    report: &mut Report<'_>,
    items: &[Item],
    context: &Context<'_>,
) -> (Vec<DnsRule>, Vec<DnsRule>) {
    let (mut request, mut response) = (Vec::new(), Vec::new());
    let mut at = 0;
    while let Some(item) = items.get(at) {
        let Item::Sub(sub) = item else {
            at += report.misplaced("dns.routing", items, at);
            continue;
        };
        at += 1;
        match sub.name.text.as_str() {
            "request" => request.extend(sub.items.iter().cloned()),
            "response" => response.extend(sub.items.iter().cloned()),
            _ => report.unknown_section("dns.routing", &sub.name, &["request", "response"]),
        }
    }
    let mut reader = Reader {
        report,
        context,
        phase: Phase::Request,
    };
    let request = reader.phase(&request, DnsAction::Asis);
    reader.phase = Phase::Response;
    let response = reader.phase(&response, DnsAction::Accept);
    (request, response)
}

struct Reader<'r, 's, 'c> {
    report: &'r mut Report<'s>,
    context: &'c Context<'c>,
    phase: Phase,
}

impl Reader<'_, '_, '_> {
    fn phase(&mut self, items: &[Item], default: DnsAction) -> Vec<DnsRule> {
        let section = self.phase.section();
        let mut rules = Vec::new();
        let mut fallback: Option<&Decl> = None;
        let mut at = 0;
        while let Some(item) = items.get(at) {
            at += match item {
                Item::Rule(rule) => {
                    rules.extend(self.rule(rule));
                    if rules.len() == MAX_RULES {
                        let message = format!("more than {MAX_RULES} rules with the fallback");
                        self.report
                            .error("E608", "rule-too-many", rule.span, message);
                    }
                    1
                }
                Item::Decl(decl) if matches!(decl.key.text.as_str(), "fallback" | "default") => {
                    if let Some(old) = fallback {
                        repeated(
                            self.report,
                            section,
                            "fallback",
                            old.key.span,
                            decl.key.span,
                        );
                    }
                    fallback = Some(decl);
                    1
                }
                Item::Decl(decl) => {
                    self.unknown_key(&decl.key);
                    1
                }
                _ => self.report.misplaced(section, items, at),
            };
        }
        let action = fallback
            .and_then(|decl| self.fallback(decl))
            .unwrap_or(default);
        self.fallback_warnings(fallback, &action);
        rules.push(DnsRule {
            conds: Vec::new(),
            action,
        });
        rules
    }

    fn fallback_warnings(&mut self, decl: Option<&Decl>, action: &DnsAction) {
        if self.phase == Phase::Response {
            return;
        }
        if let (None, Some(span)) = (decl, self.context.first_upstream) {
            let message = "upstreams are defined, but queries without a rule go out unchanged";
            let finding = Diagnostic::warning("W713", "dns-fallback-missing", span, message)
                .help("add `fallback: <upstream>` to `request`");
            self.report
                .push(finding.about(self.phase.section(), "fallback"));
        }
        if let (true, DnsAction::Asis, Some(decl)) = (self.context.bind, action, decl) {
            let message = "queries to `bind` have no original destination: `asis` fails them";
            let finding = Diagnostic::warning("W712", "dns-asis-bind", decl.value_span, message);
            self.report
                .push(finding.about(self.phase.section(), "fallback"));
        }
    }

    fn unknown_key(&mut self, key: &Lit) {
        let section = self.phase.section();
        let message = format!(
            "unknown key `{}` in section `{section}`",
            shortened(&key.text)
        );
        let finding = Diagnostic::error("E204", "unknown-key", key.span, message);
        let help = self.report.did_you_mean(&key.text, ["fallback", "default"]);
        let finding = with_help(finding, help);
        self.report.push(finding.about(section, &key.text));
    }

    fn rule(&mut self, rule: &Rule) -> Option<DnsRule> {
        let conds: Vec<Option<DnsCond>> = rule.conds.iter().map(|call| self.cond(call)).collect();
        let kinds: Vec<&str> = rule
            .conds
            .iter()
            .map(|call| call.name.text.as_str())
            .collect();
        let internal = |name: &&str| matches!(*name, "sub" | "node" | "subnode");
        let selector = kinds.iter().any(internal);
        if selector && kinds.iter().any(|kind| *kind != kinds[0]) {
            let message = "`sub`, `node` and `subnode` stand alone in a rule";
            let finding = Diagnostic::error("E706", "dns-selector-mixed", rule.span, message);
            self.report
                .push(finding.about(self.phase.section(), kinds[0]));
        }
        self.report.trailing_comma(rule.out.trailing_comma);
        let action = self.action(&rule.out.name, &rule.out.args, selector)?;
        Some(DnsRule {
            conds: conds.into_iter().collect::<Option<_>>()?,
            action,
        })
    }

    fn cond(&mut self, call: &Call) -> Option<DnsCond> {
        let name = call.name.text.as_str();
        if !self.phase.functions().contains(&name) {
            self.unknown_function(call);
            return None;
        }
        self.report.trailing_comma(call.trailing_comma);
        let selector = matches!(name, "sub" | "node" | "subnode");
        if call.args.is_empty() && !selector {
            let message = format!("`{}` has no argument", call_name(call));
            let finding = Diagnostic::error("E603", "argument-missing", call.span, message);
            self.report.push(finding.about(self.phase.section(), name));
            return None;
        }
        let upstreams = self.context.upstreams;
        let mut reader = Arguments {
            report: self.report,
            section: "dns",
            call,
            failed: false,
        };
        let mut geo = Vec::new();
        let test = match name {
            "qname" => DnsTest::Name(reader.names()),
            "qtype" => DnsTest::Type(reader.each(&[], |_, text| query_type(text))),
            "sip" => DnsTest::Source(reader.addresses(&["geoip"], &mut geo), geo),
            "mac" => DnsTest::Mac(reader.each(&[], |_, text| mac(text))),
            "ip" => DnsTest::Address(reader.addresses(&["geoip", "ext"], &mut geo), geo),
            "upstream" => {
                for arg in &call.args {
                    let text = arg.parts().1;
                    if text != "asis" && !upstreams.contains(text) {
                        undefined(reader.report, text, arg.span, upstreams);
                        reader.failed = true;
                    }
                }
                DnsTest::Upstream(reader.each(&[], |_, text| Ok::<_, Wrong>(text.to_owned())))
            }
            "sub" => internal(&mut reader, InternalName::Subscription),
            "node" => internal(&mut reader, InternalName::Node),
            _ => internal(&mut reader, InternalName::SubscriptionNode),
        };
        (!reader.failed).then_some(DnsCond {
            not: call.not,
            test,
        })
    }

    fn unknown_function(&mut self, call: &Call) {
        let name = call.name.text.as_str();
        let other = match self.phase {
            Phase::Request => Phase::Response,
            Phase::Response => Phase::Request,
        };
        let elsewhere =
            other.functions().contains(&name) || crate::config::cond::FUNCTIONS.contains(&name);
        let finding = if elsewhere {
            let message = format!(
                "`{}` is no function of `{}`",
                call_name(call),
                self.phase.section()
            );
            let finding = Diagnostic::error("E605", "function-misplaced", call.name.span, message);
            match name {
                "domain" => finding.help("write `qname(...)`"),
                "dip" => finding.help("write `ip(...)` in `dns.routing.response`"),
                _ if other.functions().contains(&name) => {
                    finding.help(format!("it is one of `{}`", other.section()))
                }
                _ => finding,
            }
        } else {
            let message = format!("unknown function `{}`", call_name(call));
            let finding = Diagnostic::error("E601", "function-unknown", call.name.span, message);
            let functions = self.phase.functions().iter().copied();
            with_help(finding, self.report.did_you_mean(name, functions))
        };
        self.report.push(finding.about(self.phase.section(), name));
    }

    fn fallback(&mut self, decl: &Decl) -> Option<DnsAction> {
        match &decl.value {
            Value::Literals(literals) => {
                if let [name] = literals.as_slice() {
                    return self.action(name, &[], false);
                }
            }
            Value::Calls(calls) => {
                if let [call] = calls.as_slice()
                    && !call.not
                {
                    return self.action(&call.name, &call.args, false);
                }
            }
            Value::Empty => {
                let message = format!("`{}` has no value", decl.key.text);
                let finding = Diagnostic::error("E206", "value-empty", decl.key.span, message);
                self.report
                    .push(finding.about(self.phase.section(), &decl.key.text));
                return None;
            }
        }
        let message = "`fallback` takes one action";
        let finding = Diagnostic::error("E205", "value-shape", decl.value_span, message);
        self.report
            .push(finding.about(self.phase.section(), "fallback"));
        None
    }

    fn action(
        &mut self,
        name: &Lit,
        args: &[honk_grammar::ast::Arg],
        selector: bool,
    ) -> Option<DnsAction> {
        let section = self.phase.section();
        let text = name.text.as_str();
        let refuse = |report: &mut Report<'_>, number, slug, span, message: String| {
            report.push(Diagnostic::error(number, slug, span, message).about(section, text));
            None
        };
        let parameter = match args {
            [] => None,
            [arg] if text == "reject" && self.phase == Phase::Request && arg.key.is_none() => {
                Some(arg)
            }
            [arg, ..] => {
                let message = format!("`{}` takes no such parameter", shortened(text));
                return refuse(self.report, "E606", "outbound-param", arg.span, message);
            }
        };
        let misplaced = matches!(text, "asis" | "reject" | "accept")
            && (selector || !self.phase.actions().contains(&text));
        if misplaced {
            let message = match selector {
                true => format!("internal names need an upstream, not `{text}`"),
                false => format!("`{text}` is no action of `{section}`"),
            };
            return refuse(self.report, "E704", "dns-action", name.span, message);
        }
        Some(match (text, parameter) {
            ("asis", _) => DnsAction::Asis,
            ("accept", _) => DnsAction::Accept,
            ("reject", None) => DnsAction::Reject,
            ("reject", Some(arg)) => match arg.value.text.as_str() {
                "nxdomain" => DnsAction::RejectName,
                "refused" => DnsAction::Refuse,
                _ => {
                    let message = "`reject` takes `nxdomain` or `refused`".to_owned();
                    return refuse(self.report, "E606", "outbound-param", arg.span, message);
                }
            },
            _ if self.context.upstreams.contains(text) => DnsAction::Upstream(text.to_owned()),
            _ => {
                undefined(self.report, text, name.span, self.context.upstreams);
                return None;
            }
        })
    }
}

/// E703 with a suggestion.
fn undefined(report: &mut Report<'_>, name: &str, span: Span, upstreams: &HashSet<&str>) {
    if report.parsed.suspect("dns") {
        return;
    }
    let message = format!("upstream `{}` is not defined", shortened(name));
    let finding = Diagnostic::error("E703", "dns-upstream-unknown", span, message);
    let help = report.did_you_mean(name, upstreams.iter().copied());
    let help = help.or_else(|| {
        Some(
            "rules of `dns` name upstreams; declare it as `name: 'uri'` in `upstream { }`"
                .to_owned(),
        )
    });
    report.push(with_help(finding, help).about("dns", name));
}

fn query_type(text: &str) -> Result<u16, Wrong> {
    record_type(text).ok_or_else(|| {
        let near = Near {
            word: text.to_ascii_uppercase(),
            among: || RECORD_TYPES.iter().map(|(name, _)| *name).collect(),
        };
        Wrong {
            why: format!("`{}` is no record type", shortened(text)),
            near: Some(near),
        }
    })
}

/// Selectors of names the daemon looks up itself.
fn internal(reader: &mut Arguments<'_, '_, '_>, kind: InternalName) -> DnsTest {
    let keys: &[&str] = match kind {
        InternalName::Subscription => &["tag", "tag_regex", "regex", "link_keyword", "link_regex"],
        InternalName::Node => &[
            "name",
            "name_keyword",
            "name_regex",
            "link_keyword",
            "link_regex",
        ],
        InternalName::SubscriptionNode => &[
            "subtag",
            "subtag_regex",
            "regex",
            "name",
            "name_keyword",
            "name_regex",
            "link_keyword",
            "link_regex",
        ],
    };
    for arg in &reader.call.args {
        let (key, text) = arg.parts();
        let key = key.map(|key| key.text.as_str());
        if key.is_some_and(|key| key.ends_with("regex"))
            && let Err(bad) = reader.report.pattern(text, Letters::Any)
        {
            reader.bad(key, text, arg.span, bad.text.into());
        }
    }
    let values = reader.each(keys, |key, text| {
        let key = key.unwrap_or(keys[0]);
        Ok::<_, String>((key.to_owned(), text.to_owned()))
    });
    DnsTest::Internal(kind, values)
}
