//! The Score family of `/metrics`: groups, networks and words of the interface, and nothing about
//! nodes or targets.

use honk_policy::{
    id::Network,
    score::{CELLS, COMPARISONS, CacheStats, Dropped, NetworkStats, Reason, Report, State},
};

use crate::{
    app::engine::Engine,
    metrics::{names, page::Page},
};

/// All of it. Without a Score group the stores are shown empty, and nothing else.
pub(super) fn score(engine: &Engine, page: &mut Page) {
    let snapshot = engine.snapshot();
    let stats = engine.score.stats();
    for counted in &stats.groups {
        let mut groups = snapshot.groups.groups();
        // Stats may be of the generation that is about to be active.
        let Some(group) = groups.find(|g| g.key() == counted.group) else {
            continue;
        };
        for (of, numbers) in [(Network::Tcp, &counted.tcp), (Network::Udp, &counted.udp)] {
            let report = engine.score.verify(&snapshot.groups, group.id, of);
            network(page, &group.def.name, of.name(), numbers, report.as_ref());
        }
    }
    cache(page, &stats.cache);
    dropped(page, &engine.score.dropped(), engine.score.lost_moves());
}

/// One network of a group. `report` is absent when the group is gone meanwhile.
fn network(
    page: &mut Page,
    group: &str,
    network: &str,
    stats: &NetworkStats,
    report: Option<&Report>,
) {
    let reasons = &stats.reasons;
    for (reason, count) in Reason::ALL.into_iter().zip(reasons.reasons) {
        let labels = [group, network, reason.name()];
        page.count(&names::SCORE_SELECTIONS, &labels, count);
    }
    let budget = &stats.budget;
    let labelled = [
        (
            &names::SCORE_SWITCHES,
            &[
                ("ordinarySwitch", reasons.ordinary_switch),
                ("switchFlap", reasons.switch_flap),
            ][..],
        ),
        (
            &names::SCORE_FILTERED,
            &[
                ("deadFiltered", reasons.dead_filtered),
                ("failStreakExcluded", reasons.fail_streak_excluded),
                ("exploreBackedOff", reasons.explore_backed_off),
            ],
        ),
        (
            &names::SCORE_TRIALS,
            &[
                ("success", budget.trial_success),
                ("failure", budget.trial_failure),
                ("cancelled", budget.trial_cancelled),
            ],
        ),
        (
            &names::SCORE_CREDIT,
            &[
                ("coldAvailable", budget.cold_available),
                ("earnedAvailable", budget.earned_available),
                ("reserved", budget.reserved),
            ],
        ),
        (
            &names::SCORE_SPENT,
            &[("cold", budget.cold), ("periodic", budget.periodic)],
        ),
        (
            &names::SCORE_REFUSED,
            &[
                ("budgetBlocked", budget.budget_blocked),
                ("inFlightBlocked", budget.in_flight_blocked),
            ],
        ),
        (
            &names::SCORE_PRESSURE,
            &[
                ("rtt", reasons.carrier_rtt_pressure),
                ("loss", reasons.carrier_loss_pressure),
            ],
        ),
    ];
    for (family, rows) in labelled {
        for (word, count) in rows {
            page.count(family, &[group, network, word], *count);
        }
    }
    let labels = [group, network];
    page.count(&names::SCORE_STARTS, &labels, budget.business_starts);
    page.count(&names::SCORE_IN_FLIGHT, &labels, budget.in_flight);
    if let Some(report) = report {
        verification(page, group, network, report);
    }
}

fn verification(page: &mut Page, group: &str, network: &str, report: &Report) {
    for state in [State::Provisional, State::ObservedUsable] {
        let labels = [group, network, state.name()];
        let is = u64::from(report.state == state);
        page.count(&names::SCORE_STATE, &labels, is);
    }
    let others = &report.challengers;
    for (relation, count) in [
        ("selectedFaster", others.selected_faster),
        ("equivalent", others.equivalent),
        ("challengerFaster", others.challenger_faster),
        ("unknown", others.unknown),
    ] {
        let labels = [group, network, relation];
        page.count(&names::SCORE_CHALLENGERS, &labels, count);
    }
}

/// The stores of evidence.
fn cache(page: &mut Page, cache: &CacheStats) {
    let comparison = &cache.comparison;
    for (store, cells, limit, evictions) in [
        ("exact", cache.exact_cells, CELLS, cache.exact_evictions),
        (
            "aggregate",
            cache.aggregate_cells,
            CELLS,
            cache.aggregate_evictions,
        ),
        (
            "comparison",
            comparison.cells,
            COMPARISONS,
            comparison.evictions,
        ),
    ] {
        page.count(&names::SCORE_CELLS, &[store], cells);
        page.count(&names::SCORE_CELLS_LIMIT, &[store], limit as u64);
        page.count(&names::SCORE_EVICTIONS, &[store], evictions);
    }
    page.count(&names::SCORE_BYTES, &[], comparison.logical_bytes);
}

/// What found no room, and how full the inner tables are.
fn dropped(page: &mut Page, dropped: &Dropped, moves: u64) {
    for (table, count) in [("attempt", dropped.attempts), ("target", dropped.targets)] {
        page.count(&names::SCORE_ENTRIES, &[table], count);
    }
    for (what, count) in [
        ("flow", dropped.unscored),
        ("history", dropped.histories),
        ("probe", dropped.stale_probes),
        ("value", dropped.unsound),
        ("group", dropped.groups),
        ("move", moves),
    ] {
        page.count(&names::SCORE_DROPPED, &[what], count);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{api::score::tests::stats, metrics::page::encode};

    fn text() -> String {
        let mut page = Page::default();
        let stats = stats();
        let report = Report {
            state: State::ObservedUsable,
            ..Report::default()
        };
        network(
            &mut page,
            "video",
            "tcp",
            &stats.groups[0].tcp,
            Some(&report),
        );
        network(&mut page, "video", "udp", &stats.groups[0].udp, None);
        cache(&mut page, &stats.cache);
        let counts = Dropped {
            stale_probes: 21,
            unsound: 22,
            groups: 23,
            unscored: 24,
            histories: 25,
            attempts: 26,
            targets: 27,
        };
        dropped(&mut page, &counts, 28);
        String::from_utf8(encode(&page.gathered(Vec::new())).unwrap()).unwrap()
    }

    #[test]
    fn every_counter_stands_under_its_own_word() {
        let text = text();
        for line in [
            "honk_score_selections_total{group=\"video\",network=\"tcp\",reason=\"coldExplore\"} 1",
            "honk_score_selections_total{group=\"video\",network=\"tcp\",reason=\"performanceWinner\"} 9",
            "honk_score_selections_total{group=\"video\",network=\"udp\",reason=\"performanceWinner\"} 0",
            "honk_score_switches_total{group=\"video\",network=\"tcp\",kind=\"ordinarySwitch\"} 10",
            "honk_score_switches_total{group=\"video\",network=\"tcp\",kind=\"switchFlap\"} 11",
            "honk_score_filtered_total{group=\"video\",network=\"tcp\",cause=\"deadFiltered\"} 12",
            "honk_score_filtered_total{group=\"video\",network=\"tcp\",cause=\"failStreakExcluded\"} 13",
            "honk_score_filtered_total{group=\"video\",network=\"tcp\",cause=\"exploreBackedOff\"} 14",
            "honk_score_carrier_pressure_total{group=\"video\",network=\"tcp\",cause=\"rtt\"} 16",
            "honk_score_carrier_pressure_total{group=\"video\",network=\"tcp\",cause=\"loss\"} 17",
            "honk_score_business_starts_total{group=\"video\",network=\"tcp\"} 101",
            "honk_score_budget_credit{group=\"video\",network=\"tcp\",kind=\"coldAvailable\"} 106",
            "honk_score_budget_credit{group=\"video\",network=\"tcp\",kind=\"earnedAvailable\"} 107",
            "honk_score_budget_credit{group=\"video\",network=\"tcp\",kind=\"reserved\"} 108",
            "honk_score_budget_spent_total{group=\"video\",network=\"tcp\",source=\"cold\"} 111",
            "honk_score_budget_spent_total{group=\"video\",network=\"tcp\",source=\"periodic\"} 112",
            "honk_score_budget_refused_total{group=\"video\",network=\"tcp\",cause=\"budgetBlocked\"} 114",
            "honk_score_budget_refused_total{group=\"video\",network=\"tcp\",cause=\"inFlightBlocked\"} 115",
            "honk_score_trials_in_flight{group=\"video\",network=\"tcp\"} 118",
            "honk_score_trials_total{group=\"video\",network=\"tcp\",result=\"success\"} 119",
            "honk_score_trials_total{group=\"video\",network=\"tcp\",result=\"failure\"} 120",
            "honk_score_trials_total{group=\"video\",network=\"tcp\",result=\"cancelled\"} 121",
            "honk_score_verification_state{group=\"video\",network=\"tcp\",state=\"provisional\"} 0",
            "honk_score_verification_state{group=\"video\",network=\"tcp\",state=\"observedUsable\"} 1",
            "honk_score_challengers{group=\"video\",network=\"tcp\",relation=\"unknown\"} 0",
            "honk_score_cache_cells{store=\"exact\"} 1",
            "honk_score_cache_cells{store=\"aggregate\"} 2",
            "honk_score_cache_evictions_total{store=\"exact\"} 3",
            "honk_score_cache_evictions_total{store=\"aggregate\"} 4",
            "honk_score_cache_limit{store=\"aggregate\"} 4096",
            "honk_score_cache_limit{store=\"comparison\"} 512",
            "honk_score_comparison_logical_bytes 0",
            "honk_score_entries{table=\"attempt\"} 26",
            "honk_score_entries{table=\"target\"} 27",
            "honk_score_dropped_total{what=\"flow\"} 24",
            "honk_score_dropped_total{what=\"group\"} 23",
            "honk_score_dropped_total{what=\"history\"} 25",
            "honk_score_dropped_total{what=\"move\"} 28",
            "honk_score_dropped_total{what=\"probe\"} 21",
            "honk_score_dropped_total{what=\"value\"} 22",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
        assert!(!text.contains("honk_score_verification_state{group=\"video\",network=\"udp\""));
    }

    // S-346
    #[test]
    fn labels_are_groups_networks_and_fixed_words() {
        let text = text();
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        let labels = samples.filter_map(|line| line.split_once('{')?.1.split_once('}'));
        let pairs = labels.flat_map(|(labels, _)| labels.split(','));
        let names: BTreeSet<&str> = pairs.filter_map(|p| Some(p.split_once('=')?.0)).collect();
        let allowed = [
            "cause", "group", "kind", "network", "reason", "relation", "result", "source", "state",
            "store", "table", "what",
        ];
        assert_eq!(names, BTreeSet::from(allowed));
    }
}
