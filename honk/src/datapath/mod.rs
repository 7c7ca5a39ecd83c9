//! The kernel side: loading, attaching, map writers, counters, clean-up.
