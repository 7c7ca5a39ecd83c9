//! Limits are errors, never cuts, and tables hold nothing superfluous.

use honk_common::limits::{MAX_CLASSES, MAX_RULES};

use super::*;
use crate::routing::{CompileError, rule::DomainTest};

// T71
#[test]
fn last_of_1024_lines_matches_and_1025_are_refused() {
    let port = |p: u16| line([is(Test::DestPort(vec![(p, p)]))], 2);
    let mut lines: Vec<RuleLine> = (0..MAX_RULES as u16 - 1).map(port).collect();
    let full = rules(lines.clone());
    assert_eq!(verdict(&full, &to("1.1.1.1", 1022)).rule, 1022);
    assert_eq!(verdict(&full, &to("1.1.1.1", 1023)).rule, 1023);
    lines.push(port(9));
    let error = compile(&rules(lines)).unwrap_err();
    assert_eq!(error, CompileError::Rules(1025));
    assert_eq!(error.number(), "E608");
}

#[test]
fn too_many_classes_are_refused_with_their_count() {
    // 13 lines, each with the ports whose number has one bit: 8,192 combinations.
    let lines: Vec<RuleLine> = (0..13)
        .map(|bit| {
            let ports = (0..8192u16).filter(|p| p >> bit & 1 == 1);
            line([is(Test::DestPort(ports.map(|p| (p, p)).collect()))], 2)
        })
        .collect();
    let Err(CompileError::Classes(count)) = compile(&rules(lines)) else {
        panic!("accepted");
    };
    assert!(count >= 8192, "{count} of {MAX_CLASSES}");
}

#[test]
fn too_many_domain_calls_are_refused() {
    let name = || is(Test::Domain(vec![DomainTest::Full("a".into())]));
    let conds: Vec<Cond> = (0..1025).map(|_| name()).collect();
    let error = compile(&rules([line(conds, 2)])).unwrap_err();
    assert_eq!(error, CompileError::DomainCalls(1025));
}

#[test]
fn too_many_mac_addresses_are_refused() {
    let mac = |i: u16| [2, 0, 0, 0, (i >> 8) as u8, i as u8];
    let macs = |n| rules([line([is(Test::Mac((0..n).map(mac).collect()))], 2)]);
    assert!(compile(&macs(8192)).is_ok());
    assert_eq!(compile(&macs(8193)).unwrap_err(), CompileError::Macs(8193));
}

#[test]
fn too_many_process_names_are_refused() {
    let name = |i: u16| padded(&format!("p{i}"));
    let names = |n| rules([line([is(Test::ProcessName((0..n).map(name).collect()))], 2)]);
    assert_eq!(compile(&names(2048)).unwrap().pname.len(), 2048);
    assert_eq!(
        compile(&names(2049)).unwrap_err(),
        CompileError::Processes(2049)
    );
}

#[test]
fn rules_without_a_final_fallback_are_refused() {
    let conditional = line([is(Test::DestPort(vec![(1, 1)]))], 2);
    for lines in [vec![], vec![conditional], vec![must_rules([])]] {
        let error = compile(&RuleSet { lines }).unwrap_err();
        assert_eq!(error, CompileError::Fallback);
    }
}

#[test]
fn prefix_that_answers_like_its_cover_is_left_out() {
    let set = rules([
        line([is(dip(&["10.0.0.0/8", "10.1.0.0/16"]))], 2),
        line([is(dip(&["10.2.0.0/16"]))], 3),
    ]);
    let tables = compile(&set).unwrap();
    let lens: Vec<u32> = tables.dest.iter().map(|(k, _)| k.prefix_len - 96).collect();
    assert_eq!(lens, [8, 16]);
}

#[test]
fn same_set_in_many_lines_makes_two_classes() {
    let nets = || is(dip(&["10.0.0.0/8", "172.16.0.0/12"]));
    let ports: Vec<RuleLine> = (2..100).map(|o| line([nets()], o)).collect();
    let tables = compile(&rules(ports)).unwrap();
    assert_eq!(tables.dest.len(), 2);
    // All lines (inside, and every unused dimension), outside, and the empty class.
    assert_eq!(tables.classes.len(), 3);
}

#[test]
fn only_used_dimensions_are_flagged() {
    use honk_common::route::{DIM_DOMAIN, DIM_DPORT, DIM_PNAME, DIM_PROTO};
    let set = rules([line(
        [
            is(Test::DestPort(vec![(1, 2)])),
            is(Test::IpVersion {
                v4: true,
                v6: false,
            }),
            is(Test::Domain(vec![DomainTest::Full("a".into())])),
            is(Test::ProcessName(vec![padded("x")])),
        ],
        2,
    )]);
    let dims = DIM_DPORT | DIM_PROTO | DIM_DOMAIN | DIM_PNAME;
    assert_eq!(compile(&set).unwrap().meta.dims, dims);
}

#[test]
fn actions_carry_flags_marks_and_source_lines() {
    use honk_common::route::{ACT_FALLBACK, ACT_MUST, ACT_MUST_RULES};
    let mut marked = must(line([], 4));
    marked.action.mark = 9;
    marked.line = 77;
    let tables = compile(&rules([marked, must_rules([])])).unwrap();
    let first = tables.acts[0];
    assert_eq!((first.ordinal, first.flags, first.rule), (4, ACT_MUST, 0));
    assert_eq!((first.mark, first.source_line), (9, 77));
    assert_eq!(tables.acts[1].flags, ACT_MUST_RULES);
    assert_eq!(
        (tables.acts[2].flags, tables.acts[2].rule),
        (ACT_FALLBACK, 2)
    );
}

#[test]
fn host_bits_and_overlong_lengths_do_no_harm() {
    let odd = Prefix {
        len: 200,
        ..net("10.1.2.3/8")
    };
    let set = rules([
        line([is(Test::Dest(vec![odd]))], 2),
        line([is(dip(&["10.1.2.3/8"]))], 3),
    ]);
    assert_eq!(outbound(&set, &to("10.1.2.3", 1)), 2);
    assert_eq!(outbound(&set, &to("10.9.9.9", 1)), 3);
}
