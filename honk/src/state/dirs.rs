//! `<state>` and `<runtime>`: everything honk writes at run time is below one of them.

use std::{
    ffi::OsString,
    io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
};

/// Longest path a unix socket address can hold, without the terminating NUL.
pub(crate) const SOCKET_PATH_MAX: usize = 107;

/// Mode of a state directory made by us.
const STATE_MODE: u32 = 0o700;
/// Mode of a runtime directory made by us: clients look up the socket in it.
const RUNTIME_MODE: u32 = 0o755;

/// Reads one variable of the environment.
pub(crate) type Env<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// What the command line said about directories.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) state: Option<PathBuf>,
    pub(crate) runtime: Option<PathBuf>,
}

/// The two directories of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dirs {
    pub(crate) state: PathBuf,
    pub(crate) runtime: PathBuf,
}

/// A runtime directory whose socket path no `sockaddr_un` can carry.
#[derive(Debug, thiserror::Error)]
#[error(
    "the socket path {path} has {len} bytes, at most {SOCKET_PATH_MAX} fit; \
     choose a shorter --runtime-dir"
)]
pub(crate) struct TooLong {
    path: String,
    len: usize,
}

impl Dirs {
    /// Flag, then `data_dir` (state only), then the service manager's variable, then default.
    pub(crate) fn resolve(
        wanted: &Wanted,
        data_dir: Option<&str>,
        env: Env<'_>,
    ) -> Result<Self, TooLong> {
        let state = wanted
            .state
            .clone()
            .or_else(|| data_dir.map(PathBuf::from))
            .or_else(|| first_of(env("STATE_DIRECTORY")))
            .unwrap_or_else(|| PathBuf::from("/var/lib/honk"));
        let runtime = wanted
            .runtime
            .clone()
            .or_else(|| first_of(env("RUNTIME_DIRECTORY")))
            .unwrap_or_else(|| PathBuf::from("/run/honk"));
        let dirs = Self { state, runtime };
        let socket = dirs.socket();
        let len = socket.as_os_str().len();
        if len > SOCKET_PATH_MAX {
            let path = socket.display().to_string();
            return Err(TooLong { path, len });
        }
        Ok(dirs)
    }

    /// Makes what is missing; leaves the modes of existing directories alone.
    pub(crate) fn create(&self) -> Result<(), (PathBuf, io::Error)> {
        make(&self.state, STATE_MODE).map_err(|e| (self.state.clone(), e))?;
        make(&self.runtime, RUNTIME_MODE).map_err(|e| (self.runtime.clone(), e))
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.runtime.join("api.sock")
    }

    pub(crate) fn lock(&self) -> PathBuf {
        self.runtime.join("honk.lock")
    }

    pub(crate) fn pid(&self) -> PathBuf {
        self.runtime.join("honk.pid")
    }

    pub(crate) fn choices(&self) -> PathBuf {
        self.state.join("state/choices.json")
    }

    /// The token of the API when the configuration names none.
    pub(crate) fn secret(&self) -> PathBuf {
        self.state.join("api.secret")
    }

    pub(crate) fn verdicts(&self) -> PathBuf {
        self.state.join("state/verdicts.json")
    }

    pub(crate) fn pings(&self) -> PathBuf {
        self.state.join("state/ping.json")
    }

    pub(crate) fn progress(&self) -> PathBuf {
        self.runtime.join("reload.json")
    }
}

/// systemd passes several directories separated by colons; the first is the main one.
fn first_of(value: Option<OsString>) -> Option<PathBuf> {
    let value = value?.into_string().ok()?;
    let first = value.split(':').next()?;
    (!first.is_empty()).then(|| PathBuf::from(first))
}

fn make(dir: &Path, mode: u32) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(dir)?;
    // The umask of a service is often 0077, which would lock clients out of the socket.
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(pairs: &[(&str, &str)]) -> impl Fn(&str) -> Option<OsString> {
        let pairs: Vec<(String, OsString)> = pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), OsString::from(v)))
            .collect();
        move |key| pairs.iter().find(|(k, _)| k == key).map(|(_, v)| v.clone())
    }

    #[test]
    fn the_flag_wins_over_data_dir_and_that_over_the_environment() {
        let vars = env(&[
            ("STATE_DIRECTORY", "/e/a:/e/b"),
            ("RUNTIME_DIRECTORY", "/e/r"),
        ]);
        let flag = Wanted {
            state: Some("/f".into()),
            runtime: None,
        };
        let state = |w: &Wanted, data| Dirs::resolve(w, data, &vars).unwrap().state;
        assert_eq!(state(&flag, Some("/d")), Path::new("/f"));
        assert_eq!(state(&Wanted::default(), Some("/d")), Path::new("/d"));
        assert_eq!(state(&Wanted::default(), None), Path::new("/e/a"));
        let none = Dirs::resolve(&Wanted::default(), None, &env(&[])).unwrap();
        assert_eq!(none.state, Path::new("/var/lib/honk"));
        assert_eq!(none.runtime, Path::new("/run/honk"));
    }

    #[test]
    fn a_socket_path_that_no_address_holds_is_refused() {
        let wanted = Wanted {
            state: None,
            runtime: Some(format!("/{}", "r".repeat(98)).into()),
        };
        let error = Dirs::resolve(&wanted, None, &env(&[])).unwrap_err();
        assert!(error.to_string().contains("108 bytes"), "{error}");
    }

    #[test]
    fn directories_are_made_with_their_modes_and_kept_otherwise() {
        let base = crate::state::file::tests::scratch("dirs");
        let dirs = Dirs {
            state: base.join("s"),
            runtime: base.join("r"),
        };
        std::fs::create_dir(&dirs.state).unwrap();
        std::fs::set_permissions(&dirs.state, std::fs::Permissions::from_mode(0o750)).unwrap();
        dirs.create().unwrap();
        let mode = |p: &Path| std::fs::metadata(p).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&dirs.state), mode(&dirs.runtime)), (0o750, 0o755));
        std::fs::remove_dir_all(base).unwrap();
    }
}
