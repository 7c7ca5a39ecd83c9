//! The kernel, our rights, the configuration, clock and disk.

use super::super::{Check, facts::Facts};

/// Oldest kernel that is tested, and oldest on which the programs may verify.
const TESTED: (u32, u32) = (6, 6);
const POSSIBLE: (u32, u32) = (5, 15);

/// Less free space than this is too little for state files, and than that soon will be.
const DISK_LEAST: u64 = 16 << 20;
const DISK_LOW: u64 = 128 << 20;

pub(super) fn kernel(facts: &Facts) -> Check {
    const ID: &str = "kernel";
    let release = &facts.release;
    if facts.realtime {
        return Check::fail(
            ID,
            format!(
                "Linux {release} is a PREEMPT_RT kernel: per-CPU scratch memory is not safe there"
            ),
            "boot a kernel without PREEMPT_RT",
        );
    }
    match version(release) {
        None => Check::warn(
            ID,
            format!("unreadable kernel version `{release}`"),
            "honk needs Linux 6.6 or newer",
        ),
        Some(v) if v < POSSIBLE => Check::fail(
            ID,
            format!("Linux {release} is too old"),
            "boot Linux 6.6 or newer",
        ),
        Some(v) if v < TESTED => Check::warn(
            ID,
            format!("Linux {release} is older than what honk is tested on"),
            "boot Linux 6.6 or newer if the programs do not load",
        ),
        Some(_) => Check::ok(ID, format!("Linux {release}")),
    }
}

fn version(release: &str) -> Option<(u32, u32)> {
    let (major, rest) = release.split_once('.')?;
    let end = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    Some((major.parse().ok()?, rest.get(..end)?.parse().ok()?))
}

pub(super) fn btf(facts: &Facts) -> Check {
    const ID: &str = "kernel-btf";
    if facts.btf {
        Check::ok(ID, "the kernel describes its types")
    } else {
        Check::fail(
            ID,
            "no /sys/kernel/btf/vmlinux: the programs cannot be loaded",
            "boot a kernel built with CONFIG_DEBUG_INFO_BTF=y, and mount /sys",
        )
    }
}

pub(super) fn hooks(facts: &Facts) -> Check {
    const ID: &str = "kernel-hooks";
    let jit = facts.settings.get("net/core/bpf_jit_enable");
    match &facts.attachment {
        None => Check::skip(ID, "trying it takes the rights of root"),
        Some(Err(e)) => Check::fail(
            ID,
            format!("programs cannot be attached: {e}"),
            "use Linux 6.6 or newer, or load the modules sch_ingress and cls_bpf",
        ),
        Some(Ok(_)) if jit.is_some_and(|on| on == "0") => Check::warn(
            ID,
            "the BPF JIT is off: every packet is judged by an interpreter",
            "sysctl -w net.core.bpf_jit_enable=1",
        ),
        Some(Ok(how)) => Check::ok(ID, format!("programs attach with {how}")),
    }
}

pub(super) fn bpffs(facts: &Facts) -> Check {
    const ID: &str = "bpffs";
    let root = facts.pin_root.display();
    if facts.bpffs {
        Check::ok(ID, format!("{root} is a bpf file system"))
    } else if facts.pin_root.is_dir() {
        Check::ok(
            ID,
            format!("{root} is no bpf file system yet; `honk run` mounts one"),
        )
    } else {
        Check::fail(
            ID,
            format!("{root} does not exist"),
            "mount -t bpf bpf /sys/fs/bpf, or name another directory with --bpf-pin-root",
        )
    }
}

pub(super) fn rights(facts: &Facts) -> Check {
    const ID: &str = "rights";
    match facts.lacking {
        None => Check::ok(ID, "enough to run honk, and to see everything here"),
        Some(missing) => Check::warn(
            ID,
            format!("{missing} is missing: some checks are skipped"),
            "run `honk diag` as root",
        ),
    }
}

pub(super) fn config(facts: &Facts) -> Check {
    const ID: &str = "config";
    let config = &facts.config;
    let path = config.path.display();
    if let Some(first) = config.errors.first() {
        let more = match config.errors.len() {
            1 => String::new(),
            n => format!(" (and {} more)", n - 1),
        };
        let fix = if config.too_open {
            "chmod 0600 the file, or give --config-perm warn for a read-only store"
        } else {
            "`honk validate` shows every error with its place"
        };
        return Check::fail(ID, format!("{first}{more}"), fix);
    }
    let running = facts.daemon.as_ref().map(|d| &d.status.config_revision);
    if running.is_some() && running != config.revision.as_ref() {
        return Check::warn(
            ID,
            format!("{path} is valid, but not what runs"),
            "honk reload",
        );
    }
    match config.warnings {
        0 => Check::ok(ID, format!("{path} is valid")),
        n => Check::warn(
            ID,
            format!("{path} is valid with {n} warnings"),
            "`honk validate` shows them",
        ),
    }
}

pub(super) fn clock(facts: &Facts) -> Check {
    const ID: &str = "clock";
    // Installed by a clock that was ahead by some zones, at most.
    const SLACK: u64 = 86_400_000;
    if facts.now_ms + SLACK < facts.installed_ms {
        Check::fail(
            ID,
            format!(
                "it is {} here, before this program was installed: certificates will not verify",
                crate::clock::text(facts.now_ms)
            ),
            "set the clock, and keep it with an NTP service",
        )
    } else {
        Check::ok(ID, crate::clock::text(facts.now_ms))
    }
}

pub(super) fn disk(facts: &Facts) -> Check {
    const ID: &str = "disk";
    let dir = facts.state.display();
    let Some(free) = facts.free else {
        return Check::skip(ID, format!("free space of {dir} cannot be read"));
    };
    let text = format!("{} MiB are free for {dir}", free >> 20);
    let fix = "free some space, or choose another --state-dir";
    if free < DISK_LEAST {
        Check::fail(
            ID,
            format!("{text}: choices and subscriptions cannot be kept"),
            fix,
        )
    } else if free < DISK_LOW {
        Check::warn(ID, text, fix)
    } else {
        Check::ok(ID, text)
    }
}
