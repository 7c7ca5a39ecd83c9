//! `<state>/.sub/`: the last good body of each subscription, for a start without network.
//!
//! The name of a file is a hash of what was asked for, never anything a provider chose. Bodies
//! hold credentials: the directory and its files are for the owner only. What cannot be read is
//! as good as absent.

use std::{
    collections::HashSet,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::SystemTime,
};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use honk_policy::{config::Subscription, subscription::MAX_BODY};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::http::Validators;

/// Bodies of subscriptions that are not configured any more; the oldest beyond go.
const STRANGERS: usize = 16;
/// Version of the notes beside a body.
const SCHEMA: u32 = 1;
/// Larger notes are not ours.
const MAX_NOTES: u64 = 64 << 10;

/// The directory.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    dir: PathBuf,
    /// `store_subscribe`
    all: bool,
}

/// A body with what is known about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) bytes: Vec<u8>,
    pub(crate) validators: Validators,
    pub(crate) headers: Vec<(String, String)>,
    /// Unix milliseconds of the fetch.
    pub(crate) fetched_ms: u64,
}

/// What stands beside a body.
#[derive(Debug, Serialize, Deserialize)]
struct Notes {
    schema: u32,
    /// Of the body: notes of another one are worth nothing.
    sha256: String,
    etag: Option<String>,
    modified: Option<String>,
    headers: Vec<(String, String)>,
    fetched_ms: u64,
}

impl Store {
    /// `all` is `store_subscribe`: without it only `-file` schemes are kept.
    pub(crate) fn new(state: &Path, all: bool) -> Self {
        let dir = state.join(".sub");
        Self { dir, all }
    }

    /// Whether bodies of this subscription are kept here.
    pub(crate) fn keeps(&self, decl: &Subscription) -> bool {
        use honk_policy::config::Source;
        match decl.source {
            Source::StoredWeb => true,
            Source::Web => self.all,
            Source::File => false,
        }
    }

    /// The stored body, if there is a usable one.
    pub(crate) fn load(&self, decl: &Subscription) -> io::Result<Option<Stored>> {
        let path = self.path(decl);
        if !self.keeps(decl) || self.checked().is_err() {
            return Ok(None);
        }
        let bytes = match read(&path, MAX_BODY as u64) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes?,
        };
        let notes = read(&path.with_extension("json"), MAX_NOTES).ok();
        let notes = notes.and_then(|text| serde_json::from_slice::<Notes>(&text).ok());
        let notes = notes.filter(|n| n.schema == SCHEMA && n.sha256 == digest(&bytes));
        let written = || {
            let at = fs::metadata(&path).and_then(|m| m.modified()).ok()?;
            let since = at.duration_since(SystemTime::UNIX_EPOCH).ok()?;
            u64::try_from(since.as_millis()).ok()
        };
        Ok(Some(match notes {
            Some(notes) => Stored {
                validators: Validators {
                    etag: notes.etag,
                    modified: notes.modified,
                },
                headers: notes.headers,
                fetched_ms: notes.fetched_ms,
                bytes,
            },
            None => Stored {
                fetched_ms: written().unwrap_or(0),
                bytes,
                ..Stored::default()
            },
        }))
    }

    /// Keeps a body that was read successfully.
    pub(crate) fn save(&self, decl: &Subscription, stored: &Stored) -> io::Result<()> {
        if !self.keeps(decl) {
            return Ok(());
        }
        self.prepare()?;
        let path = self.path(decl);
        let same = read(&path, MAX_BODY as u64).is_ok_and(|old| old == stored.bytes);
        if !same {
            replace(&path, &stored.bytes)?;
        }
        let notes = Notes {
            schema: SCHEMA,
            sha256: digest(&stored.bytes),
            etag: stored.validators.etag.clone(),
            modified: stored.validators.modified.clone(),
            headers: stored.headers.clone(),
            fetched_ms: stored.fetched_ms,
        };
        replace(&path.with_extension("json"), &serde_json::to_vec(&notes)?)?;
        File::open(&self.dir)?.sync_all()
    }

    /// Removes the oldest bodies that belong to none of these, down to a few: an entry that is
    /// commented out for a while finds its nodes again.
    pub(crate) fn prune(&self, decls: &[Subscription]) -> io::Result<()> {
        if self.checked().is_err() {
            return Ok(());
        }
        let ours: HashSet<PathBuf> = decls.iter().map(|d| self.path(d)).collect();
        let mut strangers = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let path = entry?.path();
            let body = path.extension().is_some_and(|e| e == "sub");
            if body && !ours.contains(&path) {
                let at = fs::symlink_metadata(&path).and_then(|m| m.modified());
                strangers.push((at.unwrap_or(SystemTime::UNIX_EPOCH), path));
            }
        }
        strangers.sort();
        for (_, path) in strangers.iter().rev().skip(STRANGERS) {
            fs::remove_file(path)?;
            // There may be none.
            let _ = fs::remove_file(path.with_extension("json"));
        }
        Ok(())
    }

    fn path(&self, decl: &Subscription) -> PathBuf {
        let mut hash = Sha256::new();
        let agent = decl.user_agent.as_deref().unwrap_or_default();
        for part in [decl.url.reveal(), agent] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part.as_bytes());
        }
        let name = BASE64_URL_SAFE_NO_PAD.encode(hash.finalize());
        self.dir.join(format!("{name}.sub"))
    }

    fn prepare(&self) -> io::Result<()> {
        match DirBuilder::new().mode(0o700).create(&self.dir) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => self.checked(),
            result => result,
        }
    }

    /// A directory that is a link leads elsewhere: nothing is read or written there.
    fn checked(&self) -> io::Result<()> {
        let meta = fs::symlink_metadata(&self.dir)?;
        match meta.is_dir() {
            true => Ok(()),
            false => Err(io::Error::new(
                io::ErrorKind::NotADirectory,
                format!("{} is no directory; remove it", self.dir.display()),
            )),
        }
    }
}

fn digest(bytes: &[u8]) -> String {
    let digits = Sha256::digest(bytes);
    digits.iter().map(|b| format!("{b:02x}")).collect()
}

/// The content of a regular file that is not too large; links are not followed.
pub(super) fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.tmp", std::process::id()));
    let temp = path.with_file_name(name);
    // A leftover of an earlier process with our number, or a planted link: never followed.
    let _ = fs::remove_file(&temp);
    let write = || {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temp)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temp, path)
    };
    let result = write();
    if result.is_err() {
        // Best effort: the error that is reported is the one that matters.
        let _ = fs::remove_file(&temp);
    }
    result
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use honk_policy::{config::Source, id::Secret};

    use super::*;
    pub(in crate::subscription) use crate::state::file::tests::scratch;

    fn decl(url: &str, source: Source) -> Subscription {
        Subscription {
            tag: "t".to_owned(),
            url: Secret::new(url),
            source,
            format: "auto".to_owned(),
            update_interval: None,
            user_agent: None,
            enabled: true,
            allow_private: false,
        }
    }

    fn stored(text: &str) -> Stored {
        Stored {
            bytes: text.as_bytes().to_vec(),
            validators: Validators {
                etag: Some("\"1\"".to_owned()),
                modified: None,
            },
            headers: vec![("profile-title".to_owned(), "x".to_owned())],
            fetched_ms: 5,
        }
    }

    #[test]
    fn bodies_come_back_for_the_owner_only() {
        let state = scratch("substore");
        let store = Store::new(&state, true);
        let web = decl("https://h.example/a?token=x", Source::Web);
        assert_eq!(store.load(&web).unwrap(), None);
        store.save(&web, &stored("one")).unwrap();
        store.save(&web, &stored("two")).unwrap();
        assert_eq!(store.load(&web).unwrap(), Some(stored("two")));
        let mode = |p: &Path| fs::metadata(p).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&state.join(".sub")), 0o700);
        let files: Vec<PathBuf> = fs::read_dir(state.join(".sub"))
            .unwrap()
            .map(|e| e.unwrap().path())
            .collect();
        assert_eq!(files.len(), 2);
        for file in &files {
            assert_eq!(mode(file), 0o600);
            assert!(!file.to_str().unwrap().contains("token"));
        }
        let other = Subscription {
            user_agent: Some("v2rayN".to_owned()),
            ..web
        };
        assert_eq!(store.load(&other).unwrap(), None, "another answer");
        fs::remove_dir_all(state).unwrap();
    }

    #[test]
    fn notes_of_another_body_are_not_believed() {
        let state = scratch("substore");
        let store = Store::new(&state, true);
        let web = decl("https://h.example/a", Source::Web);
        store.save(&web, &stored("one")).unwrap();
        fs::write(store.path(&web), "planted").unwrap();
        let found = store.load(&web).unwrap().unwrap();
        assert_eq!(found.validators, Validators::default());
        assert!(found.fetched_ms > 5);
        fs::remove_dir_all(state).unwrap();
    }

    #[test]
    fn without_store_subscribe_only_file_schemes_are_kept() {
        let state = scratch("substore");
        let store = Store::new(&state, false);
        let (web, kept) = (
            decl("https://h.example/a", Source::Web),
            decl("https-file://h.example/a", Source::StoredWeb),
        );
        for decl in [&web, &kept] {
            store.save(decl, &stored("x")).unwrap();
        }
        assert_eq!(store.load(&web).unwrap(), None);
        assert!(store.load(&kept).unwrap().is_some());
        fs::remove_dir_all(state).unwrap();
    }

    #[test]
    fn links_are_neither_read_nor_written() {
        let state = scratch("substore");
        let elsewhere = scratch("elsewhere");
        symlink(&elsewhere, state.join(".sub")).unwrap();
        let store = Store::new(&state, true);
        let web = decl("https://h.example/a", Source::Web);
        assert!(store.save(&web, &stored("x")).is_err());
        assert_eq!(store.load(&web).unwrap(), None);
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
        for dir in [state, elsewhere] {
            fs::remove_dir_all(dir).unwrap();
        }
    }

    #[test]
    fn strangers_are_kept_up_to_a_number() {
        let state = scratch("substore");
        let store = Store::new(&state, true);
        let all: Vec<Subscription> = (0..STRANGERS + 5)
            .map(|n| decl(&format!("https://h.example/{n}"), Source::Web))
            .collect();
        for decl in &all {
            store.save(decl, &stored("x")).unwrap();
        }
        store.prune(&all[..2]).unwrap();
        let left = all.iter().filter(|d| store.load(d).unwrap().is_some());
        assert_eq!(left.count(), STRANGERS + 2);
        assert!(all[..2].iter().all(|d| store.load(d).unwrap().is_some()));
        let files = fs::read_dir(state.join(".sub")).unwrap().count();
        assert_eq!(files, 2 * (STRANGERS + 2));
        fs::remove_dir_all(state).unwrap();
    }
}
