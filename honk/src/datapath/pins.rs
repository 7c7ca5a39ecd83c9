//! Pinned links: what keeps deciding when the daemon dies (`on_crash: block`).
//!
//! `<root>/honk/<inode of the host namespace>/links/<ifindex>-<side>` plus a symbolic link
//! `mode` that tells what the pins are for, and the flow table as `flows<ABI version>`. Names contain no dots: bpffs reserves them.

use std::{
    ffi::CString,
    fs, io,
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{ffi::OsStrExt, fs::DirBuilderExt},
    },
    path::{Path, PathBuf},
};

use super::{bpf, error::Error};
use crate::netlink::Side;

const BPF_FS_MAGIC: i64 = 0xcafe_4a11;

/// Which hook a pinned link belongs to.
pub(super) type HookKey = (u32, Side);

/// The pin directory of one host namespace.
#[derive(Debug)]
pub(super) struct Pins {
    dir: PathBuf,
}

impl Pins {
    pub(super) fn new(root: &Path, inode: u64) -> Self {
        Self {
            dir: root.join("honk").join(inode.to_string()),
        }
    }

    /// Pinned links that are still attached. Whatever else is there, is removed: an unreadable
    /// pin must never stop a start.
    pub(super) fn inherit(&self) -> Vec<(HookKey, OwnedFd)> {
        let Ok(entries) = fs::read_dir(self.links()) else {
            return Vec::new();
        };
        let mut live = Vec::new();
        for entry in entries.flatten() {
            let path = entry.path();
            let key = entry.file_name().to_str().and_then(parse_name);
            let link = key.and_then(|key| Some((key, bpf::open_pin(&path).ok()?)));
            match link {
                Some((key, fd)) if bpf::tcx_link(fd.as_fd()).ok().flatten() == Some(key) => {
                    live.push((key, fd));
                }
                _ => remove(&path),
            }
        }
        live
    }

    /// Makes the directory.
    pub(super) fn prepare(&self) -> Result<(), Error> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(self.links())
            .map_err(Error::io(format!("create {}", self.dir.display())))
    }

    /// Notes beside the pins what happens to traffic while no daemon runs.
    pub(super) fn set_mode(&self, mode: &str) -> Result<(), Error> {
        let path = self.dir.join("mode");
        remove(&path);
        std::os::unix::fs::symlink(mode, &path)
            .map_err(Error::io(format!("create {}", path.display())))
    }

    /// What `set_mode` noted.
    pub(super) fn mode(&self) -> Option<String> {
        let target = fs::read_link(self.dir.join("mode")).ok()?;
        target.to_str().map(str::to_owned)
    }

    /// Pins a link, replacing a stale pin of that name.
    pub(super) fn add(&self, key: HookKey, link: BorrowedFd<'_>) -> Result<(), Error> {
        let path = self.path(key);
        match bpf::pin(link, &path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                remove(&path);
                bpf::pin(link, &path)
            }
            other => other,
        }
        .map_err(Error::io(format!("pin {}", path.display())))
    }

    /// Pins the flow table for the daemon after this one.
    pub(super) fn add_flows(&self, map: BorrowedFd<'_>) -> Result<(), Error> {
        self.remove_flows();
        let path = self.dir.join(flows_name());
        bpf::pin(map, &path).map_err(Error::io(format!("pin {}", path.display())))
    }

    /// The flow table of a daemon that died, if its layout is ours.
    pub(super) fn flows(&self) -> Option<OwnedFd> {
        bpf::open_pin(&self.dir.join(flows_name())).ok()
    }

    fn remove_flows(&self) {
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            if entry.file_name().as_bytes().starts_with(FLOWS.as_bytes()) {
                remove(&entry.path());
            }
        }
    }

    /// Removes one pin.
    pub(super) fn drop_pin(&self, key: HookKey) {
        remove(&self.path(key));
    }

    /// Detaches every pinned link and removes the directory. Says how many links there were.
    pub(super) fn clear(&self) -> usize {
        let mut count = 0;
        for (key, link) in self.inherit() {
            // Without this the link would stay until the kernel frees the pin some time later.
            let _ = bpf::detach_link(link.as_fd());
            self.drop_pin(key);
            count += 1;
        }
        self.remove_dirs();
        count
    }

    /// Removes the directories if nothing is pinned there any more.
    pub(super) fn remove_dirs(&self) {
        remove(&self.dir.join("mode"));
        self.remove_flows();
        for dir in [self.links(), self.dir.clone()] {
            let _ = fs::remove_dir(dir);
        }
        if let Some(all) = self.dir.parent() {
            let _ = fs::remove_dir(all);
        }
    }

    fn links(&self) -> PathBuf {
        self.dir.join("links")
    }

    fn path(&self, (link, side): HookKey) -> PathBuf {
        self.links().join(format!("{link}-{}", side.name()))
    }
}

const FLOWS: &str = "flows";

fn flows_name() -> String {
    format!("{FLOWS}{}", honk_common::ABI_VERSION)
}

fn parse_name(name: &str) -> Option<HookKey> {
    let (link, side) = name.split_once('-')?;
    let side = Side::BOTH.into_iter().find(|s| s.name() == side)?;
    Some((link.parse().ok()?, side))
}

/// Best effort: what cannot be removed is found again by the next start.
fn remove(path: &Path) {
    let _ = fs::remove_file(path);
}

/// Whether a path is on a bpffs.
pub(super) fn is_bpffs(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    let mut stat = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the path is a C string and the buffer has the right type; zeroed is a valid one.
    let stat = unsafe {
        if libc::statfs(path.as_ptr(), stat.as_mut_ptr()) != 0 {
            return false;
        }
        stat.assume_init()
    };
    stat.f_type as i64 == BPF_FS_MAGIC
}

/// Stands in the root of a bpffs that honk mounted, so that a later process knows it for its own.
pub(super) const MARKER: &str = "honk_mounted";

/// A bpffs mounted by honk. Dropping it unmounts it, unless something is pinned there.
#[derive(Debug)]
pub(super) struct Mounted {
    root: PathBuf,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // The file system's own files have a dot in their names, pins cannot.
        let is_pin = |name: &[u8]| !name.contains(&b'.') && name != MARKER.as_bytes();
        let pinned = fs::read_dir(&self.root).map_or(true, |entries| {
            entries.flatten().any(|e| is_pin(e.file_name().as_bytes()))
        });
        if pinned {
            return;
        }
        let Ok(target) = CString::new(self.root.as_os_str().as_bytes()) else {
            return;
        };
        // SAFETY: the argument is a C string that outlives the call.
        if unsafe { libc::umount2(target.as_ptr(), libc::UMOUNT_NOFOLLOW) } != 0 {
            let e = io::Error::last_os_error();
            tracing::warn!(target: super::TARGET, path = %self.root.display(), error = %e, "cannot unmount");
        }
    }
}

/// The bpffs that a dead daemon mounted, to be unmounted at the end.
pub(super) fn left_mounted(root: &Path) -> Option<Mounted> {
    let ours = is_bpffs(root) && fs::symlink_metadata(root.join(MARKER)).is_ok();
    ours.then(|| Mounted {
        root: root.to_owned(),
    })
}

/// Makes sure `root`, which must exist, is on a bpffs; mounts one there when it is not. A mount made in a private
/// mount namespace (`ip netns exec`, some containers) ends with it, and the pins too; on hosts
/// with systemd `/sys/fs/bpf` is mounted long before.
pub(super) fn ensure_bpffs(root: &Path) -> Result<Option<Mounted>, Error> {
    if is_bpffs(root) {
        return Ok(left_mounted(root));
    }
    match fs::metadata(root) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Err(Error::NoPinRoot(root.to_owned()));
        }
        _ => {}
    }
    let mount = || -> io::Result<()> {
        let target = CString::new(root.as_os_str().as_bytes())?;
        // SAFETY: all arguments are C strings that outlive the call.
        let done = unsafe {
            libc::mount(
                c"bpf".as_ptr(),
                target.as_ptr(),
                c"bpf".as_ptr(),
                libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC,
                c"mode=0700".as_ptr().cast(),
            )
        };
        if done == 0 {
            // Without it the mount stays after a crash; nothing else depends on it.
            let _ = std::os::unix::fs::symlink("honk", root.join(MARKER));
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    };
    let root = root.to_owned();
    match mount() {
        Ok(()) => Ok(Some(Mounted { root })),
        Err(source) => Err(Error::Bpffs { path: root, source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        assert_eq!(parse_name("12-ingress"), Some((12, Side::Ingress)));
        assert_eq!(parse_name("7-egress"), Some((7, Side::Egress)));
        for bad in [
            "",
            "12",
            "12-",
            "x-ingress",
            "12-ingress-1",
            "-egress",
            "99999999999-egress",
        ] {
            assert_eq!(parse_name(bad), None, "{bad}");
        }
    }

    #[test]
    fn no_directory_is_no_pins() {
        let pins = Pins::new(Path::new("/nonexistent"), 1);
        assert!(pins.inherit().is_empty());
        assert_eq!(pins.clear(), 0);
        assert!(!is_bpffs(Path::new("/proc")));
    }
}
