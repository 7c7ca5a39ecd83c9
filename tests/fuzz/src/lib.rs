//! What must hold for any input: no panic, and a node that was read survives its link.

use honk_policy::{
    node::{Node, link},
    subscription::{self, Format},
};

/// A node is written as a link and read again.
pub fn survives(node: &Node) {
    let Some(text) = link::format(node) else {
        return;
    };
    let back = link::parse(&text).expect("a written link can be read");
    assert_eq!(back.id, node.id, "the identity changed");
    assert!(back.protocol == node.protocol, "the node changed");
}

/// A body of a format, and the same body when the format is guessed.
pub fn body(bytes: &[u8], format: Format) {
    for format in [Some(format), None] {
        if let Ok(body) = subscription::parse(bytes, format) {
            let _ = body.findings("tag");
            body.members
                .iter()
                .for_each(|member| survives(&member.node));
        }
    }
}
