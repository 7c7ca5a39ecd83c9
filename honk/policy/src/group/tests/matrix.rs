//! The selector matrix of the test plan with nested groups and all finals, against a model that
//! follows the text of the pipeline.

use super::*;
use crate::group::Scope;

/// What stands between a selector and its chosen member.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Member {
    Exists,
    Vanished,
    Dead,
    NestedDead,
    Incapable,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    Choice,
    Default,
    First,
}

const FINALS: [Option<&str>; 5] = [None, Some("direct"), Some("spare"), Some("gone"), Some("g")];

/// Nodes: 1 first, 2 target, 3 carries no UDP, 4 dead, 5 spare (dead).
fn nodes() -> Vec<Node> {
    vec![
        socks(1, "one"),
        socks(2, "two"),
        http(3, "tcp-only"),
        socks(4, "dead"),
        socks(5, "spare"),
    ]
}

fn expected(by: By, what: Member, network: Network, last: Option<&str>) -> Result<u128, Refuse> {
    // A choice or default that vanished falls through to the first member, which is alive.
    let obstacle = match (what, network) {
        (Member::Vanished, _) if by == By::First => return Ok(2),
        (Member::Vanished, _) => return Ok(1),
        (Member::Exists, _) => return Ok(if by == By::First { 1 } else { 2 }),
        (Member::Dead | Member::NestedDead, _) => Refuse::AllDead,
        (Member::Incapable, Network::Udp) => Refuse::UdpIncapable,
        (Member::Incapable, Network::Tcp) => return Ok(3),
    };
    match last {
        None => Err(obstacle),
        Some("direct") => Ok(0),
        // The final node is dead itself.
        Some("spare") => Err(obstacle),
        Some("gone") => Err(Refuse::FinalMissing),
        Some(_) => Err(Refuse::FinalCycle),
    }
}

#[test]
fn every_row_is_what_the_pipeline_says() {
    for by in [By::Choice, By::Default, By::First] {
        for what in [
            Member::Exists,
            Member::Vanished,
            Member::Dead,
            Member::NestedDead,
            Member::Incapable,
        ] {
            for last in FINALS {
                let target = match what {
                    Member::Exists | Member::Vanished => "two",
                    Member::Dead => "dead",
                    Member::NestedDead => "nest",
                    Member::Incapable => "tcp-only",
                };
                row(by, what, target, last);
            }
        }
    }
}

fn row(by: By, what: Member, target: &str, last: Option<&str>) {
    // For `first` the target comes first; nodes keep the order of the configuration.
    let mut all_nodes = nodes();
    let lead: &[&str] = match (by, what) {
        (By::First, Member::NestedDead) => &[],
        (By::First, Member::Exists) => &["one", "two"],
        (By::First, _) => &[target],
        _ => &["one", target],
    };
    let lead: Vec<&str> = lead.iter().copied().filter(|n| *n != "nest").collect();
    let lines = [names(&lead), groups_line(&["nest", "other"])];
    let mut def = group("g", lines);
    def.final_ = last.map(str::to_owned);
    if by == By::Default {
        def = def.default(target);
    }
    let groups = [def, of("nest", &["dead"]), of("other", &["two"])];
    let mut builder = Builder::default();
    let (mut table, _) = builder.build(&all_nodes, &groups, None);
    if by == By::Choice {
        let g = at(&table, "g");
        let member = g.member_named(target).expect("a member").id();
        table = table.choose(g.id, Scope::Both, member, NOW).unwrap().table;
    }
    if what == Member::Vanished {
        let gone = all_nodes
            .iter()
            .position(|n| n.name == target)
            .expect("a node");
        all_nodes.remove(gone);
        // Somebody else is first then, for `first` the nested group that leads to nobody.
        let other = groups.clone().map(|g| {
            if g.name == "other" {
                of("other", &["one"])
            } else {
                g
            }
        });
        table = builder.build(&all_nodes, &other, Some(&table)).0;
        if by == By::First {
            return;
        }
    }
    let table = told(&table, &Seen::default().tcp(4, DOWN).tcp(5, DOWN)).table;
    for network in [Network::Tcp, Network::Udp] {
        let case = format!("{by:?} {what:?} {network:?} {last:?}");
        assert_eq!(
            leaf(&table, "g", network),
            expected(by, what, network, last),
            "{case}"
        );
    }
}
