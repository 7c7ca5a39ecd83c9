//! `honk sub`: list and show; refresh and test have files of their own.

mod refresh;
mod test;

use serde_json::json;

pub(super) use self::test::test;
use super::{
    Session, args,
    exit::{Exit, Failure},
    lookup,
    output::clean,
    table::{Align, Table, bytes},
    watch,
};
use crate::api::doc::{NodeChanges, Subscription};

/// Names shown of each kind of change.
const NAMES: usize = 20;

/// Runs one of the subcommands that ask the daemon.
pub(crate) async fn run(session: &Session, command: args::Sub) -> Result<Exit, Failure> {
    match command {
        args::Sub::List { watch } => watch::redraw(session, watch, || list(session)).await?,
        args::Sub::Show { sub, watch } => {
            watch::redraw(session, watch, || show(session, &sub)).await?;
        }
        args::Sub::Refresh { subs, no_wait } => return refresh::run(session, &subs, no_wait).await,
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
