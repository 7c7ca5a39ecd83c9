//! From files to a configuration that could run: parse, lower, build groups, compile rules.
//!
//! `validate`, the start, a reload and the API all go through here, so that what one accepts
//! the others accept too. Nothing is published and no kernel is touched.

use std::path::PathBuf;

use honk_common::tables::RouteTables;
use honk_grammar::{
    LoadError, Loader, Parsed,
    diag::{Diagnostic, Severity, SourceMap},
};
use honk_policy::{
    config::{self, Config, Subscription},
    group::GroupTable,
    id::Uuid,
    routing::{self, rule::RuleSet},
    subscription::MAX_BODY,
};
use sha2::{Digest as _, Sha256};

use super::{
    diag::Findings,
    loader::Files,
    share::{Share, shares},
};
use crate::{
    state::geodata::Geodata,
    subscription::{Hub, Plan, shown},
};

/// Where the configuration comes from.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub(crate) entry: PathBuf,
    pub(crate) files: Files,
    pub(crate) geodata: Geodata,
}

impl Spec {
    /// The file of a `file://` subscription.
    pub(crate) fn subscription_file(&self, decl: &Subscription) -> Result<Vec<u8>, LoadError> {
        let url = decl.url.reveal();
        let path = url.strip_prefix("file://").unwrap_or(url);
        let path = path.split(['?', '#']).next().unwrap_or_default();
        self.files.below(&self.entry, path, MAX_BODY)
    }
}

/// What is running already, for a load that follows on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Running<'a> {
    /// Keeps slots, ids and choices.
    pub(crate) groups: &'a GroupTable,
    /// Keeps the nodes of subscriptions.
    pub(crate) subscriptions: &'a Hub,
}

/// What the result is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Report: features that are not built are warnings.
    Check,
    /// Run: they are errors.
    Run,
}

/// Code of the warning about a daemon that has nothing to do.
pub(crate) const NO_LAN: &str = "no-lan-interface";

/// A configuration that could run.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) config: Config,
    pub(crate) groups: GroupTable,
    /// Lines with kernel slots for ordinals.
    pub(crate) rules: RuleSet,
    pub(crate) tables: RouteTables,
    pub(crate) revision: String,
    /// Subscriptions with the nodes that they have already.
    pub(crate) subscriptions: Plan,
}

/// The outcome of a load: a candidate unless something is wrong, and all findings either way.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) candidate: Option<Candidate>,
    pub(crate) findings: Findings,
    /// What each file contributed.
    pub(crate) shares: Vec<Share>,
}

impl Outcome {
    /// Whether nothing is wrong. A candidate runs also with errors that only cost a listener.
    pub(crate) fn is_sound(&self) -> bool {
        self.candidate.is_some() && self.findings.tally().errors == 0
    }
}

/// Loads the entry file and what it includes.
pub(crate) fn load(spec: &Spec, purpose: Purpose, running: Option<Running<'_>>) -> Outcome {
    load_with(spec, &mut spec.files.clone(), purpose, running)
}

/// The same with other eyes.
pub(super) fn load_with(
    spec: &Spec,
    files: &mut impl Loader,
    purpose: Purpose,
    running: Option<Running<'_>>,
) -> Outcome {
    let parsed = match spec.entry.to_str() {
        Some(entry) => honk_grammar::parse(entry, files),
        None => unreadable("the path of the configuration is not UTF-8".to_owned()),
    };
    finish(parsed, spec, purpose, running)
}

/// Loads one document that is not a file; includes are relative to the directory of `spec`.
pub(crate) fn load_text(spec: &Spec, name: &str, bytes: &[u8], purpose: Purpose) -> Outcome {
    let mut files = spec.files.clone();
    let dir = spec.entry.parent().filter(|d| !d.as_os_str().is_empty());
    let dir = dir.map_or_else(|| PathBuf::from("."), PathBuf::from);
    let parsed = match dir.canonicalize().map(|d| d.into_os_string().into_string()) {
        Ok(Ok(dir)) => honk_grammar::parse_document(name, bytes, &dir, &mut files),
        // Without a directory nothing can be included; the document itself is still read.
        _ => honk_grammar::parse_document(name, bytes, "/nonexistent", &mut files),
    };
    finish(parsed, spec, purpose, None)
}

fn unreadable(message: String) -> Parsed {
    Parsed {
        diagnostics: vec![Diagnostic::new(
            Severity::Error,
            "E306",
            "io",
            None,
            message,
        )],
        incomplete: true,
        ..Parsed::default()
    }
}

fn finish(parsed: Parsed, spec: &Spec, purpose: Purpose, running: Option<Running<'_>>) -> Outcome {
    let revision = revision(&parsed.sources);
    let (config, mut list) = config::examine(&parsed, &mut spec.geodata.clone());
    if purpose == Purpose::Run {
        config::refuse_unbuilt(&mut list);
    }
    // Also of what is refused already: all faults are told in one run.
    let whole = Whole::of(&parsed, &list);
    let (mut candidate, found) = build(spec, config, running, revision);
    list.extend(found.into_iter().filter(|finding| whole.tells(finding)));
    if config::is_fatal(&list) {
        candidate = None;
    }
    if let Some(candidate) = &candidate
        && candidate.config.global.lan_interface.is_empty()
        && candidate.config.global.wan_interface.is_empty()
    {
        let message =
            "neither `lan_interface` nor `wan_interface` is set: nothing is taken".to_owned();
        let finding = Diagnostic::new(Severity::Warning, "", NO_LAN, None, message);
        list.push(finding.about("global", "lan_interface"));
    }
    Outcome {
        candidate,
        shares: shares(&parsed),
        findings: Findings::new(list, parsed.sources).cut(parsed.cut),
    }
}

/// Errors of `node` and `subscription` that cost no node.
const WHOLE: &[&str] = &["node-id-collision", "node-mux"];

/// How much of a configuration there is to draw conclusions from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whole {
    /// All of it.
    All,
    /// It is refused, but not for want of nodes and groups.
    Refused,
    /// Nodes or groups are missing because of errors that are told already.
    Part,
}

impl Whole {
    fn of(parsed: &Parsed, list: &[Diagnostic]) -> Self {
        let about = |d: &Diagnostic| match d.section.as_deref() {
            Some("node" | "subscription") => !WHOLE.contains(&d.slug),
            _ => d.slug == "include-outside",
        };
        let mut errors = list.iter().filter(|d| d.severity == Severity::Error);
        let suspect = ["node", "subscription", "group"];
        match () {
            () if suspect.iter().any(|name| parsed.suspect(name)) => Self::Part,
            () if errors.any(about) => Self::Part,
            () if config::is_fatal(list) => Self::Refused,
            () => Self::All,
        }
    }

    /// Whether a finding about groups and tables is worth telling.
    fn tells(self, finding: &Diagnostic) -> bool {
        match finding.slug {
            "group-empty" | "default-unknown" | "filter-empty" => self != Self::Part,
            "too-many-groups" | "rule-too-many" => self == Self::All,
            _ => true,
        }
    }
}

fn build(
    spec: &Spec,
    config: Config,
    running: Option<Running<'_>>,
    revision: String,
) -> (Option<Candidate>, Vec<Diagnostic>) {
    let hub = running.map(|r| r.subscriptions);
    let reader = |decl: &Subscription| spec.subscription_file(decl);
    let subscriptions = Plan::new(&config.subscriptions, hub, &reader);
    let previous = running.map(|r| r.groups);
    let nodes = subscriptions.nodes();
    let (groups, mut found) = GroupTable::build_with(&config, nodes, previous, &mut Uuid::new_v4);
    if subscriptions.waits() {
        // Nodes that are still to be fetched may settle these.
        found.retain(|f| !matches!(f.slug, "group-empty" | "default-unknown" | "filter-empty"));
    }
    for (index, tag, problem) in subscriptions.problems() {
        let message = format!("{}: {}", shown(tag), problem.message);
        let place = config.places.subscription(index);
        let (severity, number, slug, help) = match problem.code {
            "permission" => (Severity::Error, "E304", "perm-open", "use 0640 or 0600"),
            _ => {
                let help = "the path starts at the directory of the entry file; \
                            `honk sub test FILE` tells what a file holds";
                (Severity::Warning, "", "subscription-file", help)
            }
        };
        let finding = Diagnostic::new(severity, number, slug, place, message).help(help);
        found.push(finding.about("subscription", tag));
    }
    let rules = config.rules.map_ordinals(|o| groups.slot_of(o));
    match routing::compile(&rules) {
        Ok(tables) => {
            let candidate = Candidate {
                config,
                groups,
                rules,
                tables,
                revision,
                subscriptions,
            };
            (Some(candidate), found)
        }
        Err(e) => {
            let message = e.to_string();
            let number = e.number();
            let finding = Diagnostic::new(Severity::Error, number, "rule-too-many", None, message);
            found.push(finding.about("routing", ""));
            (None, found)
        }
    }
}

/// `c-` and the first 16 digits of a hash over all texts in load order. Lengths are part of
/// it, so that moving text between files is a change.
pub(super) fn revision(sources: &SourceMap) -> String {
    let mut hash = Sha256::new();
    for file in sources.files() {
        hash.update((file.text.len() as u64).to_le_bytes());
        hash.update(file.text.as_bytes());
    }
    let digits: String = hash
        .finalize()
        .iter()
        .take(8)
        .map(|b| format!("{b:02x}"))
        .collect();
    format!("c-{digits}")
}

#[cfg(test)]
mod tests;
