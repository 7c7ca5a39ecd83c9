//! Flows of a daemon that died: what keeps their next packet from leaving directly.
//!
//! A TCP segment without an entry passes as part of a direct connection, so proxied connections
//! must stay known when the process that relayed them is gone. With `on_crash: block` the flow
//! table is pinned; the next start takes its TCP entries over as stale. Their packets then reach
//! a socket that knows no such connection, and the client gets a reset.

use std::io;

use honk_common::{
    flow::{FLOW_STALE, FlowVal, FlowWord},
    key::{FlowKey, PROTO_TCP},
    outbound::{BLOCK, CONTROL, DIRECT},
};

use super::map::{Map, Walk};

type Flows = Map<FlowKey, FlowVal>;

/// What was taken over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Adopted {
    pub(super) flows: usize,
    /// The new table is smaller than the old one was full.
    pub(super) full: bool,
}

/// Copies the entries that must not be forgotten.
pub(super) fn adopt(old: &Flows, new: &Flows) -> io::Result<Adopted> {
    let mut adopted = Adopted::default();
    let mut walk = Walk::new();
    loop {
        let (end, keys, values) = walk.next(old)?;
        for (key, value) in keys.iter().zip(values) {
            let Some(value) = stale(key, value) else {
                continue;
            };
            match new.put(key, &value) {
                Err(e) if e.raw_os_error() == Some(libc::E2BIG) => {
                    adopted.full = true;
                    return Ok(adopted);
                }
                other => other?,
            }
            adopted.flows += 1;
        }
        if end {
            return Ok(adopted);
        }
    }
}

/// The entry as the next daemon keeps it. Ordinals mean nothing there, and what is direct or
/// UDP is judged by its rules.
fn stale(key: &FlowKey, value: &FlowVal) -> Option<FlowVal> {
    let word = FlowWord::unpack(value.word);
    if key.proto != PROTO_TCP || word.ordinal == DIRECT || word.ordinal == BLOCK {
        return None;
    }
    let word = FlowWord {
        ordinal: CONTROL,
        state: FLOW_STALE,
        mark: 0,
        ..word
    };
    Some(FlowVal {
        word: word.pack(),
        ..*value
    })
}
