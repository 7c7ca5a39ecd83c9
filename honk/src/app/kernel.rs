//! What `app` asks of the kernel side, as a trait: tests run against a fake, the daemon
//! against the datapath.

use std::net::IpAddr;

use honk_common::{
    counter::OutStats,
    flow::FlowVal,
    key::FlowKey,
    param::{AMBIG_USER, DNS_LOCAL, OFFLOAD_DIRECT, SNI_STRICT},
    tables::RouteTables,
};
use honk_policy::config::{DialMode, Global};
use serde::{Deserialize, Serialize};

use crate::cli::exit::Exit;

/// Why the kernel side refused, with the exit code a start that fails here ends with.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct KernelError {
    pub(crate) exit: Exit,
    /// One line with cause and remedy.
    pub(crate) message: String,
}

/// One LAN interface as the datapath sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) role: String,
    pub(crate) attached: bool,
    pub(crate) hooks: Vec<String>,
    pub(crate) problem: Option<String>,
    /// No such interface exists yet; it is hooked when it appears.
    pub(crate) pending: bool,
}

/// Occupancy of one BPF map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MapUse {
    pub(crate) name: String,
    pub(crate) entries: u64,
    pub(crate) capacity: u64,
}

/// Counters of the kernel programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KernelCounters {
    /// By counter name, in ABI order.
    pub(crate) stats: Vec<(&'static str, u64)>,
    /// By kernel slot; only slots that saw traffic.
    pub(crate) outbounds: Vec<(u8, OutStats)>,
    pub(crate) maps: Vec<MapUse>,
    /// Probed features and whether they are in use.
    pub(crate) features: Vec<(String, bool)>,
}

/// The kernel side of a running daemon.
pub(crate) trait Kernel: Send + Sync + std::fmt::Debug + 'static {
    /// Writes rules beside those in force; returns their generation, for which names of
    /// addresses can be written from now on.
    fn stage(&self, tables: &RouteTables) -> Result<u32, KernelError>;
    /// Puts the staged rules in force.
    fn activate(&self, generation: u32) -> Result<(), KernelError>;
    /// Writes group slots, better ones first.
    fn write_groups(&self, slots: &[(u32, u32)]) -> Result<(), KernelError>;
    fn set_gate(&self, gate: u32) -> Result<(), KernelError>;
    /// Switches of the classifier.
    fn set_flags(&self, flags: u32) -> Result<(), KernelError>;
    /// Whether decisions about new flows are told to the tap.
    fn watch(&self, on: bool) -> Result<(), KernelError>;
    /// The decision of the kernel for a flow, if it has one.
    fn lookup(&self, key: &FlowKey) -> Option<FlowVal>;
    /// Takes ownership of a flow's entry.
    fn claim(&self, key: &FlowKey, seen: &FlowVal);
    /// Gives it up. `fin_seen` says that the kernel saw the client end the connection, so that
    /// it knows already.
    fn release(&self, key: &FlowKey, fin_seen: bool);
    /// Makes a claimed UDP flow direct and gives its entry up without removing it; false when
    /// the entry is gone or serves another flow as well.
    fn hand_back(&self, key: &FlowKey, mark: u32) -> bool;
    /// Ends the time in which datagrams of such a flow may leave the private namespace.
    fn handed_back(&self, key: &FlowKey);
    /// Whether the gateway itself has the address.
    fn is_local(&self, ip: IpAddr) -> bool;
    fn set_interfaces(&self, lan: Vec<String>, wan: Vec<String>) -> Result<(), KernelError>;
    fn interfaces(&self) -> Vec<Interface>;
    fn counters(&self) -> KernelCounters;
    /// Removes everything from the kernel; the network is as it was found.
    fn stop(&self) -> Result<(), KernelError>;
}

/// The switches a configuration asks for.
pub(crate) fn flags(global: &Global) -> u32 {
    // Where a name could turn `direct` into something else, userspace looks for it first.
    let strict = match global.dial_mode {
        DialMode::Ip | DialMode::Domain => 0,
        DialMode::DomainPlus | DialMode::DomainPlusPlus => SNI_STRICT,
    };
    OFFLOAD_DIRECT | DNS_LOCAL | AMBIG_USER | strict
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn direct_is_looked_at_first_only_where_names_may_overrule_it() {
        for (mode, strict) in [
            (DialMode::Ip, false),
            (DialMode::Domain, false),
            (DialMode::DomainPlus, true),
            (DialMode::DomainPlusPlus, true),
        ] {
            let global = Global {
                dial_mode: mode,
                ..Global::default()
            };
            assert_eq!(flags(&global) & SNI_STRICT != 0, strict, "{mode:?}");
        }
    }
}
