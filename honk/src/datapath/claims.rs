//! Flow entries that belong to a live relay. The janitor leaves them alone; the relay's end
//! gives them back.

use std::{
    collections::HashMap,
    io,
    sync::{Mutex, MutexGuard, PoisonError},
};

use honk_common::{
    flow::{FLOW_CLAIMED, FLOW_CLOSING, FlowVal, FlowWord},
    key::{FlowKey, PROTO_TCP},
};

use super::map::Map;

type Flows = Map<FlowKey, FlowVal>;

#[derive(Debug)]
struct Claim {
    /// Relays of this key; two overlap when a client reuses its port at once.
    count: u32,
    /// Which lifecycle of the key the last of them serves.
    isn: u32,
}

/// Claimed keys.
#[derive(Debug, Default)]
pub(super) struct Claims {
    table: Mutex<HashMap<FlowKey, Claim>>,
}

impl Claims {
    /// Pins the entry and marks it in the kernel.
    pub(super) fn claim(&self, flows: &Flows, key: &FlowKey, seen: &FlowVal) {
        {
            let mut table = self.lock();
            let claim = table.entry(*key).or_insert(Claim { count: 0, isn: 0 });
            claim.count += 1;
            claim.isn = seen.isn;
        }
        // Only the mark is lost when this fails; the pin above is what protects the entry.
        let _ = set_state(flows, key, seen.isn, FLOW_CLAIMED);
    }

    /// Gives an entry back after its relay ended. A TCP entry lingers as closing, so that the
    /// last packets of both sides still meet the proxy's socket and none leaves directly.
    pub(super) fn release(&self, flows: &Flows, key: &FlowKey) {
        let isn = {
            let mut table = self.lock();
            let Some(claim) = table.get_mut(key) else {
                return;
            };
            claim.count -= 1;
            if claim.count > 0 {
                return;
            }
            let isn = claim.isn;
            table.remove(key);
            isn
        };
        let result = if key.proto == PROTO_TCP {
            set_state(flows, key, isn, FLOW_CLOSING)
        } else {
            flows.delete(key).map(drop)
        };
        if let Err(e) = result {
            tracing::debug!(target: super::TARGET, error = %e, "flow entry left to the janitor");
        }
    }

    pub(super) fn contains(&self, key: &FlowKey) -> bool {
        self.lock().contains_key(key)
    }

    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<FlowKey, Claim>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sets the state of an entry, unless the key has begun a new lifecycle meanwhile.
fn set_state(flows: &Flows, key: &FlowKey, isn: u32, state: u8) -> io::Result<()> {
    let Some(mut value) = flows.lookup(key)? else {
        return Ok(());
    };
    if value.isn != isn {
        return Ok(());
    }
    let word = FlowWord::unpack(value.word);
    value.word = FlowWord { state, ..word }.pack();
    flows.replace(key, &value).map(drop)
}
