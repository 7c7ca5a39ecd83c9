//! Where `geosite.dat`, `geoip.dat` and files like them lie.
//!
//! A file is looked for by its name, in the operator's directory, the state directory, the
//! working directory and then where packages put them; the first that exists is used. Bytes go
//! to the lowering of the configuration, which decides what they mean.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Component, Path, PathBuf},
};

use honk_policy::geo::{GeoSource, MAX_FILE, Unreadable};

use super::{
    dirs::{Dirs, Env, Wanted},
    file::open_regular,
};

/// Where packages of honk and dae install geodata.
const INSTALLED: [&str; 5] = [
    "/usr/local/share/honk",
    "/usr/share/honk",
    "/usr/local/share/dae",
    "/usr/share/dae",
    "/etc/dae",
];

/// The file system as a [`GeoSource`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Geodata {
    /// Searched before everything else.
    asset: Option<PathBuf>,
    /// The state directory by flag, else what the service manager says.
    by_flag: Option<PathBuf>,
    by_manager: Option<PathBuf>,
}

impl Geodata {
    pub(crate) fn new(wanted: &Wanted, env: Env<'_>) -> Self {
        let asset = env("DAE_LOCATION_ASSET").map(PathBuf::from);
        let by_manager = Dirs::resolve(&Wanted::default(), None, env);
        Self {
            asset: asset.filter(|dir| !dir.as_os_str().is_empty()),
            by_flag: wanted.state.clone(),
            by_manager: by_manager.ok().map(|dirs| dirs.state),
        }
    }

    /// The directories in search order.
    fn places(&self, data_dir: Option<&str>) -> Vec<PathBuf> {
        let state = self.by_flag.clone().or_else(|| data_dir.map(Into::into));
        let state = state.or_else(|| self.by_manager.clone());
        let first = self.asset.clone().into_iter().chain(state);
        let last = INSTALLED.iter().map(PathBuf::from);
        first.chain([PathBuf::from(".")]).chain(last).collect()
    }
}

impl GeoSource for Geodata {
    fn read(&mut self, file: &str, data_dir: Option<&str>) -> Result<Vec<u8>, Unreadable> {
        let plain = |part| matches!(part, Component::Normal(_));
        if !Path::new(file).components().all(plain) {
            let text = "is no name below the directories of geodata".to_owned();
            return Err(Unreadable::Refused(text));
        }
        let places = self.places(data_dir);
        for place in &places {
            let path = place.join(file);
            match content(&path) {
                Ok(bytes) => return Ok(bytes),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => {
                    let text = format!("cannot be read from {}: {e}", path.display());
                    return Err(Unreadable::Refused(text));
                }
            }
        }
        let places = places.iter().map(|place| place.display().to_string());
        Err(Unreadable::Missing(places.collect()))
    }
}

fn content(path: &Path) -> io::Result<Vec<u8>> {
    let (file, meta) = open_regular(path)?;
    whole(&file, meta.len(), MAX_FILE)
}

/// At most `most` bytes: the file may also grow while it is read.
fn whole(file: &File, len: u64, most: usize) -> io::Result<Vec<u8>> {
    let too_large = || io::Error::other(format!("larger than {} MiB", most >> 20));
    let len = usize::try_from(len).ok().filter(|len| *len <= most);
    let mut bytes = Vec::with_capacity(len.ok_or_else(too_large)?);
    file.take(most as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > most {
        return Err(too_large());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{
        app::{
            loader::{Files, ModeRule},
            source::{self, Purpose},
        },
        state::file::tests::scratch,
    };

    fn geodata(asset: Option<&Path>, state: Option<&Path>) -> Geodata {
        let wanted = Wanted {
            state: state.map(Path::to_path_buf),
            runtime: None,
        };
        let asset = asset.map(|p| p.as_os_str().to_owned());
        let env = |key: &str| match key {
            "DAE_LOCATION_ASSET" => asset.clone(),
            "STATE_DIRECTORY" => Some("/manager:/second".into()),
            _ => None,
        };
        Geodata::new(&wanted, &env)
    }

    #[test]
    fn the_operator_comes_before_the_state_directory_and_that_before_packages() {
        let places = |g: &Geodata, dir| -> Vec<String> {
            let all = g.places(dir).into_iter();
            all.map(|p| p.display().to_string()).collect()
        };
        let all = places(&geodata(Some(Path::new("/asset")), None), Some("/data"));
        assert_eq!(all[..3], ["/asset", "/data", "."]);
        assert_eq!(all[3..], INSTALLED);
        assert_eq!(places(&geodata(None, None), None)[0], "/manager");
        let flag = geodata(None, Some(Path::new("/flag")));
        assert_eq!(places(&flag, Some("/data"))[0], "/flag");
        assert_eq!(
            places(&geodata(Some(Path::new("")), None), None)[0],
            "/manager"
        );
    }

    #[test]
    fn the_first_file_that_exists_is_used() {
        let base = scratch("geodata");
        let (asset, state) = (base.join("asset"), base.join("state"));
        fs::create_dir_all(&asset).unwrap();
        fs::create_dir_all(state.join("sub")).unwrap();
        let mut source = geodata(Some(&asset), Some(&state));
        fs::write(state.join("a.dat"), "state").unwrap();
        fs::write(state.join("sub/b.dat"), "sub").unwrap();
        assert_eq!(source.read("a.dat", None).unwrap(), b"state");
        assert_eq!(source.read("sub/b.dat", None).unwrap(), b"sub");
        fs::write(asset.join("a.dat"), "asset").unwrap();
        assert_eq!(source.read("a.dat", None).unwrap(), b"asset");
        let Err(Unreadable::Missing(places)) = source.read("honk-test-none.dat", None) else {
            panic!("no such file");
        };
        assert_eq!(places[0], asset.display().to_string());
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn what_is_no_file_below_is_refused() {
        let base = scratch("geodata-bad");
        fs::create_dir(base.join("dir.dat")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, base.join("p.dat"), rustix::fs::Mode::RUSR).unwrap();
        let mut source = geodata(Some(&base), None);
        for name in [
            "../x.dat",
            "/etc/x.dat",
            "a/../x.dat",
            "./x.dat",
            "dir.dat",
            "p.dat",
        ] {
            assert!(
                matches!(source.read(name, None), Err(Unreadable::Refused(_))),
                "{name}"
            );
        }
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn a_file_beyond_the_limit_is_refused() {
        let base = scratch("geodata-large");
        let path = base.join("x.dat");
        fs::write(&path, [0; 100]).unwrap();
        let file = || File::open(&path).unwrap();
        assert_eq!(whole(&file(), 100, 100).unwrap().len(), 100);
        assert!(whole(&file(), 100, 99).is_err());
        // It grew after its length was taken.
        assert!(whole(&file(), 10, 99).is_err());
        let sparse = File::create(base.join("huge.dat")).unwrap();
        sparse.set_len(500 << 20).unwrap();
        let refused = geodata(Some(&base), None)
            .read("huge.dat", None)
            .unwrap_err();
        assert!(
            refused.to_string().ends_with("larger than 64 MiB"),
            "{refused}"
        );
        fs::remove_dir_all(base).unwrap();
    }

    /// The configuration that is run, not only checked, gets its networks from the file.
    #[test]
    fn a_rule_with_a_country_runs_once_its_file_is_there() {
        let base = scratch("geodata-run");
        let spec = source::Spec {
            entry: base.join("c.dae"),
            files: Files::new(ModeRule::Deny, &|_| None),
            geodata: geodata(Some(&base), None),
        };
        let text = b"global { lan_interface: lan0 } routing { dip(geoip: zz) -> block }";
        let load = || source::load_text(&spec, "c.dae", text, Purpose::Run).candidate;
        // Nobody installs a code of this name.
        assert!(load().is_none());
        // ZZ: 9.0.0.0/8
        let file = [10, 14, 10, 2, b'Z', b'Z', 18, 8, 10, 4, 9, 0, 0, 0, 16, 8];
        fs::write(base.join("geoip.dat"), file).unwrap();
        assert_eq!(load().unwrap().tables.dest.len(), 1);
        fs::write(base.join("geoip.dat"), &file[..9]).unwrap();
        assert!(load().is_none());
        fs::remove_dir_all(base).unwrap();
    }
}
