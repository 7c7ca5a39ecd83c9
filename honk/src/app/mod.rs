//! Wiring: start, reload, stop; the only room that knows all others.

pub(crate) mod admission;
mod autoping;
pub(crate) mod bridge;
mod changes;
mod choices;
mod daemon;
pub(crate) mod diag;
pub(crate) mod edit;
pub(crate) mod engine;
pub(crate) mod events;
pub(crate) mod health;
pub(crate) mod kernel;
pub(crate) mod last_resort;
mod listeners;
pub(crate) mod loader;
pub(crate) mod notify;
pub(crate) mod overrides;
pub(crate) mod pings;
pub(crate) mod refusal;
pub(crate) mod registry;
pub(crate) mod reload;
mod rules;
pub(crate) mod run;
pub(crate) mod sampler;
pub(crate) mod score;
pub(crate) mod select;
pub(crate) mod share;
mod signals;
pub(crate) mod snapshot;
pub(crate) mod sniffing;
pub(crate) mod source;
pub(crate) mod subscriptions;
#[cfg(test)]
pub(crate) mod testkit;
pub(crate) mod trace;
pub(crate) mod verdicts;
