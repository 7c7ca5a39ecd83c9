//! Removes what a dead daemon left (`honk cleanup`). The caller holds the lock of one runtime
//! directory; a daemon that lives with another one is found by the owner of the namespace.

use std::{collections::HashSet, path::Path};

use super::{
    error::Error,
    hooks, owner, pair,
    pins::{self, Pins},
    sysctl::Sysctls,
};
use crate::{netlink::Rtnl, netns};

/// What was found and removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CleanupReport {
    /// Pinned links that kept deciding.
    pub(crate) links: usize,
    /// `clsact` filters.
    pub(crate) filters: usize,
    /// Whether the pair was still there.
    pub(crate) pair: bool,
    /// Whether a bpf file system of honk's own was unmounted.
    pub(crate) mount: bool,
    /// Host settings put back.
    pub(crate) settings: usize,
}

/// Removes links, pins, filters and the pair of the calling thread's namespace, and restores
/// host settings. Goes on over failures and returns the first. A link `honk0` that honk did not
/// make stays and counts as one. Where a daemon lives, nothing is touched.
pub(crate) fn cleanup(pin_root: &Path, runtime_dir: &Path) -> Result<CleanupReport, Error> {
    let mut rtnl = Rtnl::open()?;
    // Held during the work, so that no daemon starts into it.
    let _owner = owner::claim(&mut rtnl)?;
    let mut report = CleanupReport::default();
    if let Some(pins) = pins_of(pin_root)? {
        report.links = pins.clear();
    }
    report.mount = pins::left_mounted(pin_root).is_some_and(|mounted| {
        drop(mounted);
        !pins::is_bpffs(pin_root)
    });
    let filters = hooks::remove_filters(&mut rtnl, &HashSet::new());
    let pair = pair::remove_stale(&mut rtnl);
    let settings = Sysctls::open(runtime_dir).and_then(|mut s| s.restore());
    report.filters = filters?;
    report.pair = pair?;
    report.settings = settings?;
    Ok(report)
}

/// Whether a dead daemon's links keep blocking (`on_crash: block`).
pub(crate) fn is_blocking(pin_root: &Path) -> bool {
    matches!(pins_of(pin_root), Ok(Some(pins)) if pins.mode().as_deref() == Some("block"))
}

fn pins_of(root: &Path) -> Result<Option<Pins>, Error> {
    let inode = netns::current_inode()?;
    Ok(pins::is_bpffs(root).then(|| Pins::new(root, inode)))
}
