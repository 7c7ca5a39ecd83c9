//! Groups and their selections.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
};

use axum::{
    Json,
    body::Bytes,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
};
use honk_policy::{
    config::{Policy, Timing, timing},
    group::{
        ChooseError, FinalKind, FinalProblem, GroupView, Ineligible, MemberView, Scope,
        SelectionView,
    },
    id::{GroupId, MemberId, Network},
};
use serde::Deserialize;
use serde_json::Value;

use super::{
    Shared,
    doc::{
        Dropped, Elig, Final, Group, Interrupted, Leaf, Member, Page, PerNet, Sel, SelectionResult,
        Traffic, whole_ms,
    },
    error::ApiError,
    etag::{self, Tagged},
    mask::Mask,
    query::{self, Nothing, Paging, Params},
    score,
};
use crate::{
    app::{
        diag,
        engine::Engine,
        health,
        registry::OutboundStats,
        select::{Applied, Change, SelectError},
        snapshot::Snapshot,
    },
    clock,
};

type Stats = HashMap<Arc<str>, Arc<OutboundStats>>;

pub(super) async fn list(
    State(shared): State<Shared>,
    Params(paging): Params<Paging>,
) -> Result<Json<Page<Value>>, ApiError> {
    let snapshot = shared.engine.snapshot();
    let facts = Facts::of(&shared, &snapshot);
    let views: Vec<(u64, GroupView)> = (0..).zip(snapshot.groups.views()).collect();
    let document = |(_, view): &(u64, GroupView)| facts.document(view);
    query::page(&views, &paging, |(n, _)| *n, document).map(Json)
}

/// All groups, for a stream that begins.
pub(super) fn all(shared: &Shared) -> Vec<Group> {
    let snapshot = shared.engine.snapshot();
    let facts = Facts::of(shared, &snapshot);
    let views = snapshot.groups.views();
    views.iter().map(|view| facts.document(view)).collect()
}

pub(super) async fn one(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    _: Params<Nothing>,
) -> Result<Tagged<Group>, ApiError> {
    let id = GroupId(query::id(&id, "group")?);
    let snapshot = shared.engine.snapshot();
    let view = snapshot.groups.view(id).ok_or_else(unknown)?;
    Ok(shown(&shared, &snapshot, &view))
}

pub(super) async fn by_name(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    _: Params<Nothing>,
) -> Result<Tagged<Group>, ApiError> {
    let snapshot = shared.engine.snapshot();
    let group = snapshot.groups.group_named(&name);
    let view = group.and_then(|g| snapshot.groups.view(g.id));
    Ok(shown(&shared, &snapshot, &view.ok_or_else(unknown)?))
}

pub(super) async fn selection(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    _: Params<Nothing>,
) -> Result<Json<SelectionResult>, ApiError> {
    let id = GroupId(query::id(&id, "group")?);
    let snapshot = shared.engine.snapshot();
    let applied = Applied::unchanged(snapshot);
    result(&applied, id).map(Json)
}

/// Body of a selection change.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    member_id: String,
    #[serde(default)]
    network: Networks,
}

/// Networks of a change.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Networks {
    Tcp,
    Udp,
    #[default]
    Both,
}

impl Networks {
    fn scope(self) -> Scope {
        match self {
            Self::Tcp => Scope::Tcp,
            Self::Udp => Scope::Udp,
            Self::Both => Scope::Both,
        }
    }
}

/// Query of a selection change.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HowToSelect {
    interrupt: Option<bool>,
    /// `DELETE` only.
    network: Option<Networks>,
}

pub(super) async fn select(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    Params(how): Params<HowToSelect>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<SelectionResult>, ApiError> {
    if how.network.is_some() {
        let text = "the network of a selection stands in the body";
        return Err(ApiError::bad_query("network", text));
    }
    let group = GroupId(query::id(&id, "group")?);
    fence(&shared.engine, group, &headers)?;
    let wanted: Wanted = query::json(&headers, &body)?;
    let member = member(&shared.engine.snapshot(), group, &wanted.member_id)?;
    let change = Change {
        group,
        scope: wanted.network.scope(),
        member: Some(member),
        interrupt: how.interrupt,
    };
    apply(&shared.engine, change).await
}

pub(super) async fn unselect(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    Params(how): Params<HowToSelect>,
    headers: HeaderMap,
) -> Result<Json<SelectionResult>, ApiError> {
    let group = GroupId(query::id(&id, "group")?);
    fence(&shared.engine, group, &headers)?;
    let change = Change {
        group,
        scope: how.network.unwrap_or_default().scope(),
        member: None,
        interrupt: how.interrupt,
    };
    apply(&shared.engine, change).await
}

async fn apply(engine: &Engine, change: Change) -> Result<Json<SelectionResult>, ApiError> {
    let applied = engine.select(change).await.map_err(|e| match e {
        SelectError::Choose(ChooseError::UnknownGroup) => unknown(),
        SelectError::Choose(e @ ChooseError::NotAMember) => not_a_member(e.to_string()),
        SelectError::Kernel(e) => {
            let code = "datapath_unhealthy";
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, code, e.to_string())
        }
    })?;
    result(&applied, change.group).map(Json)
}

/// The member with that id, as the group lists it.
fn member(snapshot: &Snapshot, group: GroupId, text: &str) -> Result<MemberId, ApiError> {
    let group = snapshot.groups.group(group).ok_or_else(unknown)?;
    let wanted = uuid::Uuid::try_parse(text).ok();
    let found = group
        .members
        .iter()
        .map(|m| m.id())
        .find(|m| Some(m.uuid()) == wanted);
    found.ok_or_else(|| not_a_member(ChooseError::NotAMember.to_string()))
}

pub(super) fn unknown() -> ApiError {
    ApiError::not_found("group", "no such group")
}

fn not_a_member(message: String) -> ApiError {
    ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "not_a_member", message)
}

fn result(applied: &Applied, id: GroupId) -> Result<SelectionResult, ApiError> {
    let view = applied.snapshot.groups.view(id).ok_or_else(unknown)?;
    let mut warnings: Vec<String> = Vec::new();
    for refuse in [view.tcp.refuse, view.udp.refuse].into_iter().flatten() {
        if !warnings.iter().any(|w| w == refuse.name()) {
            warnings.push(refuse.name().to_owned());
        }
    }
    Ok(SelectionResult {
        selection: PerNet {
            tcp: sel(&view.tcp),
            udp: sel(&view.udp),
        },
        selection_revision: view.selection_revision,
        changed: PerNet {
            tcp: applied.changed.tcp,
            udp: applied.changed.udp,
        },
        interrupted: Interrupted {
            closed: applied.closing.closed,
            pending: applied.closing.pending,
        },
        warnings,
    })
}

pub(super) fn shown(shared: &Shared, snapshot: &Snapshot, view: &GroupView) -> Tagged<Group> {
    let group = Facts::of(shared, snapshot).document(view);
    Tagged(group.revision.clone(), group)
}

/// What is told about groups besides themselves.
struct Facts<'a> {
    engine: &'a Engine,
    stats: Stats,
    mask: &'a Mask,
    snapshot: &'a Snapshot,
}

impl<'a> Facts<'a> {
    fn of(shared: &'a Shared, snapshot: &'a Snapshot) -> Self {
        Self {
            engine: &shared.engine,
            stats: shared.engine.registry.stats().into_iter().collect(),
            mask: &shared.mask,
            snapshot,
        }
    }

    fn timing(&self, view: &GroupView) -> Timing {
        let interval = health::check_interval(&self.snapshot.config);
        let group = self.snapshot.groups.group(view.id);
        match group {
            Some(group) => group.def.timing(interval),
            None => timing(None, None, interval),
        }
    }

    fn document(&self, view: &GroupView) -> Group {
        let timing = self.timing(view);
        let automatic = view.policy != Policy::Selector;
        let written = document(view, &self.stats, self.mask);
        Group {
            check_interval_s: automatic.then_some(timing.interval.as_secs()),
            idle_timeout_effective_s: timing.idle.map_or(0, |idle| idle.as_secs()),
            score_verification: score::verified_group(self.engine, self.snapshot, view),
            ..written
        }
    }
}

/// Changes with what the group is, not with what it selects or carries.
pub(super) fn revision(view: &GroupView) -> String {
    let members: Vec<_> = view
        .members
        .iter()
        .map(|m| (m.id.uuid().to_string(), &m.name))
        .collect();
    let configured = serde_json::json!([
        view.name,
        view.policy.name(),
        view.default,
        view.final_.as_ref().map(|f| &f.name),
        view.check_url,
        view.tolerance_ms,
        view.tolerance_source.name(),
        view.idle_timeout_s,
        view.interrupt_connections,
        view.icon.as_ref().map(|icon| icon.reveal()),
        view.filters,
        members,
    ]);
    etag::revision("g", configured.to_string().as_bytes())
}

/// The change must build on the group as it is, if the client says on what it builds.
fn fence(engine: &Engine, id: GroupId, headers: &HeaderMap) -> Result<(), ApiError> {
    let snapshot = engine.snapshot();
    let view = snapshot.groups.view(id).ok_or_else(unknown)?;
    etag::check(headers, &[&revision(&view)])
}

fn document(view: &GroupView, stats: &Stats, mask: &Mask) -> Group {
    Group {
        id: view.id.0.to_string(),
        name: view.name.clone(),
        policy: view.policy.name().to_owned(),
        ordinal: view.ordinal.0,
        slot: view.slot.0,
        implicit: view.implicit,
        icon: view.icon.as_ref().map(|i| mask.text(i.reveal())),
        default: view.default.clone(),
        default_member_id: view.default_member.map(|m| m.uuid().to_string()),
        final_: view.final_.as_ref().map(|f| Final {
            name: f.name.clone(),
            kind: final_kind(f.kind).to_owned(),
            id: f.id.map(|id| id.to_string()),
            problem: f.problem.map(|p| problem(p).to_owned()),
        }),
        check_url: view.check_url.clone(),
        check_interval_s: None,
        tolerance_ms: view.tolerance_ms,
        tolerance_source: view.tolerance_source.name().to_owned(),
        idle_timeout_s: view.idle_timeout_s,
        idle_timeout_effective_s: 0,
        interrupt_connections: view.interrupt_connections,
        filters: view.filters.clone(),
        members: view.members.iter().map(member_document).collect(),
        dropped_members: view
            .dropped_members
            .iter()
            .map(|d| Dropped {
                id: d.id.0.to_string(),
                name: d.name.clone(),
                code: d.code.to_owned(),
            })
            .collect(),
        leaf_count: view.leaf_count,
        selection: PerNet {
            tcp: sel(&view.tcp),
            udp: sel(&view.udp),
        },
        selection_revision: view.selection_revision,
        score_verification: None,
        revision: revision(view),
        traffic: traffic(stats.get(view.name.as_str())),
        warnings: view.warnings.iter().map(diag::placeless).collect(),
    }
}

fn traffic(stats: Option<&Arc<OutboundStats>>) -> Traffic {
    let Some(stats) = stats else {
        return Traffic::default();
    };
    let mut traffic = Traffic::default();
    for network in [Network::Tcp, Network::Udp] {
        let net = stats.of(network);
        traffic.up_bytes += net.up.load(Ordering::Relaxed);
        traffic.down_bytes += net.down.load(Ordering::Relaxed);
        traffic.active += net.open.load(Ordering::Relaxed);
    }
    traffic
}

fn member_document(view: &MemberView) -> Member {
    let elig = |why: Option<Ineligible>| Elig {
        ok: why.is_none(),
        reason: why.map(|w| w.name().to_owned()),
    };
    Member {
        id: view.id.uuid().to_string(),
        kind: match view.id {
            MemberId::Node(_) => "node",
            MemberId::Group(_) => "group",
        }
        .to_owned(),
        name: view.name.clone(),
        index: view.index,
        duplicate_name: view.duplicate_name,
        eligible: PerNet {
            tcp: elig(view.tcp),
            udp: elig(view.udp),
        },
        delay_ms: whole_ms(view.delay_ms),
        leaf: view.leaf.as_ref().map(|(id, name)| Leaf {
            id: id.0.to_string(),
            name: name.clone(),
        }),
    }
}

fn sel(view: &SelectionView) -> Sel {
    Sel {
        member_id: view.member.as_ref().map(|(id, _)| id.uuid().to_string()),
        member_name: view.member.as_ref().map(|(_, name)| name.clone()),
        leaf_id: view.leaf.as_ref().map(|(id, _)| id.0.to_string()),
        leaf_name: view.leaf.as_ref().map(|(_, name)| name.clone()),
        path: view.path.iter().map(ToString::to_string).collect(),
        alive: view.alive,
        delay_ms: whole_ms(view.delay_ms),
        since: view.since_ms.map(clock::text),
        source: view.source.map_or("none", |s| s.name()).to_owned(),
        pinned: view.pinned_at_ms.is_some(),
        pinned_at: view.pinned_at_ms.map(clock::text),
        final_used: view.final_used.clone(),
        refuse: view.refuse.map(|r| r.name().to_owned()),
    }
}

fn final_kind(kind: FinalKind) -> &'static str {
    match kind {
        FinalKind::Node => "node",
        FinalKind::Group => "group",
        FinalKind::Direct => "direct",
        FinalKind::Block => "block",
    }
}

fn problem(problem: FinalProblem) -> &'static str {
    match problem {
        FinalProblem::Missing => "final_missing",
        FinalProblem::Cycle => "final_cycle",
    }
}
