//! Atomic replacement of small files: readers see the old text or the new one.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::Path,
};

/// Writes a temporary file beside `path` and renames it over. Not synced to disk: the callers
/// are runtime files, which a reboot removes anyway.
pub(crate) fn replace(path: &Path, text: &[u8], mode: u32) -> io::Result<()> {
    let mut name = path
        .file_name()
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?
        .to_os_string();
    name.push(format!(".{}.tmp", std::process::id()));
    let temp = path.with_file_name(name);
    let result = write(&temp, text, mode).and_then(|()| fs::rename(&temp, path));
    if result.is_err() {
        // Best effort: the error that is reported is the one that matters.
        let _ = fs::remove_file(&temp);
    }
    result
}

fn write(temp: &Path, text: &[u8], mode: u32) -> io::Result<()> {
    // A leftover of an earlier process with our number, or a planted link: never followed.
    let _ = fs::remove_file(temp);
    let mut file: File = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(temp)?;
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    file.write_all(text)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::PathBuf;

    use super::*;

    /// A fresh directory for one test; the caller removes it.
    pub(crate) fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!(
            "honk-{name}-{}-{}",
            std::process::id(),
            uuid::Uuid::new_v4().simple()
        ));
        fs::create_dir(&dir).unwrap();
        dir
    }

    #[test]
    fn replacing_leaves_the_new_text_the_mode_and_no_temporary_file() {
        let dir = scratch("file");
        let path = dir.join("reload.json");
        replace(&path, b"one", 0o644).unwrap();
        replace(&path, b"two", 0o644).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o644);
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
        fs::remove_dir_all(dir).unwrap();
    }
}
