//! Files below the state and runtime directories: where they are, the instance lock, atomic
//! writes.
//!
//! Decides paths and permissions. Does not decide when something is written: `app` and `cli`
//! call in here.

pub(crate) mod choices;
pub(crate) mod dirs;
pub(crate) mod disabled;
pub(crate) mod file;
pub(crate) mod geodata;
pub(crate) mod lock;
pub(crate) mod progress;
pub(crate) mod secret;
pub(crate) mod verdicts;
mod whose;
