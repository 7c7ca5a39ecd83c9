//! Nodes that cannot be built: found when a configuration is taken into use, switched off with a
//! word why, and switched on again when their settings change (docs/HEALTH.md).

mod by_hand;

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use honk_policy::{
    config::{Config, Typed},
    id::NodeId,
    node::Node,
    verdict::{
        Body, End, Kind, LIMIT, NodeRef, Outcome, Rejection, Rounds, Step, Verdict, Verdicts,
    },
};
use serde_json::{Value, json};

use super::notify;
use crate::{
    cli::{exit::Exit, version},
    clock,
    outbound::build,
    state::{self, disabled::Marks},
    words::plural,
};

pub(crate) use self::by_hand::Unswitched;

/// Names told in the banner.
const NAMES: usize = 3;

/// `global.auto_disable`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// When somebody starts or reloads.
    Start,
    /// Also when subscriptions bring nodes.
    Always,
    Off,
}

impl Mode {
    pub(crate) fn of(config: &Config) -> Self {
        match config.settings.global("auto_disable") {
            Some(Typed::Text(text)) if text == "always" => Self::Always,
            Some(Typed::Text(text)) if text == "off" => Self::Off,
            _ => Self::Start,
        }
    }
}

/// Who wants the nodes to be taken into use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Somebody who starts or reloads.
    Operator,
    /// Nobody in particular.
    Background,
}

/// Why nodes are not taken into use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    /// Nodes are not to be left out now.
    #[error("{0}; remove the node, or let honk leave it out with `auto_disable`")]
    Node(Rejection),
    /// Leaving out nodes does not help.
    #[error("{0}")]
    Failed(String),
    /// A human is to decide.
    #[error(
        "{LIMIT} nodes are disabled and there are more: {0}; start with --keep-checking to leave out all of them"
    )]
    Limit(Rejection),
}

impl Refused {
    /// Code of the failure of a start.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Node(_) | Self::Failed(_) => "node-rejected",
            Self::Limit(_) => "reject-limit",
        }
    }

    /// Exit code of a start: one after which the service manager does not try again.
    pub(crate) fn exit(&self) -> Exit {
        Exit::Config
    }
}

/// What people are told once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Banner {
    pub(crate) id: u64,
    pub(crate) text: String,
    pub(crate) nodes: Vec<NodeId>,
}

/// Why a node is off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Off {
    /// `auto`: it cannot be built; `user`: somebody switched it off.
    pub(crate) by: &'static str,
    pub(crate) reason: String,
    pub(crate) at_ms: u64,
    /// What was judged.
    pub(crate) body: Option<Body>,
}

/// Something to tell: type and data of an event.
pub(crate) type News = (&'static str, Value);

/// Who is off, and since when.
#[derive(Debug)]
pub(crate) struct Judge {
    path: PathBuf,
    /// Nobody is to be asked, however many there are.
    keep_checking: AtomicBool,
    rejections: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    verdicts: Verdicts,
    /// Switched off by hand, which no rule here changes.
    marks: Marks,
    /// Not told yet.
    news: Vec<News>,
    banner: Option<Banner>,
    banners: u64,
}

impl Judge {
    /// With what is known from before.
    pub(crate) fn load(path: PathBuf, keep_checking: bool) -> Self {
        let verdicts = state::verdicts::load(&path).unwrap_or_else(|error| {
            let path = path.display();
            tracing::warn!(target: "honk::health", %error, %path, "stored verdicts are lost");
            Verdicts::default()
        });
        let by_hand = path.with_file_name(by_hand::FILE);
        let marks = state::disabled::load(&by_hand).unwrap_or_else(|error| {
            let path = by_hand.display();
            tracing::warn!(target: "honk::health", %error, %path, "nodes switched off are on again");
            Marks::new()
        });
        let state = State {
            verdicts,
            marks,
            ..State::default()
        };
        Self {
            path,
            keep_checking: keep_checking.into(),
            rejections: AtomicU64::new(0),
            state: Mutex::new(state),
        }
    }

    /// Finds out which of these nodes are to be left out. `waits` tells of which nodes it is not
    /// known yet whether they are there. Writes a file: not for threads that carry flows.
    pub(crate) fn judge(
        &self,
        config: &Config,
        nodes: &[Arc<Node>],
        wish: Wish,
        waits: impl Fn(&NodeRef) -> bool,
    ) -> Result<BTreeSet<NodeId>, Refused> {
        let mode = Mode::of(config);
        let leaves_out = match wish {
            Wish::Operator => mode != Mode::Off,
            Wish::Background => mode == Mode::Always,
        };
        let (mut verdicts, marked) = {
            let state = self.lock();
            let marked = state.marks.keys().map(|node| node.id);
            (state.verdicts.clone(), marked.collect::<BTreeSet<NodeId>>())
        };
        let lifted = verdicts.lift(nodes, waits);
        let before = &verdicts.off() | &marked;
        let limit = (!self.keep_checking.load(Ordering::Relaxed)).then_some(LIMIT);
        let mut rounds = Rounds::new(limit);
        let known = |node: &NodeRef| nodes.iter().any(|n| *node == NodeRef::from(&**n));
        let mut step = Step::Activate;
        let end = loop {
            // The rest of an activation comes after this one, and is not about nodes.
            if let Step::End(end) = step {
                break end;
            }
            let outcome = first_fault(nodes, &before, rounds.off());
            if let Outcome::Rejected(rejection) = &outcome {
                self.rejections.fetch_add(1, Ordering::Relaxed);
                if !leaves_out {
                    tracing::error!(target: "honk::health", %rejection, "activation_rejected");
                    self.lock()
                        .news
                        .push(("activation.rejected", about(rejection)));
                    return Err(Refused::Node(rejection.clone()));
                }
                let off = rounds.off().len();
                notify::checking(&format!("Checking nodes… ({off} disabled)"));
            }
            step = rounds.told(outcome, known);
        };
        let body = |r: &Rejection| nodes.iter().find(|n| r.node == NodeRef::from(&***n));
        for rejection in rounds.off() {
            if let Some(node) = body(rejection) {
                verdicts.add(rejection, Body::of(node), clock::now_ms());
            }
        }
        let off = &verdicts.off() | &marked;
        self.settle(verdicts, &lifted, rounds.off());
        match end {
            End::Active => Ok(off),
            End::Failed(why) => Err(Refused::Failed(why)),
            End::Limit(rejection) => {
                self.lock()
                    .news
                    .push(("activation.rejected", about(&rejection)));
                Err(Refused::Limit(rejection))
            }
        }
    }

    /// Tells and keeps what came out.
    fn settle(&self, verdicts: Verdicts, lifted: &[(NodeRef, Verdict)], new: &[Rejection]) {
        for (_, verdict) in lifted {
            let node = &*verdict.tag;
            tracing::info!(target: "honk::health", node, verdict_lifted = true, "node_enabled");
        }
        for rejection in new {
            let (node, reason) = (&*rejection.tag, &*rejection.reason);
            tracing::warn!(target: "honk::health", node, by = "auto", reason, "node_disabled");
        }
        if (!lifted.is_empty() || !new.is_empty())
            && let Err(error) = state::verdicts::save(&self.path, &verdicts, version::VERSION)
        {
            let path = self.path.display();
            tracing::warn!(target: "honk::health", %error, %path, "verdicts are not stored");
        }
        let mut state = self.lock();
        state.verdicts = verdicts;
        for (node, verdict) in lifted {
            let data = json!({
                "node_id": node.id.0.to_string(),
                "node": verdict.tag,
                "by": "auto",
                "verdict_lifted": true,
            });
            state.news.push(("node.enabled", data));
        }
        for rejection in new {
            let mut data = about(rejection);
            data["by"] = "auto".into();
            state.news.push(("node.disabled", data));
        }
        if !new.is_empty() {
            state.banners += 1;
            state.banner = Some(Banner {
                id: state.banners,
                text: banner(new),
                nodes: new.iter().map(|r| r.node.id).collect(),
            });
        }
    }

    /// From now on nobody is to be asked.
    pub(crate) fn keep_checking(&self) {
        self.keep_checking.store(true, Ordering::Relaxed);
    }

    /// What has not been told yet.
    pub(crate) fn news(&self) -> Vec<News> {
        std::mem::take(&mut self.lock().news)
    }

    /// The nodes that are off.
    pub(crate) fn off(&self) -> BTreeSet<NodeId> {
        let state = self.lock();
        let mut off = state.verdicts.off();
        off.extend(state.marks.keys().map(|node| node.id));
        off
    }

    /// Why a node is off, if it is.
    pub(crate) fn why_off(&self, node: &Node) -> Option<Off> {
        let (state, me) = (self.lock(), NodeRef::from(node));
        if let Some(mark) = state.marks.get(&me) {
            return Some(Off {
                by: "user",
                reason: mark.reason.clone(),
                at_ms: mark.at_ms,
                body: None,
            });
        }
        state.verdicts.of(&me).map(|verdict| Off {
            by: "auto",
            reason: verdict.reason.clone(),
            at_ms: verdict.at_ms,
            body: Some(verdict.body.clone()),
        })
    }

    /// Rejections by the builder so far.
    pub(crate) fn rejections(&self) -> u64 {
        self.rejections.load(Ordering::Relaxed)
    }

    /// What nobody has acknowledged yet.
    pub(crate) fn banner(&self) -> Option<Banner> {
        self.lock().banner.clone()
    }

    /// Somebody has read the banner; false when it is not that one.
    pub(crate) fn acknowledge(&self, id: u64) -> bool {
        let mut state = self.lock();
        let same = state.banner.as_ref().is_some_and(|b| b.id == id);
        if same {
            state.banner = None;
        }
        same
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Builds nodes one after the other up to the first that cannot be built.
fn first_fault(nodes: &[Arc<Node>], before: &BTreeSet<NodeId>, off: &[Rejection]) -> Outcome {
    for (index, node) in nodes.iter().enumerate() {
        let me = NodeRef::from(&**node);
        if before.contains(&node.id) || off.iter().any(|o| o.node == me) {
            continue;
        }
        if let Err(reason) = build::check(node) {
            return Outcome::Rejected(Rejection {
                kind: Kind::Outbound,
                index,
                protocol: node.protocol.name().to_owned(),
                tag: node.name.clone(),
                node: me,
                reason,
            });
        }
    }
    Outcome::Clean
}

/// What events say about a rejection.
fn about(rejection: &Rejection) -> Value {
    json!({
        "node_id": rejection.node.id.0.to_string(),
        "node": rejection.tag,
        "protocol": rejection.protocol,
        "reason": rejection.reason,
    })
}

/// `4 nodes disabled: a, b, c, +1 more`
fn banner(new: &[Rejection]) -> String {
    let names: Vec<&str> = new.iter().take(NAMES).map(|r| r.tag.as_str()).collect();
    let mut text = format!(
        "{} disabled: {}",
        plural(new.len(), "node"),
        names.join(", ")
    );
    if new.len() > NAMES {
        text += &format!(", +{} more", new.len() - NAMES);
    }
    text
}

#[cfg(test)]
mod tests {
    use honk_policy::{
        group::Refuse,
        id::{Family, Network},
    };

    use super::*;
    use crate::app::{
        reload::Trigger,
        testkit::{CONFIG, World},
    };

    /// The usual configuration, in which some more nodes have addresses that no server can have.
    fn with_bad(count: usize, global: &str) -> String {
        let bad: Vec<String> = (0..count)
            .map(|n| format!("bad{n}: 'socks5://0.0.0.0:{}'", 2000 + n))
            .collect();
        let nodes = format!("node {{ {}\n", bad.join("\n"));
        let global = format!("global {{ {global}\n");
        let config = CONFIG.replacen("node {", &nodes, 1);
        config.replacen("global {", &global, 1)
    }

    async fn reload(world: &World) -> (String, String) {
        let state = world.engine.reload(Trigger::Api, false).await.unwrap();
        (state.state.clone(), format!("{state:?}"))
    }

    fn names(world: &World) -> Vec<String> {
        let off = world.engine.judge.off();
        let snapshot = world.engine.snapshot();
        let nodes = snapshot.groups.nodes().iter();
        let off = nodes.filter(|n| off.contains(&n.id));
        off.map(|n| n.name.clone()).collect()
    }

    // H-113, H-118, H-123
    #[tokio::test]
    async fn a_reload_leaves_out_what_cannot_be_built_and_says_so() {
        let world = World::new(CONFIG);
        assert_eq!(world.engine.judge.rejections(), 0);
        world.edit(&with_bad(4, "").replace("filter: name(a, b)", "filter: name(bad0)"));
        assert_eq!(reload(&world).await.0, "done");
        assert_eq!(names(&world), ["bad0", "bad1", "bad2", "bad3"]);
        let banner = world.engine.judge.banner().unwrap();
        assert_eq!(banner.text, "4 nodes disabled: bad0, bad1, bad2, +1 more");
        assert_eq!(banner.nodes.len(), 4);
        assert!(!world.engine.judge.acknowledge(banner.id + 1));
        assert!(world.engine.judge.acknowledge(banner.id));
        assert_eq!(world.engine.judge.banner(), None);
        // Nobody is sent there, not even as the last resort.
        let snapshot = world.engine.snapshot();
        let slot = snapshot.groups.group_named("proxy").unwrap().slot;
        let selected = snapshot.groups.select(slot, Network::Tcp, Family::V4);
        assert_eq!(selected.unwrap_err(), Refuse::AllDead);
        // The same again: the word stands, and nothing is found anew.
        let rejections = world.engine.judge.rejections();
        assert_eq!((rejections, reload(&world).await.0.as_str()), (4, "done"));
        assert_eq!(world.engine.judge.rejections(), 4);
        assert_eq!(world.engine.judge.banner(), None);
        // A start afterwards knows it, too.
        let path = world.engine.judge.path.clone();
        assert_eq!(Judge::load(path, false).off(), world.engine.judge.off());
    }

    // H-119
    #[tokio::test]
    async fn a_changed_node_is_on_again_and_judged_anew() {
        let world = World::new(CONFIG);
        world.edit(&with_bad(1, ""));
        reload(&world).await;
        assert_eq!(names(&world), ["bad0"]);
        world.edit(&with_bad(1, "").replace("bad0:", "other:"));
        reload(&world).await;
        assert_eq!(names(&world), ["other"], "the name is part of the body");
        assert_eq!(world.engine.judge.rejections(), 2);
        world.edit(&with_bad(1, "").replace("//0.0.0.0:", "//192.0.2.9:"));
        reload(&world).await;
        assert!(names(&world).is_empty());
    }

    // H-114
    #[tokio::test]
    async fn more_than_ten_need_a_human_and_the_old_generation_stays() {
        let world = World::new(CONFIG);
        world.edit(&with_bad(11, ""));
        let (state, text) = reload(&world).await;
        assert_eq!(state, "rejected", "{text}");
        assert!(
            text.contains("reject-limit") && text.contains("--keep-checking"),
            "{text}"
        );
        assert_eq!(world.engine.snapshot().generation, 1);
        assert_eq!(world.engine.judge.off().len(), 10, "they stay off");
        // The human has reloaded again.
        assert_eq!(reload(&world).await.0, "done");
        assert_eq!(names(&world).len(), 11);
    }

    // H-110
    #[tokio::test]
    async fn switched_off_it_rejects_the_configuration() {
        let world = World::new(CONFIG);
        world.edit(&with_bad(1, "auto_disable: off"));
        let (state, text) = reload(&world).await;
        assert_eq!(state, "rejected", "{text}");
        assert!(
            text.contains("initialize outbound[0] socks5[bad0]: the address"),
            "{text}"
        );
        assert!(world.engine.judge.off().is_empty());
    }

    // H-110: what nobody asked for is not taken into use with a bad node, unless told so.
    #[test]
    fn background_activations_leave_nodes_out_only_where_that_is_wanted() {
        for (global, wanted) in [("", false), ("auto_disable: always", true)] {
            let world = World::new(&with_bad(1, global));
            let snapshot = world.engine.snapshot();
            let nodes = snapshot.groups.nodes();
            let judge = &world.engine.judge;
            let judged = judge.judge(&snapshot.config, nodes, Wish::Background, |_| false);
            assert_eq!(judged.is_ok(), wanted, "{global}");
            assert_eq!(judge.off().len(), usize::from(wanted));
            let judged = judge.judge(&snapshot.config, nodes, Wish::Operator, |_| false);
            assert_eq!(judged.unwrap().len(), 1);
        }
    }
}
