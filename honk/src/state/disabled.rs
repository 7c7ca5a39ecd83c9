//! `<state>/state/disabled.json`: nodes that somebody switched off by hand.
//!
//! A file that cannot be read costs the marks, and the log says so.

use std::{collections::BTreeMap, io, path::Path};

use honk_policy::verdict::NodeRef;
use serde::{Deserialize, Serialize};

use super::{file, whose::Whose};

/// Version of the file.
const SCHEMA: u32 = 1;

/// Why a node is off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Its name then.
    pub(crate) tag: String,
    /// What was said about it; may be nothing.
    pub(crate) reason: String,
    /// When, in Unix milliseconds.
    pub(crate) at_ms: u64,
}

/// All of them.
pub(crate) type Marks = BTreeMap<NodeRef, Mark>;

#[derive(Debug, Serialize, Deserialize)]
struct Document {
    schema: u32,
    nodes: Vec<Row>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Row {
    #[serde(flatten)]
    node: Whose,
    tag: String,
    reason: String,
    /// Unix time in milliseconds.
    at: u64,
}

/// Reads the file; one that does not exist holds nothing.
pub(crate) fn load(path: &Path) -> io::Result<Marks> {
    let Some(document) = file::read_json::<Document>(path)? else {
        return Ok(Marks::new());
    };
    file::check_schema(document.schema, SCHEMA)?;
    let mark = |row: Row| {
        let mark = Mark {
            tag: row.tag,
            reason: row.reason,
            at_ms: row.at,
        };
        Ok((row.node.try_into()?, mark))
    };
    document.nodes.into_iter().map(mark).collect()
}

/// Replaces the file and brings it to the disk.
pub(crate) fn save(path: &Path, marks: &Marks) -> io::Result<()> {
    let row = |(node, mark): (&NodeRef, &Mark)| Row {
        node: node.into(),
        tag: mark.tag.clone(),
        reason: mark.reason.clone(),
        at: mark.at_ms,
    };
    let document = Document {
        schema: SCHEMA,
        nodes: marks.iter().map(row).collect(),
    };
    file::keep_json(path, &document)
}

#[cfg(test)]
mod tests {
    use honk_policy::id::{NodeId, Uuid};

    use super::*;
    use crate::state::file::tests::scratch;

    #[test]
    fn marks_come_back() {
        let dir = scratch("disabled");
        let path = dir.join("state/disabled.json");
        assert_eq!(load(&path).unwrap(), Marks::new());
        let node = |n, source| NodeRef {
            id: NodeId(Uuid::from_u128(n)),
            source,
        };
        let mark = |tag: &str| Mark {
            tag: tag.to_owned(),
            reason: "slow".to_owned(),
            at_ms: 5,
        };
        let source = Some(Uuid::from_u128(7));
        let marks = Marks::from([(node(1, None), mark("a")), (node(2, source), mark("b"))]);
        save(&path, &marks).unwrap();
        assert_eq!(load(&path).unwrap(), marks);
        std::fs::write(&path, "{}").unwrap();
        assert!(load(&path).is_err());
        std::fs::remove_dir_all(dir).unwrap();
    }
}
