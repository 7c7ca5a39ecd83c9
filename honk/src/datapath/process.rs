//! Process names: hooks of the root control group that note which process uses a socket.
//!
//! Needed by `pname` rules and as one more guard against the daemon meeting its own traffic.
//! Whatever is missing costs names, never packets: it is told once and the rest goes on.

use std::{
    fs, io,
    os::fd::{AsFd, OwnedFd},
};

use honk_common::param::Param;
use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen},
};

use super::{bpf, btf::Btf, error::Error};

/// Programs with their attach types.
pub(super) const HOOKS: [(&str, u32); 6] = [
    ("cg_sock_create", 2),
    ("cg_sock_release", 34),
    ("cg_connect4", 10),
    ("cg_connect6", 11),
    ("cg_sendmsg4", 14),
    ("cg_sendmsg6", 15),
];

const TYPES: &str = "/sys/kernel/btf/vmlinux";
const CGROUP2_MAGIC: u64 = 0x6367_7270;

/// Attaches all hooks. Dropping the links detaches them.
pub(super) fn attach(programs: &[OwnedFd]) -> Result<Vec<OwnedFd>, Error> {
    let root = root().map_err(Error::io("open the root control group"))?;
    HOOKS
        .iter()
        .zip(programs)
        .map(|((name, kind), program)| {
            bpf::attach_cgroup(program.as_fd(), root.as_fd(), *kind).map_err(Error::io(format!(
                "attach {name} to the root control group"
            )))
        })
        .collect()
}

/// The root of the unified hierarchy. A mount of our own needs no path, so it is found where
/// `ip netns exec` or a container hides the system's; it ends with its descriptor.
fn root() -> io::Result<OwnedFd> {
    own_mount().or_else(|e| mounted().ok_or(e))
}

fn own_mount() -> io::Result<OwnedFd> {
    let context = fsopen("cgroup2", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(context.as_fd())?;
    let flags = FsMountFlags::FSMOUNT_CLOEXEC;
    let mount = fsmount(context.as_fd(), flags, MountAttrFlags::empty())?;
    // The mount's descriptor only names it.
    Ok(openat(&mount, ".", directory(), Mode::empty())?)
}

/// The first mounted one that can be seen.
fn mounted() -> Option<OwnedFd> {
    let table = fs::read_to_string("/proc/self/mountinfo").ok()?;
    table.lines().filter_map(mount_point).find_map(|path| {
        let fd = openat(CWD, path, directory(), Mode::empty()).ok()?;
        let magic = rustix::fs::fstatfs(&fd).ok()?.f_type as u64;
        (magic == CGROUP2_MAGIC).then_some(fd)
    })
}

/// Where a line of `mountinfo` mounts the root of a `cgroup2`.
fn mount_point(line: &str) -> Option<&str> {
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ').skip(3);
    let (root, point) = (left.next()?, left.next()?);
    (right.starts_with("cgroup2 ") && root == "/").then_some(point)
}

fn directory() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC
}

/// Fills in where the kernel keeps a process's first argument and name. What is not found stays
/// zero, and the programs use the next best name.
pub(super) fn locate(param: &mut Param) {
    let Ok(bytes) = fs::read(TYPES) else { return };
    let Some(btf) = Btf::parse(&bytes) else {
        return;
    };
    let offset = |structure, member| btf.offset(structure, member).unwrap_or(0);
    param.off_task_mm = offset("task_struct", "mm");
    param.off_mm_arg_start = offset("mm_struct", "arg_start");
    param.off_task_group_leader = offset("task_struct", "group_leader");
    param.off_task_comm = offset("task_struct", "comm");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_roots_of_the_unified_hierarchy_count() {
        for (line, point) in [
            (
                "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw",
                Some("/sys/fs/cgroup/unified"),
            ),
            (
                "41 31 0:38 / /sys/fs/cgroup rw shared:9 - cgroup2 none rw,nsdelegate",
                Some("/sys/fs/cgroup"),
            ),
            ("41 31 0:38 /a /mnt rw - cgroup2 cgroup2 rw", None),
            (
                "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu",
                None,
            ),
            ("", None),
        ] {
            assert_eq!(mount_point(line), point, "{line}");
        }
    }

    #[test]
    fn the_running_kernel_tells_where_names_are() {
        if fs::metadata(TYPES).is_err() {
            eprintln!("skipped: no {TYPES}");
            return;
        }
        let mut param = Param::default();
        locate(&mut param);
        let found = [
            param.off_task_mm,
            param.off_mm_arg_start,
            param.off_task_group_leader,
            param.off_task_comm,
        ];
        assert!(found.iter().all(|offset| *offset > 0), "{found:?}");
    }
}
