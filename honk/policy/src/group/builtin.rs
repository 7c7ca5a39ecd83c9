//! The two nodes every configuration has: `direct` and `block`.

use std::sync::{Arc, LazyLock};

use crate::{
    id::{NodeId, Uuid},
    node::{Node, Protocol},
};

/// Identity of `direct`, the same in every process.
pub const DIRECT: NodeId = NodeId(Uuid::from_u128(0x686f_6e6b_0000_8000_8000_0000_0000_0000));
/// Identity of `block`.
pub const BLOCK: NodeId = NodeId(Uuid::from_u128(0x686f_6e6b_0000_8000_8000_0000_0000_0001));

static NODES: LazyLock<[Arc<Node>; 2]> = LazyLock::new(|| {
    let node = |id, name: &str, protocol| {
        Arc::new(Node {
            id,
            name: name.to_owned(),
            protocol,
            origin: None,
        })
    };
    [
        node(DIRECT, "direct", Protocol::Direct),
        node(BLOCK, "block", Protocol::Block),
    ]
});

/// The built-in that dials from the gateway.
pub fn direct() -> &'static Arc<Node> {
    &NODES[0]
}

/// The built-in that refuses.
pub fn block() -> &'static Arc<Node> {
    &NODES[1]
}

/// The built-in of that name.
pub fn named(name: &str) -> Option<&'static Arc<Node>> {
    NODES.iter().find(|n| n.name == name)
}

/// Whether the node is one of them.
pub fn is_builtin(node: &Node) -> bool {
    matches!(node.protocol, Protocol::Direct | Protocol::Block)
}
