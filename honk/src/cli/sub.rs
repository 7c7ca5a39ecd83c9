//! `honk sub`: list, show, refresh; and test, which needs no daemon.

use std::{
    fs::File,
    io::{self, IsTerminal as _, Read as _},
    path::Path,
    time::Duration,
};

use honk_grammar::diag::Diagnostic;
use honk_policy::subscription::{self, Body, Format, MAX_BODY};
use hyper::Method;
use serde_json::json;
use tokio::task::JoinSet;

use super::{
    Session, args,
    exit::{Exit, Failure},
    lookup,
    output::{Output, clean},
    plural,
    table::{Align, Table, bytes},
    watch,
};
use crate::{
    api::doc::{NodeChanges, Subscription},
    app::diag::{placeless, short},
};

/// Total wait of a refresh when `--timeout` is not given: a fetch ends within 30 s.
const WAIT: Duration = Duration::from_secs(60);
/// Longest single wait that the daemon accepts.
const LONGEST: Duration = Duration::from_secs(100);
/// Pause between two looks at fetches that run.
const POLL: Duration = Duration::from_millis(200);
/// Names shown of each kind of change.
const NAMES: usize = 20;

/// Runs one of the subcommands that ask the daemon.
pub(crate) async fn run(session: &Session, command: args::Sub) -> Result<Exit, Failure> {
    match command {
        args::Sub::List { watch } => watch::redraw(session, watch, || list(session)).await?,
        args::Sub::Show { sub, watch } => {
            watch::redraw(session, watch, || show(session, &sub)).await?;
        }
        args::Sub::Refresh { subs, no_wait } => return refresh(session, &subs, no_wait).await,
        // Handled without a daemon.
        args::Sub::Test { .. } => {}
    }
    Ok(Exit::Success)
}

async fn all(session: &Session) -> Result<Vec<Subscription>, Failure> {
    lookup::all(&session.client, "/api/v1/subscriptions").await
}

/// The subscription of that tag or id.
pub(crate) async fn find(session: &Session, name: &str) -> Result<Subscription, Failure> {
    let subs = all(session).await?;
    pick(&subs, name).cloned()
}

fn pick<'a>(subs: &'a [Subscription], name: &str) -> Result<&'a Subscription, Failure> {
    let named: Vec<&Subscription> = subs
        .iter()
        .filter(|s| s.id == name || (!name.is_empty() && s.tag == name))
        .collect();
    match named.as_slice() {
        [one] => Ok(one),
        [] => Err(lookup::unknown(
            "sub",
            name,
            subs.iter().map(|s| s.tag.as_str()),
        )),
        several => {
            let ids: Vec<&str> = several.iter().map(|s| s.id.as_str()).collect();
            let text = format!(
                "{} subscriptions are tagged {}; give an id ({})",
                ids.len(),
                clean(name),
                ids.join(", ")
            );
            let details = json!({ "ids": ids });
            Err(Failure::new(Exit::Conflict, "ambiguous", text).details(details))
        }
    }
}

async fn list(session: &Session) -> Result<(), Failure> {
    let subs = all(session).await?;
    let out = &session.out;
    if out.json {
        return out.document("sub.list/1", &subs, &[] as &[String]);
    }
    let mut table = Table::new(&[
        ("TAG", Align::Left),
        ("STATE", Align::Left),
        ("NODES", Align::Right),
        ("USED", Align::Right),
        ("LAST SUCCESS", Align::Left),
        ("URL", Align::Left),
    ]);
    for s in &subs {
        table.row(vec![
            s.tag.clone(),
            s.state.clone(),
            s.nodes.to_string(),
            used(s).unwrap_or_default(),
            s.last_success_at.clone().unwrap_or_default(),
            s.url.clone(),
        ]);
    }
    out.text(&table.render(out))
}

/// `1.2 GiB of 10 GiB`
fn used(sub: &Subscription) -> Option<String> {
    let user = sub.user_info?;
    let (up, down) = (user.upload_bytes, user.download_bytes);
    if up.is_none() && down.is_none() && user.total_bytes.is_none() {
        return None;
    }
    let sum = up.unwrap_or(0).saturating_add(down.unwrap_or(0));
    Some(match user.total_bytes {
        Some(total) => format!("{} of {}", bytes(sum), bytes(total)),
        None => bytes(sum),
    })
}

async fn show(session: &Session, name: &str) -> Result<(), Failure> {
    let sub = find(session, name).await?;
    let out = &session.out;
    if out.json {
        return out.document("sub.show/1", &sub, &sub.findings);
    }
    out.text(&page(&sub))
}

fn page(sub: &Subscription) -> String {
    let mut text = format!("{} ({})\n", title(sub), sub.state);
    let mut line = |name: &str, value: String| {
        if !value.is_empty() {
            text.push_str(&format!("  {name}: {}\n", clean(&value)));
        }
    };
    line("id", sub.id.clone());
    line("url", sub.url.clone());
    line("title", sub.title.clone().unwrap_or_default());
    let from = sub.nodes_from.as_deref().map_or("", |from| match from {
        "store" => ", from the stored copy",
        "seed" => ", from persist.d",
        _ => "",
    });
    line("nodes", format!("{}{from}", sub.nodes));
    line("format", sub.format.clone().unwrap_or_default());
    line("used", used(sub).unwrap_or_default());
    let expire = sub.user_info.and_then(|u| u.expire);
    line(
        "expires",
        expire.map_or(String::new(), |s| {
            crate::clock::text(s.saturating_mul(1000))
        }),
    );
    line(
        "last success",
        sub.last_success_at.clone().unwrap_or_default(),
    );
    line(
        "last attempt",
        sub.last_attempt_at.clone().unwrap_or_default(),
    );
    line("next", sub.next_at.clone().unwrap_or_default());
    if let Some(progress) = &sub.progress {
        line(
            "now",
            format!("{}, {}", progress.phase, bytes(progress.bytes as u64)),
        );
    }
    if let Some(error) = &sub.error {
        line(
            "error",
            format!("{} ({} in a row)", error.message, sub.failures),
        );
    }
    if let Some(change) = &sub.last_change {
        line("last change", format!("{}: {}", change.at, changes(change)));
    }
    if sub.shadowed_nodes > 0 {
        line(
            "not counted twice",
            format!("{} that are there already", sub.shadowed_nodes),
        );
    }
    for finding in &sub.findings {
        line(&finding.severity, finding.message.clone());
    }
    text
}

fn title(sub: &Subscription) -> String {
    match sub.tag.as_str() {
        "" => "(no tag)".to_owned(),
        tag => clean(tag),
    }
}

/// `2 came (a, b), 1 went (c), 9 stayed`
fn changes(change: &NodeChanges) -> String {
    let mut parts = Vec::new();
    for (names, what) in [
        (&change.added, "came"),
        (&change.removed, "went"),
        (&change.changed, "changed"),
    ] {
        if names.is_empty() {
            continue;
        }
        let shown: Vec<&str> = names.iter().take(NAMES).map(String::as_str).collect();
        let more = match names.len().saturating_sub(NAMES) {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        parts.push(format!(
            "{} {what} ({}{more})",
            names.len(),
            shown.join(", ")
        ));
    }
    parts.push(format!("{} stayed", change.kept));
    parts.join(", ")
}

/// A refresh that was asked for.
struct Asked {
    before: Subscription,
    now: Option<Subscription>,
    told: String,
}

async fn refresh(session: &Session, names: &[String], no_wait: bool) -> Result<Exit, Failure> {
    let subs = all(session).await?;
    let wanted: Vec<&Subscription> = match names {
        [] => subs.iter().filter(|s| s.enabled).collect(),
        names => names
            .iter()
            .map(|n| pick(&subs, n))
            .collect::<Result<_, _>>()?,
    };
    if wanted.is_empty() {
        let text = "no subscription is configured";
        return Err(Failure::new(Exit::NotFound, "not_found", text));
    }
    let limit = if no_wait {
        Duration::ZERO
    } else {
        session.timeout.unwrap_or(WAIT)
    };
    let client = session
        .client
        .clone()
        .waiting(limit + Duration::from_secs(5));
    let mut calls = JoinSet::new();
    let mut asked = Vec::new();
    for (at, sub) in wanted.into_iter().enumerate() {
        let wait = limit.min(LONGEST).as_millis();
        let path = format!("/api/v1/subscriptions/{}/refresh?wait_ms={wait}", sub.id);
        let client = client.clone();
        calls.spawn(async move {
            let answer: Result<Subscription, Failure> =
                client.call(Method::POST, &path, None).await;
            (at, answer)
        });
        asked.push(Asked {
            before: sub.clone(),
            now: None,
            told: String::new(),
        });
    }
    while !calls.is_empty() {
        tokio::select! {
            Some(done) = calls.join_next() => {
                let done = done.map_err(|e| Failure::new(Exit::Failure, "internal", e.to_string()))?;
                let left = calls.len();
                if let (Some(one), sub) = (asked.get_mut(done.0), done.1?) {
                    one.now = Some(sub);
                    if left > 0 && !no_wait && !session.out.json {
                        session.out.note(&format!("{} has ended, {left} to go", title(&one.before)));
                    }
                }
            }
            () = tokio::time::sleep(POLL) => progress(session, &mut asked).await?,
        }
    }
    if no_wait {
        session.out.text("refresh requested")?;
        return Ok(Exit::Success);
    }
    let late = |one: &&Asked| {
        one.now
            .as_ref()
            .is_none_or(|s| s.attempts == one.before.attempts)
    };
    let late = asked.iter().filter(late).count();
    if late > 0 {
        let text = format!(
            "{late} of {} go on; `honk sub list` shows them",
            asked.len()
        );
        return Err(Failure::new(Exit::Timeout, "timeout", text));
    }
    report(&session.out, &asked)
}

/// A line for each step on a terminal, and only for what a look happens to see.
async fn progress(session: &Session, asked: &mut [Asked]) -> Result<(), Failure> {
    let out = &session.out;
    if out.quiet || out.json || !io::stderr().is_terminal() {
        return Ok(());
    }
    let subs = all(session).await?;
    for one in asked.iter_mut().filter(|one| one.now.is_none()) {
        let Some(progress) = subs
            .iter()
            .find(|s| s.id == one.before.id)
            .and_then(|s| s.progress.as_ref())
        else {
            continue;
        };
        let text = match progress.bytes {
            0 => progress.phase.clone(),
            n => format!("{} {}", progress.phase, bytes(n as u64)),
        };
        if text != one.told {
            out.note(&format!("{}: {text}", title(&one.before)));
            one.told = text;
        }
    }
    Ok(())
}

fn report(out: &Output, asked: &[Asked]) -> Result<Exit, Failure> {
    let subs: Vec<&Subscription> = asked.iter().filter_map(|one| one.now.as_ref()).collect();
    let failed = subs.iter().filter(|s| s.error.is_some()).count();
    if out.json {
        out.document("sub.refresh/1", &subs, &[] as &[String])?;
    } else {
        for one in asked {
            let Some(sub) = &one.now else { continue };
            out.text(&outcome(&one.before, sub))?;
        }
    }
    Ok(match failed {
        0 => Exit::Success,
        n if n < subs.len() => Exit::Partial,
        _ => Exit::Failure,
    })
}

fn outcome(before: &Subscription, sub: &Subscription) -> String {
    let title = title(sub);
    if let Some(error) = &sub.error {
        let kept = plural(sub.nodes, "node");
        return format!(
            "{title}: {}; {kept} in use as before",
            clean(&error.message)
        );
    }
    let nodes = plural(sub.nodes, "node");
    match &sub.last_change {
        Some(change) if before.last_change.as_ref() != Some(change) => {
            format!("{title}: {nodes}, {}", clean(&changes(change)))
        }
        _ => format!("{title}: {nodes}, unchanged"),
    }
}

/// `honk sub test`
pub(crate) fn test(out: &Output, source: &Path, format: &str) -> Result<Exit, Failure> {
    let text = source.to_str().unwrap_or_default();
    if let Some((scheme @ ("http" | "https"), _)) = text.split_once("://") {
        // The rest of the URL is a credential: what a shell was told stays in its history.
        let text = format!(
            "{scheme} is not fetched here; pipe the body in: `curl -K - | honk sub test -`"
        );
        return Err(Failure::new(Exit::Usage, "usage", text));
    }
    let bytes = content(source).map_err(|e| {
        let exit = match e.kind() {
            io::ErrorKind::NotFound => Exit::NotFound,
            io::ErrorKind::PermissionDenied => Exit::Permission,
            _ => Exit::Failure,
        };
        Failure::new(exit, "unreadable", format!("{}: {e}", source.display()))
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
        _ => File::open(source)?.take(limit).read_to_end(&mut bytes)?,
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
    json!({ "format": body.format.name(), "nodes": nodes })
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
    let nodes = plural(body.members.len(), "node");
    let mut text = format!("{}, {nodes}\n{}", body.format.name(), table.render(out));
    for finding in findings {
        text.push_str(&clean(&short(&placeless(finding))));
        text.push('\n');
    }
    text
}
