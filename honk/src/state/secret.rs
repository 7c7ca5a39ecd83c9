//! `<state>/api.secret`: the token of the TCP API when the configuration names none.
//!
//! Made once and kept. Whoever may read the file may do everything.

use std::{
    fs::OpenOptions,
    io::{self, Read as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

use base64::Engine as _;

use super::file;

/// Random bytes of a token.
const BYTES: usize = 32;
/// Longest file that is looked at.
const MAX_BYTES: u64 = 4096;
/// Permissions that the file must not have.
const TOO_OPEN: u32 = 0o037;

/// Why a file gives no token.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unusable {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("its first line is empty")]
    Empty,
    #[error("others may use it (mode {0:04o}); remove the rights of others")]
    Open(u32),
}

/// The first line of a file that only its owner, and at most its group, can read.
pub(crate) fn read(path: &Path) -> Result<String, Unusable> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NONBLOCK);
    let file = options.open(path)?;
    let mode = file.metadata()?.permissions().mode() & 0o7777;
    if mode & TOO_OPEN != 0 {
        return Err(Unusable::Open(mode));
    }
    first_line(file)
}

/// The same for a file that the service manager guards.
pub(crate) fn credential(path: &Path) -> Result<String, Unusable> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NONBLOCK);
    first_line(options.open(path)?)
}

fn first_line(file: std::fs::File) -> Result<String, Unusable> {
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text)?;
    let line = text.lines().next().unwrap_or_default().trim();
    match line.is_empty() {
        true => Err(Unusable::Empty),
        false => Ok(line.to_owned()),
    }
}

/// The token of an earlier start, or a new one.
pub(crate) fn read_or_make(path: &Path) -> Result<String, Unusable> {
    match read(path) {
        Err(Unusable::Io(e)) if e.kind() == io::ErrorKind::NotFound => Ok(make(path)?),
        read => read,
    }
}

/// Replaces the token and brings it to the disk.
pub(crate) fn make(path: &Path) -> io::Result<String> {
    let mut bytes = [0; BYTES];
    let random = rustls::crypto::aws_lc_rs::default_provider().secure_random;
    random
        .fill(&mut bytes)
        .map_err(|_| io::Error::other("the system gives no random numbers"))?;
    let token = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes);
    file::replace(path, format!("{token}\n").as_bytes(), 0o600)?;
    let dir = path.parent().unwrap_or_else(|| Path::new("."));
    OpenOptions::new().read(true).open(path)?.sync_all()?;
    OpenOptions::new().read(true).open(dir)?.sync_all()?;
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::file::tests::scratch;

    fn with_mode(path: &Path, text: &str, mode: u32) {
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_token_is_made_once_for_its_owner_alone_and_can_be_replaced() {
        let dir = scratch("secret");
        let path = dir.join("api.secret");
        let token = read_or_make(&path).unwrap();
        assert_eq!(token.len(), 43);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
        assert_eq!(read_or_make(&path).unwrap(), token);
        let other = make(&path).unwrap();
        assert_ne!(other, token);
        assert_eq!(read(&path).unwrap(), other);
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn empty_and_open_files_give_no_token() {
        let dir = scratch("secret-open");
        let path = dir.join("token");
        with_mode(&path, "  \nx", 0o600);
        assert!(matches!(read(&path), Err(Unusable::Empty)));
        with_mode(&path, " token \nmore", 0o640);
        assert_eq!(read(&path).unwrap(), "token");
        for mode in [0o644, 0o660, 0o601] {
            with_mode(&path, "token", mode);
            assert!(matches!(read(&path), Err(Unusable::Open(m)) if m == mode));
        }
        assert_eq!(credential(&path).unwrap(), "token");
        let missing = read(&dir.join("missing"));
        assert!(matches!(missing, Err(Unusable::Io(_))));
        std::fs::remove_dir_all(dir).unwrap();
    }
}
