//! Measurements that people ask for, in terms of groups: what is measured with which URL, and
//! what follows from a failure.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use honk_policy::{
    config::CheckUrl,
    group::{Group, Member as Declared, builtin},
    health::{
        TestStart,
        measure::{Map, RunId},
    },
    id::{Family, GroupId, MemberId, Network, NodeId, Uuid},
    node::{Node, Protocol},
};

use super::{
    engine::Engine,
    overrides::{Effective, Overrides},
    snapshot::Snapshot,
};
pub(crate) use crate::probe::{
    measure::{Failure, Request, Stage, Statuses},
    runs::{Busy, Member, Order, Run, Runs, Shared},
};
use crate::{outbound::Dialer, probe::Groups as _};

/// Pause between reports of a run that goes on.
const PROGRESS: Duration = Duration::from_millis(500);

/// The means to measure: the dialer, and what was found.
#[derive(Debug)]
pub(crate) struct Pings {
    pub(crate) dialer: Arc<Dialer>,
    pub(crate) runs: Arc<Runs>,
    pub(crate) overrides: Arc<Overrides>,
}

/// What a request may set by itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wish {
    pub(crate) url: Option<CheckUrl>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) concurrency: Option<usize>,
    /// Of the way to the nodes.
    pub(crate) family: Option<Family>,
    /// Who comes first; the others follow as they are listed.
    pub(crate) order: Vec<Uuid>,
    /// Answers that count.
    pub(crate) expected: Statuses,
    /// What was measured before and need not be again.
    pub(crate) shared: Option<Arc<Shared>>,
}

/// What a run measures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// The members of a group.
    Group(GroupId),
    /// Nodes by themselves, in this order.
    Nodes(Vec<NodeId>),
    /// All nodes.
    All,
}

/// Why nothing was measured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PingError {
    /// Nobody can be asked yet, or any more.
    #[error("the daemon is not running")]
    NotRunning,
    #[error("no such group")]
    NoGroup,
    #[error("no such node")]
    NoNode,
    /// `block` has no way out, and a node that is switched off is not dialed.
    #[error("the node is not dialed: it is `block`, or switched off")]
    NoExit,
    #[error("`order` names what is not measured")]
    NotMeasured,
    #[error("{0}")]
    Busy(Busy),
}

impl Engine {
    /// Begins a run. Order, URL and members are those of this moment.
    pub(crate) fn ping(self: &Arc<Self>, what: &What, wish: Wish) -> Result<RunId, PingError> {
        let pings = self.pings().ok_or(PingError::NotRunning)?;
        let snapshot = self.snapshot();
        let off = self.judge.off();
        let (map, group, members) = match what {
            What::Group(id) => {
                let group = snapshot.groups.group(*id).ok_or(PingError::NoGroup)?;
                let members = group.members.iter();
                let members = members.map(|m| member(&snapshot, m, &off)).collect();
                (Map::Group(*id), Some(group), members)
            }
            What::Nodes(ids) => {
                let members: Option<Vec<Member>> =
                    ids.iter().map(|id| self.by_itself(*id, &off)).collect();
                (Map::Scratch, None, members.ok_or(PingError::NoNode)?)
            }
            What::All => {
                let nodes = snapshot.groups.nodes().iter();
                let members = nodes.filter_map(|n| self.by_itself(n.id, &off)).collect();
                (Map::Scratch, None, members)
            }
        };
        let mut members: Vec<Member> = members;
        let measured: BTreeSet<MemberId> = members.iter().map(|m| m.id).collect();
        let ids: BTreeSet<Uuid> = measured.iter().map(|id| id.uuid()).collect();
        if !wish.order.iter().all(|id| ids.contains(id)) {
            return Err(PingError::NotMeasured);
        }
        let places = wish.order.iter().zip(0usize..);
        let places: BTreeMap<Uuid, usize> = places.map(|(id, at)| (*id, at)).collect();
        members.sort_by_key(|m| places.get(&m.id.uuid()).copied().unwrap_or(usize::MAX));
        let order = Order {
            map,
            members,
            request: request(pings.overrides.effective(&snapshot, group), &wish),
            concurrency: wish.concurrency.unwrap_or_else(|| concurrency(&snapshot)),
            shared: wish.shared,
        };
        let engine = Arc::downgrade(self);
        let follow = move |failed: Option<&Arc<Node>>| {
            let Some(engine) = engine.upgrade() else {
                return;
            };
            match failed {
                Some(node) => engine.ping_failed(node.id),
                None => engine.run_ended(&measured),
            }
        };
        let dialer = Arc::clone(&pings.dialer);
        let begun = pings.runs.begin(order, dialer, follow);
        let id = begun.map_err(PingError::Busy)?;
        self.tell_run(id, group.map(|g| g.id));
        Ok(id)
    }

    /// Tells those who listen how far a run is, and how it ended.
    fn tell_run(self: &Arc<Self>, id: RunId, group: Option<GroupId>) {
        let Some(pings) = self.pings() else {
            return;
        };
        let (engine, runs) = (Arc::downgrade(self), Arc::clone(&pings.runs));
        self.spawn(async move {
            let mut ended = std::pin::pin!(runs.outcome(id));
            let mut told = 0;
            let run = loop {
                let Ok(run) = tokio::time::timeout(PROGRESS, ended.as_mut()).await else {
                    let run = runs.run(id).filter(|run| run.results.len() > told);
                    if let (Some(run), Some(engine)) = (run, engine.upgrade()) {
                        told = run.results.len();
                        engine.tell("test.progress", group, progress(&run, group));
                    }
                    continue;
                };
                break run;
            };
            if let (Some(run), Some(engine)) = (run, engine.upgrade()) {
                engine.tell("test.done", group, progress(&run, group));
            }
        });
    }

    /// A node as a member of a run of nodes; `None` when there is no such node.
    fn by_itself(&self, id: NodeId, off: &BTreeSet<NodeId>) -> Option<Member> {
        let builtins = [builtin::direct(), builtin::block()];
        let builtin = builtins.into_iter().find(|n| n.id == id).cloned();
        let leaf = self.node(id).or(builtin)?;
        Some(Member {
            id: MemberId::Node(id),
            leaf: Some(leaf).filter(|leaf| is_dialed(leaf, off)),
        })
    }

    /// What the members of a group are measured with, unless a request says otherwise.
    pub(crate) fn usual_url(&self, snapshot: &Snapshot, group: GroupId) -> Arc<str> {
        let group = snapshot.groups.group(group);
        let none = Overrides::default();
        let overrides = self.pings().map_or(&none, |p| &*p.overrides);
        overrides.effective(snapshot, group).url.0.text
    }

    /// Measures one node, as a member of a group or by itself.
    pub(crate) async fn ping_node(
        self: &Arc<Self>,
        node: NodeId,
        group: Option<GroupId>,
        wish: Wish,
    ) -> Result<(Request, Result<Duration, Failure>), PingError> {
        let pings = self.pings().ok_or(PingError::NotRunning)?;
        let snapshot = self.snapshot();
        let known = self
            .by_itself(node, &self.judge.off())
            .ok_or(PingError::NoNode)?;
        let leaf = known.leaf.ok_or(PingError::NoExit)?;
        let declared = match group {
            Some(id) => Some(snapshot.groups.group(id).ok_or(PingError::NoGroup)?),
            None => None,
        };
        let request = request(pings.overrides.effective(&snapshot, declared), &wish);
        let map = group.map_or(Map::Scratch, Map::Group);
        let member = MemberId::Node(node);
        let runs = &pings.runs;
        let result = runs.ping(&pings.dialer, map, member, &leaf, &request).await;
        if let Err(failure) = &result {
            let data = serde_json::json!({
                "node_id": node.0.to_string(),
                "stage": failure.stage.name(),
            });
            self.tell("ping.failed", group, data);
            self.ping_failed(node);
        }
        Ok((request, result))
    }

    /// Tests a group that chooses by itself; `None` for one that does not.
    pub(crate) async fn test_group(&self, group: GroupId) -> Result<Option<TestStart>, PingError> {
        let prober = self.prober().ok_or(PingError::NotRunning)?;
        let snapshot = self.snapshot();
        let declared = snapshot.groups.group(group).ok_or(PingError::NoGroup)?;
        if !declared.is_automatic() {
            return Ok(None);
        }
        let start = prober.test_group(group).await;
        if start == TestStart::Started {
            let data = serde_json::json!({ "group_id": group.0.to_string(), "state": "started" });
            self.tell("group.test", Some(group), data);
        }
        Ok(Some(start))
    }

    /// After an activation: runs and samples of what is gone go with it.
    pub(super) fn keep_pings(&self, snapshot: &Snapshot) {
        let Some(pings) = self.pings() else {
            return;
        };
        let groups = snapshot.groups.groups();
        let groups: BTreeMap<GroupId, BTreeSet<MemberId>> = groups
            .map(|g| (g.id, g.members.iter().map(Declared::id).collect()))
            .collect();
        pings.runs.keep(|map| match map {
            Map::Group(id) => groups.contains_key(&id),
            Map::Scratch => true,
        });
        pings.runs.maps(|maps| maps.retain(&groups));
    }

    /// A failure of what an automatic group selects: it looks at all its members now.
    fn ping_failed(self: &Arc<Self>, node: NodeId) {
        let selections = self.selections();
        let selects =
            |s: &honk_policy::health::Selection| s.tcp == Some(node) || s.udp == Some(node);
        let groups: Vec<GroupId> = selections
            .iter()
            .filter(|s| selects(s))
            .map(|s| s.group)
            .collect();
        self.test_soon(groups);
    }

    /// A run ended by itself: the groups whose members it measured look at them, too, and so does
    /// every urltest group.
    fn run_ended(self: &Arc<Self>, members: &BTreeSet<MemberId>) {
        use honk_policy::config::Policy;
        let snapshot = self.snapshot();
        let shares = |g: &&Group| g.members.iter().any(|m| members.contains(&m.id()));
        let groups = snapshot.groups.groups();
        let groups = groups.filter(|g| g.def.policy == Policy::UrlTest || shares(g));
        self.test_soon(groups.map(|g| g.id).collect());
    }

    fn test_soon(self: &Arc<Self>, groups: Vec<GroupId>) {
        let engine = Arc::clone(self);
        self.spawn(async move {
            for group in groups {
                // A group that is gone meanwhile needs no test.
                let _ = engine.test_group(group).await;
            }
        });
    }
}

/// The leaf of a member, unless it is not to be dialed.
fn member(snapshot: &Snapshot, member: &Declared, off: &BTreeSet<NodeId>) -> Member {
    let leaf = match member {
        Declared::Node(node) => Some(Arc::clone(node)),
        Declared::Group { .. } => {
            let MemberId::Group(id) = member.id() else {
                return Member {
                    id: member.id(),
                    leaf: None,
                };
            };
            let slot = snapshot.groups.group(id).map(|g| g.slot);
            let selected =
                slot.and_then(|slot| snapshot.groups.select(slot, Network::Tcp, Family::V4).ok());
            selected.map(|s| Arc::clone(s.leaf))
        }
    };
    Member {
        id: member.id(),
        leaf: leaf.filter(|leaf| is_dialed(leaf, off)),
    }
}

fn is_dialed(node: &Node, off: &BTreeSet<NodeId>) -> bool {
    node.protocol != Protocol::Block && !off.contains(&node.id)
}

fn progress(run: &Run, group: Option<GroupId>) -> serde_json::Value {
    let failed = run.results.iter().filter(|(_, r)| r.is_err()).count();
    serde_json::json!({
        "id": run.id.0.to_string(),
        "group_id": group.map(|id| id.0.to_string()),
        "state": run.state.name(),
        "total": run.total,
        "done": run.results.len(),
        "ok": run.results.len() - failed,
        "failed": failed,
    })
}

/// URL and timeout each come from the request, else from what holds.
pub(crate) fn request(holds: Effective, wish: &Wish) -> Request {
    Request {
        url: Arc::new(wish.url.clone().unwrap_or(holds.url.0)),
        method: "HEAD".into(),
        timeout: wish.timeout.unwrap_or(holds.timeout.0),
        family: wish.family,
        expected: wish.expected.clone(),
    }
}

fn concurrency(snapshot: &Snapshot) -> usize {
    super::health::number(&snapshot.config, "ping_concurrency", 10)
}

#[cfg(test)]
mod tests;
