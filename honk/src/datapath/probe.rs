//! What this kernel can do, found by doing it, and whether that is enough.

use std::{fs, io, os::fd::AsFd, path::Path};

use super::{bpf, error::Error, hooks::Method, pair};
use crate::{
    netlink::{Rtnl, Side},
    netns::Netns,
};

/// Capabilities the datapath needs, by bit. `CAP_SYS_ADMIN` includes `CAP_BPF`.
const CAPABILITIES: [(u32, &str); 2] = [(12, "CAP_NET_ADMIN"), (21, "CAP_SYS_ADMIN (and CAP_BPF)")];

/// Optional and required abilities, as logged and exported.
#[derive(Clone, Copy, Debug)]
pub(super) struct Features {
    pub(super) method: Method,
    pub(super) v6: bool,
    pub(super) redirect_peer: bool,
    pub(super) jit: bool,
}

impl Features {
    /// Name and presence, for the log line and the gauge `honk_datapath_feature`.
    pub(super) fn list(&self) -> Vec<(&'static str, bool)> {
        vec![
            ("tcx", self.method == Method::Tcx),
            ("clsact", self.method == Method::Clsact),
            ("btf", true),
            ("jit", self.jit),
            ("ipv6", self.v6),
            ("redirect_peer", self.redirect_peer),
        ]
    }
}

/// Fails when a capability is missing from the process.
pub(super) fn capabilities() -> Result<(), Error> {
    let status = fs::read_to_string("/proc/thread-self/status")
        .map_err(Error::io("read /proc/thread-self/status"))?;
    match missing(&status) {
        Some(missing) => Err(Error::Capability { missing }),
        None => Ok(()),
    }
}

fn missing(status: &str) -> Option<&'static str> {
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"))?;
    let held = u64::from_str_radix(line.trim(), 16).ok()?;
    CAPABILITIES
        .iter()
        .find(|(bit, _)| held >> bit & 1 == 0)
        .map(|(_, name)| *name)
}

/// Fails when the kernel cannot run the datapath at all.
pub(super) fn platform() -> Result<(), Error> {
    if fs::read_to_string("/sys/kernel/realtime").is_ok_and(|s| s.trim() == "1") {
        return Err(Error::Unsupported {
            feature: "per-CPU scratch memory (this is a PREEMPT_RT kernel)".to_owned(),
            remedy: "boot a kernel without PREEMPT_RT",
        });
    }
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Err(Error::Unsupported {
            feature: "BTF (no /sys/kernel/btf/vmlinux)".to_owned(),
            remedy: "boot a kernel built with CONFIG_DEBUG_INFO_BTF=y, and mount /sys",
        });
    }
    Ok(())
}

#[cfg(test)]
thread_local! {
    static FORCE_CLSACT: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Makes starts from this thread do without TCX.
#[cfg(test)]
pub(super) fn force_clsact() {
    FORCE_CLSACT.set(true);
}

/// Tries the attachments on the private namespace's loopback.
pub(super) fn features(netns: &Netns, redirect_peer: bool) -> Result<Features, Error> {
    #[cfg(test)]
    if FORCE_CLSACT.get() {
        return Ok(Features {
            method: Method::Clsact,
            v6: pair::has_v6(),
            redirect_peer: false,
            jit: true,
        });
    }
    Ok(Features {
        method: netns.run(method)??,
        v6: pair::has_v6(),
        redirect_peer,
        // Only the initial namespace shows the key.
        jit: fs::read_to_string("/proc/sys/net/core/bpf_jit_enable")
            .map_or(true, |s| s.trim() != "0"),
    })
}

fn method() -> Result<Method, Error> {
    let pass = bpf::load_pass().map_err(|e| match e.raw_os_error() {
        Some(libc::EPERM) => Error::Capability { missing: "CAP_BPF" },
        Some(libc::ENOSYS) => Error::Unsupported {
            feature: "bpf(2)".to_owned(),
            remedy: "boot a kernel built with CONFIG_BPF_SYSCALL=y",
        },
        _ => Error::io("load a trial program")(e),
    })?;
    let mut rtnl = Rtnl::open()?;
    let lo = rtnl
        .link("lo")?
        .ok_or_else(|| Error::io("find the loopback")(io::ErrorKind::NotFound.into()))?
        .index;
    match bpf::attach_tcx(pass.as_fd(), lo, Side::Ingress, bpf::Order::Last) {
        Ok(link) => {
            let _ = bpf::detach_link(link.as_fd());
            return Ok(Method::Tcx);
        }
        Err(e) if e.raw_os_error() == Some(libc::EPERM) => {
            return Err(Error::Capability {
                missing: "CAP_NET_ADMIN",
            });
        }
        Err(_) => {}
    }
    let clsact = rtnl
        .ensure_clsact(lo)
        .and_then(|_| rtnl.add_filter(lo, Side::Ingress, "honk_trial", pass.as_fd()));
    match clsact {
        Ok(()) => {
            rtnl.delete_clsact(lo)?;
            Ok(Method::Clsact)
        }
        Err(e) => Err(Error::Unsupported {
            feature: format!("BPF programs on interfaces (no TCX; clsact: {e})"),
            remedy: "use Linux 6.6 or newer, or load the modules sch_ingress and cls_bpf",
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_capabilities_are_named() {
        assert_eq!(missing("Name:\tx\nCapEff:\t000001ffffffffff\n"), None);
        let without = |bit: u32| format!("CapEff:\t{:016x}\n", !(1u64 << bit));
        assert_eq!(missing(&without(12)), Some("CAP_NET_ADMIN"));
        assert!(missing(&without(21)).unwrap().contains("CAP_SYS_ADMIN"));
        assert_eq!(missing("CapEff:\tzz\n"), None, "unreadable: try and see");
    }
}
