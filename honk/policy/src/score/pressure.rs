//! Hints that the connection to a proxy server suffers: they make older comparisons doubtful and
//! so reopen questions within the ordinary budget. They change no choice themselves.

use super::{
    Engine,
    call::PressureHint,
    cell::{Pressure, Scope, TargetScope},
    clock::T,
    consts::PRESSURE,
    snapshot::Row,
};

impl Engine {
    /// Takes a hint, in every group that knows the leaf. One that is old, or of an episode that
    /// was taken already, or from before the last activation, is nothing.
    pub fn pressure(&mut self, now: T, hint: PressureHint) {
        let fenced = self.activated.is_some_and(|at| hint.at <= at);
        if fenced || now.is_after(hint.at, PRESSURE) || hint.at > now || !(hint.rtt || hint.loss) {
            return;
        }
        let cells = &mut self.evidence.cells.aggregate;
        for group in self.groups.iter_mut().filter(|group| group.scored) {
            let scope = Scope {
                group: group.key,
                network: hint.network,
                family: None,
                target: TargetScope::Any,
            };
            let Some(slot) = cells.find(&scope.group_key(hint.node)) else {
                continue;
            };
            let Some(cell) = cells.at_mut(slot) else {
                continue;
            };
            let held = &mut cell.pressure[hint.carrier as usize];
            if held.at.is_some_and(|at| hint.at <= at) {
                continue;
            }
            *held = Pressure {
                at: Some(hint.at),
                rtt: hint.rtt,
                loss: hint.loss,
            };
            let counters = &mut group.net_mut(hint.network).counters;
            counters.pressure(hint.rtt, hint.loss);
        }
    }

    /// Whether a periodic trial now is the first since the newest hint about the selection's
    /// carrier; notes it.
    pub(super) fn validates(&mut self, now: T, scope: &Scope, selected: &Row) -> bool {
        let Some(pressed) = selected.known.pressed_at else {
            return false;
        };
        let cells = &mut self.evidence.cells.aggregate;
        let slot = cells.find(&scope.group_key(selected.node));
        let Some(cell) = slot.and_then(|slot| cells.at_mut(slot)) else {
            return false;
        };
        let new = cell.validated_at.is_none_or(|at| pressed > at);
        if new {
            cell.validated_at = Some(now);
        }
        new
    }
}
