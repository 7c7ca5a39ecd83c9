//! `honk node`: list, show, ping, enable, disable.

use std::collections::HashMap;

use hyper::Method;
use serde_json::{Value, json};

use super::{
    Session,
    args::{self, Order},
    exit::{Exit, Failure},
    group, latency, lookup, measure,
    output::{Output, clean},
    sub,
    table::{Align, Table, plain},
    watch,
};
use crate::api::doc::Node;

/// What is listed.
struct Wanted<'a> {
    group: Option<&'a str>,
    sub: Option<&'a str>,
    state: Option<&'a str>,
    sort: Order,
}

/// Runs one of the subcommands.
pub(crate) async fn run(session: &Session, command: args::Node) -> Result<Exit, Failure> {
    match command {
        args::Node::List {
            group,
            sub,
            state,
            sort,
            watch,
        } => {
            let wanted = Wanted {
                group: group.as_deref(),
                sub: sub.as_deref(),
                state: state.as_deref(),
                sort,
            };
            watch::redraw(session, watch, || list(session, &wanted)).await?;
        }
        args::Node::Show { node, watch } => {
            watch::redraw(session, watch, || show(session, &node)).await?;
        }
        args::Node::Ping {
            nodes,
            group,
            all,
            how,
        } => return ping(session, &nodes, group.as_deref(), all, &how).await,
        args::Node::Enable { node } => {
            switch(session, &node, json!({ "enabled": true })).await?;
        }
        args::Node::Disable { node, reason } => {
            let body = json!({ "enabled": false, "reason": reason });
            switch(session, &node, body).await?;
        }
    }
    Ok(Exit::Success)
}

async fn list(session: &Session, wanted: &Wanted<'_>) -> Result<(), Failure> {
    let filters = [
        ("group", wanted.group),
        ("sub", wanted.sub),
        ("state", wanted.state),
    ];
    let filters: Vec<String> = filters
        .into_iter()
        .filter_map(|(key, name)| Some(format!("{key}={}", lookup::encode(name?))))
        .collect();
    let query = match filters.is_empty() {
        true => String::new(),
        false => format!("?{}", filters.join("&")),
    };
    if let Some(sub) = wanted.sub {
        sub::find(session, sub).await?;
    }
    let path = format!("/api/v1/nodes{query}");
    let nodes = match (lookup::all(&session.client, &path).await, wanted.group) {
        (Err(failure), Some(group)) if failure.exit == Exit::NotFound => {
            return Err(lookup::unknown_group(&session.client, group).await);
        }
        (nodes, _) => nodes?,
    };
    let nodes = sorted(nodes, wanted.sort);
    let out = &session.out;
    if out.json {
        return out.document("node.list/1", &nodes, &[] as &[String]);
    }
    let mut table = Table::new(&[
        ("NODE", Align::Left),
        ("STATE", Align::Left),
        ("DELAY", Align::Right),
        ("PROTOCOL", Align::Left),
        ("NETWORK", Align::Left),
        ("GROUPS", Align::Right),
        ("CONNS", Align::Right),
        ("ID", Align::Left),
    ]);
    for n in &nodes {
        let state = if n.builtin { "-" } else { &n.state };
        table.cells(vec![
            plain(&n.name),
            latency::state(out, state),
            latency::cell(n.delay_ms()),
            plain(&n.protocol),
            plain(&n.network),
            plain(n.groups.len().to_string()),
            plain(n.active.to_string()),
            plain(&n.id),
        ]);
    }
    out.text(&table.render(out))
}

/// Nodes without a latency come after those with one.
fn sorted(mut nodes: Vec<Node>, order: Order) -> Vec<Node> {
    let tag = |n: &Node| n.subscription.as_ref().map(|s| s.tag.clone());
    match order {
        Order::Config => {}
        Order::Name => nodes.sort_by(|a, b| a.name.cmp(&b.name)),
        Order::Delay => nodes.sort_by_key(|n| (n.delay_ms().is_none(), n.delay_ms())),
        Order::Sub => nodes.sort_by_key(tag),
    }
    nodes
}

async fn ping(
    session: &Session,
    nodes: &[String],
    group: Option<&str>,
    all: bool,
    how: &args::Measure,
) -> Result<Exit, Failure> {
    if let Some(group) = group {
        return group::measure(session, group, how, "node.ping/1").await;
    }
    let known: Vec<Node> = lookup::all(&session.client, "/api/v1/nodes").await?;
    let scope = if all {
        json!({ "all": true })
    } else {
        let ids: Result<Vec<String>, Failure> = nodes
            .iter()
            .map(|name| named(&known, name).map(|n| n.id.clone()))
            .collect();
        json!({ "node_ids": ids? })
    };
    let names: HashMap<String, String> = known.into_iter().map(|n| (n.id, n.name)).collect();
    let schema = "node.ping/1";
    let wanted = measure::Wanted {
        scope,
        names,
        how,
        schema,
    };
    measure::run(session, wanted).await
}

async fn switch(session: &Session, name: &str, body: Value) -> Result<(), Failure> {
    let node = find(session, name).await?;
    let path = format!("/api/v1/nodes/{}", node.id);
    let node: Node = session
        .client
        .call(Method::PATCH, &path, Some(body))
        .await?;
    let out = &session.out;
    if out.json {
        return out.document("node.switch/1", &node, &[] as &[String]);
    }
    let word = if node.disabled.is_some() {
        "disabled"
    } else {
        "enabled"
    };
    out.text(&format!("{}: {word}\n", clean(&node.name)))
}

async fn show(session: &Session, name: &str) -> Result<(), Failure> {
    let node = find(session, name).await?;
    let out = &session.out;
    if out.json {
        return out.document("node.show/1", &node, &[] as &[String]);
    }
    let from = match &node.subscription {
        Some(origin) if origin.tag.is_empty() => "a subscription".to_owned(),
        Some(origin) => format!("subscription {}", clean(&origin.tag)),
        None => "the configuration".to_owned(),
    };
    let mut text = format!(
        "{} ({}, {})\n  id: {}\n  from: {from}\n  state: {}\n  groups: {}\n  connections: {}\n",
        clean(&node.name),
        node.protocol,
        node.network,
        node.id,
        node.state,
        node.groups.len(),
        node.active,
    );
    if let Some(off) = &node.disabled {
        let who = match off.by.as_str() {
            "user" => "somebody",
            _ => "honk",
        };
        text.push_str(&format!(
            "  off since {}, by {who}: {}\n",
            off.at,
            clean(&off.reason)
        ));
    }
    text.push_str(&health(out, &node));
    out.text(&text)
}

/// What is known of its paths, and its last samples.
fn health(out: &Output, node: &Node) -> String {
    let mut table = Table::new(&[
        ("PATH", Align::Left),
        ("STATE", Align::Left),
        ("DELAY", Align::Right),
        ("FAILURES", Align::Right),
    ]);
    for (path, health) in node.health.paths() {
        if health.state != "unknown" {
            table.cells(vec![
                plain(path),
                latency::state(out, &health.state),
                latency::cell(health.avg_ms),
                plain(health.fail_streak.to_string()),
            ]);
        }
    }
    let mut text = match table.is_empty() {
        true => String::new(),
        false => table.render(out),
    };
    let mut table = Table::new(&[
        ("AT", Align::Left),
        ("DELAY", Align::Right),
        ("", Align::Left),
        ("KIND", Align::Left),
        ("URL", Align::Left),
    ]);
    for sample in &node.history {
        let bar = latency::bar(sample.delay_ms.filter(|_| out.width.is_some()));
        table.cells(vec![
            plain(&sample.at),
            latency::measured(sample.delay_ms.ok_or(())),
            bar,
            plain(&sample.kind),
            plain(&sample.url),
        ]);
    }
    if !table.is_empty() {
        text.push_str(&table.render(out));
    }
    text
}

async fn find(session: &Session, name: &str) -> Result<Node, Failure> {
    if lookup::is_id(name) {
        return session.client.get(&format!("/api/v1/nodes/{name}")).await;
    }
    let nodes: Vec<Node> = lookup::all(&session.client, "/api/v1/nodes").await?;
    named(&nodes, name).cloned()
}

/// The node of that name or id. Two of one name are two different servers.
fn named<'a>(nodes: &'a [Node], name: &str) -> Result<&'a Node, Failure> {
    let by_id = || nodes.iter().find(|n| n.id == name);
    if let Some(node) = lookup::is_id(name).then(by_id).flatten() {
        return Ok(node);
    }
    let (mut named, others): (Vec<&Node>, Vec<&Node>) = nodes.iter().partition(|n| n.name == name);
    if named.len() > 1 {
        let ids: Vec<&str> = named.iter().map(|n| n.id.as_str()).collect();
        let text = format!(
            "{} nodes are named {}; give an id ({})",
            ids.len(),
            clean(name),
            ids.join(", ")
        );
        let details = json!({ "ids": ids });
        return Err(Failure::new(Exit::Conflict, "ambiguous", text).details(details));
    }
    named
        .pop()
        .ok_or_else(|| lookup::unknown("node", name, others.iter().map(|n| n.name.as_str())))
}
