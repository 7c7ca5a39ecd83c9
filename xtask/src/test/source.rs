//! The Rust sources of the project, split into code lines for the tidy checks.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// One source file.
pub(crate) struct Source {
    /// Path relative to the root, with `/`.
    pub(crate) path: String,
    /// Its text.
    pub(crate) text: String,
}

impl Source {
    /// Lines that are not comments, with their numbers from 1.
    pub(crate) fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text
            .lines()
            .enumerate()
            .map(|(n, line)| (n + 1, line))
            .filter(|(_, line)| !line.trim_start().starts_with("//"))
    }

    /// Code lines before the first block of tests; items of one line that are for tests are left
    /// out.
    pub(crate) fn shipped(&self) -> impl Iterator<Item = (usize, &str)> {
        let is_mark = |line: &str| line.trim_start().starts_with("#[cfg(test)]");
        let mut marked = false;
        self.code()
            .take_while(move |(_, line)| {
                let block = marked && !line.ends_with([';', ',']);
                marked = is_mark(line);
                !block
            })
            .scan(false, move |after, (number, line)| {
                let left_out = std::mem::replace(after, is_mark(line)) || *after;
                Some((!left_out).then_some((number, line)))
            })
            .flatten()
    }
}

/// All `.rs` files below the root, without build results.
pub(crate) fn all(root: &Path) -> Result<Vec<Source>> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)
            .with_context(|| format!("cannot list {}", folder.display()))?
        {
            let path = entry?.path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if path.is_dir() && !path.is_symlink() {
                if name != "target" && !name.starts_with('.') {
                    folders.push(path);
                }
            } else if name.ends_with(".rs") {
                found.push(read(root, path)?);
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

fn read(root: &Path, path: PathBuf) -> Result<Source> {
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}", path.display()))?;
    let path = path
        .strip_prefix(root)
        .unwrap_or(&path)
        .to_string_lossy()
        .replace('\\', "/");
    Ok(Source { path, text })
}
