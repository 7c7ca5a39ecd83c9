//! Atomic replacement of small files: readers see the old text or the new one.

use std::{
    fs::{self, DirBuilder, File, Metadata, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{
        DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt, PermissionsExt,
    },
    path::Path,
};

use serde::{Serialize, de::DeserializeOwned};

/// Larger files are not ours.
const MAX_BYTES: u64 = 1 << 20;

/// The text of a file of the state directory; `None` when there is none.
pub(crate) fn read(path: &Path) -> io::Result<Option<String>> {
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path);
    let file = match opened {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text)?;
    Ok(Some(text))
}

/// Opens somebody's file that ends, with what is known about the open one. A pipe or device may
/// never do, so it is not waited for: anything but a file is [`io::ErrorKind::InvalidInput`].
pub(crate) fn open_regular(path: &Path) -> io::Result<(File, Metadata)> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(path)?;
    let meta = file.metadata()?;
    let kind = meta.file_type();
    let what = match () {
        () if kind.is_file() => return Ok((file, meta)),
        () if kind.is_dir() => "a directory",
        () if kind.is_fifo() => "a pipe",
        () => "a device",
    };
    let text = format!("it is {what}, not a file");
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

/// What a JSON file of the state directory holds; `None` when there is none.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let Some(text) = read(path)? else {
        return Ok(None);
    };
    Ok(Some(serde_json::from_str(&text)?))
}

/// Fails unless a file is of the version that is read.
pub(super) fn check_schema(found: u32, read: u32) -> io::Result<()> {
    if found == read {
        return Ok(());
    }
    let text = format!("schema {found} is not {read}");
    Err(io::Error::new(io::ErrorKind::InvalidData, text))
}

/// [Keeps](keep) a value as a JSON file of the state directory.
pub(crate) fn keep_json(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    keep(path, &text)
}

/// Replaces a file of the state directory, for nobody else to read, and brings it to the disk.
pub(crate) fn keep(path: &Path, text: &[u8]) -> io::Result<()> {
    if let Some(dir) = path.parent().filter(|d| !d.is_dir()) {
        DirBuilder::new().mode(0o700).create(dir)?;
    }
    replace(path, text, 0o600)?;
    let dir = path.parent().unwrap_or_else(|| Path::new("."));
    OpenOptions::new().read(true).open(path)?.sync_all()?;
    OpenOptions::new().read(true).open(dir)?.sync_all()
}

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

/// The same for a file that somebody else owns and that has to outlive a crash: mode and owner
/// stay, and the new text is on the disk when this returns.
pub(crate) fn replace_durably(path: &Path, text: &[u8]) -> io::Result<()> {
    let meta = fs::metadata(path)?;
    let mut name = path
        .file_name()
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?
        .to_os_string();
    name.push(format!(".{}.tmp", std::process::id()));
    let temp = path.with_file_name(name);
    let dir = path.parent().unwrap_or_else(|| Path::new("."));
    let result = write(&temp, text, meta.permissions().mode() & 0o7777)
        .and_then(|()| std::os::unix::fs::chown(&temp, Some(meta.uid()), Some(meta.gid())))
        .and_then(|()| File::open(&temp)?.sync_all())
        .and_then(|()| fs::rename(&temp, path))
        .and_then(|()| File::open(dir)?.sync_all());
    if result.is_err() {
        // As above.
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
