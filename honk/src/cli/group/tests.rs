use super::*;
use crate::api::doc::{Elig, Member, Traffic};

pub(in crate::cli) fn sel(member: Option<&str>, leaf: Option<&str>, source: &str) -> Sel {
    Sel {
        member_id: member.map(str::to_owned),
        member_name: member.map(str::to_owned),
        leaf_id: leaf.map(str::to_owned),
        leaf_name: leaf.map(str::to_owned),
        path: vec![],
        alive: true,
        delay_ms: None,
        since: None,
        source: source.to_owned(),
        pinned: false,
        pinned_at: None,
        final_used: None,
        refuse: None,
    }
}

pub(in crate::cli) fn group(members: &[(&str, &str)]) -> Group {
    let elig = Elig {
        ok: true,
        reason: None,
    };
    let member = |(index, (id, name)): (usize, &(&str, &str))| Member {
        id: (*id).to_owned(),
        kind: "node".to_owned(),
        name: (*name).to_owned(),
        index,
        duplicate_name: false,
        eligible: PerNet {
            tcp: elig.clone(),
            udp: elig.clone(),
        },
        delay_ms: None,
        leaf: None,
    };
    Group {
        id: "g".into(),
        name: "proxy".into(),
        policy: "selector".into(),
        ordinal: 2,
        slot: 2,
        implicit: false,
        icon: None,
        default: None,
        default_member_id: None,
        filters: vec![],
        dropped_members: vec![],
        final_: None,
        check_url: None,
        check_interval_s: None,
        tolerance_ms: None,
        tolerance_source: "default".into(),
        idle_timeout_s: None,
        idle_timeout_effective_s: 1800,
        interrupt_connections: false,
        members: members.iter().enumerate().map(member).collect(),
        leaf_count: members.len(),
        selection: PerNet {
            tcp: sel(None, None, "none"),
            udp: sel(None, None, "none"),
        },
        selection_revision: 0,
        score_verification: None,
        revision: "g-0".into(),
        traffic: Traffic::default(),
        warnings: vec![],
    }
}

#[test]
fn an_ambiguous_name_lists_the_ids_unless_the_first_is_wanted() {
    let group = group(&[("1", "hk"), ("2", "jp"), ("3", "hk")]);
    assert_eq!(member_id(&group, "jp", false).unwrap(), "2");
    assert_eq!(member_id(&group, "3", false).unwrap(), "3");
    assert_eq!(member_id(&group, "hk", true).unwrap(), "1");
    let failure = member_id(&group, "hk", false).unwrap_err();
    assert_eq!(failure.exit, Exit::Conflict);
    assert_eq!(failure.details, Some(json!({"ids": ["1", "3"]})));
    assert_eq!(
        member_id(&group, "x", false).unwrap_err().exit,
        Exit::NotFound
    );
}

#[test]
fn only_explicit_choices_get_the_star() {
    let marked = |tcp: &str, udp: &str| {
        let (tcp, udp) = (sel(Some("a"), None, tcp), sel(Some("a"), None, udp));
        mark("a", &PerNet { tcp, udp })
    };
    assert_eq!(marked("choice", "choice"), "*");
    assert_eq!(marked("first", "default"), ">");
    assert_eq!(marked("choice", "first"), "t*u>");
    let apart = PerNet {
        tcp: sel(Some("a"), None, "first"),
        udp: sel(Some("b"), None, "choice"),
    };
    assert_eq!(
        (mark("a", &apart), mark("b", &apart)),
        ("t>".into(), "u*".into())
    );
    assert_eq!(mark("c", &apart), "");
    assert!(sentence("udp_incapable", "h").starts_with("h carries no UDP"));
}

#[test]
fn selections_read_from_the_outside_in() {
    assert_eq!(
        selection(&sel(Some("hk"), Some("HK 03"), "choice")),
        "hk > HK 03 *"
    );
    assert_eq!(selection(&sel(Some("a"), Some("a"), "first")), "a");
    let mut with_final = sel(None, Some("direct"), "final");
    with_final.final_used = Some("direct".into());
    assert_eq!(selection(&with_final), "final direct");
    let mut none = sel(None, None, "none");
    none.refuse = Some("no_member".into());
    assert_eq!(selection(&none), "- (no_member)");
}

#[test]
fn a_score_group_says_how_sure_it_is() {
    let known = ScoreVerification {
        state: "provisional".into(),
        ..ScoreVerification::default()
    };
    let mut sel = sel(Some("hk"), Some("HK 03"), "auto");
    assert_eq!(with_state(&sel, Some(&known)), "hk > HK 03 [provisional]");
    assert_eq!(with_state(&sel, None), "hk > HK 03");
    sel.refuse = Some("all_dead".into());
    assert_eq!(with_state(&sel, Some(&known)), "- (all_dead)");
}
