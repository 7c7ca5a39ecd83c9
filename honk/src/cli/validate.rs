//! `honk validate`: everything that is wrong with a configuration, in one run.

use std::io::Read as _;

use honk_grammar::diag::{Diagnostic, Severity};
use honk_policy::config::CODES;
use serde_json::{Value, json};

use super::{
    Invocation,
    args::{Dump, Format, Validate},
    dump::Understood,
    exit::{Exit, Failure},
    output::clean,
    sarif,
};
use crate::{
    api::doc::Diag,
    app::{
        diag::{Findings, short},
        source::{self, Outcome, Purpose},
        verdicts::Mode,
    },
    outbound,
};

/// Largest document taken from stdin.
const STDIN_LIMIT: u64 = 8 << 20;

/// Runs the command.
pub(crate) fn run(invocation: &Invocation, args: &Validate) -> Result<Exit, Failure> {
    known(&args.deny, Some("warnings"))?;
    known(&args.allow, None)?;
    if args.format == Format::Sarif && (args.explain || args.dump.is_some()) {
        let message = "`--format sarif` holds findings only, no `--dump` and no `--explain`";
        return Err(Failure::new(Exit::Usage, "usage", message));
    }
    let mut outcome = load(invocation, args)?;
    if args.build {
        build(&mut outcome);
    }
    let documents = outcome.findings.documents();
    let exit = verdict(&outcome, &documents, args);
    if args.format == Format::Sarif {
        invocation.out.text(&sarif::log(&documents).to_string())?;
        return ended(exit);
    }
    let understood = outcome.candidate.as_ref().map(|candidate| Understood {
        candidate,
        shares: &outcome.shares,
    });
    let json = invocation.out.json || args.format == Format::Json;
    if json {
        let data = document(&outcome, &documents, understood, args);
        return finish_json(invocation, exit, &data);
    }
    report(invocation, args, &outcome.findings, &documents);
    let shown = match (args.explain, args.dump, understood) {
        (true, _, Some(understood)) => Some(understood.explain()),
        (false, Some(what), Some(understood)) => Some(understood.text(what)),
        _ => None,
    };
    if let Some(text) = shown {
        // Names may be made of links.
        invocation.out.text(&honk_grammar::redact(&text))?;
    } else if !invocation.out.quiet {
        let tally = outcome.findings.tally();
        let word = if outcome.is_sound() {
            "valid"
        } else {
            "invalid"
        };
        invocation.out.text(&format!("{word}: {}", tally.words()))?;
    }
    ended(exit)
}

/// The verdict, when all there is to say was said.
fn ended(exit: Exit) -> Result<Exit, Failure> {
    match exit {
        Exit::Success => Ok(exit),
        _ => Err(Failure::silent(exit)),
    }
}

fn load(invocation: &Invocation, args: &Validate) -> Result<Outcome, Failure> {
    if args.stdin {
        let spec = invocation.spec_or_here();
        let mut text = Vec::new();
        std::io::stdin()
            .lock()
            .take(STDIN_LIMIT + 1)
            .read_to_end(&mut text)?;
        if text.len() as u64 > STDIN_LIMIT {
            let message = format!("stdin holds more than {STDIN_LIMIT} bytes");
            return Err(Failure::new(Exit::Config, "parse", message));
        }
        return Ok(source::load_text(&spec, "<stdin>", &text, Purpose::Check));
    }
    Ok(source::load(&invocation.spec()?, Purpose::Check, None))
}

/// Builds every node and adds what fails to the findings. Whether that costs the node or the
/// configuration is what `auto_disable` says.
fn build(outcome: &mut Outcome) {
    let Some(candidate) = &outcome.candidate else {
        return;
    };
    let severity = match Mode::of(&candidate.config) {
        Mode::Off => Severity::Error,
        Mode::Start | Mode::Always => Severity::Warning,
    };
    for node in candidate.groups.nodes() {
        if let Err(reason) = outbound::build::check(node) {
            let text = format!("{} cannot be built: {reason}", clean(&node.name));
            let finding = Diagnostic::new(severity, "", "node-rejected", None, text);
            outcome.findings.add(finding.about("node", &node.name));
        }
    }
}

/// Refuses codes that no finding has: a misspelt one would deny nothing.
fn known(codes: &[String], besides: Option<&str>) -> Result<(), Failure> {
    let legal = || CODES.iter().copied().chain(besides);
    let Some(bad) = codes.iter().find(|code| !legal().any(|l| l == *code)) else {
        return Ok(());
    };
    let near = honk_grammar::suggest(bad, legal());
    let near = match near.first() {
        Some(near) => format!("; did you mean `{near}`?"),
        None => "; the codes stand in brackets in the report".to_owned(),
    };
    let message = format!("no finding has the code `{}`{near}", clean(bad));
    Err(Failure::new(Exit::Usage, "usage", message))
}

/// 3 for errors, also those that only cost a listener; 10 for warnings that were denied.
fn verdict(outcome: &Outcome, documents: &[Diag], args: &Validate) -> Exit {
    if !outcome.is_sound() {
        return Exit::Config;
    }
    let allowed = |d: &Diag| args.allow.contains(&d.code);
    let all = args.strict || args.deny.iter().any(|code| code == "warnings");
    let denied = |d: &&Diag| match d.severity.as_str() {
        "warning" if all => !allowed(d),
        _ => args.deny.contains(&d.code) && !allowed(d),
    };
    if documents.iter().any(|d| denied(&d)) {
        Exit::Found
    } else {
        Exit::Success
    }
}

fn document(
    outcome: &Outcome,
    documents: &[Diag],
    understood: Option<Understood<'_>>,
    args: &Validate,
) -> Value {
    let tally = outcome.findings.tally();
    let mut data = json!({
        "ok": outcome.is_sound(),
        "errors": tally.errors,
        "warnings": tally.warnings,
        "notes": tally.notes,
        "at_least": tally.at_least,
        "diagnostics": documents,
    });
    if let Some(candidate) = &outcome.candidate {
        data["config_revision"] = json!(candidate.revision);
    }
    if let Some(understood) = understood {
        if let Some(what) = args.dump {
            data["dump"] = redacted(understood.value(what));
        }
        if args.explain {
            data["explain"] = redacted(understood.value(Dump::Resolved));
        }
    }
    data
}

/// The texts of a value without what they may give away: names may be made of links.
fn redacted(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(honk_grammar::redact(&text).into_owned()),
        Value::Array(list) => list.into_iter().map(redacted).collect(),
        Value::Object(map) => {
            let pair = |(key, value): (String, Value)| match key.as_str() {
                // The id of a node looks like the one of an account.
                "id" => (key, value),
                _ => (key, redacted(value)),
            };
            map.into_iter().map(pair).collect()
        }
        other => other,
    }
}

/// The report is the result also when the verdict is bad: it is printed as such, not as an
/// error document.
fn finish_json(invocation: &Invocation, exit: Exit, data: &Value) -> Result<Exit, Failure> {
    let none: [Value; 0] = [];
    invocation.out.document("validate/1", data, &none)?;
    ended(exit)
}

fn report(invocation: &Invocation, args: &Validate, findings: &Findings, documents: &[Diag]) {
    let quiet = invocation.out.quiet;
    if args.format == Format::Human {
        let least = if quiet {
            Severity::Error
        } else {
            Severity::Note
        };
        eprint!("{}", findings.human(least));
        return;
    }
    for d in documents.iter().filter(|d| !quiet || d.severity == "error") {
        eprintln!("{}", short(d));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::invocation;

    fn args(line: &[&str]) -> Validate {
        use clap::Parser as _;
        let line = ["honk", "validate"].iter().chain(line);
        match crate::cli::args::Cli::try_parse_from(line).unwrap().command {
            crate::cli::args::Command::Validate(args) => args,
            other => panic!("validate expected, not {other:?}"),
        }
    }

    fn exit(text: &str, line: &[&str]) -> Exit {
        let spec = invocation().spec_or_here();
        let outcome = source::load_text(&spec, "t.dae", text.as_bytes(), Purpose::Check);
        verdict(&outcome, &outcome.findings.documents(), &args(line))
    }

    const WARNED: &str = "global { lan_interface: lan0 }";

    #[test]
    fn errors_are_3_and_denied_warnings_10() {
        // Without a routing section there is a warning.
        assert_eq!(exit(WARNED, &[]), Exit::Success);
        assert_eq!(exit(WARNED, &["--strict"]), Exit::Found);
        assert_eq!(exit(WARNED, &["--deny", "warnings"]), Exit::Found);
        assert_eq!(exit(WARNED, &["--deny", "section-missing"]), Exit::Found);
        assert_eq!(exit(WARNED, &["--deny", "unknown-key"]), Exit::Success);
        let lenient = ["--strict", "--allow", "section-missing"];
        assert_eq!(exit(WARNED, &lenient), Exit::Success);
        assert_eq!(
            exit("global { tproxy_prot: 1 }", &["--strict"]),
            Exit::Config
        );
    }

    #[test]
    fn an_error_that_costs_a_listener_only_is_no_valid_configuration() {
        let rest = "global { lan_interface: lan0 } routing { fallback: direct }";
        for (keys, code) in [
            (
                "external_controller: '0.0.0.0:9090'\n secret: ''",
                "api-open",
            ),
            ("external_controller: 'foo'", "api-address"),
        ] {
            let text = format!("{rest} experimental {{ clash_api {{ {keys} }} }}");
            assert_eq!(exit(&text, &[]), Exit::Config, "{keys}");
            assert_eq!(exit(&text, &["--strict"]), Exit::Config, "{keys}");
            let spec = invocation().spec_or_here();
            let load = |purpose| source::load_text(&spec, "t.dae", text.as_bytes(), purpose);
            let checked = load(Purpose::Check);
            let documents = checked.findings.documents();
            assert!(documents.iter().any(|d| d.code == code), "{documents:?}");
            let data = document(&checked, &documents, None, &args(&[]));
            assert_eq!((&data["ok"], &data["errors"]), (&json!(false), &json!(1)));
            // The daemon goes on without that listener.
            assert!(load(Purpose::Run).candidate.is_some(), "{keys}");
        }
    }

    #[test]
    fn a_code_that_no_finding_has_is_a_usage_error_with_a_suggestion() {
        let bad = |codes: &[&str], besides| {
            let codes: Vec<String> = codes.iter().map(|c| (*c).to_owned()).collect();
            known(&codes, besides).map_err(|e| (e.exit, e.message))
        };
        assert_eq!(bad(&["not-built", "warnings"], Some("warnings")), Ok(()));
        let (exit, message) = bad(&["not-built", "unknown-kye"], None).unwrap_err();
        assert_eq!(exit, Exit::Usage);
        assert!(message.contains("did you mean `unknown-key`"), "{message}");
        assert!(bad(&["warnings"], None).is_err());
        assert!(CODES.is_sorted() && CODES.contains(&source::NO_LAN));
    }

    #[test]
    fn nodes_are_built_where_that_is_asked_for() {
        let spec = invocation().spec_or_here();
        for (global, ok, exit) in [
            ("", true, Exit::Found),
            ("auto_disable: off", false, Exit::Config),
        ] {
            let text = format!(
                "global {{ lan_interface: lan0 {global} }} routing {{ fallback: direct }}
                 node {{ good: 'socks5://192.0.2.1:1080' bad: 'socks5://0.0.0.0:1080' }}"
            );
            let load = || source::load_text(&spec, "t.dae", text.as_bytes(), Purpose::Check);
            let mut outcome = load();
            build(&mut outcome);
            let documents = outcome.findings.documents();
            let about: Vec<&Diag> = documents
                .iter()
                .filter(|d| d.code == "node-rejected")
                .collect();
            assert_eq!(about.len(), 1, "{documents:?}");
            assert!(
                about[0].message.contains("bad cannot be built"),
                "{documents:?}"
            );
            assert_eq!(outcome.is_sound(), ok, "{global}");
            let deny = args(&["--build", "--deny", "node-rejected"]);
            assert_eq!(verdict(&outcome, &documents, &deny), exit, "{global}");
            assert!(load().is_sound(), "nothing is built unasked");
        }
    }

    const PICTURE: &str = "global { lan_interface: lan0 }
node { a: 'socks5://192.0.2.1:1080' b: 'http://192.0.2.2:80' }
group { inner { filter: name(a) } outer { filter: name(keyword: b) filter: group(inner)
  default: gone final: block } }
routing { dport(80) && !sip(10.0.0.0/8) -> outer(must) dport(81) -> a fallback: direct }";

    #[test]
    fn the_picture_shows_files_members_filters_and_ordinals() {
        let spec = invocation().spec_or_here();
        let outcome = source::load_text(&spec, "t.dae", PICTURE.as_bytes(), Purpose::Check);
        let understood = Understood {
            candidate: outcome.candidate.as_ref().unwrap(),
            shares: &outcome.shares,
        };
        let text = understood.explain();
        for line in [
            "2 nodes, 3 groups, 3 rule lines",
            "  t.dae\n       global 1, node 2, group 2, routing 3\n",
            "    2  inner (selector)\n",
            "    3  outer (selector)\n",
            "       filter   name(keyword: 'b')\n       filter   group('inner')\n",
            "       members  b, inner (group)\n",
            "       default  gone (not a member)\n",
            "       final    block\n",
            "       selects  tcp b, udp",
            "    4  a (a node that a rule names)\n",
            "     0    3  dport(80) && !sip(10.0.0.0/8) -> outer(must)  => outer (must)\n",
            "     1    4  dport(81) -> a  => a\n",
            "     2    0  fallback: direct  => direct\n",
        ] {
            assert!(text.contains(line), "{line:?} in:\n{text}");
        }
        let value = understood.value(Dump::Resolved);
        assert_eq!(value["sections"][0]["sections"][1]["items"], 2);
        assert_eq!(value["groups"][1]["nested"], json!(["inner"]));
        assert_eq!(value["groups"][1]["default_known"], false);
        assert_eq!(value["rules"][0]["slot"], 3);
        assert_eq!(value["sections"], understood.value(Dump::Sections));
    }

    #[test]
    fn names_made_of_links_lose_their_paths() {
        let text = "global { lan_interface: lan0 } routing { fallback: direct }
            node { 'https://h.example/s3cret': 'socks5://192.0.2.1:1080' }
            group { g { filter: name('https://h.example/s3cret') } }";
        let spec = invocation().spec_or_here();
        let outcome = source::load_text(&spec, "t.dae", text.as_bytes(), Purpose::Check);
        let understood = outcome.candidate.as_ref().map(|candidate| Understood {
            candidate,
            shares: &outcome.shares,
        });
        let documents = outcome.findings.documents();
        let id = outcome.candidate.as_ref().map(|c| c.config.nodes[0].id.0);
        let id = id.unwrap().to_string();
        for line in [vec!["--explain"], vec!["--dump", "nodes"]] {
            let data = document(&outcome, &documents, understood, &args(&line));
            let shown = data.to_string();
            assert!(!shown.contains("s3cret"), "{shown}");
            assert!(shown.contains("h.example/***"), "{shown}");
            assert!(line[0] != "--dump" || shown.contains(&id), "{shown}");
        }
    }

    #[test]
    fn a_section_behind_a_broken_one_is_not_called_missing() {
        let spec = invocation().spec_or_here();
        for text in [
            "global { lan_interface: lan0\nrouting { fallback: direct }",
            "global { lan_interface: lan0 }\nnode { a: ( }\nrouting { fallback: => }",
        ] {
            let outcome = source::load_text(&spec, "t.dae", text.as_bytes(), Purpose::Check);
            let found = outcome.findings.documents();
            let missing = found.iter().any(|d| d.code == "section-missing");
            assert!(!found.is_empty() && !missing, "{found:?}");
        }
    }

    #[test]
    fn what_is_not_built_warns_here_and_is_refused_by_run() {
        let text = "global { lan_interface: lan0 }\nrouting { fallback: direct }\n\
                    dns { upstream { a: 'udp://192.0.2.1:53' } }";
        let spec = invocation().spec_or_here();
        let load = |purpose| source::load_text(&spec, "t.dae", text.as_bytes(), purpose);
        let checked = load(Purpose::Check);
        assert!(checked.candidate.is_some(), "{:?}", checked.findings);
        assert!(checked.findings.tally().warnings > 0);
        assert!(load(Purpose::Run).candidate.is_none());
    }
}
