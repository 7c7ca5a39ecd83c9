//! Host settings that forwarding needs (`auto_config_kernel_parameter`).
//!
//! Originals go to a file, synced, before the first change, and come back at stop where the
//! value is still the one written here. A crash leaves the file; the next start keeps the
//! originals in it. What somebody else writes later is corrected once a minute at most.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::{cascade, error::Error};

const FILE: &str = "sysctl.json";
/// Socket buffers of relays may grow to this.
const SOCKET_BUFFER: u64 = 16 << 20;
/// A setting that somebody else keeps changing is corrected no more often than this.
const CORRECTION: Duration = Duration::from_secs(60);

/// A LAN interface, as far as settings depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lan {
    pub(super) name: String,
    pub(super) v6: bool,
}

/// One change, in the order of application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Change {
    /// Path below `/proc/sys`.
    key: String,
    original: String,
    ours: String,
}

/// Settings changed so far.
#[derive(Debug)]
pub(super) struct Sysctls {
    root: PathBuf,
    file: PathBuf,
    changes: Vec<Change>,
    corrected: HashMap<String, Instant>,
}

impl Sysctls {
    /// Reads what an earlier daemon left behind. A file that cannot be read is an error: its
    /// originals would be lost.
    pub(super) fn open(runtime: &Path) -> Result<Self, Error> {
        Self::open_at(Path::new("/proc/sys"), runtime)
    }

    fn open_at(root: &Path, runtime: &Path) -> Result<Self, Error> {
        let file = runtime.join(FILE);
        let what = || format!("read {}", file.display());
        let changes = match fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|e| Error::io(format!("{}; remove the file", what()))(e.into()))?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(Error::io(what())(e)),
        };
        Ok(Self {
            root: root.to_owned(),
            file,
            changes,
            corrected: HashMap::new(),
        })
    }

    /// Brings all settings to what the LAN interfaces need.
    pub(super) fn apply(&mut self, lan: &[Lan], now: Instant) -> Result<(), Error> {
        let mut fresh: Vec<Change> = Vec::new();
        let mut writes = Vec::new();
        for (key, ours) in self.plan(lan) {
            let Some(current) = self.read(&key) else {
                continue; // not known to this kernel, or the interface is gone
            };
            if current == ours {
                continue;
            }
            if self.changes.iter().any(|c| c.key == key) {
                self.correct(&key, &ours, now);
            } else {
                let others = cascade::victims(&self.root, &key, &ours);
                let others = others.into_iter().filter_map(|(key, ours)| {
                    let original = self.read(&key)?;
                    Some((key, original, ours))
                });
                writes.push((key.clone(), ours.clone()));
                // What changes along comes after its cause, so it is put back after it too.
                for (key, original, ours) in std::iter::once((key, current, ours)).chain(others) {
                    if self.changes.iter().chain(&fresh).all(|c| c.key != key) {
                        fresh.push(Change {
                            key,
                            original,
                            ours,
                        });
                    }
                }
            }
        }
        if writes.is_empty() {
            return Ok(());
        }
        self.changes.extend(fresh.iter().cloned());
        self.store()?;
        for (key, ours) in &writes {
            self.write(key, ours)?;
        }
        Ok(())
    }

    /// Warns about what is missing when honk may not change settings.
    pub(super) fn check(&self) -> Option<&'static str> {
        (self.read("net/ipv4/ip_forward").as_deref() == Some("0")).then_some(
            "net.ipv4.ip_forward is 0: direct traffic of LAN clients is not forwarded; set it, \
             or enable auto_config_kernel_parameter",
        )
    }

    /// Puts the originals back where the value is still ours, and forgets them. Says how many.
    pub(super) fn restore(&mut self) -> Result<usize, Error> {
        // What still is ours is decided first: writing ip_forward changes other settings. What
        // somebody else set is among them, and must survive that.
        let mut back: Vec<(String, String)> = Vec::new();
        let mut count = 0;
        for change in std::mem::take(&mut self.changes) {
            let Some(current) = self.read(&change.key) else {
                continue; // the interface is gone
            };
            if current == change.ours {
                count += usize::from(change.original != current);
                back.push((change.key, change.original));
            } else if back.iter().any(|(k, _)| cascade::is_victim(k, &change.key)) {
                back.push((change.key, current));
            }
        }
        let mut result = Ok(count);
        for (key, value) in &back {
            if self.read(key).as_ref() == Some(value) {
                continue;
            }
            if let Err(e) = self.write(key, value) {
                result = Err(e);
            }
        }
        match fs::remove_file(&self.file) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                Err(Error::io(format!("remove {}", self.file.display()))(e))
            }
            _ => result,
        }
    }

    /// What should be, in the order of application: `ip_forward` resets interface settings.
    fn plan(&self, lan: &[Lan]) -> Vec<(String, String)> {
        let mut plan = Vec::new();
        let mut set = |key: String, value: &str| plan.push((key, value.to_owned()));
        if !lan.is_empty() {
            set("net/ipv4/ip_forward".to_owned(), "1");
            set("net/ipv4/conf/all/send_redirects".to_owned(), "0");
        }
        if lan.iter().any(|l| l.v6) {
            // Forwarding makes the kernel ignore router advertisements, and with them the
            // default route runs out; 2 keeps accepting them.
            for name in self.accepting_ra(lan) {
                set(format!("net/ipv6/conf/{name}/accept_ra"), "2");
            }
            set("net/ipv6/conf/all/forwarding".to_owned(), "1");
        }
        for l in lan {
            set(format!("net/ipv4/conf/{}/forwarding", l.name), "1");
            set(format!("net/ipv4/conf/{}/send_redirects", l.name), "0");
            if l.v6 {
                set(format!("net/ipv6/conf/{}/forwarding", l.name), "1");
            }
        }
        for key in ["net/core/rmem_max", "net/core/wmem_max"] {
            let current = self.read(key).and_then(|v| v.parse::<u64>().ok());
            // Outside the initial namespace they can only be read.
            if current.is_some_and(|v| v < SOCKET_BUFFER) && self.is_writable(key) {
                set(key.to_owned(), &SOCKET_BUFFER.to_string());
            }
        }
        plan
    }

    /// Other interfaces that take router advertisements while they are hosts, and those
    /// already changed here.
    fn accepting_ra(&self, lan: &[Lan]) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.root.join("net/ipv6/conf")) else {
            return Vec::new();
        };
        let mut names: Vec<String> = entries
            .flatten()
            .filter_map(|e| e.file_name().into_string().ok())
            .filter(|n| !matches!(n.as_str(), "all" | "default" | "lo" | super::pair::HOST))
            .filter(|n| lan.iter().all(|l| l.name != *n))
            .filter(|n| {
                let key = format!("net/ipv6/conf/{n}/accept_ra");
                self.changes.iter().any(|c| c.key == key)
                    || self.read(&key).as_deref() == Some("1") && !self.forwards6()
            })
            .collect();
        names.sort();
        names
    }

    fn forwards6(&self) -> bool {
        self.read("net/ipv6/conf/all/forwarding").as_deref() != Some("0")
    }

    fn correct(&mut self, key: &str, ours: &str, now: Instant) {
        let recent = self
            .corrected
            .get(key)
            .is_some_and(|at| now.duration_since(*at) < CORRECTION);
        if recent {
            return;
        }
        self.corrected.insert(key.to_owned(), now);
        match self.write(key, ours) {
            Ok(()) => tracing::warn!(target: super::TARGET, key, "corrected a foreign change"),
            Err(e) => tracing::warn!(target: super::TARGET, key, error = %e, "cannot correct"),
        }
    }

    fn store(&self) -> Result<(), Error> {
        let write = || -> io::Result<()> {
            let parent = self.file.parent().unwrap_or_else(|| Path::new("/"));
            fs::create_dir_all(parent)?;
            let next = self.file.with_extension("json.new");
            let mut file = File::create(&next)?;
            file.write_all(&serde_json::to_vec_pretty(&self.changes)?)?;
            file.sync_all()?;
            fs::rename(&next, &self.file)?;
            File::open(parent)?.sync_all()
        };
        write().map_err(Error::io(format!("write {}", self.file.display())))
    }

    fn read(&self, key: &str) -> Option<String> {
        let value = fs::read_to_string(self.root.join(key)).ok()?;
        Some(value.trim().to_owned())
    }

    fn is_writable(&self, key: &str) -> bool {
        fs::metadata(self.root.join(key)).is_ok_and(|m| !m.permissions().readonly())
    }

    fn write(&self, key: &str, value: &str) -> Result<(), Error> {
        let path = self.root.join(key);
        match fs::write(&path, value) {
            // An interface that left took its settings along.
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(source) => Err(Error::Sysctl { path, source }),
            Ok(()) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree of settings as plain files, gone at the end.
    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str, settings: &[(&str, &str)]) -> Self {
            let dir =
                std::env::temp_dir().join(format!("honk-sysctl-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&dir);
            let tree = Self(dir);
            for (key, value) in settings {
                tree.set(key, value);
            }
            tree
        }

        fn set(&self, key: &str, value: &str) {
            let path = self.0.join("sys").join(key);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, value).unwrap();
        }

        fn value(&self, key: &str) -> String {
            fs::read_to_string(self.0.join("sys").join(key)).unwrap()
        }

        fn open(&self) -> Sysctls {
            Sysctls::open_at(&self.0.join("sys"), &self.0.join("run")).unwrap()
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const FORWARD: &str = "net/ipv4/ip_forward";

    fn lan(v6: bool) -> Vec<Lan> {
        vec![Lan {
            name: "lan".to_owned(),
            v6,
        }]
    }

    fn typical(name: &str) -> Tree {
        Tree::new(
            name,
            &[
                (FORWARD, "0\n"),
                ("net/ipv4/conf/all/send_redirects", "1\n"),
                ("net/ipv4/conf/lan/send_redirects", "1\n"),
                ("net/ipv4/conf/lan/forwarding", "0\n"),
                ("net/ipv6/conf/all/forwarding", "0\n"),
                ("net/ipv6/conf/lan/forwarding", "0\n"),
                ("net/ipv6/conf/lan/accept_ra", "1\n"),
                ("net/ipv6/conf/wan/accept_ra", "1\n"),
                ("net/ipv6/conf/other/accept_ra", "0\n"),
                ("net/core/rmem_max", "212992\n"),
                ("net/core/wmem_max", "33554432\n"),
            ],
        )
    }

    #[test]
    fn changes_are_made_and_undone() {
        let tree = typical("undone");
        let mut s = tree.open();
        s.apply(&lan(true), Instant::now()).unwrap();
        assert_eq!(tree.value(FORWARD), "1");
        assert_eq!(tree.value("net/ipv6/conf/wan/accept_ra"), "2");
        assert_eq!(
            tree.value("net/ipv6/conf/lan/accept_ra"),
            "1\n",
            "LAN is ours"
        );
        assert_eq!(tree.value("net/ipv6/conf/other/accept_ra"), "0\n");
        assert_eq!(tree.value("net/core/rmem_max"), "16777216");
        assert_eq!(tree.value("net/core/wmem_max"), "33554432\n");
        assert!(tree.0.join("run").join(FILE).exists());
        // Nothing new the second time.
        let before = s.changes.clone();
        s.apply(&lan(true), Instant::now()).unwrap();
        assert_eq!(s.changes, before);
        s.restore().unwrap();
        assert_eq!(tree.value(FORWARD), "0");
        assert_eq!(tree.value("net/ipv6/conf/wan/accept_ra"), "1");
        assert!(!tree.0.join("run").join(FILE).exists());
    }

    #[test]
    fn what_others_changed_stays() {
        let tree = typical("others");
        let mut s = tree.open();
        s.apply(&lan(false), Instant::now()).unwrap();
        tree.set("net/core/rmem_max", "99999999");
        s.restore().unwrap();
        assert_eq!(tree.value("net/core/rmem_max"), "99999999");
        assert_eq!(tree.value(FORWARD), "0");
    }

    #[test]
    fn a_crash_keeps_the_originals() {
        let tree = typical("crash");
        tree.open().apply(&lan(false), Instant::now()).unwrap();
        // No restore: the next daemon finds its own values in place.
        let mut next = tree.open();
        next.apply(&lan(false), Instant::now()).unwrap();
        next.restore().unwrap();
        assert_eq!(tree.value(FORWARD), "0");
    }

    #[test]
    fn corrections_are_rare() {
        let tree = typical("correct");
        let mut s = tree.open();
        let start = Instant::now();
        s.apply(&lan(false), start).unwrap();
        tree.set(FORWARD, "0");
        s.apply(&lan(false), start).unwrap();
        assert_eq!(tree.value(FORWARD), "1", "the first time at once");
        tree.set(FORWARD, "0");
        s.apply(&lan(false), start + Duration::from_secs(59))
            .unwrap();
        assert_eq!(tree.value(FORWARD), "0", "then not within a minute");
        s.apply(&lan(false), start + Duration::from_secs(61))
            .unwrap();
        assert_eq!(tree.value(FORWARD), "1");
    }

    #[test]
    fn without_lan_nothing_is_forwarded() {
        let tree = typical("none");
        let mut s = tree.open();
        assert!(s.check().is_some());
        s.apply(&[], Instant::now()).unwrap();
        assert_eq!(tree.value(FORWARD), "0\n");
        s.restore().unwrap();
    }

    #[test]
    fn a_damaged_file_is_reported() {
        let tree = typical("damaged");
        fs::create_dir_all(tree.0.join("run")).unwrap();
        fs::write(tree.0.join("run").join(FILE), "{").unwrap();
        let e = Sysctls::open_at(&tree.0.join("sys"), &tree.0.join("run")).unwrap_err();
        assert!(e.to_string().contains("sysctl.json"), "{e}");
    }
}
