//! What a running daemon tells, or why there is none.

use super::super::{Check, facts::Facts};

/// Share of a map above which it counts as nearly full, in percent.
const FULL: u64 = 90;

/// Counters that rise when a packet could not be served, and what that means.
const DROPS: [(&str, &str); 4] = [
    (
        "flow_overflow",
        "new flows found the flow table full; raise bpf_conn_state_map_size",
    ),
    (
        "return_overflow",
        "new clients found the table of clients full",
    ),
    ("lookup_nosock", "flows met no listener; restart honk"),
    (
        "change_head_fail",
        "packets of a header-less interface could not be handed over",
    ),
];

/// Most names in one sentence.
const SHOWN: usize = 5;

pub(super) fn daemon(facts: &Facts) -> Check {
    const ID: &str = "daemon";
    if let Some(alive) = &facts.daemon {
        let s = &alive.status;
        let text = format!("honk {} runs (pid {}): {}", s.version, s.pid, s.state);
        return match s.reasons.first() {
            None => Check::ok(ID, text),
            Some(why) => Check::warn(
                ID,
                format!("{text}: {}", why.message),
                "see the checks below",
            ),
        };
    }
    match facts.holder {
        Some(pid) => Check::fail(
            ID,
            format!(
                "honk (pid {pid}) holds {} but does not answer: {}",
                facts.lock.display(),
                facts.silence
            ),
            "wait while it starts; else look at its log, then restart it (kill -QUIT dumps its state)",
        ),
        None if facts.blocking => Check::fail(
            ID,
            "honk died, and its hooks keep blocking everything that is not direct (on_crash: block)",
            "start honk again, or let everything pass with `honk cleanup --yes`",
        ),
        None => Check::fail(
            ID,
            format!("honk does not run: {}", facts.silence),
            "start it: systemctl start honk, or honk run",
        ),
    }
}

pub(super) fn gate(facts: &Facts) -> Check {
    const ID: &str = "gate";
    let Some(alive) = &facts.daemon else {
        return Check::skip(ID, "no daemon");
    };
    match (alive.status.state.as_str(), alive.datapath.gate.as_str()) {
        ("suspended", _) => {
            Check::warn(ID, "honk is suspended: new flows go direct", "honk resume")
        }
        (_, "open") => Check::ok(ID, "open: flows are judged"),
        (state, gate) => Check::fail(
            ID,
            format!("the gate is {gate} while honk is {state}: flows pass unjudged"),
            "look at the log of honk; `honk reload` opens it again",
        ),
    }
}

pub(super) fn maps(facts: &Facts) -> Check {
    const ID: &str = "maps";
    let Some(alive) = &facts.daemon else {
        return Check::skip(ID, "no daemon");
    };
    let maps = &alive.datapath.maps;
    let full = maps.iter().find(|m| {
        m.capacity > 0 && m.entries.saturating_mul(100) >= m.capacity.saturating_mul(FULL)
    });
    if let Some(m) = full {
        return Check::fail(
            ID,
            format!(
                "map {} is nearly full: {} of {}",
                m.name, m.entries, m.capacity
            ),
            "raise bpf_conn_state_map_size and restart; look for a client that floods with `honk conn list`",
        );
    }
    let fill = maps
        .iter()
        .map(|m| format!("{} {}/{}", m.name, m.entries, m.capacity));
    Check::ok(ID, fill.collect::<Vec<_>>().join(", "))
}

pub(super) fn drops(facts: &Facts) -> Check {
    const ID: &str = "drops";
    let Some(alive) = &facts.daemon else {
        return Check::skip(ID, "no daemon");
    };
    let counters = &alive.datapath.counters;
    let risen: Vec<(u64, &str, &str)> = DROPS
        .iter()
        .filter_map(|(name, meaning)| {
            let count = counters.get(*name).copied().filter(|n| *n > 0)?;
            Some((count, *name, *meaning))
        })
        .collect();
    match risen.first() {
        None => Check::ok(ID, "nothing was dropped for lack of room"),
        Some((count, name, meaning)) => Check::warn(
            ID,
            format!("{name} is {count} since the start"),
            (*meaning).to_owned(),
        ),
    }
}

pub(super) fn nodes(facts: &Facts) -> Check {
    const ID: &str = "nodes";
    let Some(alive) = &facts.daemon else {
        return Check::skip(ID, "no daemon");
    };
    let nodes: Vec<_> = alive.nodes.iter().filter(|n| !n.builtin).collect();
    let dead = nodes.iter().filter(|n| n.state == "dead").count();
    if nodes.is_empty() {
        return Check::warn(
            ID,
            "there are no nodes: nothing can be proxied",
            "add a node or a subscription, or look at `honk sub list`",
        );
    }
    if dead == nodes.len() {
        return Check::fail(
            ID,
            format!(
                "no node answers ({dead} of {dead} are dead): proxied destinations are unreachable"
            ),
            "check the WAN, the servers and their credentials; `honk node list` shows each, the log at debug shows why dials fail",
        );
    }
    Check::ok(
        ID,
        format!(
            "{} of {} are alive or unasked",
            nodes.len() - dead,
            nodes.len()
        ),
    )
}

pub(super) fn groups(facts: &Facts) -> Check {
    const ID: &str = "groups";
    let Some(alive) = &facts.daemon else {
        return Check::skip(ID, "no daemon");
    };
    let refusing: Vec<String> = alive
        .groups
        .iter()
        .filter_map(|g| {
            let why = g.selection.tcp.refuse.as_ref()?;
            Some(format!("{} ({why})", g.name))
        })
        .collect();
    if refusing.is_empty() {
        return Check::ok(
            ID,
            format!(
                "all {} have somebody to send TCP through",
                alive.groups.len()
            ),
        );
    }
    Check::warn(
        ID,
        format!("TCP flows are refused by {}", listed(&refusing)),
        "`honk group show GROUP` shows the members; `final:` names what serves when none can",
    )
}

pub(super) fn subscriptions(facts: &Facts) -> Check {
    const ID: &str = "subscriptions";
    let Some(alive) = &facts.daemon else {
        return Check::skip(ID, "no daemon");
    };
    let bad = |s: &&crate::api::doc::Subscription| matches!(s.state.as_str(), "failed" | "stale");
    let failed: Vec<String> = alive
        .subscriptions
        .iter()
        .filter(bad)
        .map(|s| {
            let why = s.error.as_ref().map_or("no reason", |e| e.message.as_str());
            format!("{} ({}: {why})", s.tag, s.state)
        })
        .collect();
    if failed.is_empty() {
        return Check::ok(ID, format!("{} in order", alive.subscriptions.len()));
    }
    Check::warn(
        ID,
        format!("could not be fetched: {}", listed(&failed)),
        "`honk sub refresh TAG` tries again and says what happens",
    )
}

/// The first few, and how many more.
fn listed(names: &[String]) -> String {
    let shown = names
        .iter()
        .take(SHOWN)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
