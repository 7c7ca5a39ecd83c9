//! `honk group`: list, show, explain, select, test, unpin.

use std::collections::HashMap;

use hyper::Method;
use serde_json::json;

use super::{
    Session,
    args::{self, Scope},
    exit::{Exit, Failure},
    explain, latency, lookup, measure as runs,
    output::clean,
    score,
    table::{Align, Table, bytes, plain},
    watch,
};
use crate::api::doc::{
    Diag, Group, PerNet, Sel, SelectionResult, Stats,
    score::{ScoreGroup, ScoreVerification},
};

/// Runs one of the subcommands.
pub(crate) async fn run(session: &Session, command: args::Group) -> Result<Exit, Failure> {
    match command {
        args::Group::List { watch } => watch::redraw(session, watch, || list(session)).await?,
        args::Group::Show { group, watch } => {
            watch::redraw(session, watch, || show(session, &group)).await?;
        }
        args::Group::Explain { group } => explain(session, &group).await?,
        args::Group::Select {
            group,
            member,
            network,
            first,
        } => select(session, &group, &member, network, first).await?,
        args::Group::Test {
            group,
            reselect: true,
            ..
        } => reselect(session, &group).await?,
        args::Group::Test { group, how, .. } => {
            return measure(session, &group, &how, "group.test/1").await;
        }
        args::Group::Unpin { group, network } => unpin(session, &group, network).await?,
    }
    Ok(Exit::Success)
}

async fn list(session: &Session) -> Result<(), Failure> {
    let groups: Vec<Group> = lookup::all(&session.client, "/api/v1/groups").await?;
    let out = &session.out;
    if out.json {
        return out.document("group.list/1", &groups, &warnings(&groups));
    }
    if groups.is_empty() {
        return out.text("no groups: the configuration declares none");
    }
    let mut table = Table::new(&[
        ("GROUP", Align::Left),
        ("POLICY", Align::Left),
        ("TCP", Align::Left),
        ("UDP", Align::Left),
        ("DELAY", Align::Right),
        ("ALIVE", Align::Right),
        ("CONNS", Align::Right),
        ("UP", Align::Right),
        ("DOWN", Align::Right),
    ]);
    for g in &groups {
        let alive = g.members.iter().filter(|m| m.eligible.tcp.ok).count();
        let known = g.score_verification.as_ref();
        table.cells(vec![
            plain(&g.name),
            plain(&g.policy),
            plain(with_state(&g.selection.tcp, known.map(|k| &k.tcp))),
            plain(with_state(&g.selection.udp, known.map(|k| &k.udp))),
            latency::cell(g.selection.tcp.delay_ms),
            plain(format!("{alive}/{}", g.members.len())),
            plain(g.traffic.active.to_string()),
            plain(bytes(g.traffic.up_bytes)),
            plain(bytes(g.traffic.down_bytes)),
        ]);
    }
    out.text(&table.render(out))
}

async fn show(session: &Session, name: &str) -> Result<(), Failure> {
    let group = find(session, name).await?;
    let counters = counters(session, &group).await?;
    let out = &session.out;
    if out.json {
        let shown = Shown {
            group: &group,
            score: counters.as_ref(),
        };
        return out.document("group.show/1", &shown, &group.warnings);
    }
    let mut text = format!(
        "{} ({}, id {}, ordinal {}, kernel slot {})\n",
        clean(&group.name),
        group.policy,
        group.id,
        group.ordinal,
        group.slot
    );
    for (network, sel) in [("tcp", &group.selection.tcp), ("udp", &group.selection.udp)] {
        let from = if sel.source == "none" {
            ""
        } else {
            &sel.source
        };
        text.push_str(&format!(
            "  {network}: {}  {from}\n",
            clean(&selection(sel))
        ));
    }
    if let Some(f) = &group.final_ {
        let problem = f
            .problem
            .as_ref()
            .map_or(String::new(), |p| format!("  ({p})"));
        text.push_str(&format!("  final: {}{problem}\n", clean(&f.name)));
    }
    for warning in &group.warnings {
        text.push_str(&format!("  warning: {}\n", clean(&warning.message)));
    }
    if let Some(known) = &group.score_verification {
        text.push_str(&score::table(known, counters.as_ref(), out));
    }
    let mut table = Table::new(&[
        ("", Align::Left),
        ("MEMBER", Align::Left),
        ("KIND", Align::Left),
        ("TCP", Align::Left),
        ("UDP", Align::Left),
        ("DELAY", Align::Right),
        ("", Align::Left),
        ("ID", Align::Left),
    ]);
    for m in &group.members {
        let can = |e: &crate::api::doc::Elig| {
            let why = e.reason.as_deref().unwrap_or("no");
            if e.ok {
                "ok".to_owned()
            } else {
                why.to_owned()
            }
        };
        table.cells(vec![
            plain(mark(&m.id, &group.selection)),
            plain(&m.name),
            plain(&m.kind),
            plain(can(&m.eligible.tcp)),
            plain(can(&m.eligible.udp)),
            latency::cell(m.delay_ms),
            latency::bar(m.delay_ms.filter(|_| out.width.is_some())),
            plain(&m.id),
        ]);
    }
    text.push_str(&table.render(out));
    out.text(&text)
}

/// A group with its counters, which are shown beside it.
#[derive(serde::Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    group: &'a Group,
    #[serde(skip_serializing_if = "Option::is_none")]
    score: Option<&'a ScoreGroup>,
}

/// The counters of a Score group.
async fn counters(session: &Session, group: &Group) -> Result<Option<ScoreGroup>, Failure> {
    if group.score_verification.is_none() {
        return Ok(None);
    }
    let stats: Stats = session.client.get("/stats").await?;
    let mut groups = stats.score.groups.into_iter();
    Ok(groups.find(|g| g.name == group.name))
}

async fn explain(session: &Session, name: &str) -> Result<(), Failure> {
    let group = find(session, name).await?;
    let counters = counters(session, &group).await?;
    let text = explain::paragraph(&group, counters.as_ref());
    let out = &session.out;
    if out.json {
        let data = json!({
            "group": group.name,
            "text": text,
            "scoreVerification": group.score_verification,
            "score": counters,
        });
        return out.document("group.explain/1", &data, &group.warnings);
    }
    out.text(&match out.width {
        Some(columns) => explain::broken(&text, columns.min(100)),
        None => text,
    })
}

/// `*` for the member of an explicit choice, `>` for a current one that nobody chose; with
/// the network in front when the two differ.
fn mark(id: &str, PerNet { tcp, udp }: &PerNet<Sel>) -> String {
    let sign = |sel: &Sel| match sel.member_id.as_deref() == Some(id) {
        false => "",
        true if sel.source == "choice" => "*",
        true => ">",
    };
    match (sign(tcp), sign(udp)) {
        (t, u) if t == u => t.to_owned(),
        (t, "") => format!("t{t}"),
        ("", u) => format!("u{u}"),
        (t, u) => format!("t{t}u{u}"),
    }
}

/// A reason code as a sentence.
fn sentence(code: &str, member: &str) -> String {
    match code {
        "udp_incapable" => format!("{member} carries no UDP: UDP flows of the group are refused"),
        code => code.to_owned(),
    }
}

async fn select(
    session: &Session,
    group: &str,
    member: &str,
    network: Scope,
    first: bool,
) -> Result<(), Failure> {
    let group = find(session, group).await?;
    let id = member_id(&group, member, first)?;
    let path = format!("/api/v1/groups/{}/selection", group.id);
    let body = json!({ "member_id": id, "network": network.name() });
    let result = session.client.call(Method::PUT, &path, Some(body)).await?;
    report(session, "group.select/1", &group, &result)
}

/// The members of a group, measured and shown.
pub(super) async fn measure(
    session: &Session,
    name: &str,
    how: &args::Measure,
    schema: &'static str,
) -> Result<Exit, Failure> {
    let group = find(session, name).await?;
    let members = group.members.into_iter();
    let names: HashMap<String, String> = members.map(|m| (m.id, m.name)).collect();
    let scope = json!({ "group_id": group.id });
    let wanted = runs::Wanted {
        scope,
        names,
        how,
        schema,
    };
    runs::run(session, wanted).await
}

/// The daemon answers when the test begins; the choice follows it.
async fn reselect(session: &Session, name: &str) -> Result<(), Failure> {
    let group = find(session, name).await?;
    let path = format!("/api/v1/groups/{}/test", group.id);
    let begun: serde_json::Value = session.client.call(Method::POST, &path, None).await?;
    let out = &session.out;
    if out.json {
        return out.document("group.reselect/1", &begun, &[] as &[String]);
    }
    let name = clean(&group.name);
    out.text(&match begun["test"].as_str() {
        Some("absorbed") => format!("{name}: a test goes on already; the choice follows it"),
        _ => format!("{name}: the test has begun; the choice follows it"),
    })
}

async fn unpin(session: &Session, group: &str, network: Scope) -> Result<(), Failure> {
    let group = find(session, group).await?;
    let path = format!(
        "/api/v1/groups/{}/selection?network={}",
        group.id,
        network.name()
    );
    let result = session.client.call(Method::DELETE, &path, None).await?;
    report(session, "group.unpin/1", &group, &result)
}

fn report(
    session: &Session,
    schema: &str,
    group: &Group,
    result: &SelectionResult,
) -> Result<(), Failure> {
    let out = &session.out;
    if out.json {
        return out.document(schema, result, &result.warnings);
    }
    let PerNet { tcp, udp } = &result.selection;
    let unchanged = |changed: bool| if changed { "" } else { " (unchanged)" };
    let mut text = format!(
        "{}: tcp {}{}, udp {}{}\n",
        clean(&group.name),
        clean(&selection(tcp)),
        unchanged(result.changed.tcp),
        clean(&selection(udp)),
        unchanged(result.changed.udp),
    );
    if result.interrupted.closed + result.interrupted.pending > 0 {
        text.push_str(&format!(
            "closed {} connections, {} still closing\n",
            result.interrupted.closed, result.interrupted.pending
        ));
    }
    for warning in &result.warnings {
        let member = udp.member_name.as_deref().unwrap_or("the member");
        let text = sentence(warning, member);
        out.note(&format!("warning: {}", clean(&text)));
    }
    out.text(&text)
}

pub(super) async fn find(session: &Session, name: &str) -> Result<Group, Failure> {
    let path = if lookup::is_id(name) {
        format!("/api/v1/groups/{name}")
    } else {
        format!("/api/v1/groups/by-name/{}", lookup::encode(name))
    };
    match session.client.get(&path).await {
        Err(failure) if failure.exit == Exit::NotFound => {
            Err(lookup::unknown_group(&session.client, name).await)
        }
        group => group,
    }
}

/// The id of a direct member. Two of the same name are two different servers, so a name alone
/// does not choose between them.
fn member_id(group: &Group, member: &str, first: bool) -> Result<String, Failure> {
    if let Some(m) = group.members.iter().find(|m| m.id == member) {
        return Ok(m.id.clone());
    }
    let named: Vec<&str> = group
        .members
        .iter()
        .filter(|m| m.name == member)
        .map(|m| m.id.as_str())
        .collect();
    match named.as_slice() {
        [] => {
            let names: Vec<&str> = group.members.iter().map(|m| m.name.as_str()).collect();
            let text = format!(
                "no such member {} in group {}; it has {}",
                clean(member),
                clean(&group.name),
                clean(&names.join(", "))
            );
            let details = json!({"kind": "member", "name": member});
            Err(Failure::new(Exit::NotFound, "not_found", text).details(details))
        }
        [one] => Ok((*one).to_owned()),
        [one, ..] if first => Ok((*one).to_owned()),
        many => {
            let text = format!(
                "{} members of {} are named {}; give an id ({}) or --first",
                many.len(),
                clean(&group.name),
                clean(member),
                many.join(", ")
            );
            let details = json!({ "ids": many });
            Err(Failure::new(Exit::Conflict, "ambiguous", text).details(details))
        }
    }
}

/// `hk > HK 03 *`; in parentheses why there is none.
pub(super) fn selection(sel: &Sel) -> String {
    if let Some(refuse) = &sel.refuse {
        return format!("- ({refuse})");
    }
    let leaf = sel.leaf_name.as_deref().unwrap_or("-");
    let mut text = match (&sel.member_name, &sel.final_used) {
        (_, Some(name)) if name == leaf => format!("final {leaf}"),
        (_, Some(name)) => format!("final {name} > {leaf}"),
        (Some(member), None) if member != leaf => format!("{member} > {leaf}"),
        (_, None) => leaf.to_owned(),
    };
    if sel.source == "choice" {
        text.push_str(" *");
    }
    text
}

/// The selection, and in brackets how sure Score is of it.
fn with_state(sel: &Sel, known: Option<&ScoreVerification>) -> String {
    match known {
        Some(known) if sel.refuse.is_none() => format!("{} [{}]", selection(sel), known.state),
        _ => selection(sel),
    }
}

fn warnings(groups: &[Group]) -> Vec<&Diag> {
    groups.iter().flat_map(|g| &g.warnings).collect()
}

#[cfg(test)]
pub(super) mod tests;
