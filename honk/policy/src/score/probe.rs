//! Results of configured checks: a baseline for who has no fresh business yet. They are no
//! business themselves and resolve no failure.

use super::{
    Engine,
    call::ProbeSample,
    cell::{ProbeSlot, Scope, TargetScope, slot_of},
    clock::T,
    compare::{CmpKey, Metric, ProbeKey, Sample},
};
use crate::id::{Domain, Network};

impl Engine {
    /// Takes the result of a check of a group's leaf. One from an earlier configuration, or about
    /// a leaf that is no longer of the group, is dropped.
    pub fn probe(&mut self, now: T, sample: ProbeSample) {
        let Some(at) = self.find(sample.group) else {
            return;
        };
        if sample.generation != self.generation || !self.groups[at].has(sample.node) {
            self.dropped.stale_probes = self.dropped.stale_probes.saturating_add(1);
            return;
        }
        if sample.latency.is_some_and(|ms| !ms.is_finite() || ms < 0.0) {
            self.dropped.unsound = self.dropped.unsound.saturating_add(1);
            return;
        }
        let network = match sample.domain {
            Domain::Tcp => Network::Tcp,
            Domain::DnsUdp | Domain::DataUdp => Network::Udp,
        };
        let scope = Scope {
            group: sample.group,
            network,
            family: None,
            target: TargetScope::Any,
        };
        let slot = slot_of(sample.domain, sample.family);
        let Some(cell_at) = self.evidence.open(&scope, sample.node)[0] else {
            return;
        };
        let Some(cell) = self.evidence.cells.get_mut(cell_at) else {
            return;
        };
        let held = &mut cell.probes[slot];
        let other = held.scope != sample.scope;
        let clear = match sample.latency {
            // A failure ends only what the same check said before.
            None if other => return,
            None => {
                *held = ProbeSlot::default();
                true
            }
            Some(millis) => {
                if other {
                    *held = ProbeSlot {
                        scope: sample.scope,
                        ..ProbeSlot::default()
                    };
                }
                held.mean.record(now, millis);
                other
            }
        };
        if clear {
            let targets = &mut self.evidence.targets;
            let store = &mut self.evidence.store;
            store.forget_probe(targets, sample.group, network, sample.node, slot as u8);
        }
        if let Some(millis) = sample.latency {
            self.compare_probe(now, at, network, &sample, millis);
        }
    }

    fn compare_probe(
        &mut self,
        now: T,
        at: usize,
        network: Network,
        sample: &ProbeSample,
        millis: f64,
    ) {
        if !self.groups[at].net(network).pool.keeps_probe(sample.node) {
            return;
        }
        let key = CmpKey::Probe(ProbeKey {
            group: sample.group,
            network,
            node: sample.node,
            slot: slot_of(sample.domain, sample.family) as u8,
            scope: sample.scope,
            interval: sample.interval,
        });
        let sample = Sample {
            metric: Metric::Response,
            at: now,
            value: millis,
            reporter: sample.reporter,
        };
        let evidence = &mut self.evidence;
        evidence
            .store
            .record(&mut evidence.targets, now, key, sample);
    }
}
