//! `honk reload`, `honk suspend`, `honk resume`.

use std::time::{Duration, Instant};

use hyper::Method;
use serde_json::{Value, json};

use super::{
    Session,
    args::{Reload, Suspend},
    exit::{Exit, Failure},
};
use crate::{
    api::doc::{Diag, ReloadState},
    app::diag::short,
    state::lock,
};

/// Total wait when `--timeout` is not given.
const WAIT: Duration = Duration::from_secs(90);
/// With `--attach`: a reload that began this long ago is the one that is meant.
const RECENT_MS: u64 = 3_000;
/// With `--attach`: how long to wait for one to begin.
const BEGIN: Duration = Duration::from_secs(1);
/// Longest single wait that the daemon accepts.
const SLICE: Duration = Duration::from_secs(100);

/// Runs the command.
pub(crate) async fn run(session: &Session, args: &Reload) -> Result<Exit, Failure> {
    meant(session, args.pid)?;
    let limit = session.timeout.unwrap_or(WAIT);
    let state = if args.attach {
        match attach(session, limit).await? {
            Some(state) => state,
            None => begin(session, args, limit).await?,
        }
    } else {
        begin(session, args, limit).await?
    };
    report(session, args, &state)
}

/// The process number names the daemon of this runtime directory, or the call is a mistake.
fn meant(session: &Session, pid: Option<u32>) -> Result<(), Failure> {
    let Some(pid) = pid else { return Ok(()) };
    let holder = lock::holder(&session.dirs.lock()).ok().flatten();
    if holder == Some(pid) {
        return Ok(());
    }
    let text = match holder {
        Some(other) => {
            format!("process {pid} is not the honk of this runtime directory; {other} is")
        }
        None => format!("process {pid} is not a honk of this runtime directory"),
    };
    Err(Failure::new(Exit::NotFound, "not_found", text))
}

/// A reload that runs, or has just run, or begins within a moment.
async fn attach(session: &Session, limit: Duration) -> Result<Option<ReloadState>, Failure> {
    let state: ReloadState = session.client.get("/api/v1/reload").await?;
    if state.state == "running" {
        return settled(session, state.sequence - 1, limit).await.map(Some);
    }
    if state.sequence > 0 && state.age_ms.is_some_and(|age| age <= RECENT_MS) {
        return Ok(Some(state));
    }
    let after = state.sequence;
    let wait = BEGIN.min(limit).as_millis();
    let path = format!("/api/v1/reload?after={after}&wait_ms={wait}");
    let next: ReloadState = session.client.get(&path).await?;
    if next.state == "running" {
        return settled(session, after, limit).await.map(Some);
    }
    Ok((next.sequence > after).then_some(next))
}

/// Waits for the end of the reload behind a sequence number.
async fn settled(session: &Session, after: u64, limit: Duration) -> Result<ReloadState, Failure> {
    let end = Instant::now() + limit;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let wait = left.min(SLICE).as_millis();
        let client = session
            .client
            .clone()
            .waiting(left + Duration::from_secs(5));
        let path = format!("/api/v1/reload?after={after}&wait_ms={wait}");
        let state: ReloadState = client.get(&path).await?;
        if state.state != "running" && state.sequence > after {
            return Ok(state);
        }
        if left.is_zero() {
            let text = format!("the reload still runs after {limit:?}");
            return Err(Failure::new(Exit::Timeout, "timeout", text));
        }
    }
}

async fn begin(session: &Session, args: &Reload, limit: Duration) -> Result<ReloadState, Failure> {
    let wait = if args.no_wait {
        Duration::ZERO
    } else {
        limit.min(SLICE)
    };
    let client = session
        .client
        .clone()
        .waiting(wait + Duration::from_secs(5));
    let body = json!({ "abort": args.abort, "subscriptions": !args.no_subscriptions });
    let path = format!("/api/v1/reload?wait_ms={}", wait.as_millis());
    let state: ReloadState = client.call(Method::POST, &path, Some(body)).await?;
    if args.no_wait || state.state != "running" {
        return Ok(state);
    }
    settled(session, state.sequence - 1, limit.saturating_sub(wait)).await
}

fn report(session: &Session, args: &Reload, state: &ReloadState) -> Result<Exit, Failure> {
    let out = &session.out;
    let rejected = state.state == "rejected" && !args.no_wait;
    if out.json {
        let warnings: Vec<&Diag> = state.diagnostics.iter().collect();
        if !rejected {
            out.document("reload/1", state, &warnings)?;
            return Ok(Exit::Success);
        }
    }
    if rejected {
        for d in state.diagnostics.iter().filter(|d| d.severity == "error") {
            eprintln!("{}", short(d));
        }
        let restart = state
            .diagnostics
            .iter()
            .any(|d| d.code == "restart-required");
        let code = if restart {
            "restart-required"
        } else {
            "invalid"
        };
        let details = json!({ "diagnostics": state.diagnostics });
        return Err(Failure::new(Exit::Config, code, state.message.clone()).details(details));
    }
    if args.no_wait {
        out.text("reload requested")?;
        return Ok(Exit::Success);
    }
    for d in state.diagnostics.iter().filter(|d| d.severity == "warning") {
        out.note(&short(d));
    }
    let changed = if state.changed.is_empty() {
        "nothing".to_owned()
    } else {
        state.changed.join(", ")
    };
    out.text(&format!(
        "generation {} active, revision {}, changed: {changed}, {} ms",
        state.generation,
        state.config_revision,
        state.duration_ms.unwrap_or(0)
    ))?;
    Ok(Exit::Success)
}

/// `honk suspend`
pub(crate) async fn suspend(session: &Session, args: &Suspend) -> Result<Exit, Failure> {
    meant(session, args.pid)?;
    let path = format!("/api/v1/suspend?abort={}", args.abort);
    let answer: Value = session.client.call(Method::POST, &path, None).await?;
    said(
        session,
        "suspend/1",
        &answer,
        "suspended: new flows go direct; `honk resume` ends it",
    )
}

/// `honk resume`
pub(crate) async fn resume(session: &Session) -> Result<Exit, Failure> {
    let answer: Value = session
        .client
        .call(Method::POST, "/api/v1/resume", None)
        .await?;
    said(
        session,
        "resume/1",
        &answer,
        "running: flows are intercepted again",
    )
}

fn said(session: &Session, schema: &str, answer: &Value, text: &str) -> Result<Exit, Failure> {
    if session.out.json {
        session.out.document(schema, answer, &[] as &[String])?;
    } else {
        session.out.text(text)?;
    }
    Ok(Exit::Success)
}
