//! What a refresh changed, for people: by name, with the identity deciding what is the same.

use std::collections::{BTreeMap, BTreeSet};

use crate::{id::NodeId, node::Node};

/// Names of nodes that came, went or changed. Namesakes count each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// New ones.
    pub added: Vec<String>,
    /// Gone ones.
    pub removed: Vec<String>,
    /// Another server or other credentials under the same name, or the same under another name;
    /// the names of now.
    pub changed: Vec<String>,
    /// Nodes that stayed as they were.
    pub kept: usize,
}

impl Changes {
    /// Compares the nodes of before with those of now.
    pub fn of(before: &[Node], now: &[Node]) -> Self {
        let old: BTreeMap<NodeId, &str> = by_id(before);
        let new: BTreeMap<NodeId, &str> = by_id(now);
        let mut changes = Self::default();
        // Those without a counterpart of the same identity, by name.
        let mut gone: BTreeMap<&str, usize> = BTreeMap::new();
        for node in before.iter().filter(|n| !new.contains_key(&n.id)) {
            *gone.entry(&node.name).or_default() += 1;
        }
        let mut seen = BTreeSet::new();
        for node in now.iter().filter(|node| seen.insert(node.id)) {
            let name = node.name.as_str();
            match old.get(&node.id) {
                Some(same) if *same == name => changes.kept += 1,
                Some(_) => changes.changed.push(node.name.clone()),
                None => match gone.get_mut(name).filter(|left| **left > 0) {
                    Some(left) => {
                        *left -= 1;
                        changes.changed.push(node.name.clone());
                    }
                    None => changes.added.push(node.name.clone()),
                },
            }
        }
        for (name, left) in gone {
            changes
                .removed
                .extend(std::iter::repeat_n(name.to_owned(), left));
        }
        changes
    }

    /// Whether everything stayed as it was.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

fn by_id(nodes: &[Node]) -> BTreeMap<NodeId, &str> {
    // The first of a repeated identity is the one in use.
    let pairs = nodes.iter().rev().map(|n| (n.id, n.name.as_str()));
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{id::Uuid, node::Protocol};

    fn node(id: u128, name: &str) -> Node {
        Node {
            id: NodeId(Uuid::from_u128(id)),
            name: name.to_owned(),
            protocol: Protocol::Direct,
            origin: None,
        }
    }

    #[test]
    fn nodes_come_go_change_and_stay() {
        let before = [
            node(1, "a"),
            node(2, "b"),
            node(3, "c"),
            node(4, "d"),
            node(4, "d"),
        ];
        let now = [node(1, "a"), node(9, "b"), node(3, "C"), node(5, "e")];
        let changes = Changes::of(&before, &now);
        assert_eq!(changes.added, ["e"]);
        assert_eq!(changes.removed, ["d", "d"]);
        assert_eq!(changes.changed, ["b", "C"]);
        assert_eq!(changes.kept, 1);
        assert!(Changes::of(&now, &now).is_empty());
        assert_eq!(Changes::of(&[], &now).added.len(), 4);
    }
}
