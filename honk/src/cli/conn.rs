//! `honk conn`: list, close.

use std::io::{self, IsTerminal as _, Write as _};

use hyper::Method;

use super::{
    Session,
    args::{self, Filter},
    exit::{Exit, Failure},
    lookup,
    table::{Align, Table, bytes},
};
use crate::api::doc::{CloseResult, Conn, Endpoint};

/// Runs one of the subcommands.
pub(crate) async fn run(session: &Session, command: args::Conn) -> Result<Exit, Failure> {
    match command {
        args::Conn::List { filter, closed } => list(session, &filter, closed).await,
        args::Conn::Close {
            ids,
            all,
            yes,
            filter,
        } if ids.is_empty() => close_matching(session, &filter, all, yes).await,
        args::Conn::Close { ids, .. } => close_each(session, &ids).await,
    }
}

async fn list(session: &Session, filter: &Filter, closed: bool) -> Result<Exit, Failure> {
    let mut query = pairs(filter);
    if closed {
        query.push("closed=true".to_owned());
    }
    let path = format!("/api/v1/connections?{}", query.join("&"));
    let conns: Vec<Conn> = lookup::all(&session.client, &path).await?;
    if conns.is_empty() {
        named(session, filter).await?;
    }
    let out = &session.out;
    if out.json {
        out.document("conn.list/1", &conns, &[] as &[String])?;
        return Ok(Exit::Success);
    }
    let last = if closed { "REASON" } else { "CARRIER" };
    let mut table = Table::new(&[
        ("NET", Align::Left),
        ("SOURCE", Align::Left),
        ("DESTINATION", Align::Left),
        ("HOST", Align::Left),
        ("CHAIN", Align::Left),
        ("RULE", Align::Right),
        ("UP", Align::Right),
        ("DOWN", Align::Right),
        (last, Align::Left),
        ("ID", Align::Left),
    ]);
    for c in &conns {
        table.row(vec![
            c.network.clone(),
            endpoint(&c.src),
            endpoint(&c.dst),
            c.host.clone().unwrap_or_else(|| "-".to_owned()),
            c.chain.join(" > "),
            c.rule.index.to_string(),
            bytes(c.up_bytes),
            bytes(c.down_bytes),
            c.reason.clone().unwrap_or_else(|| c.carrier.clone()),
            c.id.clone(),
        ]);
    }
    out.text(&table.render(out))?;
    Ok(Exit::Success)
}

async fn close_matching(
    session: &Session,
    filter: &Filter,
    all: bool,
    yes: bool,
) -> Result<Exit, Failure> {
    let mut query = pairs(filter);
    if query.is_empty() && !all {
        let text = "name connections, a filter, or --all";
        return Err(Failure::new(Exit::Usage, "usage", text));
    }
    if all {
        confirm(yes, "Close all connections that honk carries?")?;
        query.push("all=true".to_owned());
    }
    let path = format!("/api/v1/connections?{}", query.join("&"));
    let result: CloseResult = session.client.call(Method::DELETE, &path, None).await?;
    if result.matched == 0 {
        named(session, filter).await?;
    }
    report(session, result)
}

async fn close_each(session: &Session, ids: &[String]) -> Result<Exit, Failure> {
    let mut result = CloseResult {
        matched: ids.len(),
        closed: 0,
        pending: 0,
    };
    let mut missing = None;
    for id in ids {
        let path = format!("/api/v1/connections/{}", lookup::encode(id));
        match session
            .client
            .call::<serde_json::Value>(Method::DELETE, &path, None)
            .await
        {
            Ok(_) => result.closed += 1,
            Err(failure) if failure.exit == Exit::NotFound => missing = Some(failure),
            Err(failure) => return Err(failure),
        }
    }
    match missing {
        Some(failure) if result.closed == 0 => Err(failure),
        Some(failure) => {
            session.out.note(&failure.message);
            report(session, result)?;
            Ok(Exit::Partial)
        }
        None => report(session, result),
    }
}

fn report(session: &Session, result: CloseResult) -> Result<Exit, Failure> {
    if session.out.json {
        let none = [] as [String; 0];
        session.out.document("conn.close/1", &result, &none)?;
    } else {
        session.out.text(&format!("closed {}", result.closed))?;
    }
    if result.pending > 0 {
        let text = format!("{} connections are still closing", result.pending);
        session.out.note(&text);
        return Ok(Exit::Partial);
    }
    Ok(Exit::Success)
}

/// Nothing matched: perhaps because a name is none. Flows outlive names, so this is not asked
/// before.
async fn named(session: &Session, filter: &Filter) -> Result<(), Failure> {
    let (group, node) = (filter.flows.group.as_deref(), filter.node.as_deref());
    lookup::exists(&session.client, group, node).await
}

/// Query of a filter.
fn pairs(filter: &Filter) -> Vec<String> {
    let node = filter.node.as_deref();
    lookup::pairs(&filter.flows, &[("node", node)])
}

fn endpoint(e: &Endpoint) -> String {
    if e.ip.contains(':') {
        format!("[{}]:{}", e.ip, e.port)
    } else {
        format!("{}:{}", e.ip, e.port)
    }
}

/// Asks on a terminal; elsewhere `--yes` must say it.
pub(crate) fn confirm(yes: bool, question: &str) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        let text = "nobody is there to ask; add --yes";
        return Err(Failure::new(Exit::Usage, "usage", text));
    }
    eprint!("{question} [y/N] ");
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    if matches!(answer.trim(), "y" | "Y" | "yes") {
        return Ok(());
    }
    Err(Failure::new(Exit::Failure, "declined", "nothing done"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::Flows;

    #[test]
    fn filters_become_an_encoded_query() {
        let filter = Filter {
            flows: Flows {
                src: Some("10.0.0.0/8".into()),
                group: Some("a b".into()),
                rule: Some(3),
                ..Flows::default()
            },
            node: Some("n".into()),
        };
        assert_eq!(
            pairs(&filter),
            ["src=10.0.0.0%2F8", "group=a%20b", "rule=3", "node=n"]
        );
    }

    #[test]
    fn closing_everything_needs_consent() {
        assert!(confirm(true, "").is_ok());
    }
}
