//! The early drop program on LAN interfaces (`experimental.datapath.xdp_guard`).
//!
//! It only takes work off `lan_ingress`, which would drop the same packets. So nothing depends on
//! it: an interface that cannot have it, or has a foreign XDP program, works without, and when the
//! daemon dies it goes with its links while the other hooks keep blocking.

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use super::{
    bpf::{self, XdpMode},
    hooks::Targets,
    map::Map,
    object::{Layer, Programs, Role},
};
use crate::netlink::Link;

/// A MAC address as value of `XDP_MAC`.
pub(super) type Mac = u64;

#[derive(Debug)]
struct Attached {
    link: OwnedFd,
    mode: XdpMode,
}

/// The guards of all interfaces.
#[derive(Debug)]
pub(super) struct Guards {
    programs: Arc<Programs>,
    table: BTreeMap<u32, Attached>,
    /// What was refused, so that it is not tried again with every event.
    refused: BTreeMap<u32, String>,
}

impl Guards {
    pub(super) fn new(programs: Arc<Programs>) -> Self {
        Self {
            programs,
            table: BTreeMap::new(),
            refused: BTreeMap::new(),
        }
    }

    /// Brings the guards to the LAN interfaces among `targets`, and tells the kernel side their
    /// addresses.
    pub(super) fn reconcile(&mut self, macs: &Map<u32, Mac>, targets: &Targets, links: &[Link]) {
        let Some(programs) = &self.programs.guard else {
            return;
        };
        let wanted: BTreeMap<u32, [u8; 6]> = links
            .iter()
            .filter(|link| {
                let place = targets.get(&link.index).map(|t| t.place);
                place.is_some_and(|p| p.layer == Layer::L2 && p.role != Role::Wan)
            })
            .filter_map(|link| Some((link.index, link.mac?)))
            .collect();
        self.refused.retain(|link, _| wanted.contains_key(link));
        self.table.retain(|link, attached| {
            let stays = wanted.contains_key(link)
                && bpf::xdp_link(attached.link.as_fd()).ok().flatten() == Some(*link);
            if !stays {
                let _ = bpf::detach_link(attached.link.as_fd());
                let _ = macs.delete(link);
            }
            stays
        });
        for (link, mac) in &wanted {
            let [a, b, c, d, e, f] = *mac;
            // In memory order, as the program compares it with the frame.
            let value = Mac::from_ne_bytes([a, b, c, d, e, f, 0, 0]);
            if let Err(e) = macs.put(link, &value) {
                tracing::warn!(target: super::TARGET, error = %e, "cannot write map XDP_MAC");
                continue;
            }
            if self.table.contains_key(link) || self.refused.contains_key(link) {
                continue;
            }
            match attach(programs, *link) {
                Ok(attached) => {
                    self.table.insert(*link, attached);
                }
                Err(e) => {
                    tracing::warn!(
                        target: super::TARGET, interface = link, error = %e,
                        "no early drop here; the rules hold all the same"
                    );
                    self.refused.insert(*link, e.to_string());
                }
            }
        }
    }

    /// How the guard of an interface runs, as a name among its hooks.
    pub(super) fn hook(&self, link: u32) -> Option<&'static str> {
        let attached = self.table.get(&link)?;
        Some(match attached.mode {
            XdpMode::Native => "xdp_guard",
            XdpMode::Generic => "xdp_guard (generic)",
        })
    }

    pub(super) fn detach_all(&mut self) {
        for attached in std::mem::take(&mut self.table).into_values() {
            let _ = bpf::detach_link(attached.link.as_fd());
        }
    }
}

/// In the driver if it can, otherwise in front of the stack.
fn attach([native, generic]: &[OwnedFd; 2], link: u32) -> io::Result<Attached> {
    let in_mode = |mode, program: &OwnedFd| {
        let link = bpf::attach_xdp(program.as_fd(), link, mode)?;
        Ok(Attached { link, mode })
    };
    in_mode(XdpMode::Native, native).or_else(|e: io::Error| {
        if e.kind() == io::ErrorKind::ResourceBusy {
            return Err(io::Error::new(e.kind(), "another XDP program is attached"));
        }
        tracing::debug!(target: super::TARGET, error = %e, "the driver does not run XDP programs");
        in_mode(XdpMode::Generic, generic)
    })
}
