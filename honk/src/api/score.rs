//! Score in the words of the interface. Everything here is a read.

use honk_policy::{
    config::Policy,
    group::GroupView,
    id::Network,
    score::{self, BudgetStats, CacheStats, Challengers, NetworkStats, Report, T},
};

use super::doc::{
    PerNet,
    score::{
        Budget, Cache, Challengers as Others, Coverage, Reasons, Score, ScoreGroup,
        ScoreVerification, Sources, Verified,
    },
};
use crate::{
    app::{engine::Engine, snapshot::Snapshot},
    clock,
};

/// How sure a group is on each network; `None` for one with another policy.
pub(super) fn verified_group(
    engine: &Engine,
    snapshot: &Snapshot,
    view: &GroupView,
) -> Option<PerNet<ScoreVerification>> {
    if view.policy != Policy::Score {
        return None;
    }
    let (now, now_ms) = (engine.score.now(), clock::now_ms());
    let of = |network| {
        let report = engine.score.verify(&snapshot.groups, view.id, network)?;
        let member = |at: usize| view.members.get(at).map(|m| m.name.clone());
        Some(verification(&report, member, now, now_ms))
    };
    Some(PerNet {
        tcp: of(Network::Tcp)?,
        udp: of(Network::Udp)?,
    })
}

/// The name of a group.
pub(super) fn name_of(snapshot: &Snapshot, key: score::GroupKey) -> Option<&str> {
    let mut groups = snapshot.groups.groups();
    groups.find(|g| g.key() == key).map(|g| &*g.def.name)
}

/// How sure a group is. `member` tells the name of a direct member by its place; `now` and
/// `now_ms` are the same moment on two clocks.
fn verification(
    report: &Report,
    member: impl Fn(usize) -> Option<String>,
    now: T,
    now_ms: u64,
) -> ScoreVerification {
    let left = |until: T| until.since(now) / 1_000_000;
    let coverage = report.coverage;
    ScoreVerification {
        selected: report.selected.and_then(|s| member(s.member as usize)),
        state: report.state.name().to_owned(),
        challengers: others(report.challengers),
        question: report.question.name().to_owned(),
        next_action: report.next_action.name().to_owned(),
        wait_reason: report.wait_reason.name().to_owned(),
        coverage: Coverage {
            scope: if coverage.unevaluated == 0 {
                "all"
            } else {
                "bounded"
            }
            .to_owned(),
            candidates: coverage.candidates,
            evaluated: coverage.evaluated,
            unevaluated: coverage.unevaluated,
            pending: coverage.pending,
        },
        fresh_until: report
            .fresh_until
            .map(|t| clock::text(now_ms.saturating_add(left(t)))),
    }
}

fn others(counts: Challengers) -> Others {
    Others {
        selected_faster: counts.selected_faster,
        equivalent: counts.equivalent,
        challenger_faster: counts.challenger_faster,
        unknown: counts.unknown,
    }
}

/// The counters. `name_of` tells the name of a group; one without is left out.
pub(super) fn counters<'n>(
    stats: &score::Stats,
    name_of: impl Fn(score::GroupKey) -> Option<&'n str>,
) -> Score {
    let groups = stats.groups.iter().filter_map(|group| {
        Some(ScoreGroup {
            name: name_of(group.group)?.to_owned(),
            tcp: reasons(&group.tcp),
            udp: reasons(&group.udp),
            verification: PerNet {
                tcp: verified(&group.tcp),
                udp: verified(&group.udp),
            },
            budget: PerNet {
                tcp: budget(&group.tcp.budget),
                udp: budget(&group.udp.budget),
            },
        })
    });
    let mut groups: Vec<ScoreGroup> = groups.collect();
    groups.sort_by(|a, b| a.name.cmp(&b.name));
    Score {
        groups,
        business_starts: stats.business_starts,
        cache: cache(&stats.cache),
    }
}

fn reasons(stats: &NetworkStats) -> Reasons {
    let all = &stats.reasons;
    let [
        cold_explore,
        periodic_explore,
        incumbent_ineligible,
        fresh_failure_bypass,
        insufficient_evidence_held,
        directional_tradeoff_held,
        incumbent_held,
        reliability_winner,
        performance_winner,
    ] = all.reasons;
    Reasons {
        cold_explore,
        periodic_explore,
        incumbent_ineligible,
        fresh_failure_bypass,
        insufficient_evidence_held,
        directional_tradeoff_held,
        incumbent_held,
        reliability_winner,
        performance_winner,
        ordinary_switch: all.ordinary_switch,
        switch_flap: all.switch_flap,
        dead_filtered: all.dead_filtered,
        fail_streak_excluded: all.fail_streak_excluded,
        explore_backed_off: all.explore_backed_off,
        carrier_pressure: all.carrier_pressure,
        carrier_rtt_pressure: all.carrier_rtt_pressure,
        carrier_loss_pressure: all.carrier_loss_pressure,
        carrier_validation: all.carrier_validation,
    }
}

fn verified(stats: &NetworkStats) -> Verified {
    Verified {
        provisional_selections: stats.reasons.provisional_selections,
        usable_selections: stats.reasons.usable_selections,
        validation_selections: stats.reasons.validation_selections,
    }
}

fn budget(stats: &BudgetStats) -> Budget {
    Budget {
        business_starts: stats.business_starts,
        sources: Sources {
            cold: stats.cold,
            periodic: stats.periodic,
            recovery: stats.recovery,
        },
        trial_starts: stats.trial_starts,
        reserved: stats.reserved,
        spent: stats.spent,
        budget_blocked: stats.budget_blocked,
        in_flight_blocked: stats.in_flight_blocked,
        refunded: stats.refunded,
        expired: stats.expired,
        cold_allowance: stats.cold_allowance,
        cold_available: stats.cold_available,
        earned_available: stats.earned_available,
        earning_period: stats.earning_period,
        scopes: stats.scopes,
        paused_scopes: stats.paused_scopes,
        in_flight: stats.in_flight,
        trial_success: stats.trial_success,
        trial_failure: stats.trial_failure,
        trial_cancelled: stats.trial_cancelled,
        trial_setup_histogram: stats.trial_setup_histogram,
        trial_setup_millis: stats.trial_setup_millis,
        trial_elapsed_millis: stats.trial_elapsed_millis,
    }
}

fn cache(stats: &CacheStats) -> Cache {
    let comparison = &stats.comparison;
    Cache {
        exact_cells: stats.exact_cells,
        aggregate_cells: stats.aggregate_cells,
        exact_evictions: stats.exact_evictions,
        aggregate_evictions: stats.aggregate_evictions,
        comparison_cells: comparison.cells,
        comparison_logical_bytes: comparison.logical_bytes,
        comparison_logical_capacity: comparison.logical_capacity,
        comparison_evictions: comparison.evictions,
        comparison_expired: comparison.expired,
        comparison_rejected: comparison.rejected,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use honk_policy::{
        id::{NodeId, Uuid},
        score::{
            Coverage as Looked, GroupKey, GroupStats, NextAction, NodeKey, Question, ReasonStats,
            Selected, State, WaitReason,
        },
    };
    use serde_json::{Value, json};

    use super::*;

    /// Every number differs, so that two that are mixed up show.
    fn reason_stats(first: u64) -> ReasonStats {
        let mut next = first..;
        let mut n = || next.next().unwrap();
        ReasonStats {
            reasons: std::array::from_fn(|_| n()),
            ordinary_switch: n(),
            switch_flap: n(),
            dead_filtered: n(),
            fail_streak_excluded: n(),
            explore_backed_off: n(),
            carrier_pressure: n(),
            carrier_rtt_pressure: n(),
            carrier_loss_pressure: n(),
            carrier_validation: n(),
            provisional_selections: n(),
            usable_selections: n(),
            validation_selections: n(),
        }
    }

    fn budget_stats() -> BudgetStats {
        let mut next = 101..;
        let mut n = || next.next().unwrap();
        BudgetStats {
            business_starts: n(),
            scopes: n(),
            paused_scopes: n(),
            earning_period: n(),
            cold_allowance: n(),
            cold_available: n(),
            earned_available: n(),
            reserved: n(),
            spent: n(),
            trial_starts: n(),
            cold: n(),
            periodic: n(),
            recovery: n(),
            budget_blocked: n(),
            in_flight_blocked: n(),
            refunded: n(),
            expired: n(),
            in_flight: n(),
            trial_success: n(),
            trial_failure: n(),
            trial_cancelled: n(),
            trial_setup_histogram: std::array::from_fn(|_| n()),
            trial_setup_millis: n(),
            trial_elapsed_millis: n(),
        }
    }

    pub(in crate::api) fn stats() -> score::Stats {
        let network = |first| NetworkStats {
            reasons: reason_stats(first),
            budget: budget_stats(),
        };
        let group = |key| GroupStats {
            group: GroupKey(key),
            tcp: network(1),
            udp: NetworkStats::default(),
        };
        score::Stats {
            groups: vec![group(2), group(3), group(9)],
            business_starts: 77,
            cache: CacheStats {
                exact_cells: 1,
                aggregate_cells: 2,
                exact_evictions: 3,
                aggregate_evictions: 4,
                ..CacheStats::default()
            },
        }
    }

    pub(in crate::api) fn name_of(key: GroupKey) -> Option<&'static str> {
        match key.0 {
            2 => Some("video"),
            3 => Some("mail"),
            _ => None,
        }
    }

    #[test]
    fn counters_have_their_public_names_and_places() {
        let score = serde_json::to_value(counters(&stats(), name_of)).unwrap();
        assert_eq!(score["businessStarts"], 77);
        let names: Vec<&Value> = score["groups"]
            .as_array()
            .unwrap()
            .iter()
            .map(|g| &g["name"])
            .collect();
        assert_eq!(names, ["mail", "video"]);
        let group = &score["groups"][1];
        let expected = json!({
            "coldExplore": 1, "periodicExplore": 2, "incumbentIneligible": 3,
            "freshFailureBypass": 4, "insufficientEvidenceHeld": 5,
            "directionalTradeoffHeld": 6, "incumbentHeld": 7, "reliabilityWinner": 8,
            "performanceWinner": 9, "ordinarySwitch": 10, "switchFlap": 11,
            "deadFiltered": 12, "failStreakExcluded": 13, "exploreBackedOff": 14,
            "carrierPressure": 15, "carrierRttPressure": 16, "carrierLossPressure": 17,
            "carrierValidation": 18,
        });
        assert_eq!(group["tcp"], expected);
        let expected = json!({
            "provisionalSelections": 19, "usableSelections": 20, "validationSelections": 21,
        });
        assert_eq!(group["verification"]["tcp"], expected);
        let expected = json!({
            "businessStarts": 101, "scopes": 102, "pausedScopes": 103, "earningPeriod": 104,
            "coldAllowance": 105, "coldAvailable": 106, "earnedAvailable": 107,
            "reserved": 108, "spent": 109, "trialStarts": 110,
            "sources": { "cold": 111, "periodic": 112, "recovery": 113 },
            "budgetBlocked": 114, "inFlightBlocked": 115, "refunded": 116, "expired": 117,
            "inFlight": 118, "trialSuccess": 119, "trialFailure": 120, "trialCancelled": 121,
            "trialSetupHistogram": [122, 123, 124, 125, 126, 127, 128, 129],
            "trialSetupMillis": 130, "trialElapsedMillis": 131,
        });
        assert_eq!(group["budget"]["tcp"], expected);
        // Also what never happened is there.
        assert_eq!(group["udp"]["carrierValidation"], 0);
        assert_eq!(group["budget"]["udp"]["sources"]["recovery"], 0);
        let expected = json!({
            "exactCells": 1, "aggregateCells": 2, "exactEvictions": 3, "aggregateEvictions": 4,
            "comparisonCells": 0, "comparisonLogicalBytes": 0, "comparisonLogicalCapacity": 0,
            "comparisonEvictions": 0, "comparisonExpired": 0, "comparisonRejected": 0,
        });
        assert_eq!(score["cache"], expected);
    }

    #[test]
    fn a_report_is_told_in_words_counts_and_the_name_of_the_selection() {
        let now = T::from_secs(100);
        let name = |at: usize| ["a", "b"].get(at).map(|&name| name.to_owned());
        let report = Report {
            selected: Some(Selected {
                node: NodeKey::from(NodeId(Uuid::from_u128(0xfeed))),
                index: 0,
                member: 1,
            }),
            state: State::ObservedUsable,
            challengers: Challengers {
                selected_faster: 1,
                equivalent: 2,
                challenger_faster: 3,
                unknown: 4,
            },
            question: Question::Response,
            next_action: NextAction::NextBusinessFlow,
            wait_reason: WaitReason::Budget,
            coverage: Looked {
                candidates: 20,
                evaluated: 11,
                unevaluated: 9,
                pending: 5,
            },
            fresh_until: Some(T::from_secs(130)),
        };
        let told = verification(&report, name, now, 1_000);
        let expected = json!({
            "selected": "b",
            "state": "observedUsable",
            "challengers":
                { "selectedFaster": 1, "equivalent": 2, "challengerFaster": 3, "unknown": 4 },
            "question": "response",
            "nextAction": "nextBusinessFlow",
            "waitReason": "budget",
            "coverage": {
                "scope": "bounded", "candidates": 20, "evaluated": 11, "unevaluated": 9,
                "pending": 5,
            },
            "freshUntil": "1970-01-01T00:00:31.000Z",
        });
        assert_eq!(serde_json::to_value(&told).unwrap(), expected);
        let nothing = verification(&Report::default(), name, now, 1_000);
        let nothing = serde_json::to_value(nothing).unwrap();
        assert_eq!(nothing["selected"], Value::Null);
        assert_eq!(nothing["freshUntil"], Value::Null);
        assert_eq!(
            (
                &nothing["state"],
                &nothing["question"],
                &nothing["coverage"]["scope"]
            ),
            (&json!("provisional"), &json!("none"), &json!("all"))
        );
    }
}
