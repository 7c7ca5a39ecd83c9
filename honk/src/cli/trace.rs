//! `honk trace flow`: decisions about new flows as they are taken.

use std::time::Duration;

use super::{
    Session,
    args::{Flow, Trace},
    exit::{Exit, Failure},
    lookup,
    output::{Output, clean},
};
use crate::api::doc::{Decision, Endpoint};

/// Runs one of the subcommands.
pub(crate) async fn run(session: &Session, command: Trace) -> Result<Exit, Failure> {
    let Trace::Flow(args) = command;
    let time = args.duration.unwrap_or(Duration::MAX);
    // Ctrl-C ends the process; the daemon notices and stops telling.
    match tokio::time::timeout(time, follow(session, &args)).await {
        Ok(result) => result.map(|()| Exit::Success),
        Err(_) => Ok(Exit::Success),
    }
}

async fn follow(session: &Session, args: &Flow) -> Result<(), Failure> {
    let mut left = args.count.unwrap_or(u64::MAX);
    if left == 0 {
        return Ok(());
    }
    let mut lines = session.client.follow(&path(args)).await?;
    let mut event = String::new();
    while let Some(line) = lines.next().await? {
        if let Some(name) = line.strip_prefix("event: ") {
            event = name.to_owned();
            continue;
        }
        if line == ": watching" {
            session.out.note("watching; Ctrl-C ends it");
        }
        let Some(data) = line.strip_prefix("data: ") else {
            continue;
        };
        if event == "dropped" {
            session
                .out
                .note(&format!("missed some: {data}; narrow the filter"));
            continue;
        }
        if session.out.json {
            session.out.text(data)?;
        } else {
            let decision: Decision = serde_json::from_str(data).map_err(|e| {
                let text = format!("an event is not what this client expects: {e}");
                Failure::new(Exit::Failure, "bad_answer", text)
            })?;
            session.out.text(&sentence(&session.out, &decision))?;
        }
        left -= 1;
        if left == 0 {
            return Ok(());
        }
    }
    let text = "honk ended while it was watched";
    Err(Failure::new(Exit::Unreachable, "unreachable", text))
}

fn path(args: &Flow) -> String {
    let query = lookup::pairs(&args.flows, &[]);
    format!("/api/v1/trace/flows?{}", query.join("&"))
}

/// One line: when, who, where to, what became of it, and why.
fn sentence(out: &Output, d: &Decision) -> String {
    let time = d.at.get(11..23).unwrap_or(&d.at);
    let color = match d.verdict.as_str() {
        "direct" => "32",
        "block" | "drop" => "31",
        "proxy" => "36",
        _ => "2",
    };
    let mut target = endpoint(&d.dst);
    if let Some(host) = &d.host {
        target.push_str(&format!(" ({})", clean(host)));
    }
    let way = match (&d.outbound, d.chain.as_slice()) {
        (_, [_, ..]) if d.verdict == "proxy" => format!(" {}", clean(&d.chain.join(" > "))),
        (Some(name), _) if d.verdict == "proxy" || d.verdict == "drop" => {
            format!(" {}", clean(name))
        }
        _ => String::new(),
    };
    let rule = d.rule.as_ref().map_or_else(
        || "no rule".to_owned(),
        |r| format!("line {} `{}`", r.line, clean(r.text.trim())),
    );
    let process = d
        .process
        .as_ref()
        .map_or_else(String::new, |p| format!(" {}[{}]", clean(&p.name), p.pid));
    format!(
        "{time} {:9} {} {}{process} -> {target}: {}{way} [{}] #{} {rule}{}",
        d.stage,
        d.network,
        endpoint(&d.src),
        out.paint(color, &d.verdict),
        d.reason,
        d.ordinal,
        if d.must { " must" } else { "" },
    )
}

fn endpoint(e: &Endpoint) -> String {
    if e.ip.contains(':') {
        format!("[{}]:{}", e.ip, e.port)
    } else {
        format!("{}:{}", e.ip, e.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::Flows;

    #[test]
    fn a_decision_is_one_line() {
        let json = r#"{"at":"2026-01-02T03:04:05.678Z","stage":"kernel","network":"tcp",
            "src":{"ip":"10.0.0.2","port":1},"dst":{"ip":"2001:db8::1","port":443},
            "host":"a.test","host_source":"dns","process":null,"own":false,
            "rule":{"index":0,"text":"domain(a.test) -> proxy","file":"c.dae","line":7},
            "must":true,"ordinal":2,"outbound":"proxy","chain":[],"verdict":"proxy",
            "reason":"rule"}"#;
        let decision: Decision = serde_json::from_str(json).unwrap();
        let out = Output {
            json: false,
            color: false,
            quiet: false,
            width: None,
        };
        assert_eq!(
            sentence(&out, &decision),
            "03:04:05.678 kernel    tcp 10.0.0.2:1 -> [2001:db8::1]:443 (a.test): proxy proxy \
             [rule] #2 line 7 `domain(a.test) -> proxy` must"
        );
    }

    #[test]
    fn filters_become_a_query() {
        let args = Flow {
            flows: Flows {
                src: Some("10.0.0.0/8".to_owned()),
                group: Some("a b".to_owned()),
                rule: Some(3),
                ..Flows::default()
            },
            count: None,
            duration: None,
        };
        let path = path(&args);
        assert!(
            path.contains("src=10.0.0.0%2F8") && path.ends_with("&rule=3"),
            "{path}"
        );
        assert!(
            path.contains("group=a%20b") || path.contains("group=a+b"),
            "{path}"
        );
    }
}
