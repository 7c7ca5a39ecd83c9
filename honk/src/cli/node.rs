//! `honk node`: list, show.

use serde_json::json;

use super::{
    Session, args,
    exit::{Exit, Failure},
    lookup,
    output::clean,
    sub,
    table::{Align, Table},
    watch,
};
use crate::api::doc::Node;

/// Runs one of the subcommands.
pub(crate) async fn run(session: &Session, command: args::Node) -> Result<Exit, Failure> {
    match command {
        args::Node::List { group, sub, watch } => {
            let list = || list(session, group.as_deref(), sub.as_deref());
            watch::redraw(session, watch, list).await?;
        }
        args::Node::Show { node, watch } => {
            watch::redraw(session, watch, || show(session, &node)).await?;
        }
    }
    Ok(Exit::Success)
}

async fn list(session: &Session, group: Option<&str>, sub: Option<&str>) -> Result<(), Failure> {
    let filters: Vec<String> = [("group", group), ("sub", sub)]
        .into_iter()
        .filter_map(|(key, name)| Some(format!("{key}={}", lookup::encode(name?))))
        .collect();
    let query = match filters.is_empty() {
        true => String::new(),
        false => format!("?{}", filters.join("&")),
    };
    if let Some(sub) = sub {
        sub::find(session, sub).await?;
    }
    let path = format!("/api/v1/nodes{query}");
    let nodes: Vec<Node> = match (lookup::all(&session.client, &path).await, group) {
        (Err(failure), Some(group)) if failure.exit == Exit::NotFound => {
            return Err(lookup::unknown_group(&session.client, group).await);
        }
        (nodes, _) => nodes?,
    };
    let out = &session.out;
    if out.json {
        return out.document("node.list/1", &nodes, &[] as &[String]);
    }
    let mut table = Table::new(&[
        ("NODE", Align::Left),
        ("STATE", Align::Left),
        ("PROTOCOL", Align::Left),
        ("NETWORK", Align::Left),
        ("GROUPS", Align::Right),
        ("CONNS", Align::Right),
        ("ID", Align::Left),
    ]);
    for n in &nodes {
        let state = if n.builtin { "-" } else { &n.state };
        table.row(vec![
            n.name.clone(),
            state.to_owned(),
            n.protocol.clone(),
            n.network.clone(),
            n.groups.len().to_string(),
            n.active.to_string(),
            n.id.clone(),
        ]);
    }
    out.text(&table.render(out))
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
    out.text(&format!(
        "{} ({}, {})\n  id: {}\n  from: {from}\n  state: {}\n  groups: {}\n  connections: {}",
        clean(&node.name),
        node.protocol,
        node.network,
        node.id,
        node.state,
        node.groups.len(),
        node.active,
    ))
}

async fn find(session: &Session, name: &str) -> Result<Node, Failure> {
    if lookup::is_id(name) {
        return session.client.get(&format!("/api/v1/nodes/{name}")).await;
    }
    let nodes: Vec<Node> = lookup::all(&session.client, "/api/v1/nodes").await?;
    let (mut named, others): (Vec<Node>, Vec<Node>) =
        nodes.into_iter().partition(|n| n.name == name);
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
