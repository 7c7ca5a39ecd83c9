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

    /// Code lines before the first `#[cfg(test)]`.
    pub(crate) fn shipped(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code()
            .take_while(|(_, line)| !line.trim_start().starts_with("#[cfg(test)]"))
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
