//! `<state>/state/choices.json`: what was chosen in selectors and pinned in automatic
//! groups, kept over a restart.
//!
//! Names and ids only. A file that cannot be read costs the choices, never the start.

use std::{collections::BTreeMap, io, path::Path};

use serde::{Deserialize, Serialize};

use super::file;

/// Version of the records.
const SCHEMA: u32 = 1;
/// A chosen member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(crate) enum Chosen {
    /// By identity, else by name.
    Node { id: String, tag: String },
    /// By name: ids of groups end with the process.
    Group { tag: String },
}

/// The choices of one group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    schema: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tcp: Option<Chosen>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) udp: Option<Chosen>,
    /// Revision of the configuration under which an automatic group was pinned; none for a
    /// choice of a selector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pin_revision: Option<String>,
}

impl Record {
    /// `None` when nothing was chosen.
    pub(crate) fn new(tcp: Option<Chosen>, udp: Option<Chosen>) -> Option<Self> {
        let schema = SCHEMA;
        let some = tcp.is_some() || udp.is_some();
        some.then_some(Self {
            schema,
            tcp,
            udp,
            pin_revision: None,
        })
    }

    /// The same with other members; `None` when there is none.
    pub(crate) fn with(&self, tcp: Option<Chosen>, udp: Option<Chosen>) -> Option<Self> {
        let record = Self::new(tcp, udp)?;
        Some(Self {
            pin_revision: self.pin_revision.clone(),
            ..record
        })
    }

    /// The same for a pin, which holds under one configuration only.
    pub(crate) fn pinned(self, revision: &str) -> Self {
        Self {
            pin_revision: Some(revision.to_owned()),
            ..self
        }
    }
}

/// Choices by group name.
pub(crate) type Choices = BTreeMap<String, Record>;

/// Reads the file; one that does not exist holds nothing.
pub(crate) fn load(path: &Path) -> io::Result<Choices> {
    let mut choices: Choices = file::read_json(path)?.unwrap_or_default();
    choices.retain(|_, record| record.schema == SCHEMA);
    Ok(choices)
}

/// Replaces the file and brings it to the disk.
pub(crate) fn save(path: &Path, choices: &Choices) -> io::Result<()> {
    file::keep_json(path, choices)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::state::file::tests::scratch;

    #[test]
    fn choices_come_back_and_strangers_do_not() {
        let dir = scratch("choices");
        let path = dir.join("state/choices.json");
        assert_eq!(load(&path).unwrap(), Choices::new());
        let node = Chosen::Node {
            id: "i".to_owned(),
            tag: "節".to_owned(),
        };
        let group = Chosen::Group {
            tag: "hk".to_owned(),
        };
        let record = Record::new(Some(node), Some(group)).unwrap();
        let mut choices = Choices::from([("proxy".to_owned(), record.clone())]);
        save(&path, &choices).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(load(&path).unwrap(), choices);

        let schema = SCHEMA + 1;
        let newer = Record { schema, ..record };
        choices.insert("later".to_owned(), newer);
        save(&path, &choices).unwrap();
        assert_eq!(
            load(&path).unwrap().len(),
            1,
            "a newer schema is not guessed at"
        );
        std::fs::write(&path, "{").unwrap();
        assert!(load(&path).is_err());
        std::fs::remove_dir_all(dir).unwrap();
    }
}
