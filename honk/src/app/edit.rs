//! Edits of a group in the file that declares it: prepared in memory, checked as a whole, written
//! at once. Activating what was written is a reload like any other.

use std::{fmt::Write as _, io, path::PathBuf};

use honk_grammar::{
    LoadError, Loaded, Loader,
    edit::{self, Body, Change, EditError},
};
use honk_policy::config;
use similar::TextDiff;

use super::{
    engine::Engine,
    loader::Files,
    source::{self, Purpose, Running},
};
use crate::{api::doc::Diag, state::file};

/// Unchanged lines shown around a changed one.
const CONTEXT: usize = 2;

/// Why a group was not edited. Nothing is written then.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EditFailure {
    /// Somebody edited the files; a reload has to come first.
    #[error("the files differ from what is active; reload first")]
    SourceChanged,
    /// No file to edit.
    #[error("no file declares the group: {0}")]
    NoSource(EditError),
    #[error(transparent)]
    Edit(EditError),
    /// What would be active afterwards is not valid.
    #[error("the configuration would not be valid")]
    Invalid(Vec<Diag>),
    #[error("{} cannot be written: {error}", path.display())]
    Readonly { path: PathBuf, error: io::Error },
}

/// A file before and after.
#[derive(Debug)]
pub(crate) struct Edited {
    pub(crate) path: PathBuf,
    before: String,
    after: String,
}

impl Edited {
    pub(crate) fn is_change(&self) -> bool {
        self.before != self.after
    }

    /// What changes, as a unified diff without links and secrets.
    pub(crate) fn diff(&self) -> String {
        // Compared as they are: a change of what is hidden is a change.
        let [before, after] = [&self.before, &self.after].map(|t| honk_grammar::masked(t));
        let hidden = TextDiff::from_lines(&before, &after);
        let (old, new) = (hidden.old_slices(), hidden.new_slices());
        let diff = TextDiff::from_lines(&self.before, &self.after);
        let mut shown = String::new();
        if self.is_change() {
            let name = self.path.display();
            let _ = write!(shown, "--- {name}\n+++ {name}\n");
        }
        for hunk in diff.unified_diff().context_radius(CONTEXT).iter_hunks() {
            let _ = writeln!(shown, "{}", hunk.header());
            for change in hunk.iter_changes() {
                let line = match (change.old_index(), change.new_index()) {
                    (_, Some(at)) => new.get(at),
                    (Some(at), None) => old.get(at),
                    (None, None) => None,
                };
                let line = line.map_or("", |line| line.trim_end_matches(['\n', '\r']));
                let _ = writeln!(shown, "{}{line}", change.tag());
            }
        }
        shown
    }

    /// Replaces the file, unless it is another one by now. Blocks.
    pub(crate) fn write(&self) -> Result<(), EditFailure> {
        let readonly = |error| {
            let path = self.path.clone();
            EditFailure::Readonly { path, error }
        };
        let now = std::fs::read(&self.path).map_err(readonly)?;
        if now != self.before.as_bytes() {
            return Err(EditFailure::SourceChanged);
        }
        file::replace_durably(&self.path, self.after.as_bytes()).map_err(readonly)
    }
}

impl Engine {
    /// Prepares an edit of the group of that name. Blocks: reads and checks all files.
    pub(crate) fn edit_group(
        &self,
        name: &str,
        changes: &[(&str, Change<'_>)],
    ) -> Result<Edited, EditFailure> {
        let before = self.snapshot();
        let mut files = self.spec.files.clone();
        let entry = self.spec.entry.to_str().unwrap_or_default();
        let parsed = honk_grammar::parse(entry, &mut files);
        if source::revision(&parsed.sources) != *before.revision {
            return Err(EditFailure::SourceChanged);
        }
        let body = Body {
            section: "group",
            name: Some(name),
        };
        let mut missing = EditError::NoSection(name.to_owned());
        for source in parsed.sources.files() {
            let bom = if source.bom { "\u{FEFF}" } else { "" };
            let text = format!("{bom}{}", source.text);
            match edit::apply(&text, body, changes) {
                Ok(after) => {
                    let path = PathBuf::from(&source.name);
                    let edited = Edited {
                        path: path.canonicalize().unwrap_or(path),
                        before: text,
                        after,
                    };
                    return self.checked(edited, &source.name);
                }
                Err(error @ EditError::NoSection(_)) => missing = error,
                Err(error) => return Err(EditFailure::Edit(error)),
            }
        }
        Err(EditFailure::NoSource(missing))
    }

    /// What would be active afterwards must be as valid as any file.
    fn checked(&self, edited: Edited, name: &str) -> Result<Edited, EditFailure> {
        let before = self.snapshot();
        let running = Running {
            groups: &before.groups,
            subscriptions: &self.subscriptions,
        };
        let mut files = Overlay {
            files: self.spec.files.clone(),
            name,
            text: &edited.after,
        };
        let outcome = source::load_with(&self.spec, &mut files, Purpose::Run, Some(running));
        let Some(candidate) = outcome.candidate else {
            return Err(EditFailure::Invalid(outcome.findings.documents()));
        };
        let restart = config::restart_required(&before.config, &candidate.config);
        match restart.is_empty() {
            true => Ok(edited),
            false => Err(EditFailure::Invalid(outcome.findings.documents())),
        }
    }
}

/// The files with another text for one of them.
struct Overlay<'a> {
    files: Files,
    name: &'a str,
    text: &'a str,
}

impl Loader for Overlay<'_> {
    fn canonical(&mut self, path: &str) -> Result<String, LoadError> {
        self.files.canonical(path)
    }

    fn is_dir(&mut self, path: &str) -> bool {
        self.files.is_dir(path)
    }

    fn list(&mut self, dir: &str) -> Vec<String> {
        self.files.list(dir)
    }

    fn read(&mut self, path: &str) -> Result<Loaded, LoadError> {
        let mut loaded = self.files.read(path)?;
        if path == self.name {
            loaded.bytes = self.text.as_bytes().to_vec();
        }
        Ok(loaded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_what_is_hidden_is_a_change() {
        let edited = |value: &str| {
            let text = |key: &str| {
                format!("node {{ a: 'ss://x@h' }}\ngroup {{ g {{\n {key}: '{value}' }} }}\n")
            };
            Edited {
                path: PathBuf::from("c.dae"),
                before: text("check_url").replace("canary", "other"),
                after: text("check_url"),
            }
        };
        let shown = edited("https://h.example/canary").diff();
        let want = " node { a: 'ss://***' }\n group { g {\n- check_url: 'https://h.example/***' } }\n+ check_url: 'https://h.example/***' } }\n";
        assert!(shown.ends_with(want), "{shown}");
        assert_eq!(edited("https://h.example/").diff(), "");
    }
}
