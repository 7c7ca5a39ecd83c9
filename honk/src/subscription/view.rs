//! What others may see of the subscriptions: no URL beyond scheme and host, no credential.

use std::{collections::BTreeMap, sync::Arc};

use honk_grammar::diag::Diagnostic;
use honk_policy::{
    config::{Source, Subscription},
    id::Uuid,
    subscription::{Changes, Counts, UserInfo},
};
use sha2::{Digest as _, Sha256};

use super::{
    Hub,
    entry::Entry,
    error::{FetchResult, Problem},
    target::Target,
};

/// One subscription at a moment.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) id: Uuid,
    pub(crate) tag: String,
    /// See [`masked`].
    pub(crate) url: String,
    /// `http`, `file` or `http-file`.
    pub(crate) source: &'static str,
    pub(crate) enabled: bool,
    pub(crate) allow_private: bool,
    pub(crate) state: &'static str,
    /// Seconds between updates; `None` when only the owner asks for them.
    pub(crate) interval_s: Option<u64>,
    pub(crate) nodes: usize,
    pub(crate) shadowed: usize,
    pub(crate) format: Option<&'static str>,
    /// Where the nodes in use came from.
    pub(crate) via: Option<&'static str>,
    pub(crate) entries: Counts,
    pub(crate) unbuilt: BTreeMap<&'static str, usize>,
    pub(crate) findings: Vec<Diagnostic>,
    pub(crate) title: Option<String>,
    pub(crate) user: Option<UserInfo>,
    pub(crate) problem: Option<Problem>,
    pub(crate) failures: u32,
    pub(crate) attempts: u64,
    /// Unix milliseconds.
    pub(crate) attempted_ms: Option<u64>,
    pub(crate) succeeded_ms: Option<u64>,
    pub(crate) next_ms: Option<u64>,
    /// Step and bytes of the fetch under way.
    pub(crate) progress: Option<(&'static str, usize)>,
    /// The last refresh that changed something.
    pub(crate) changes: Option<(u64, Arc<Changes>)>,
    /// In the order of [`FetchResult::NAMES`].
    pub(crate) counts: [u64; FetchResult::NAMES.len()],
}

impl Hub {
    /// All subscriptions in order of declaration.
    pub(crate) fn views(&self) -> Vec<View> {
        self.lock().iter().map(Entry::view).collect()
    }
}

impl Entry {
    fn view(&self) -> View {
        let good = self.good.as_deref();
        View {
            id: self.id,
            tag: self.decl.tag.clone(),
            url: masked(&self.decl),
            source: match self.decl.source {
                Source::Web => "http",
                Source::StoredWeb => "http-file",
                Source::File => "file",
            },
            enabled: self.decl.enabled,
            allow_private: self.decl.allow_private,
            state: self.state(),
            interval_s: self.interval().map(|i| i.as_secs()),
            nodes: good.map_or(0, |g| g.nodes.len()),
            shadowed: self.shadowed,
            format: good.map(|g| g.format.name()),
            via: good.map(|g| g.via.name()),
            entries: good.map(|g| g.counts).unwrap_or_default(),
            unbuilt: good.map(|g| g.unbuilt.clone()).unwrap_or_default(),
            findings: good.map(|g| g.findings.clone()).unwrap_or_default(),
            title: good.and_then(|g| g.info.title.clone()),
            user: good.and_then(|g| g.info.user),
            problem: self.problem.clone(),
            failures: self.failures,
            attempts: self.attempts,
            attempted_ms: self.attempted.map(|(_, ms)| ms),
            succeeded_ms: good.map(|g| g.fetched_ms).filter(|ms| *ms > 0),
            next_ms: self.due.map(|(_, ms)| ms),
            progress: self.busy.as_ref().map(|p| p.now()),
            changes: self.changes.clone(),
            counts: self.counts,
        }
    }

    fn state(&self) -> &'static str {
        match (&self.good, &self.problem) {
            _ if !self.decl.enabled => "disabled",
            (Some(_), None) => "ok",
            // The nodes of an earlier body serve.
            (Some(_), Some(_)) => "stale",
            (None, Some(_)) => "failed",
            (None, None) => "pending",
        }
    }
}

/// `https://host/***#0123456789ab`: enough to tell two apart, too little to use either. The
/// digits are those of a hash.
pub(crate) fn masked(decl: &Subscription) -> String {
    let url = decl.url.reveal();
    let place = match (decl.source, Target::parse(url)) {
        (Source::File, _) => "file://".to_owned(),
        (_, Ok(target)) => target.shown() + "/",
        (_, Err(_)) => "?://".to_owned(),
    };
    let hash = Sha256::digest(url.as_bytes());
    let digits: String = hash.iter().take(6).map(|b| format!("{b:02x}")).collect();
    format!("{place}***#{digits}")
}
