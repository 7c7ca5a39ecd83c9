//! What a group does and why, in one paragraph of plain words.

use super::{group::selection, output::clean, plural};
use crate::api::doc::{
    Group, PerNet, Sel,
    score::{Budget, Reasons, ScoreGroup, ScoreVerification},
};

/// The paragraph. `score`: the counters of a Score group.
pub(super) fn paragraph(group: &Group, score: Option<&ScoreGroup>) -> String {
    let mut sentences = Vec::new();
    if group.score_verification.is_some() {
        let name = clean(&group.name);
        sentences.push(format!(
            "{name} learns from the connections of your clients which node serves them best"
        ));
    }
    let PerNet { tcp, udp } = &group.selection;
    sentences.push(path(group, tcp, "TCP", score.map(|s| &s.budget.tcp)));
    if let Some(known) = &group.score_verification {
        let counters = score.map(|s| (&s.tcp, &s.budget.tcp));
        learned(&known.tcp, counters, &mut sentences);
    }
    let alike = tcp.path == udp.path && tcp.source == udp.source && tcp.refuse == udp.refuse;
    sentences.push(match (alike, &group.score_verification) {
        (true, None) => "UDP goes the same way".to_owned(),
        _ => path(group, udp, "UDP", score.map(|s| &s.budget.udp)),
    });
    if let Some(known) = &group.score_verification {
        let counters = score.map(|s| (&s.udp, &s.budget.udp));
        learned(&known.udp, counters, &mut sentences);
    }
    let mut text = sentences.join(". ");
    text.push('.');
    text
}

/// Where flows of a network go, and by whose word.
fn path(group: &Group, sel: &Sel, network: &str, budget: Option<&Budget>) -> String {
    if let Some(refuse) = &sel.refuse {
        return format!("{network} flows are dropped, because {}", refusal(refuse));
    }
    let to = clean(&selection(sel));
    let to = to.trim_end_matches(" *");
    if budget.is_some_and(is_new) {
        return format!("No {network} flow has come yet; it would go through {to}");
    }
    let why = match (sel.source.as_str(), group.policy.as_str()) {
        ("choice", _) => "which was chosen by hand",
        ("pin", _) => "which is pinned until the pin is dropped or the configuration changes",
        ("default", _) => "its default",
        ("first", _) => "its first member",
        ("last_resort", _) => "though that is dead, because there is no other node",
        ("final", _) => "because no member can serve",
        (_, "urltest") => "which answers checks fastest, or not much slower than the fastest",
        (_, "fallback") => "the first member that was alive when the group last had to move",
        (_, "loadbalance") => "whose turn it is",
        (_, "score") => "unless their own target did better elsewhere",
        _ => return format!("{network} flows go through {to}"),
    };
    format!("{network} flows go through {to}, {why}")
}

/// Whether there is nothing to tell.
fn is_new(budget: &Budget) -> bool {
    budget.business_starts == 0
}

fn refusal(code: &str) -> String {
    match code {
        "no_member" => "the group has no member",
        "all_dead" => "none of its nodes is alive",
        "udp_incapable" => "what it selects carries no UDP",
        "final_missing" => "its final does not exist",
        "final_cycle" => "its final leads back to it",
        "depth" => "its groups nest too deep",
        other => return clean(other),
    }
    .to_owned()
}

/// What is known of one network, what is not, and what finding out costs.
fn learned(
    known: &ScoreVerification,
    counters: Option<(&Reasons, &Budget)>,
    sentences: &mut Vec<String>,
) {
    let candidates = known.coverage.candidates;
    if candidates == 0 || counters.is_some_and(|(_, budget)| is_new(budget)) {
        return;
    }
    sentences.push(
        match known.state.as_str() {
            "observedUsable" => "It works: four flows or more got data through it within a minute",
            _ => "Whether it works right now is not sure: few flows got data through it lately",
        }
        .to_owned(),
    );
    if candidates == 1 {
        sentences.push("There is no other node to choose".to_owned());
    } else {
        sentences.push(rivals(known));
        sentences.push(doubt(known, counters.map(|(_, budget)| budget)));
    }
    if let Some((reasons, budget)) = counters {
        sentences.push(cost(budget));
        sentences.extend(moves(reasons));
    }
}

/// How the others compare.
fn rivals(known: &ScoreVerification) -> String {
    let counts = &known.challengers;
    let told = [
        (counts.selected_faster, "slower"),
        (counts.equivalent, "about as fast"),
        (counts.challenger_faster, "faster"),
        (counts.unknown, "not compared lately"),
    ];
    let told = told.iter().filter(|(count, _)| *count > 0);
    let told: Vec<String> = told.map(|(n, how)| format!("{n} {how}")).collect();
    let mut text = format!(
        "Next to it the group looks at {}: {}",
        plural(known.coverage.evaluated.saturating_sub(1), "other node"),
        told.join(", ")
    );
    if known.coverage.unevaluated > 0 {
        let waiting = known.coverage.unevaluated;
        text.push_str(&format!("; {waiting} more wait for their turn"));
    }
    text
}

/// What it would like to know, and why it does not.
fn doubt(known: &ScoreVerification, budget: Option<&Budget>) -> String {
    let question = match known.question.as_str() {
        "availability" => "carries traffic at all",
        "response" => "answers faster",
        "qualification" => "has a record to be trusted",
        "recovery" => "has recovered from its failures",
        _ => return "Nothing is unsure".to_owned(),
    };
    let paused = budget.is_some_and(|b| b.paused_scopes > 0 && b.paused_scopes == b.scopes);
    let wait = match known.wait_reason.as_str() {
        "budget" if paused => {
            "trials are paused, because the last ones failed too often".to_owned()
        }
        "budget" => match budget.map_or(0, |b| b.earning_period) {
            0 => "it has no credit for a trial".to_owned(),
            period => format!("it has no credit for a trial, and earns one with {period} flows"),
        },
        "inFlight" => "a trial is under way".to_owned(),
        "backoff" => "it failed before, so it is left alone for now".to_owned(),
        _ => "the next flow that fits will tell".to_owned(),
    };
    format!(
        "It is unsure about {} of them, first whether one {question}; {wait}",
        known.coverage.pending,
    )
}

/// What the trials came to. The daemon does not know what they cost more than other flows.
fn cost(budget: &Budget) -> String {
    let (trials, flows) = (budget.trial_starts, budget.business_starts);
    let credit = budget
        .cold_available
        .saturating_add(budget.earned_available);
    let credit = match credit {
        0 => String::new(),
        n => format!("; there is credit for {n} more"),
    };
    match trials {
        0 => format!(
            "None of {} so far was a trial of another node{credit}",
            plural(flows, "flow")
        ),
        _ => format!(
            "{trials} of {} so far were trials of another node, of which {} worked and {} \
             failed{credit}",
            plural(flows, "flow"),
            budget.trial_success,
            budget.trial_failure,
        ),
    }
}

/// How restless it is.
fn moves(reasons: &Reasons) -> Option<String> {
    let back = match reasons.switch_flap {
        0 => "none".to_owned(),
        n => n.to_string(),
    };
    let moved = reasons.ordinary_switch;
    (moved > 0).then(|| {
        format!(
            "Targets moved to another node {}, {back} of them straight back",
            plural(moved, "time")
        )
    })
}

/// Breaks lines between words, for a terminal of that many columns.
pub(super) fn broken(text: &str, columns: usize) -> String {
    let mut lines = String::new();
    let mut used = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        if used > 0 && used + 1 + length > columns {
            lines.push('\n');
            used = 0;
        } else if used > 0 {
            lines.push(' ');
            used += 1;
        }
        lines.push_str(word);
        used += length;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::doc::score::{Challengers, Coverage},
        cli::group::tests::{group, sel},
    };

    fn known() -> ScoreVerification {
        ScoreVerification {
            selected: Some("hk".into()),
            state: "observedUsable".into(),
            challengers: Challengers {
                selected_faster: 3,
                equivalent: 1,
                challenger_faster: 0,
                unknown: 6,
            },
            question: "response".into(),
            next_action: "nextBusinessFlow".into(),
            wait_reason: "comparableTraffic".into(),
            coverage: Coverage {
                scope: "bounded".into(),
                candidates: 20,
                evaluated: 11,
                unevaluated: 9,
                pending: 6,
            },
            fresh_until: None,
        }
    }

    fn score_group(tcp: ScoreVerification) -> Group {
        let mut group = group(&[("1", "hk"), ("2", "jp")]);
        group.policy = "score".into();
        group.selection = PerNet {
            tcp: sel(Some("hk"), Some("hk"), "auto"),
            udp: sel(Some("hk"), Some("hk"), "auto"),
        };
        let udp = ScoreVerification::default();
        group.score_verification = Some(PerNet { tcp, udp });
        group
    }

    fn counters() -> ScoreGroup {
        let mut score = ScoreGroup::default();
        score.budget.tcp = Budget {
            business_starts: 320,
            trial_starts: 20,
            trial_success: 18,
            trial_failure: 1,
            earned_available: 2,
            earning_period: 16,
            scopes: 1,
            ..Budget::default()
        };
        score.tcp.ordinary_switch = 4;
        score.tcp.switch_flap = 1;
        score
    }

    #[test]
    fn a_score_group_is_told_from_its_choice_to_its_costs() {
        let told = paragraph(&score_group(known()), Some(&counters()));
        let expected = "proxy learns from the connections of your clients which node serves them \
            best. TCP flows go through hk, unless their own target did better elsewhere. It \
            works: four flows or more got data through it within a minute. Next to it the group \
            looks at 10 other nodes: 3 slower, 1 about as fast, 6 not compared lately; 9 more \
            wait for their turn. It is unsure about 6 of them, first whether one answers faster; \
            the next flow that fits will tell. 20 of 320 flows so far were trials of another \
            node, of which 18 worked and 1 failed; there is credit for 2 more. Targets moved to \
            another node 4 times, 1 of them straight back. No UDP flow has come yet; it would \
            go through hk.";
        assert_eq!(told, expected);
    }

    #[test]
    fn what_it_waits_for_is_said_in_words() {
        let score = counters();
        let mut budget = score.budget.tcp;
        let told = |question: &str, wait: &str, budget: &Budget| {
            let known = ScoreVerification {
                question: question.into(),
                wait_reason: wait.into(),
                ..known()
            };
            doubt(&known, Some(budget))
        };
        for (question, wait, words) in [
            ("none", "none", "Nothing is unsure"),
            (
                "availability",
                "inFlight",
                "carries traffic at all; a trial is under way",
            ),
            (
                "qualification",
                "comparableTraffic",
                "a record to be trusted; the next flow",
            ),
            (
                "recovery",
                "backoff",
                "recovered from its failures; it failed before",
            ),
            (
                "response",
                "budget",
                "no credit for a trial, and earns one with 16 flows",
            ),
        ] {
            let text = told(question, wait, &budget);
            assert!(text.contains(words), "{question} {wait}: {text}");
        }
        budget.paused_scopes = 1;
        assert!(told("response", "budget", &budget).contains("trials are paused"));
        budget = Budget::default();
        assert!(told("response", "budget", &budget).ends_with("no credit for a trial"));
    }

    #[test]
    fn a_single_node_leaves_nothing_to_choose() {
        let mut alone = known();
        alone.state = "provisional".into();
        alone.coverage.candidates = 1;
        let told = paragraph(&score_group(alone), None);
        assert!(told.contains("is not sure: few flows"), "{told}");
        assert!(told.contains("There is no other node to choose."), "{told}");
        assert!(!told.contains("Next to it"), "{told}");
    }

    #[test]
    fn a_young_group_speaks_of_what_it_may_spend() {
        let mut score = counters();
        score.budget.tcp = Budget {
            business_starts: 1,
            cold_available: 4,
            ..Budget::default()
        };
        score.tcp = Reasons::default();
        let told = paragraph(&score_group(known()), Some(&score));
        let words = "None of 1 flow so far was a trial of another node; there is credit for 4 more";
        assert!(told.contains(words), "{told}");
        assert!(!told.contains("moved"), "{told}");
    }

    #[test]
    fn other_policies_say_who_decided() {
        let mut group = group(&[("1", "hk"), ("2", "jp")]);
        for (policy, source, words) in [
            ("selector", "choice", "hk, which was chosen by hand"),
            ("selector", "default", "hk, its default"),
            ("urltest", "auto", "hk, which answers checks fastest"),
            ("fallback", "auto", "hk, the first member that was alive"),
            ("loadbalance", "auto", "hk, whose turn it is"),
            ("score", "pin", "hk, which is pinned until"),
            ("urltest", "last_resort", "hk, though that is dead"),
        ] {
            group.policy = policy.into();
            group.selection.tcp = sel(Some("hk"), Some("hk"), source);
            group.selection.udp = group.selection.tcp.clone();
            let told = paragraph(&group, None);
            assert!(
                told.starts_with(&format!("TCP flows go through {words}")),
                "{told}"
            );
            assert!(told.ends_with("UDP goes the same way."), "{told}");
        }
        group.selection.udp = sel(None, None, "none");
        group.selection.udp.refuse = Some("udp_incapable".into());
        let told = paragraph(&group, None);
        let words = "UDP flows are dropped, because what it selects carries no UDP.";
        assert!(told.ends_with(words), "{told}");
    }

    #[test]
    fn names_cannot_steer_the_terminal() {
        let mut group = score_group(known());
        group.name = "a\x1b[31m".into();
        group.selection.tcp = sel(Some("b\x1bc"), Some("b\x1bc"), "auto");
        assert!(!paragraph(&group, None).contains('\x1b'));
    }

    #[test]
    fn lines_break_between_words() {
        assert_eq!(broken("one two three", 7), "one two\nthree");
        assert_eq!(broken("incomprehensible to", 5), "incomprehensible\nto");
    }
}
