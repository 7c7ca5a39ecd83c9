//! Reports: what the engine knows about a group, and its numbers. Nothing here changes anything.

use super::{
    Engine,
    call::Cand,
    cell::{Scope, TargetScope},
    clock::T,
    dispatch::Walk,
    group::Net,
    ids::GroupKey,
    look::reading,
    stats::{CacheStats, GroupStats, NetworkStats, Stats},
    verify::{Coverage, Report, report},
};
use crate::id::Network;

impl Engine {
    /// How sure the group is about its selection, over both target families. `None` for a group
    /// without Score.
    pub fn verify(
        &self,
        now: T,
        group: GroupKey,
        network: Network,
        view: &[Cand],
    ) -> Option<Report> {
        let at = self.find(group)?;
        let scope = Scope {
            group,
            network,
            family: None,
            target: TargetScope::Any,
        };
        let mut rows = Vec::new();
        let Some(choice) = self.look(now, at, &scope, view, &mut rows) else {
            let coverage = Coverage {
                candidates: view.len() as u64,
                ..Coverage::default()
            };
            return Some(Report {
                coverage,
                ..Report::default()
            });
        };
        let walk = Walk {
            beside: reading(&self.evidence, now, &scope).beside(rows[choice.row].node),
            rows: &rows,
            selection: choice.row,
        };
        let ledgers = self.groups[at].net(network).ledgers();
        Some(report(&walk, &ledgers, view.len()))
    }

    /// Counters of every Score group, by key, and of the stores.
    pub fn stats(&self, now: T) -> Stats {
        let scored = self.groups.iter().filter(|group| group.scored);
        let groups = scored.map(|group| GroupStats {
            group: group.key,
            tcp: net_stats(now, group.net(Network::Tcp)),
            udp: net_stats(now, group.net(Network::Udp)),
        });
        let cells = &self.evidence.cells;
        Stats {
            groups: groups.collect(),
            business_starts: self.business_starts,
            cache: CacheStats {
                exact_cells: cells.exact.len() as u64,
                aggregate_cells: cells.aggregate.len() as u64,
                exact_evictions: cells.exact.evictions(),
                aggregate_evictions: cells.aggregate.evictions(),
                comparison: self.evidence.store.stats(),
            },
        }
    }
}

fn net_stats(now: T, net: &Net) -> NetworkStats {
    let mut stats = NetworkStats {
        reasons: net.counters,
        ..NetworkStats::default()
    };
    for ledger in net.ledgers().into_iter().flatten() {
        stats.budget.add(now, ledger, net.demand.rate(now));
    }
    stats
}
