//! Which process a socket belongs to: hooks of the root control group (spec: datapath 7).
//!
//! A socket is noted when it is made, and again when another process connects it or sends from
//! it. The hooks run in the process's context, where the per-CPU scratch memory of the packet
//! programs must not be used. They never refuse anything.

use core::ffi::c_void;

use aya_ebpf::{
    bindings::{bpf_sock, bpf_sock_addr},
    helpers::generated::{
        bpf_get_current_comm, bpf_get_current_pid_tgid, bpf_get_current_task,
        bpf_get_socket_cookie, bpf_ktime_get_coarse_ns, bpf_probe_read_kernel,
        bpf_probe_read_user_str,
    },
};
use honk_common::{
    counter::Stat,
    flow::{CookieVal, NAME_FROM_ARGV},
    limits::ARGUMENT_BYTES,
    param::Param,
};

use crate::{
    maps::{COOKIE, PARAM},
    stats::count,
};

const ALLOW: i32 = 1;

#[unsafe(no_mangle)]
#[unsafe(link_section = "cgroup/sock_create")]
pub extern "C" fn cg_sock_create(ctx: *mut bpf_sock) -> i32 {
    note(unsafe { bpf_get_socket_cookie(ctx.cast()) });
    ALLOW
}

#[unsafe(no_mangle)]
#[unsafe(link_section = "cgroup/sock_release")]
pub extern "C" fn cg_sock_release(ctx: *mut bpf_sock) -> i32 {
    let cookie = unsafe { bpf_get_socket_cookie(ctx.cast()) };
    let _ = COOKIE.remove(&cookie);
    ALLOW
}

#[unsafe(no_mangle)]
#[unsafe(link_section = "cgroup/connect4")]
pub extern "C" fn cg_connect4(ctx: *mut bpf_sock_addr) -> i32 {
    renew(unsafe { bpf_get_socket_cookie(ctx.cast()) });
    ALLOW
}

#[unsafe(no_mangle)]
#[unsafe(link_section = "cgroup/connect6")]
pub extern "C" fn cg_connect6(ctx: *mut bpf_sock_addr) -> i32 {
    renew(unsafe { bpf_get_socket_cookie(ctx.cast()) });
    ALLOW
}

#[unsafe(no_mangle)]
#[unsafe(link_section = "cgroup/sendmsg4")]
pub extern "C" fn cg_sendmsg4(ctx: *mut bpf_sock_addr) -> i32 {
    renew(unsafe { bpf_get_socket_cookie(ctx.cast()) });
    ALLOW
}

#[unsafe(no_mangle)]
#[unsafe(link_section = "cgroup/sendmsg6")]
pub extern "C" fn cg_sendmsg6(ctx: *mut bpf_sock_addr) -> i32 {
    renew(unsafe { bpf_get_socket_cookie(ctx.cast()) });
    ALLOW
}

/// Notes the process unless it is the one that is known. An inherited socket, or one that a
/// supervisor opened, belongs to whoever uses it.
#[inline(always)]
fn renew(cookie: u64) {
    if let Some(known) = COOKIE.get_ptr(&cookie)
        && unsafe { (*known).tgid } == tgid()
    {
        return;
    }
    note(cookie);
}

#[inline(always)]
fn tgid() -> u32 {
    (unsafe { bpf_get_current_pid_tgid() } >> 32) as u32
}

#[inline(never)]
fn note(cookie: u64) {
    let value = CookieVal {
        last_seen_ns: unsafe { bpf_ktime_get_coarse_ns() },
        tgid: tgid(),
        flags: 0,
        name: [0; 16],
    };
    if COOKIE.insert(&cookie, &value, 0).is_err() {
        count(Stat::CookieFail);
        return;
    }
    // Filled in place: the verifier follows every byte of the stack, and with the name there it
    // tried every length with every position. No packet of the socket can be under way yet.
    if let Some(param) = PARAM.get(0)
        && let Some(value) = COOKIE.get_ptr_mut(&cookie)
    {
        name(param, unsafe { &mut *value });
    }
}

/// The file name of the first argument; where it cannot be read, the name of the main thread.
/// The thread's own name comes last: threads are named after what they do.
#[inline(always)]
fn name(param: &Param, value: &mut CookieVal) {
    let task = unsafe { bpf_get_current_task() };
    if param.off_task_mm != 0 && param.off_mm_arg_start != 0 {
        let mm = word(task, param.off_task_mm);
        if mm == 0 {
            // A thread of the kernel.
            return;
        }
        let argument = word(mm, param.off_mm_arg_start);
        if argument != 0 && file_name(argument, value) {
            value.flags = NAME_FROM_ARGV;
            return;
        }
        value.flags = 0;
    }
    let to: *mut c_void = (&raw mut value.name).cast();
    if param.off_task_group_leader != 0 && param.off_task_comm != 0 {
        let leader = word(task, param.off_task_group_leader);
        let from = leader.wrapping_add(param.off_task_comm.into()) as *const c_void;
        if leader != 0 && unsafe { bpf_probe_read_kernel(to, 16, from) } == 0 {
            return;
        }
    }
    let mut own = [0u8; 16];
    if unsafe { bpf_get_current_comm((&raw mut own).cast(), 16) } == 0 {
        value.name = own;
    }
}

/// A pointer-sized field of a kernel structure; 0 when it cannot be read.
#[inline(always)]
fn word(base: u64, offset: u32) -> u64 {
    let mut value = 0u64;
    let from = base.wrapping_add(offset.into()) as *const c_void;
    let to = (&raw mut value).cast();
    if unsafe { bpf_probe_read_kernel(to, 8, from) } == 0 {
        value
    } else {
        0
    }
}

/// What follows the last `/`, up to a space or the end; false when that is nothing. `flags`
/// holds the length meanwhile.
#[inline(always)]
fn file_name(argument: u64, value: &mut CookieVal) -> bool {
    let mut text = [0u8; ARGUMENT_BYTES];
    let to = (&raw mut text).cast();
    let read =
        unsafe { bpf_probe_read_user_str(to, ARGUMENT_BYTES as u32, argument as *const c_void) };
    if read <= 0 {
        return false;
    }
    let length = &raw mut value.flags;
    let mut i = 0;
    while i < ARGUMENT_BYTES {
        let c = text[i];
        if c == 0 || c == b' ' {
            break;
        }
        // Volatile, or the compiler keeps it in a register, which the verifier follows.
        let n = unsafe { length.read_volatile() } as usize;
        if c == b'/' {
            unsafe { length.write_volatile(0) };
        } else if n < 16 {
            value.name[n & 15] = c;
            unsafe { length.write_volatile(n as u32 + 1) };
        }
        i += 1;
    }
    let mut n = 0;
    while n < 16 {
        if n >= unsafe { length.read_volatile() } {
            value.name[n as usize] = 0;
        }
        n += 1;
    }
    value.name[0] != 0
}
