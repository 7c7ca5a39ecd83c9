//! Names and ids on the command line, whole lists behind pages.

use serde::de::DeserializeOwned;

use serde_json::json;

use super::{
    args::Flows,
    client::Client,
    exit::{Exit, Failure},
    output::clean,
};
use crate::api::doc::{Group, Node, Page};

/// Largest page the daemon gives.
const PAGE: usize = 1000;

/// All items of a list, page by page.
pub(crate) async fn all<T: DeserializeOwned>(
    client: &Client,
    path: &str,
) -> Result<Vec<T>, Failure> {
    let mut items = Vec::new();
    let mut cursor = None::<String>;
    let join = if path.contains('?') { '&' } else { '?' };
    loop {
        let from = cursor.map_or(String::new(), |c| format!("&cursor={}", encode(&c)));
        let page: Page<T> = client
            .get(&format!("{path}{join}limit={PAGE}{from}"))
            .await?;
        items.extend(page.items);
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(items);
        }
    }
}

/// A name that means nothing, with the nearest names that mean something.
pub(crate) fn unknown<'a>(
    kind: &str,
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Failure {
    let near = honk_grammar::suggest(name, known);
    let help = match near.as_slice() {
        [] => format!("`honk {kind} list` shows all"),
        near => format!("did you mean {}?", clean(&near.join(" or "))),
    };
    let text = format!("no such {kind}: {}; {help}", clean(name));
    let details = json!({ "kind": kind, "name": name, "suggestions": near });
    Failure::new(Exit::NotFound, "not_found", text).details(details)
}

/// The same for a group; asks the daemon for the names there are.
pub(crate) async fn unknown_group(client: &Client, name: &str) -> Failure {
    match all::<Group>(client, "/api/v1/groups").await {
        Ok(groups) => unknown("group", name, groups.iter().map(|g| g.name.as_str())),
        Err(failure) => failure,
    }
}

/// Fails when a filter names a group or a node that does not exist.
pub(crate) async fn exists(
    client: &Client,
    group: Option<&str>,
    node: Option<&str>,
) -> Result<(), Failure> {
    if group.is_none() && node.is_none() {
        return Ok(());
    }
    let nodes: Vec<Node> = all(client, "/api/v1/nodes").await?;
    let is_node = |name: &&str| nodes.iter().any(|n| n.name == *name || n.id == *name);
    if let Some(name) = node.filter(|name| !is_node(name)) {
        return Err(unknown("node", name, nodes.iter().map(|n| n.name.as_str())));
    }
    // An outbound may be a node by itself.
    if let Some(name) = group.filter(|name| !is_node(name)) {
        let groups: Vec<Group> = all(client, "/api/v1/groups").await?;
        if !groups.iter().any(|g| g.name == name) {
            return Err(unknown(
                "group",
                name,
                groups.iter().map(|g| g.name.as_str()),
            ));
        }
    }
    Ok(())
}

/// Whether a word is an id rather than a name.
pub(crate) fn is_id(word: &str) -> bool {
    word.len() == 36 && uuid::Uuid::try_parse(word).is_ok()
}

/// Query of a filter, with what else is asked.
pub(crate) fn pairs(flows: &Flows, more: &[(&str, Option<&str>)]) -> Vec<String> {
    let rule = flows.rule.map(|rule| rule.to_string());
    let all = [
        ("src", flows.src.as_deref()),
        ("dst", flows.dst.as_deref()),
        ("host", flows.host.as_deref()),
        ("group", flows.group.as_deref()),
        ("network", flows.network.as_deref()),
        ("rule", rule.as_deref()),
    ];
    let all = all.iter().chain(more);
    all.filter_map(|(key, value)| Some(format!("{key}={}", encode((*value)?))))
        .collect()
}

/// Percent-encodes everything but letters, digits and `-._~`.
pub(crate) fn encode(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            safe.push(char::from(byte));
        } else {
            safe.push_str(&format!("%{byte:02X}"));
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_the_way_into_a_path() {
        assert_eq!(encode("a b/?#%香"), "a%20b%2F%3F%23%25%E9%A6%99");
        assert!(is_id("00000000-0000-4000-8000-000000000001"));
        assert!(!is_id("proxy"));
    }
}
