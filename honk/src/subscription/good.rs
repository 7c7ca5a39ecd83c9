//! A body that was read: nodes in use, and what is told about them.

use std::{collections::BTreeMap, sync::Arc};

use honk_grammar::diag::{Diagnostic, Severity};
use honk_policy::{
    config::Subscription,
    id::Uuid,
    node::{Node, Origin},
    subscription::{self, Counts, Format, Info},
};

use super::{error::FetchError, http::Validators, store::Stored};

/// Where a body came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Via {
    Network,
    /// The copy of an earlier fetch.
    Store,
    /// `file://`
    File,
    /// A body of another program, until the first fetch.
    Seed,
}

impl Via {
    /// Name as in the API.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Store => "store",
            Self::File => "file",
            Self::Seed => "seed",
        }
    }
}

/// A good body.
#[derive(Clone, Debug)]
pub(crate) struct Good {
    /// Nodes that can be dialed, in the order of the body.
    pub(crate) nodes: Vec<Node>,
    pub(crate) format: Format,
    pub(crate) counts: Counts,
    /// Nodes whose protocol this build does not dial, by protocol.
    pub(crate) unbuilt: BTreeMap<&'static str, usize>,
    pub(crate) findings: Vec<Diagnostic>,
    pub(crate) info: Info,
    pub(crate) via: Via,
    /// Unix milliseconds of the fetch.
    pub(crate) fetched_ms: u64,
    pub(crate) validators: Validators,
}

impl Good {
    /// Reads a body.
    pub(crate) fn read(
        decl: &Subscription,
        id: Uuid,
        stored: &Stored,
        via: Via,
    ) -> Result<Self, FetchError> {
        let body = subscription::parse(&stored.bytes, Format::from_name(&decl.format))?;
        let (nodes, unbuilt) = body.nodes(&origin(decl, id));
        if nodes.is_empty() {
            return Err(FetchError::NoneBuilt(body.members.len()));
        }
        let mut findings = body.findings(&decl.tag);
        findings.extend(not_built(&decl.tag, &unbuilt));
        let mut info = body.info.clone();
        for (name, value) in &stored.headers {
            info.header(name, value);
        }
        Ok(Self {
            nodes,
            format: body.format,
            counts: body.counts,
            unbuilt,
            findings,
            info,
            via,
            fetched_ms: stored.fetched_ms,
            validators: stored.validators.clone(),
        })
    }

    /// The same for a declaration with another tag.
    pub(super) fn tagged(&self, decl: &Subscription, id: Uuid) -> Self {
        let origin = origin(decl, id);
        let mut good = self.clone();
        for node in &mut good.nodes {
            node.origin = Some(Arc::clone(&origin));
        }
        good
    }

    /// The same, found unchanged at a later time.
    pub(super) fn confirmed(&self, headers: &[(&'static str, String)], now_ms: u64) -> Self {
        let mut good = self.clone();
        for (name, value) in headers {
            good.info.header(name, value);
        }
        good.fetched_ms = now_ms;
        good.via = Via::Network;
        good
    }
}

fn origin(decl: &Subscription, id: Uuid) -> Arc<Origin> {
    Arc::new(Origin {
        subscription: id,
        tag: decl.tag.clone(),
    })
}

fn not_built(tag: &str, unbuilt: &BTreeMap<&'static str, usize>) -> Option<Diagnostic> {
    let count: usize = unbuilt.values().sum();
    let list: Vec<String> = unbuilt
        .iter()
        .map(|(what, n)| format!("{n} {what}"))
        .collect();
    let message = format!(
        "{}: {count} nodes are left out, their protocols are not built yet: {}",
        shown(tag),
        list.join(", ")
    );
    let finding = Diagnostic::new(Severity::Warning, "", "node-not-built", None, message);
    (count > 0).then(|| finding.about("subscription", tag))
}

/// A subscription for messages.
pub(crate) fn shown(tag: &str) -> String {
    match tag {
        "" => "a subscription".to_owned(),
        tag => format!("subscription `{tag}`"),
    }
}
