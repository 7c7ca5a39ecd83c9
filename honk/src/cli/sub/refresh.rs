//! `honk sub refresh`: asks for fetches, shows how far they are, tells what they changed.

use std::{
    io::{self, IsTerminal as _},
    time::Duration,
};

use hyper::Method;
use tokio::task::JoinSet;

use super::{
    super::{
        Session,
        exit::{Exit, Failure},
        output::{Output, clean},
        plural,
        table::bytes,
    },
    all, changes, pick, title,
};
use crate::api::doc::Subscription;

/// Total wait when `--timeout` is not given: a fetch ends within 30 s.
const WAIT: Duration = Duration::from_secs(60);
/// Longest single wait that the daemon accepts.
const LONGEST: Duration = Duration::from_secs(100);
/// Pause between two looks at fetches that run.
const POLL: Duration = Duration::from_millis(200);

/// A refresh that was asked for.
struct Asked {
    before: Subscription,
    now: Option<Subscription>,
    told: String,
}

pub(super) async fn run(
    session: &Session,
    names: &[String],
    no_wait: bool,
) -> Result<Exit, Failure> {
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
