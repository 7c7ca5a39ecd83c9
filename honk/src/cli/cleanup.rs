//! `honk cleanup`: what a dead daemon left in the kernel.

use serde_json::json;

use super::{
    Invocation,
    args::Cleanup,
    conn::confirm,
    exit::{Exit, Failure},
};
use crate::{
    app::bridge::exit_of,
    datapath::{self, CleanupReport},
    state::lock::{Lock, LockError},
};

/// Runs the command.
pub(crate) fn run(invocation: &Invocation, args: &Cleanup) -> Result<Exit, Failure> {
    confirm(args.yes, "Remove every honk hook, link, rule and route?")?;
    let dirs = invocation.dirs(None)?;
    // Held during the work, so that no daemon starts into it.
    let lock = if dirs.runtime.is_dir() {
        Some(Lock::take(&dirs.lock()).map_err(|e| match &e {
            LockError::Held { pid, .. } => {
                let text = format!("honk runs (pid {pid}) and cleans up itself when it stops");
                Failure::new(Exit::Conflict, "already_running", text)
            }
            LockError::Io { .. } => Failure::new(Exit::Permission, "lock", e.to_string()),
        })?)
    } else {
        None
    };
    if args.if_stale && unclean() && datapath::is_blocking(&args.bpf_pin_root) {
        drop(lock);
        return said(invocation, None);
    }
    let report = datapath::cleanup(&args.bpf_pin_root, &dirs.runtime)
        .map_err(|e| Failure::new(exit_of(e.blame()), "datapath", e.to_string()))?;
    for stale in [dirs.socket(), dirs.pid()] {
        // Absent after a clean end.
        let _ = std::fs::remove_file(stale);
    }
    drop(lock);
    said(invocation, Some(report))
}

/// Whether the service manager says that the daemon died: after a clean end nothing is left on
/// purpose.
fn unclean() -> bool {
    std::env::var_os("SERVICE_RESULT").is_none_or(|r| r != "success")
}

fn said(invocation: &Invocation, report: Option<CleanupReport>) -> Result<Exit, Failure> {
    let out = &invocation.out;
    let r = report.unwrap_or_default();
    if out.json {
        let data = json!({
            "kept_blocking": report.is_none(),
            "links": r.links,
            "filters": r.filters,
            "pair": r.pair,
            "mount": r.mount,
            "settings": r.settings,
        });
        out.document("cleanup/1", &data, &[] as &[String])?;
    } else if report.is_none() {
        out.text(
            "kept: on_crash is block, so proxied destinations stay unreachable until honk is \
             back; `honk cleanup --yes` removes that too",
        )?;
    } else if r == CleanupReport::default() {
        out.text("nothing to remove")?;
    } else {
        let pair = if r.pair { ", the link pair" } else { "" };
        let mount = if r.mount { ", the bpf file system" } else { "" };
        out.text(&format!(
            "removed: {} pinned links, {} filters{pair}{mount}; {} host settings restored",
            r.links, r.filters, r.settings
        ))?;
    }
    Ok(Exit::Success)
}
