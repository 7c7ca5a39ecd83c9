//! Memory of this process, as the kernel counts it.

use std::fs;

/// Mebibytes in memory now.
pub(crate) fn now() -> f64 {
    field("VmRSS:")
}

/// Mebibytes in memory at most since [`forget_peak`].
pub(crate) fn peak() -> f64 {
    field("VmHWM:")
}

/// Starts the peak again at what is used now.
pub(crate) fn forget_peak() {
    fs::write("/proc/self/clear_refs", "5").unwrap();
}

fn field(name: &str) -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    let kib = line.split_whitespace().nth(1).unwrap();
    kib.parse::<f64>().unwrap() / 1024.0
}
