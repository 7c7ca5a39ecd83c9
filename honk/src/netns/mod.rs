//! The private network namespace and the thread that lives in it.
