//! Puts rules in force together with what is known of names.

use std::sync::Arc;

use honk_common::tables::RouteTables;
use honk_policy::routing::oracle::Oracle;

use super::kernel::{Kernel, KernelError};
use crate::{cli::exit::Exit, dns::Dns};

/// Publishes rules. Packets that meet them also meet the names of all addresses known: the
/// bank is filled before the switch, and what is learned meanwhile goes to both. A failure
/// leaves the old rules in force. Returns the generation of the kernel.
pub(super) fn publish(
    kernel: &dyn Kernel,
    dns: &Dns,
    tables: &RouteTables,
    oracle: &Arc<Oracle>,
) -> Result<u32, KernelError> {
    let generation = kernel.stage(tables)?;
    let filled = dns.stage(generation, Arc::clone(oracle));
    let filled = filled.map_err(|e| KernelError {
        exit: Exit::Failure,
        message: format!("the names of addresses could not be written: {e}"),
    });
    match filled.and_then(|()| kernel.activate(generation)) {
        Ok(()) => {
            dns.activated();
            Ok(generation)
        }
        Err(e) => {
            dns.unstage();
            Err(e)
        }
    }
}
