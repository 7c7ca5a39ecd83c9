//! Which node a row of a file is about.

use std::io;

use honk_policy::{
    id::{NodeId, Uuid},
    verdict::NodeRef,
};
use serde::{Deserialize, Serialize};

/// The node of a row, as it is written.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Whose {
    node_id: String,
    /// The subscription that brought it.
    source: Option<String>,
}

impl From<&NodeRef> for Whose {
    fn from(node: &NodeRef) -> Self {
        Self {
            node_id: node.id.0.to_string(),
            source: node.source.map(|source| source.to_string()),
        }
    }
}

impl TryFrom<Whose> for NodeRef {
    type Error = io::Error;

    fn try_from(row: Whose) -> io::Result<Self> {
        Ok(Self {
            id: NodeId(uuid(&row.node_id)?),
            source: row.source.as_deref().map(uuid).transpose()?,
        })
    }
}

fn uuid(text: &str) -> io::Result<Uuid> {
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    Uuid::try_parse(text).map_err(invalid)
}
