//! `honk sub test`: what a body holds, without a daemon.

use std::{
    io::{self, Read as _},
    path::Path,
};

use honk_grammar::diag::Diagnostic;
use honk_policy::subscription::{self, Body, Format, MAX_BODY};
use serde_json::json;

use super::super::{
    exit::{Exit, Failure},
    output::{Output, clean},
    plural,
    table::{Align, Table},
};
use crate::{
    app::diag::{placeless, short},
    state::file::open_regular,
};

/// `honk sub test`
pub(in crate::cli) fn test(out: &Output, source: &Path, format: &str) -> Result<Exit, Failure> {
    let text = source.to_str().unwrap_or_default();
    if let Some((scheme @ ("http" | "https"), _)) = text.split_once("://") {
        // The rest of the URL is a credential: what a shell was told stays in its history.
        let text = format!(
            "{scheme} is not fetched here; pipe the body in: `curl -K - | honk sub test -`"
        );
        return Err(Failure::new(Exit::Usage, "usage", text));
    }
    let bytes = content(source).map_err(|e| {
        let (exit, help) = match e.kind() {
            // As `validate` says of a file.
            io::ErrorKind::NotFound => (Exit::Config, ""),
            io::ErrorKind::InvalidInput => {
                (Exit::Config, "; pipe the body in: `... | honk sub test -`")
            }
            io::ErrorKind::PermissionDenied => (Exit::Permission, ""),
            _ => (Exit::Failure, ""),
        };
        let text = format!("{}: {e}{help}", source.display());
        Failure::new(exit, "unreadable", text)
    })?;
    let body = subscription::parse(&bytes, Format::from_name(format)).map_err(|e| {
        Failure::new(
            Exit::Found,
            "unusable",
            format!("{}: {e}", source.display()),
        )
    })?;
    let findings = body.findings("");
    if out.json {
        let warnings: Vec<_> = findings.iter().map(placeless).collect();
        out.document("sub.test/1", &document(&body), &warnings)?;
    } else {
        out.text(&tested(out, &body, &findings))?;
    }
    Ok(match findings.is_empty() {
        true => Exit::Success,
        false => Exit::Found,
    })
}

/// At most one byte more than a body may have: the parser tells the rest.
fn content(source: &Path) -> io::Result<Vec<u8>> {
    let limit = MAX_BODY as u64 + 1;
    let mut bytes = Vec::new();
    match source.to_str() {
        Some("-") => io::stdin().lock().take(limit).read_to_end(&mut bytes)?,
        _ => open_regular(source)?
            .0
            .take(limit)
            .read_to_end(&mut bytes)?,
    };
    Ok(bytes)
}

fn document(body: &Body) -> serde_json::Value {
    let nodes: Vec<_> = body
        .members
        .iter()
        .map(|m| {
            json!({
                "id": m.node.id.0.to_string(),
                "name": m.node.name,
                "protocol": m.node.protocol.name(),
                "built": m.node.protocol.built(),
                "link": m.is_link,
            })
        })
        .collect();
    let skipped = body.skipped();
    let skipped = skipped
        .iter()
        .map(|(entries, reason)| json!({ "entries": entries, "reason": reason }));
    json!({
        "format": body.format.name(),
        "nodes": nodes,
        "entries": body.counts.entries,
        "cut": body.counts.cut,
        "duplicates": body.counts.duplicate,
        "skipped": skipped.collect::<Vec<_>>(),
    })
}

fn tested(out: &Output, body: &Body, findings: &[Diagnostic]) -> String {
    let mut table = Table::new(&[
        ("NODE", Align::Left),
        ("PROTOCOL", Align::Left),
        ("NETWORK", Align::Left),
        ("USABLE", Align::Left),
    ]);
    for member in &body.members {
        let protocol = &member.node.protocol;
        let usable = match (member.is_link, protocol.built()) {
            (true, _) => "as a link",
            (false, true) => "yes",
            (false, false) => "not built yet",
        };
        let network = if protocol.udp() { "tcp+udp" } else { "tcp" };
        table.row(vec![
            member.node.name.clone(),
            protocol.name().to_owned(),
            network.to_owned(),
            usable.to_owned(),
        ]);
    }
    let mut text = format!(
        "{}, {} of {}",
        body.format.name(),
        plural(body.members.len(), "node"),
        entries(body.counts.entries + body.counts.cut)
    );
    if body.counts.duplicate > 0 {
        text.push_str(&format!(
            ", {} repeated and left out",
            body.counts.duplicate
        ));
    }
    text.push('\n');
    text.push_str(&table.render(out));
    for finding in findings {
        text.push_str(&clean(&short(&placeless(finding))));
        text.push('\n');
    }
    let skipped = body.skipped();
    if skipped.len() > 1 {
        text.push_str("skipped:\n");
        for (times, why) in skipped {
            text.push_str(&format!("{times:>6}  {}\n", clean(why)));
        }
    }
    text
}

fn entries(count: usize) -> String {
    match count {
        1 => "1 entry".to_owned(),
        n => format!("{n} entries"),
    }
}

#[cfg(test)]
mod tests {
    use honk_policy::subscription::MAX_ENTRIES;

    use super::*;
    use crate::cli::tests::invocation;

    #[test]
    fn entries_that_were_left_out_are_counted() {
        let port = |n: usize| 1 + n % 60_000;
        let link = |n| format!("socks5://192.0.2.{}:{}\n", n / 250, port(n));
        let list: String = (0..MAX_ENTRIES + 3).map(link).collect();
        let body = subscription::parse(list.as_bytes(), None).unwrap();
        let text = tested(&invocation().out, &body, &body.findings(""));
        let first = text.lines().next().unwrap();
        let all = format!("{} nodes of {} entries", MAX_ENTRIES, MAX_ENTRIES + 3);
        assert!(first.ends_with(&all), "{first}");
        assert_eq!(document(&body)["cut"], 3);
    }

    #[test]
    fn what_may_never_end_is_refused_at_once() {
        let dir = crate::state::file::tests::scratch("subtest");
        let pipe = dir.join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
        for (path, what) in [
            (pipe.as_path(), "a pipe"),
            (dir.as_path(), "a directory"),
            (Path::new("/dev/zero"), "a device"),
        ] {
            let failure = test(&invocation().out, path, "auto").unwrap_err();
            assert_eq!(failure.exit, Exit::Config, "{what}");
            assert!(failure.message.contains(what), "{}", failure.message);
            let help = "pipe the body in";
            assert!(failure.message.contains(help), "{}", failure.message);
        }
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_missing_file_is_no_missing_node() {
        let path = Path::new("/nonexistent/list.txt");
        let failure = test(&invocation().out, path, "auto").unwrap_err();
        assert_eq!(failure.exit, Exit::Config);
    }
}
