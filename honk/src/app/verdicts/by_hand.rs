//! Nodes that somebody switches off and on again: marks, which no rule of honk changes.

use std::{collections::BTreeSet, sync::Arc};

use honk_policy::{node::Node, verdict::NodeRef};
use serde_json::json;

use super::Judge;
use crate::{
    cli::version,
    clock,
    outbound::build,
    state::{
        self,
        disabled::{Mark, Marks},
    },
};

/// Where marks are kept, beside the verdicts.
pub(super) const FILE: &str = "disabled.json";
/// Nodes that can be switched off by hand.
const MARKS: usize = 1000;

/// Why a node is not switched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unswitched {
    #[error("{MARKS} nodes are switched off by hand; switch one on first")]
    Full,
    #[error("the node still cannot be built: {0}")]
    Broken(String),
}

impl Judge {
    /// Somebody switches a node off, with a word why, or on again. `nodes` are all there are;
    /// those of subscriptions may still be on their way. One caller at a time; writes files: not
    /// for threads that carry flows.
    pub(crate) fn switch(
        &self,
        node: &Node,
        off: Option<String>,
        nodes: &[Arc<Node>],
        waits: bool,
    ) -> Result<(), Unswitched> {
        let changed = match off {
            Some(reason) => self.mark(node, reason, nodes, waits)?,
            None => self.unmark(node)?,
        };
        if changed {
            self.keep();
        }
        Ok(())
    }

    /// False when that is how it is already.
    fn mark(
        &self,
        node: &Node,
        reason: String,
        nodes: &[Arc<Node>],
        waits: bool,
    ) -> Result<bool, Unswitched> {
        let me = NodeRef::from(node);
        let mut state = self.lock();
        let known = state.marks.get(&me);
        if known.is_some_and(|mark| mark.reason == reason) {
            return Ok(false);
        }
        if known.is_none() && state.marks.len() >= MARKS {
            forget_gone(&mut state.marks, nodes, waits);
            if state.marks.len() >= MARKS {
                return Err(Unswitched::Full);
            }
        }
        tracing::info!(target: "honk::health", node = node.name, by = "user", reason, "node_disabled");
        let data = json!({
            "node_id": node.id.0.to_string(),
            "node": node.name,
            "by": "user",
            "reason": reason,
        });
        let mark = Mark {
            tag: node.name.clone(),
            reason,
            at_ms: clock::now_ms(),
        };
        state.marks.insert(me, mark);
        state.news.push(("node.disabled", data));
        Ok(true)
    }

    /// False when that is how it is already.
    fn unmark(&self, node: &Node) -> Result<bool, Unswitched> {
        let me = NodeRef::from(node);
        let judged = self.lock().verdicts.of(&me).is_some();
        if judged && let Err(reason) = build::check(node) {
            return Err(Unswitched::Broken(reason));
        }
        let mut state = self.lock();
        let marked = state.marks.remove(&me).is_some();
        let lifted = state.verdicts.pardon(&me).is_some();
        if marked || lifted {
            tracing::info!(target: "honk::health", node = node.name, by = "user", "node_enabled");
            let data = json!({
                "node_id": node.id.0.to_string(),
                "node": node.name,
                "by": "user",
                "verdict_lifted": lifted,
            });
            state.news.push(("node.enabled", data));
        }
        Ok(marked || lifted)
    }

    /// What counts is in memory: a failure is told and costs nothing but the next start. Others
    /// read the state while the disk works.
    fn keep(&self) {
        let (verdicts, marks) = {
            let state = self.lock();
            (state.verdicts.clone(), state.marks.clone())
        };
        let by_hand = self.path.with_file_name(FILE);
        let saved = state::verdicts::save(&self.path, &verdicts, version::VERSION);
        let saved = saved.and_then(|()| state::disabled::save(&by_hand, &marks));
        if let Err(error) = saved {
            let path = by_hand.display();
            tracing::warn!(target: "honk::health", %error, %path, "the switch is not stored");
        }
    }
}

/// Makes room: a mark of a node that is not there any more can be taken off by nobody. Nodes of
/// subscriptions may only be late.
fn forget_gone(marks: &mut Marks, nodes: &[Arc<Node>], waits: bool) {
    let here: BTreeSet<NodeRef> = nodes.iter().map(|node| NodeRef::from(&**node)).collect();
    let before = marks.len();
    marks.retain(|node, _| here.contains(node) || waits && node.source.is_some());
    let forgotten = before - marks.len();
    if forgotten > 0 {
        tracing::info!(target: "honk::health", forgotten, "marks of nodes that are gone are dropped");
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use honk_policy::{
        id::Uuid,
        node::{Host, Protocol, Server},
    };

    use super::*;
    use crate::state::file::tests::scratch;

    fn node(n: usize) -> Node {
        let server = Server {
            host: Host::Ip([192, 0, 2, 1].into()),
            port: u16::try_from(1 + n).unwrap(),
            auth: None,
        };
        Node::new(format!("n{n}"), Protocol::Socks5(server))
    }

    /// As many marks as there may be, of nodes that a subscription brings if one is named.
    fn full(dir: &Path, source: Option<Uuid>) -> (Judge, PathBuf) {
        let mark = |n: usize| {
            let node = NodeRef {
                source,
                ..NodeRef::from(&node(n))
            };
            let mark = Mark {
                tag: format!("n{n}"),
                reason: "slow".to_owned(),
                at_ms: 5,
            };
            (node, mark)
        };
        let path = dir.join("state/verdicts.json");
        let by_hand = path.with_file_name(FILE);
        state::disabled::save(&by_hand, &(0..MARKS).map(mark).collect()).unwrap();
        (Judge::load(path, false), by_hand)
    }

    #[test]
    fn there_is_a_cap_on_marks_and_those_of_nodes_that_are_gone_make_room() {
        let dir = scratch("marks");
        let (judge, by_hand) = full(&dir, None);
        let mut nodes: Vec<Arc<Node>> = (0..=MARKS).map(|n| Arc::new(node(n))).collect();
        let late = Arc::clone(&nodes[MARKS]);
        let off = |nodes: &[Arc<Node>]| judge.switch(&late, Some(String::new()), nodes, false);
        assert_eq!(off(&nodes), Err(Unswitched::Full));
        assert_eq!(judge.off().len(), MARKS);
        // Another word for one that is off already needs no room.
        let word = Some("slower".to_owned());
        assert_eq!(judge.switch(&nodes[3], word, &nodes, false), Ok(()));
        let gone = [nodes.remove(7), nodes.remove(0)];
        assert_eq!(off(&nodes), Ok(()));
        let stored = state::disabled::load(&by_hand).unwrap();
        assert_eq!(stored.len(), MARKS - 1);
        assert!(stored.contains_key(&NodeRef::from(&*late)));
        for node in gone {
            assert!(!judge.off().contains(&node.id), "{}", node.name);
        }
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn nodes_that_may_still_come_keep_their_marks() {
        let dir = scratch("late-marks");
        let (judge, _) = full(&dir, Some(Uuid::from_u128(7)));
        let other = Arc::new(node(MARKS));
        let nodes = [Arc::clone(&other)];
        let off = |waits| judge.switch(&other, Some(String::new()), &nodes, waits);
        assert_eq!(off(true), Err(Unswitched::Full));
        assert_eq!(judge.off().len(), MARKS);
        assert_eq!(off(false), Ok(()));
        assert_eq!(judge.off().len(), 1);
        std::fs::remove_dir_all(dir).unwrap();
    }
}
