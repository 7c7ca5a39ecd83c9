//! Kernels that lack something, as a process sees them.

use std::io::Error;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::netns::Netns;

/// The command finds a kernel without the system call bpf(2): a filter answers it with ENOSYS,
/// as a kernel built without it would.
pub fn bpf(command: &mut Command) {
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let equal = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let answer = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code: u16, jf: u8, k: u32| libc::sock_filter { code, jt: 0, jf, k };
    // The number of the call is the first word of what the filter reads.
    let filter = [
        step(load, 0, 0),
        step(equal, 1, libc::SYS_bpf as u32),
        step(answer, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
        step(answer, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let install = move || {
        let program = libc::sock_fprog {
            len: filter.len() as u16,
            filter: filter.as_ptr().cast_mut(),
        };
        // SAFETY: two system calls on values that outlive them.
        let done = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(
                    libc::PR_SET_SECCOMP,
                    libc::SECCOMP_MODE_FILTER,
                    &raw const program,
                ) == 0
        };
        if done {
            Ok(())
        } else {
            Err(Error::last_os_error())
        }
    };
    // SAFETY: the closure makes async-signal-safe system calls and allocates nothing.
    unsafe { command.pre_exec(install) };
}

/// The same command where the kernel shows no type information: an empty folder covers it.
pub fn btf(ns: &Netns, run: &Command) -> Command {
    let mut command = ns.command("unshare");
    command.args(["--mount", "sh", "-c"]);
    command.arg("mount -t tmpfs none /sys/kernel/btf && exec \"$@\"");
    command
        .arg("sh")
        .arg(run.get_program())
        .args(run.get_args());
    command
}
