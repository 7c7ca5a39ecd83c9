//! `honk status`: one screen, or the wait for a daemon that intercepts.

use std::time::{Duration, Instant};

use super::{
    Session, args,
    exit::{Exit, Failure},
    lookup,
    output::{Output, clean},
    table::{Align, Table, bytes, span},
    watch,
};
use crate::{
    api::doc::{Group, Status},
    app::{diag::short, source::NO_LAN},
};

/// Pause between two looks of `--wait`.
const POLL: Duration = Duration::from_millis(50);
/// A busy gateway gets this long for an answer, however little is left of the wait.
const ANSWER: Duration = Duration::from_secs(3);

/// Runs the command.
pub(crate) async fn run(session: &Session, args: &args::Status) -> Result<Exit, Failure> {
    if let Some(seconds) = args.wait {
        return wait(session, Duration::from_secs(seconds)).await;
    }
    watch::redraw(session, args.watch, || show(session)).await?;
    Ok(Exit::Success)
}

async fn show(session: &Session) -> Result<(), Failure> {
    let status: Status = session.client.get("/api/v1/status").await?;
    if session.out.json {
        return session.out.document("status/1", &status, &status.warnings);
    }
    let groups: Vec<Group> = lookup::all(&session.client, "/api/v1/groups").await?;
    session.out.text(&screen(&session.out, &status, &groups))
}

fn screen(out: &Output, status: &Status, groups: &[Group]) -> String {
    let color = match status.state.as_str() {
        "running" => "32",
        "starting" | "suspended" => "33",
        _ => "31",
    };
    let mut text = format!(
        "honk {} {}, pid {}, up {}, generation {} ({}), gate {}\n",
        status.version,
        out.paint(color, &status.state),
        status.pid,
        span(status.uptime_s),
        status.generation,
        status.config_revision,
        status.datapath.gate,
    );
    for reason in &status.reasons {
        text.push_str(&format!("  {}: {}\n", reason.code, clean(&reason.message)));
    }
    text.push_str(&format!(
        "flows: {} tcp, {} udp; {} up, {} down; now {}/s up, {}/s down; memory {}\n",
        status.counts.connections_tcp,
        status.counts.connections_udp,
        bytes(status.totals.up_bytes),
        bytes(status.totals.down_bytes),
        bytes(status.rates.up_bps),
        bytes(status.rates.down_bps),
        bytes(status.memory.rss_bytes),
    ));
    let last = &status.last_reload;
    if last.sequence > 0 {
        text.push_str(&format!(
            "last reload: {}: {}\n",
            last.state,
            clean(&last.message)
        ));
    }
    text.push('\n');
    let mut table = Table::new(&[
        ("INTERFACE", Align::Left),
        ("ROLE", Align::Left),
        ("STATE", Align::Left),
        ("HOOKS", Align::Left),
    ]);
    for i in &status.datapath.interfaces {
        let state = match (i.attached, i.pending, &i.problem) {
            (true, ..) => "attached".to_owned(),
            (false, true, _) => "pending".to_owned(),
            (false, false, problem) => problem.clone().unwrap_or_else(|| "detached".to_owned()),
        };
        table.row(vec![
            i.name.clone(),
            i.role.clone(),
            state,
            i.hooks.join(" "),
        ]);
    }
    text.push_str(&table.render(out));
    if !groups.is_empty() {
        text.push('\n');
        let mut table = Table::new(&[
            ("GROUP", Align::Left),
            ("TCP", Align::Left),
            ("UDP", Align::Left),
            ("CONNS", Align::Right),
        ]);
        for g in groups {
            table.row(vec![
                g.name.clone(),
                super::group::selection(&g.selection.tcp),
                super::group::selection(&g.selection.udp),
                g.traffic.active.to_string(),
            ]);
        }
        text.push_str(&table.render(out));
    }
    for warning in &status.warnings {
        text.push_str(&format!("{}\n", clean(&short(warning))));
    }
    text
}

/// 0 once flows are intercepted on every interface. A daemon that is not there yet is waited
/// for; one that was there and went away has failed.
async fn wait(session: &Session, limit: Duration) -> Result<Exit, Failure> {
    let end = Instant::now() + limit;
    let mut seen = false;
    let mut last;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let client = session.client.clone().waiting(left.max(ANSWER));
        match client.get::<Status>("/api/v1/status").await {
            Ok(status) => {
                seen = true;
                match missing(&status) {
                    None => return ready(session, &status),
                    Some(reason) => last = reason,
                }
            }
            Err(failure) if failure.exit == Exit::Unreachable && seen => {
                let text = "honk has ended; see its log";
                return Err(Failure::new(Exit::Failure, "ended", text));
            }
            Err(failure) if matches!(failure.exit, Exit::Unreachable | Exit::Timeout) => {
                last = failure.message;
            }
            Err(failure) => return Err(failure),
        }
        if Instant::now() >= end {
            let text = format!("not intercepting after {} s: {last}", limit.as_secs());
            return Err(Failure::new(Exit::Timeout, "timeout", text));
        }
        tokio::time::sleep(POLL).await;
    }
}

/// What keeps flows from being intercepted.
fn missing(status: &Status) -> Option<String> {
    if status.state != "running" {
        let reason = status.reasons.first().map(|r| format!(" ({})", r.message));
        return Some(format!(
            "state is {}{}",
            status.state,
            reason.unwrap_or_default()
        ));
    }
    if status.datapath.gate != "open" {
        return Some(format!("the gate is {}", status.datapath.gate));
    }
    if status.warnings.iter().any(|w| w.code == NO_LAN) {
        return Some("nothing is taken: neither lan_interface nor wan_interface is set".to_owned());
    }
    let waiting = status.datapath.interfaces.iter().find(|i| !i.attached)?;
    Some(format!("interface {} is not attached", waiting.name))
}

fn ready(session: &Session, status: &Status) -> Result<Exit, Failure> {
    if session.out.json {
        session.out.document("status/1", status, &status.warnings)?;
    } else if !session.out.quiet {
        session.out.text("running: flows are intercepted")?;
    }
    Ok(Exit::Success)
}
