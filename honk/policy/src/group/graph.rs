//! The graph of nested groups: cycles are cut, depth is measured, finals are looked up.

use std::{collections::HashMap, sync::Arc};

use super::{builtin, table::Final};
use crate::{config::GroupDef, node::Node};

/// Groups on a selection path; what lies deeper is not selected.
pub(super) const MAX_DEPTH: usize = 8;

/// Nested groups by number.
pub(super) struct Graph {
    /// Children of each group in declaration order, acyclic.
    pub(super) children: Vec<Vec<usize>>,
    /// Edges taken out.
    pub(super) cut: Vec<Vec<usize>>,
}

impl Graph {
    /// Removes every edge to a group that is on the current path of a depth-first walk from
    /// the names in sorted order, so that equal configurations are cut equally (G-071).
    pub(super) fn new(defs: &[GroupDef], edges: Vec<Vec<usize>>) -> Self {
        let mut order: Vec<usize> = (0..defs.len()).collect();
        order.sort_by(|&a, &b| defs[a].name.cmp(&defs[b].name));
        let mut walk = Walk {
            state: vec![State::New; defs.len()],
            children: vec![Vec::new(); defs.len()],
            cut: vec![Vec::new(); defs.len()],
            edges,
        };
        for start in order {
            walk.visit(start);
        }
        Self {
            children: walk.children,
            cut: walk.cut,
        }
    }

    /// Groups on the longest path that starts at each group.
    pub(super) fn heights(&self) -> Vec<usize> {
        let mut heights = vec![0; self.children.len()];
        for group in 0..heights.len() {
            self.height(group, &mut heights);
        }
        heights
    }

    fn height(&self, group: usize, heights: &mut [usize]) -> usize {
        if heights[group] == 0 {
            let below = self.children[group]
                .iter()
                .map(|&c| self.height(c, heights))
                .max();
            heights[group] = 1 + below.unwrap_or(0);
        }
        heights[group]
    }
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    New,
    OnPath,
    Done,
}

struct Walk {
    state: Vec<State>,
    edges: Vec<Vec<usize>>,
    children: Vec<Vec<usize>>,
    cut: Vec<Vec<usize>>,
}

impl Walk {
    /// At most one call per group is open: the recursion is no deeper than 250.
    fn visit(&mut self, group: usize) {
        if self.state[group] != State::New {
            return;
        }
        self.state[group] = State::OnPath;
        for child in std::mem::take(&mut self.edges[group]) {
            if self.state[child] == State::OnPath {
                self.cut[group].push(child);
            } else {
                self.visit(child);
                self.children[group].push(child);
            }
        }
        self.state[group] = State::Done;
    }
}

/// What `final` names: a built-in, else a node, else a declared group (G-065).
pub(super) fn final_target(
    def: &GroupDef,
    nodes: &[Arc<Node>],
    groups: &HashMap<&str, usize>,
) -> Final {
    let Some(name) = &def.final_ else {
        return Final::None;
    };
    let node = builtin::named(name).or_else(|| nodes.iter().find(|n| n.name == *name));
    match (node, groups.get(name.as_str())) {
        (Some(node), _) => Final::Node(Arc::clone(node)),
        (None, Some(&group)) => Final::Group(group),
        (None, None) => Final::Missing,
    }
}

/// Groups whose `final` leads back to them over members and finals.
pub(super) fn final_cycles(graph: &Graph, finals: &[Final]) -> Vec<bool> {
    let reaches = |from: usize, goal: usize| {
        let mut seen = vec![false; finals.len()];
        let mut open = vec![from];
        while let Some(group) = open.pop() {
            if group == goal {
                return true;
            }
            if !std::mem::replace(&mut seen[group], true) {
                open.extend(&graph.children[group]);
                open.extend(finals[group].group());
            }
        }
        false
    };
    let cyclic =
        |(group, target): (usize, &Final)| target.group().is_some_and(|t| reaches(t, group));
    finals.iter().enumerate().map(cyclic).collect()
}
