//! `honk node`: list, show.

use serde_json::json;

use super::{
    Session, args,
    exit::{Exit, Failure},
    lookup,
    output::clean,
    table::{Align, Table},
    watch,
};
use crate::api::doc::Node;

/// Runs one of the subcommands.
pub(crate) async fn run(session: &Session, command: args::Node) -> Result<Exit, Failure> {
    match command {
        args::Node::List { group, watch } => {
            watch::redraw(session, watch, || list(session, group.as_deref())).await?;
        }
        args::Node::Show { node, watch } => {
            watch::redraw(session, watch, || show(session, &node)).await?;
        }
    }
    Ok(Exit::Success)
}

async fn list(session: &Session, group: Option<&str>) -> Result<(), Failure> {
    let query = group.map_or(String::new(), |g| format!("?group={}", lookup::encode(g)));
    let nodes: Vec<Node> = lookup::all(&session.client, &format!("/api/v1/nodes{query}")).await?;
    let out = &session.out;
    if out.json {
        return out.document("node.list/1", &nodes, &[] as &[String]);
    }
    let mut table = Table::new(&[
        ("", Align::Left),
        ("NODE", Align::Left),
        ("PROTOCOL", Align::Left),
        ("NETWORK", Align::Left),
        ("GROUPS", Align::Right),
        ("CONNS", Align::Right),
        ("ID", Align::Left),
    ]);
    for n in &nodes {
        let mark = if n.builtin { " " } else { "?" };
        table.row(vec![
            mark.to_owned(),
            n.name.clone(),
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
    out.text(&format!(
        "{} ({}, {})\n  id: {}\n  state: {}\n  groups: {}\n  connections: {}",
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
    // A name means the first node declared with it, everywhere in honk.
    nodes.into_iter().find(|n| n.name == name).ok_or_else(|| {
        let text = format!("no such node: {}", clean(name));
        Failure::new(Exit::NotFound, "not_found", text).details(json!({ "kind": "node" }))
    })
}
