//! From a parsed tree to one accepted configuration: joins repeated sections, runs the lowering
//! of each, and says which changes a reload cannot carry out.

use std::{borrow::Cow, collections::BTreeMap, time::Duration};

use honk_grammar::{
    Parsed,
    ast::{Item, Section, Span},
    diag::{Diagnostic, Severity},
};

use super::{
    Config, Dns, Global, Typed,
    decl::Fields,
    dns, experimental, geo, global, group,
    keys::{self, Reload},
    later,
    names::Names,
    node,
    places::Places,
    report::{Report, is_fatal},
    routing, subscription,
    typed::default_of,
};
use crate::{geo::GeoSource, routing::rule::RuleSet};

/// Sections of the language.
const SECTIONS: &[&str] = &[
    "include",
    "global",
    "subscription",
    "node",
    "group",
    "routing",
    "dns",
    "experimental",
    "chain",
    "speedtest",
    "watch",
    "bypass",
];

/// Sections whose bare name changes how their body is read.
const BARE_ONLY: &[&str] = &["include", "node", "subscription", "dns"];

/// Declared values of singleton sections by dotted key; what is absent has its default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings(BTreeMap<String, Typed>);

impl Settings {
    fn add(&mut self, section: &str, fields: &Fields) {
        for (key, entry) in fields.iter() {
            self.0
                .insert(format!("{section}.{key}"), entry.typed.clone());
        }
    }

    /// The declared value of a dotted key.
    pub fn get(&self, key: &str) -> Option<&Typed> {
        self.0.get(key)
    }

    /// The value of a key of `global`, declared or not.
    pub fn global(&self, key: &str) -> Option<Typed> {
        let row = keys::GLOBAL.iter().find(|row| row.name == key)?;
        let declared = self.get(&format!("global.{key}")).cloned();
        declared.or_else(|| default_of(row))
    }
}

/// What an empty file means: everything direct.
impl Default for Config {
    fn default() -> Self {
        Self {
            global: Global::default(),
            nodes: Vec::new(),
            groups: Vec::new(),
            rules: RuleSet {
                lines: vec![routing::direct_fallback()],
            },
            subscriptions: Vec::new(),
            dns: Dns::default(),
            settings: Settings::default(),
            places: Places::default(),
        }
    }
}

/// Lowers a parsed configuration. The findings include those of the parser, in source order; the
/// configuration is `None` when one of them is fatal. Features that this build does not serve
/// are warnings until [`super::refuse_unbuilt`]. `geodata` is asked for the files that rules name.
pub fn lower(parsed: &Parsed, geodata: &mut dyn GeoSource) -> (Option<Config>, Vec<Diagnostic>) {
    let (config, findings) = examine(parsed, geodata);
    ((!is_fatal(&findings)).then_some(config), findings)
}

/// The same, with what is left of a configuration that is refused: good for further findings
/// and for nothing else.
pub fn examine(parsed: &Parsed, geodata: &mut dyn GeoSource) -> (Config, Vec<Diagnostic>) {
    let mut report = Report::new(parsed);
    for finding in &parsed.diagnostics {
        report.push(finding.clone());
    }
    let sections = Sections::join(&mut report, &parsed.sections);
    let mut names = Names::default();
    names.partial = ["node", "group", "subscription"]
        .iter()
        .any(|name| parsed.suspect(name));
    // A broken section may have swallowed those after it.
    let whole = parsed.broken.is_empty() && !parsed.incomplete;
    for name in ["global", "routing"] {
        if !sections.has(name) && whole {
            let defaults = if name == "global" {
                "all defaults"
            } else {
                "everything direct"
            };
            let message = format!("section `{name}` is missing: {defaults}");
            report.push(
                Diagnostic::new(Severity::Warning, "W210", "section-missing", None, message)
                    .about(name, ""),
            );
        }
    }

    let mut settings = Settings::default();
    let (global, fields) = global::lower(&mut report, sections.items("global"));
    settings.add("global", &fields);
    let mut places = Places::default();
    let items = sections.items("subscription");
    let subscriptions = subscription::lower(&mut report, items, &mut places, &mut names);
    names.subscriptions = subscriptions.iter().any(|s| s.enabled) || parsed.suspect("subscription");
    let bodies = group::declare(&mut report, sections.items("group"), &mut names);
    let nodes = node::lower(&mut report, sections.items("node"), &mut names);
    for name in ["chain", "bypass", "watch", "speedtest"] {
        later::lower(&mut report, name, sections.items(name), &mut names);
    }
    let mut groups = group::lower(
        &mut report,
        &bodies,
        &names,
        check_interval(&fields),
        &mut places,
    );
    let generated = usize::from(
        fields
            .list("wan_interface")
            .is_some_and(|list| !list.is_empty()),
    );
    let mut routing = routing::lower(
        &mut report,
        sections.items("routing"),
        &mut names,
        &mut groups,
        &mut places,
        global.own_mark,
        generated,
    );
    let (mut dns, fields) = dns::lower(&mut report, sections.items("dns"), &names);
    settings.add("dns", &fields);
    geo::resolve(
        &mut report,
        geodata,
        &global,
        &routing.networks,
        &mut routing.rules,
        &mut dns,
    );
    routing.check(&mut report);
    for (section, fields) in experimental::lower(&mut report, sections.items("experimental")) {
        settings.add(&section, &fields);
    }
    for name in ["dns", "chain", "speedtest", "watch", "bypass"] {
        let items = sections.items(name);
        if let Some(first) = items.first().filter(|_| dns::is_used(items)) {
            report.unbuilt(name, name, place(first), &format!("section `{name}` is"));
        }
    }

    let findings = report.finish();
    let config = Config {
        global,
        nodes,
        groups,
        rules: routing.rules,
        subscriptions,
        dns,
        settings,
        places,
    };
    (config, findings)
}

/// `check_interval` of `global`.
fn check_interval(fields: &Fields) -> Duration {
    let declared = fields.millis("check_interval").map(i64::unsigned_abs);
    Duration::from_millis(declared.unwrap_or(30_000))
}

/// Dotted keys of class S whose effective value differs: a reload must be refused.
pub fn restart_required(old: &Config, new: &Config) -> Vec<String> {
    let tables = [
        ("global".to_owned(), keys::GLOBAL),
        ("dns".to_owned(), keys::DNS),
    ];
    let sections = keys::EXPERIMENTAL
        .iter()
        .map(|(name, t)| (format!("experimental.{name}"), *t));
    let mut changed = Vec::new();
    for (section, table) in tables.into_iter().chain(sections) {
        for row in table.iter().filter(|row| row.reload == Reload::Restart) {
            let key = format!("{section}.{}", row.name);
            let value = |config: &Config| {
                config
                    .settings
                    .get(&key)
                    .cloned()
                    .or_else(|| default_of(row))
            };
            if value(old) != value(new) {
                changed.push(key);
            }
        }
    }
    changed
}

/// Items of the sections by name, in load order.
struct Sections<'a> {
    items: BTreeMap<&'static str, Cow<'a, [Item]>>,
}

impl<'a> Sections<'a> {
    fn join(report: &mut Report<'_>, sections: &'a [Section]) -> Self {
        let mut items: BTreeMap<&'static str, Cow<'a, [Item]>> = BTreeMap::new();
        for section in sections {
            let name = section.name.text.as_str();
            let Some(known) = SECTIONS.iter().find(|known| **known == name) else {
                report.unknown_section("", &section.name, SECTIONS);
                continue;
            };
            if section.name.quoted && BARE_ONLY.contains(known) {
                let message = format!("the section name `{name}` must not be quoted");
                let finding =
                    Diagnostic::error("E202", "section-misplaced", section.name.span, message);
                report.push(finding.about("", name));
                continue;
            }
            // Most sections stand in the file once.
            match items.get_mut(known) {
                Some(joined) => joined.to_mut().extend_from_slice(&section.items),
                None => {
                    items.insert(known, Cow::Borrowed(&section.items));
                }
            }
        }
        Self { items }
    }

    fn has(&self, name: &str) -> bool {
        self.items.contains_key(name)
    }

    fn items(&self, name: &str) -> &[Item] {
        self.items.get(name).map_or(&[], |items| items)
    }
}

/// Where an item begins.
pub(super) fn place(item: &Item) -> Span {
    match item {
        Item::Decl(decl) => decl.key.span,
        Item::Rule(rule) => rule.span,
        Item::Sub(sub) => sub.name.span,
        Item::Link(link) => link.tag.as_ref().map_or(link.span, |tag| tag.span),
        Item::Path(lit) | Item::Stray(lit) => lit.span,
    }
}
