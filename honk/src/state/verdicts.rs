//! `<state>/state/verdicts.json`: nodes that are off because they could not be built.
//!
//! No settings of nodes, only a hash of them. A file that cannot be read costs the verdicts: the
//! next start judges again.

use std::{io, path::Path};

use honk_policy::verdict::{Body, NodeRef, Verdict, Verdicts};
use serde::{Deserialize, Serialize};

use super::{file, whose::Whose};

/// Version of the file.
const SCHEMA: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
struct Document {
    schema: u32,
    verdicts: Vec<Row>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Row {
    #[serde(flatten)]
    node: Whose,
    tag: String,
    body_hash: String,
    reason: String,
    /// Unix time in milliseconds.
    at: u64,
    honk_version: String,
}

/// Reads the file; one that does not exist holds nothing.
pub(crate) fn load(path: &Path) -> io::Result<Verdicts> {
    let mut verdicts = Verdicts::default();
    let Some(document) = file::read_json::<Document>(path)? else {
        return Ok(verdicts);
    };
    file::check_schema(document.schema, SCHEMA)?;
    for row in document.verdicts {
        let verdict = Verdict {
            tag: row.tag,
            body: Body::stored(row.body_hash),
            reason: row.reason,
            at_ms: row.at,
        };
        verdicts.restore(row.node.try_into()?, verdict);
    }
    Ok(verdicts)
}

/// Replaces the file and brings it to the disk.
pub(crate) fn save(path: &Path, verdicts: &Verdicts, version: &str) -> io::Result<()> {
    let row = |(node, verdict): (&NodeRef, &Verdict)| Row {
        node: node.into(),
        tag: verdict.tag.clone(),
        body_hash: verdict.body.to_string(),
        reason: verdict.reason.clone(),
        at: verdict.at_ms,
        honk_version: version.to_owned(),
    };
    let document = Document {
        schema: SCHEMA,
        verdicts: verdicts.iter().map(row).collect(),
    };
    file::keep_json(path, &document)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use honk_policy::id::{NodeId, Uuid};

    use super::*;
    use crate::state::file::tests::scratch;

    #[test]
    fn verdicts_come_back_and_nobody_else_reads_them() {
        let dir = scratch("verdicts");
        let path = dir.join("state/verdicts.json");
        assert_eq!(load(&path).unwrap(), Verdicts::default());
        let mut verdicts = Verdicts::default();
        for (n, source) in [(1, None), (2, Some(Uuid::from_u128(7)))] {
            let node = NodeRef {
                id: NodeId(Uuid::from_u128(n)),
                source,
            };
            let verdict = Verdict {
                tag: format!("n{n}"),
                body: Body::stored("abc".to_owned()),
                reason: "no".to_owned(),
                at_ms: 5,
            };
            verdicts.restore(node, verdict);
        }
        save(&path, &verdicts, "0.1.0").unwrap();
        assert_eq!(load(&path).unwrap(), verdicts);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::write(&path, "{}").unwrap();
        assert!(load(&path).is_err());
        std::fs::remove_dir_all(dir).unwrap();
    }
}
