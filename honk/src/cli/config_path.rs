//! Which configuration file is meant when none is named.

use std::path::PathBuf;

use super::exit::{Exit, Failure};
use crate::state::dirs::Env;

/// The configuration of an installed honk.
const SYSTEM: &str = "/etc/honk/config.dae";
/// The configuration of an installed dae: honk reads the same language.
const DAE: &str = "/etc/dae/config.dae";
/// Where packages put the example.
const EXAMPLE: &str = "/usr/share/honk/examples/config.dae";
/// The example in the source tree.
const EXAMPLE_SOURCE: &str = "honk/packaging/examples/config.dae";

/// The file to use and why, when that deserves a note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    pub(crate) note: Option<String>,
}

/// `-c`, then `HONK_CONFIG`; both are taken as they are. Then the first that exists of the
/// service manager's credential, honk's own path and dae's.
pub(crate) fn find(
    flag: Option<&PathBuf>,
    env: Env<'_>,
    exists: &dyn Fn(&PathBuf) -> bool,
) -> Result<Found, Failure> {
    let plain = |path| Found { path, note: None };
    if let Some(path) = flag {
        return Ok(plain(path.clone()));
    }
    if let Some(path) = env("HONK_CONFIG").filter(|p| !p.is_empty()) {
        return Ok(plain(PathBuf::from(path)));
    }
    let credential = env("CREDENTIALS_DIRECTORY").map(|d| PathBuf::from(d).join("config.dae"));
    let own = credential.into_iter().chain([PathBuf::from(SYSTEM)]);
    if let Some(path) = own.into_iter().find(|p| exists(p)) {
        return Ok(plain(path));
    }
    let dae = PathBuf::from(DAE);
    if exists(&dae) {
        let note = format!("using {DAE}, because {SYSTEM} does not exist");
        return Ok(Found {
            path: dae,
            note: Some(note),
        });
    }
    Err(Failure::new(
        Exit::Config,
        "no_config",
        format!(
            "no configuration file. honk looks for, in this order:\n  \
             1. -c, --config PATH\n  \
             2. the file named by HONK_CONFIG\n  \
             3. config.dae in $CREDENTIALS_DIRECTORY (systemd)\n  \
             4. {SYSTEM}\n  \
             5. {DAE}\n\
             Start from the example: {EXAMPLE} of an installed package,\n\
             {EXAMPLE_SOURCE} in the source tree. For instance:\n  \
             install -D -m 0640 {EXAMPLE_SOURCE} {SYSTEM}"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    fn path(found: Result<Found, Failure>) -> String {
        found.unwrap().path.display().to_string()
    }

    #[test]
    fn the_search_order_is_flag_variable_credential_system_dae() {
        let flag = PathBuf::from("/f.dae");
        let env = |k: &str| match k {
            "HONK_CONFIG" => Some(OsString::from("/e.dae")),
            "CREDENTIALS_DIRECTORY" => Some(OsString::from("/cred")),
            _ => None,
        };
        let cred = |k: &str| env(k).filter(|_| k != "HONK_CONFIG");
        let none = |_: &str| None;
        let all = |_: &PathBuf| true;
        assert_eq!(path(find(Some(&flag), &env, &|_| false)), "/f.dae");
        assert_eq!(path(find(None, &env, &|_| false)), "/e.dae");
        assert_eq!(path(find(None, &cred, &all)), "/cred/config.dae");
        assert_eq!(path(find(None, &none, &all)), SYSTEM);
        let found = find(None, &none, &|p| p.starts_with("/etc/dae")).unwrap();
        assert!(found.path.as_os_str() == DAE && found.note.is_some());
    }

    #[test]
    fn without_any_file_the_message_explains_and_exits_3() {
        let failure = find(None, &|_| None, &|_| false).unwrap_err();
        assert_eq!(failure.exit, Exit::Config);
        for part in ["HONK_CONFIG", SYSTEM, DAE, EXAMPLE_SOURCE] {
            assert!(failure.message.contains(part), "{part}");
        }
    }
}
