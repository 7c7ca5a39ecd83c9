//! Gives memory back after a large rule set went. It is here because this room may call C.

/// Returns what the allocator keeps for later to the system. A rule set of 300,000 prefixes
/// leaves 130 MiB in free lists that only another one of that size would use again.
pub(crate) fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim may be called at any time from any thread; it touches free memory only.
    unsafe {
        libc::malloc_trim(0);
    }
}
