//! Configuration files from the file system: type, size, mode and owner checks.
//!
//! The grammar crate decides what is included and in which order; this room only hands over
//! bytes it has checked on the open file, so that a swap between check and read gains nothing.

use std::{
    fs::File,
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use honk_grammar::{LoadError, Loaded, Loader, limits::FILE_BYTES};

use crate::state::{dirs::Env, file::open_regular};

/// Group may read; group may not write or execute, others may do nothing.
const FORBIDDEN_MODE: u32 = 0o037;

/// Others may write.
const OTHERS_WRITE: u32 = 0o002;
/// That, and the bit that keeps them from what is not theirs.
const REPLACEABLE: u32 = OTHERS_WRITE | 0o1000;

/// What happens to files whose mode is too open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModeRule {
    /// They are refused.
    Deny,
    /// They are used with a warning: read-only stores cannot change modes.
    Warn,
}

/// The file system as a [`Loader`].
#[derive(Clone, Debug)]
pub(crate) struct Files {
    rule: ModeRule,
    /// Files below are exempt: the service manager guards them.
    credentials: Option<PathBuf>,
    user: u32,
}

impl Files {
    pub(crate) fn new(rule: ModeRule, env: Env<'_>) -> Self {
        Self {
            rule,
            credentials: env("CREDENTIALS_DIRECTORY").map(PathBuf::from),
            user: rustix::process::geteuid().as_raw(),
        }
    }

    fn exempt(&self, path: &Path) -> bool {
        self.credentials
            .as_deref()
            .and_then(|dir| dir.canonicalize().ok())
            .is_some_and(|dir| path.starts_with(dir))
    }
}

impl Loader for Files {
    fn canonical(&mut self, path: &str) -> Result<String, LoadError> {
        let path = Path::new(path).canonicalize().map_err(|e| refused(&e))?;
        path.into_os_string()
            .into_string()
            .map_err(|_| LoadError::Io("the path is not UTF-8".to_owned()))
    }

    fn is_dir(&mut self, path: &str) -> bool {
        Path::new(path).is_dir()
    }

    fn list(&mut self, dir: &str) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(dir) else {
            return Vec::new();
        };
        entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect()
    }

    fn read(&mut self, path: &str) -> Result<Loaded, LoadError> {
        self.checked(path, FILE_BYTES)
    }
}

impl Files {
    /// The content of a file below the directory of `entry`, which is meant relative to it.
    pub(crate) fn below(
        &self,
        entry: &Path,
        relative: &str,
        most: usize,
    ) -> Result<Vec<u8>, LoadError> {
        let dir = entry.parent().filter(|d| !d.as_os_str().is_empty());
        let dir = dir.unwrap_or_else(|| Path::new("."));
        let dir = dir.canonicalize().map_err(|e| refused(&e))?;
        let path = dir.join(relative).canonicalize().map_err(|e| refused(&e))?;
        if !path.starts_with(&dir) {
            let text = format!("it is not below {}", dir.display());
            return Err(LoadError::Io(text));
        }
        let path = path.into_os_string().into_string();
        let path = path.map_err(|_| LoadError::Io("the path is not UTF-8".to_owned()))?;
        self.checked(&path, most).map(|loaded| loaded.bytes)
    }

    /// A warning about a directory in which everybody may put another file in its place.
    fn open_directory(&self, path: &Path) -> Option<(&'static str, String)> {
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let dir = dir.unwrap_or_else(|| Path::new("."));
        let mode = dir.metadata().ok()?.mode() & 0o7777;
        if mode & REPLACEABLE != OTHERS_WRITE || self.exempt(path) {
            return None;
        }
        let text = format!(
            "permissions {mode:04o} for the directory '{}' let everybody replace what is in it; use 0750 or 0755",
            dir.display()
        );
        Some(("perm-open", text))
    }

    fn checked(&self, path: &str, most: usize) -> Result<Loaded, LoadError> {
        let (file, meta) = open_regular(Path::new(path)).map_err(|e| match e.kind() {
            io::ErrorKind::InvalidInput => LoadError::NotRegular,
            _ => refused(&e),
        })?;
        let mut warnings = Vec::new();
        let mode = meta.mode() & 0o7777;
        if mode & FORBIDDEN_MODE != 0 && !self.exempt(Path::new(path)) {
            if self.rule == ModeRule::Deny {
                return Err(LoadError::Permission(mode));
            }
            let text =
                format!("permissions {mode:04o} for '{path}' are too open; use 0640 or 0600");
            warnings.push(("perm-open", text));
        }
        if meta.uid() != 0 && meta.uid() != self.user {
            let owner = meta.uid();
            let text =
                format!("'{path}' belongs to user {owner}, who can change it; chown it to root");
            warnings.push(("perm-owner", text));
        }
        warnings.extend(self.open_directory(Path::new(path)));
        if meta.len() > most as u64 {
            return Err(LoadError::TooLarge(meta.len()));
        }
        let bytes = whole(&file, most).map_err(|e| refused(&e))?;
        if bytes.len() > most {
            return Err(LoadError::TooLarge(bytes.len() as u64));
        }
        Ok(Loaded { bytes, warnings })
    }
}

/// The content, at most one byte more than allowed: the file may grow while it is read.
fn whole(file: &File, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn refused(e: &io::Error) -> LoadError {
    match e.kind() {
        io::ErrorKind::NotFound => LoadError::NotFound,
        io::ErrorKind::PermissionDenied => {
            LoadError::Io("permission denied; run as root or as the owner".to_owned())
        }
        _ => LoadError::Io(e.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use honk_grammar::Parsed;

    use super::*;
    use crate::state::file::tests::scratch;

    fn files(rule: ModeRule) -> Files {
        Files::new(rule, &|_| None)
    }

    fn put(dir: &Path, name: &str, text: &str, mode: u32) -> String {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn slugs(parsed: &Parsed) -> Vec<&'static str> {
        parsed.diagnostics.iter().map(|d| d.slug).collect()
    }

    #[test]
    fn too_open_modes_are_refused_or_warned_about() {
        let dir = scratch("mode");
        for (mode, open) in [(0o600, false), (0o640, false), (0o644, true), (0o660, true)] {
            let path = put(&dir, "c.dae", "global { }", mode);
            assert_eq!(files(ModeRule::Deny).read(&path).is_err(), open, "{mode:o}");
            let warned = files(ModeRule::Warn).read(&path).unwrap().warnings;
            assert_eq!(!warned.is_empty(), open, "{mode:o}");
        }
        let path = put(&dir, "c.dae", "global { }", 0o644);
        let parsed = honk_grammar::parse(&path, &mut files(ModeRule::Deny));
        assert_eq!(slugs(&parsed), ["perm-open"]);
        assert!(parsed.diagnostics[0].message.contains("0644"));
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_directory_that_others_may_write_is_told() {
        let dir = scratch("open");
        let path = put(&dir, "c.dae", "global { }", 0o600);
        for (mode, told) in [
            (0o777, true),
            (0o1777, false),
            (0o775, false),
            (0o750, false),
        ] {
            fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).unwrap();
            let warned = files(ModeRule::Deny).read(&path).unwrap().warnings;
            assert_eq!(!warned.is_empty(), told, "{mode:o}");
        }
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn credential_files_are_exempt_from_the_mode_rule() {
        let dir = scratch("cred");
        let path = put(&dir, "config.dae", "global { }", 0o444);
        let env = |key: &str| (key == "CREDENTIALS_DIRECTORY").then(|| dir.clone().into());
        let mut files = Files::new(ModeRule::Deny, &env);
        let path = files.canonical(&path).unwrap();
        assert!(files.read(&path).unwrap().warnings.is_empty());
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn includes_cannot_leave_the_directory_nor_come_back_to_themselves() {
        let dir = scratch("include");
        let outside = put(&dir, "x.dae", "global { }", 0o600);
        let entry = put(
            &dir,
            "etc/main.dae",
            "include { ../x.dae link.dae a.dae }",
            0o600,
        );
        put(&dir, "etc/a.dae", "include { b.dae }", 0o600);
        put(&dir, "etc/b.dae", "include { a.dae }", 0o600);
        std::os::unix::fs::symlink(&outside, dir.join("etc/link.dae")).unwrap();
        let parsed = honk_grammar::parse(&entry, &mut files(ModeRule::Deny));
        assert_eq!(
            slugs(&parsed),
            ["include-outside", "include-outside", "include-cycle"]
        );
        let names: Vec<&str> = parsed
            .sources
            .files()
            .iter()
            .map(|f| f.name.as_str())
            .collect();
        assert_eq!(names.len(), 3, "{names:?}");
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn pipes_directories_and_missing_files_are_errors_and_never_hang() {
        let dir = scratch("pipe");
        let pipe = dir.join("p.dae");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
        let mut files = files(ModeRule::Deny);
        assert_eq!(
            files.read(pipe.to_str().unwrap()).unwrap_err(),
            LoadError::NotRegular
        );
        assert_eq!(
            files.read(dir.to_str().unwrap()).unwrap_err(),
            LoadError::NotRegular
        );
        let missing = dir.join("m.dae");
        assert_eq!(
            files.read(missing.to_str().unwrap()).unwrap_err(),
            LoadError::NotFound
        );
        fs::remove_dir_all(dir).unwrap();
    }
}
