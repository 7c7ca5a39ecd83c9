//! The instance lock: one daemon per runtime directory.
//!
//! The lock lives in the kernel (`flock`) and dies with its holder; the number in the file is
//! trusted only while the lock is held.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _, Seek as _, Write as _},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};

/// Why the lock was not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LockError {
    /// Another instance runs.
    #[error(
        "another honk runs with this runtime directory (pid {pid}, lock {path}); stop it first or use another --runtime-dir"
    )]
    Held {
        /// Its number, or `?` when it has not written it yet.
        pid: String,
        path: String,
    },
    /// The file cannot be used.
    #[error("cannot open the lock {path}: {source}; run as root, or as the user of the service")]
    Io {
        path: String,
        #[source]
        source: io::Error,
    },
}

/// The held lock; released on drop.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
}

impl Lock {
    /// Takes the lock and writes our process number.
    pub(crate) fn take(path: &Path) -> Result<Self, LockError> {
        let io_error = |source| LockError::Io {
            path: path.display().to_string(),
            source,
        };
        let mut file = open(path, true).map_err(io_error)?;
        if let Err(e) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
            if e != rustix::io::Errno::WOULDBLOCK {
                return Err(io_error(e.into()));
            }
            let pid = read_pid(&mut file).map_or_else(|| "?".to_owned(), |p| p.to_string());
            let path = path.display().to_string();
            return Err(LockError::Held { pid, path });
        }
        file.set_len(0)
            .and_then(|()| file.write_all(format!("{}\n", std::process::id()).as_bytes()))
            .map_err(io_error)?;
        Ok(Self { file })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // The file stays: removing it would let a third process lock a file of another inode.
        let _ = self.file.set_len(0);
    }
}

/// The process that holds the lock, if one does. `Ok(None)`: nobody.
pub(crate) fn holder(path: &Path) -> io::Result<Option<u32>> {
    let mut file = match open(path, false) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(None),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(Some(read_pid(&mut file).unwrap_or(0))),
        Err(e) => Err(e.into()),
    }
}

fn open(path: &Path, create: bool) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(create)
        .create(create)
        .truncate(false)
        .mode(0o644)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
}

fn read_pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.take(16).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// `<runtime>/honk.pid`, removed on drop.
#[derive(Debug)]
pub(crate) struct PidFile(PathBuf);

impl PidFile {
    pub(crate) fn write(path: PathBuf) -> io::Result<Self> {
        let text = format!("{}\n", std::process::id());
        super::file::replace(&path, text.as_bytes(), 0o644)?;
        Ok(Self(path))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::file::tests::scratch;

    #[test]
    fn a_second_taker_learns_the_process_number_of_the_first() {
        let dir = scratch("lock");
        let path = dir.join("honk.lock");
        assert_eq!(holder(&path).unwrap(), None);
        let lock = Lock::take(&path).unwrap();
        let error = Lock::take(&path).unwrap_err().to_string();
        let pid = std::process::id();
        assert!(error.contains(&format!("pid {pid}")), "{error}");
        assert_eq!(holder(&path).unwrap(), Some(pid));
        drop(lock);
        assert_eq!(holder(&path).unwrap(), None);
        Lock::take(&path).unwrap();
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_lock_that_is_a_link_is_not_followed() {
        let dir = scratch("locklink");
        let target = dir.join("precious");
        std::fs::write(&target, "text").unwrap();
        std::os::unix::fs::symlink(&target, dir.join("honk.lock")).unwrap();
        assert!(Lock::take(&dir.join("honk.lock")).is_err());
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "text");
        std::fs::remove_dir_all(dir).unwrap();
    }
}
