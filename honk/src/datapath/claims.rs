//! Flow entries that belong to a live relay. The janitor leaves them alone; the relay's end
//! gives them back.
//!
//! The pin is this table and nothing in the kernel: no program asks whether an entry is claimed,
//! and two calls per connection are worth saving.

use std::{
    collections::HashMap,
    io,
    sync::{Mutex, MutexGuard, PoisonError},
};

use honk_common::{
    flow::{
        FLAG_AMBIGUOUS, FLAG_PRELIM, FLOW_ACTIVE, FLOW_CLOSING, FLOW_REINJECT, FlowVal, FlowWord,
    },
    key::{FlowKey, PROTO_TCP},
    outbound::DIRECT,
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
    /// Pins the entry.
    pub(super) fn claim(&self, key: &FlowKey, seen: &FlowVal) {
        let mut table = self.lock();
        let claim = table.entry(*key).or_insert(Claim { count: 0, isn: 0 });
        claim.count += 1;
        claim.isn = seen.isn;
    }

    /// Gives an entry back after its relay ended. A TCP entry lingers as closing, so that the
    /// last packets of both sides still meet the proxy's socket and none leaves directly.
    pub(super) fn release(&self, flows: &Flows, key: &FlowKey, fin_seen: bool) {
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
        let result = if key.proto == PROTO_TCP && fin_seen {
            Ok(())
        } else if key.proto == PROTO_TCP {
            set_closing(flows, key, isn)
        } else {
            flows.delete(key).map(drop)
        };
        if let Err(e) = result {
            tracing::debug!(target: super::TARGET, error = %e, "flow entry left to the janitor");
        }
    }

    /// Leaves a UDP flow to the kernel as direct, and lets datagrams in its client's name out of
    /// the private namespace. The claim ends and the entry stays. False, with nothing changed,
    /// when the entry is gone or another relay serves it too.
    pub(super) fn hand_back(&self, flows: &Flows, key: &FlowKey, mark: u32) -> bool {
        let mut table = self.lock();
        if table.get(key).is_none_or(|claim| claim.count != 1) {
            return false;
        }
        let Ok(Some(mut value)) = flows.lookup(key) else {
            return false;
        };
        let word = FlowWord::unpack(value.word);
        value.word = FlowWord {
            ordinal: DIRECT,
            flags: word.flags & !(FLAG_PRELIM | FLAG_AMBIGUOUS),
            state: FLOW_REINJECT,
            mark,
            ..word
        }
        .pack();
        let done = flows.replace(key, &value).unwrap_or(false);
        if done {
            table.remove(key);
        }
        done
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

/// Closes the way out of the private namespace for datagrams in the name of a flow's client.
pub(super) fn handed_back(flows: &Flows, key: &FlowKey) {
    let Ok(Some(mut value)) = flows.lookup(key) else {
        return;
    };
    let word = FlowWord::unpack(value.word);
    if word.state == FLOW_REINJECT {
        let state = FLOW_ACTIVE;
        value.word = FlowWord { state, ..word }.pack();
        // What is left open by a failure ends with the entry.
        let _ = flows.replace(key, &value);
    }
}

/// Marks an entry as closing, unless the client's FIN did already or the key has begun a new
/// lifecycle meanwhile.
fn set_closing(flows: &Flows, key: &FlowKey, isn: u32) -> io::Result<()> {
    let Some(mut value) = flows.lookup(key)? else {
        return Ok(());
    };
    let word = FlowWord::unpack(value.word);
    if value.isn != isn || word.state == FLOW_CLOSING {
        return Ok(());
    }
    let state = FLOW_CLOSING;
    value.word = FlowWord { state, ..word }.pack();
    flows.replace(key, &value).map(drop)
}
