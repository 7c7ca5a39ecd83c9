//! The kernel programs under `BPF_PROG_TEST_RUN`: verdicts and what they leave in the maps.
//!
//! Each test loads the checked-in object into a network namespace of its own. It needs root;
//! without it every test says so and counts as skipped.

#[path = "kernel/common.rs"]
mod common;

#[path = "kernel/differential.rs"]
mod differential;
#[path = "kernel/dns.rs"]
mod dns;
#[path = "kernel/egress.rs"]
mod egress;
#[path = "kernel/fragments.rs"]
mod fragments;
#[path = "kernel/groups.rs"]
mod groups;
#[path = "kernel/guard.rs"]
mod guard;
#[path = "kernel/headers.rs"]
mod headers;
#[path = "kernel/icmp.rs"]
mod icmp;
#[path = "kernel/life.rs"]
mod life;
#[path = "kernel/limits.rs"]
mod limits;
#[path = "kernel/live.rs"]
mod live;
#[path = "kernel/names.rs"]
mod names;
#[path = "kernel/passes.rs"]
mod passes;
#[path = "kernel/private.rs"]
mod private;
#[path = "kernel/refuse.rs"]
mod refuse;
#[path = "kernel/rules.rs"]
mod rules;
#[path = "kernel/verdicts.rs"]
mod verdicts;
#[path = "kernel/wan.rs"]
mod wan;
