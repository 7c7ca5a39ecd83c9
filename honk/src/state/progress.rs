//! `<runtime>/reload.json`: the last reload, for those who cannot use the API.

use std::{io, path::Path};

use serde::Serialize;
use serde_json::Value;

/// Its content.
#[derive(Debug, Serialize)]
pub(crate) struct Progress<'a> {
    /// `idle`, `running`, `done` or `rejected`.
    pub(crate) state: &'a str,
    pub(crate) generation: u64,
    pub(crate) started_at: Option<String>,
    pub(crate) finished_at: Option<String>,
    pub(crate) message: &'a str,
    pub(crate) diagnostics: Value,
}

impl Progress<'_> {
    /// Replaces the file.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        let mut text = serde_json::to_vec(self)?;
        text.push(b'\n');
        super::file::replace(path, &text, 0o644)
    }
}
