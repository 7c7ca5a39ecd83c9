//! Tests that cannot run here say so: one line for people, one for the tally of xtask.

use std::io::Write as _;

/// Whether we run as root; otherwise records why the test is skipped.
pub fn without_root(test: &str) -> bool {
    // SAFETY: geteuid has no preconditions and cannot fail.
    if unsafe { libc::geteuid() } == 0 {
        return false;
    }
    record(test, "needs root");
    true
}

/// Records that `test` is skipped.
pub fn record(test: &str, why: &str) {
    println!("skipped {test}: {why}");
    let Some(list) = std::env::var_os("HONK_SKIP_LOG") else {
        return;
    };
    let file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(list);
    if let Ok(mut file) = file {
        let _ = writeln!(file, "{test}: {why}");
    }
}
