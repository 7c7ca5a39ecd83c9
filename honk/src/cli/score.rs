//! What a Score group knows, under its head in `honk group show`.

use super::{
    output::Output,
    table::{Align, Table},
};
use crate::api::doc::{
    PerNet,
    score::{Budget, Reasons, ScoreGroup, ScoreVerification},
};

/// A table with a column for each network. What is nothing in both is left out.
pub(super) fn table(
    known: &PerNet<ScoreVerification>,
    score: Option<&ScoreGroup>,
    out: &Output,
) -> String {
    let columns = [
        ("", Align::Left),
        ("TCP", Align::Left),
        ("UDP", Align::Left),
    ];
    let mut table = Table::new(&columns);
    let mut add = |what: &str, tcp: String, udp: String| {
        if !(tcp.is_empty() && udp.is_empty()) {
            table.row(vec![format!("  {what}"), tcp, udp]);
        }
    };
    type Fact = fn(&ScoreVerification) -> String;
    let facts: [(&str, Fact); 4] = [
        ("state", |v| v.state.clone()),
        ("others", others),
        ("looked at", looked_at),
        ("unsure about", unsure),
    ];
    for (what, fact) in facts {
        add(what, fact(&known.tcp), fact(&known.udp));
    }
    if let Some(ScoreGroup {
        tcp, udp, budget, ..
    }) = score
    {
        type Cost = fn(&Budget) -> String;
        let costs: [(&str, Cost); 4] = [
            ("flows", flows),
            ("trials", trials),
            ("not tried", refused),
            ("credit", credit),
        ];
        for (what, cost) in costs {
            add(what, cost(&budget.tcp), cost(&budget.udp));
        }
        for ((what, tcp), (_, udp)) in counts(tcp).into_iter().zip(counts(udp)) {
            if tcp + udp > 0 {
                add(what, tcp.to_string(), udp.to_string());
            }
        }
    }
    table.render(out)
}

fn others(v: &ScoreVerification) -> String {
    let c = &v.challengers;
    listed(&[
        (c.selected_faster, "slower"),
        (c.equivalent, "as fast"),
        (c.challenger_faster, "faster"),
        (c.unknown, "not compared"),
    ])
}

fn looked_at(v: &ScoreVerification) -> String {
    match v.coverage.candidates {
        0 => String::new(),
        all => format!("{} of {all} nodes", v.coverage.evaluated),
    }
}

/// The words of the API, which `docs/SCORE.md` explains.
fn unsure(v: &ScoreVerification) -> String {
    match (v.question.as_str(), v.coverage.pending) {
        ("none" | "", _) => String::new(),
        (question, pending) => {
            format!("{pending}, first {question}, waits for {}", v.wait_reason)
        }
    }
}

fn flows(b: &Budget) -> String {
    match (b.business_starts, b.sources.recovery) {
        (0, 0) => String::new(),
        (starts, 0) => starts.to_string(),
        (starts, again) => format!("{starts}, tried again {again}"),
    }
}

fn trials(b: &Budget) -> String {
    let ended = listed(&[
        (b.trial_success, "worked"),
        (b.trial_failure, "failed"),
        (b.trial_cancelled, "given up"),
        (b.in_flight, "under way"),
    ]);
    match (b.trial_starts, ended.as_str()) {
        (0, "") => String::new(),
        (begun, "") => begun.to_string(),
        (begun, ended) => format!("{begun}: {ended}"),
    }
}

/// Trials that were wanted.
fn refused(b: &Budget) -> String {
    listed(&[
        (b.budget_blocked, "for want of credit"),
        (b.in_flight_blocked, "with one under way"),
    ])
}

fn credit(b: &Budget) -> String {
    if b.scopes == 0 {
        return String::new();
    }
    let now = b.cold_available.saturating_add(b.earned_available);
    let mut text = format!("{now}, one more in {} flows", b.earning_period);
    if b.reserved > 0 {
        text.push_str(&format!(", {} reserved", b.reserved));
    }
    if b.paused_scopes > 0 {
        text.push_str(&format!(", {} of {} paused", b.paused_scopes, b.scopes));
    }
    text
}

/// Counters under their names in the API.
fn counts(r: &Reasons) -> [(&'static str, u64); 18] {
    [
        ("coldExplore", r.cold_explore),
        ("periodicExplore", r.periodic_explore),
        ("incumbentIneligible", r.incumbent_ineligible),
        ("freshFailureBypass", r.fresh_failure_bypass),
        ("insufficientEvidenceHeld", r.insufficient_evidence_held),
        ("directionalTradeoffHeld", r.directional_tradeoff_held),
        ("incumbentHeld", r.incumbent_held),
        ("reliabilityWinner", r.reliability_winner),
        ("performanceWinner", r.performance_winner),
        ("ordinarySwitch", r.ordinary_switch),
        ("switchFlap", r.switch_flap),
        ("deadFiltered", r.dead_filtered),
        ("failStreakExcluded", r.fail_streak_excluded),
        ("exploreBackedOff", r.explore_backed_off),
        ("carrierPressure", r.carrier_pressure),
        ("carrierRttPressure", r.carrier_rtt_pressure),
        ("carrierLossPressure", r.carrier_loss_pressure),
        ("carrierValidation", r.carrier_validation),
    ]
}

fn listed(counts: &[(u64, &str)]) -> String {
    let some = counts.iter().filter(|(count, _)| *count > 0);
    let some: Vec<String> = some
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    some.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::doc::score::{Challengers, Coverage, Sources};

    #[test]
    fn both_networks_stand_beside_each_other_without_what_never_happened() {
        let known = PerNet {
            tcp: ScoreVerification {
                state: "observedUsable".into(),
                challengers: Challengers {
                    selected_faster: 1,
                    unknown: 2,
                    ..Challengers::default()
                },
                question: "availability".into(),
                wait_reason: "budget".into(),
                coverage: Coverage {
                    candidates: 9,
                    evaluated: 4,
                    pending: 2,
                    ..Coverage::default()
                },
                ..ScoreVerification::default()
            },
            udp: ScoreVerification {
                state: "provisional".into(),
                question: "none".into(),
                ..ScoreVerification::default()
            },
        };
        let mut score = ScoreGroup::default();
        score.tcp.incumbent_held = 40;
        score.tcp.cold_explore = 3;
        score.udp.dead_filtered = 2;
        score.budget.tcp = Budget {
            business_starts: 43,
            sources: Sources {
                recovery: 2,
                ..Sources::default()
            },
            trial_starts: 3,
            trial_success: 2,
            trial_failure: 1,
            budget_blocked: 7,
            earned_available: 1,
            earning_period: 16,
            scopes: 2,
            paused_scopes: 1,
            ..Budget::default()
        };
        let out = Output {
            json: false,
            color: false,
            quiet: false,
            width: None,
        };
        let text = table(&known, Some(&score), &out);
        let rows: Vec<Vec<&str>> = text
            .lines()
            .map(|line| {
                line.split("  ")
                    .map(str::trim)
                    .filter(|c| !c.is_empty())
                    .collect()
            })
            .collect();
        let expected = [
            vec!["TCP", "UDP"],
            vec!["state", "observedUsable", "provisional"],
            vec!["others", "1 slower, 2 not compared"],
            vec!["looked at", "4 of 9 nodes"],
            vec!["unsure about", "2, first availability, waits for budget"],
            vec!["flows", "43, tried again 2"],
            vec!["trials", "3: 2 worked, 1 failed"],
            vec!["not tried", "7 for want of credit"],
            vec!["credit", "1, one more in 16 flows, 1 of 2 paused"],
            vec!["coldExplore", "3", "0"],
            vec!["incumbentHeld", "40", "0"],
            vec!["deadFiltered", "0", "2"],
        ];
        assert_eq!(rows, expected, "{text}");
    }
}
