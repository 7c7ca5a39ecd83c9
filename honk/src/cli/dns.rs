//! `honk dns`: what answers taught.

use std::collections::BTreeSet;

use super::{
    Session, args,
    exit::{Exit, Failure},
    lookup,
    table::{Align, Table},
};
use crate::api::doc::DnsMap;

/// Most addresses the daemon shows at a time.
const LIMIT: usize = 10_000;

/// Runs one of the subcommands.
pub(crate) async fn run(session: &Session, command: args::Dns) -> Result<Exit, Failure> {
    match command {
        args::Dns::Map { ip, name } => {
            let ip = ip.map(|ip| format!("&ip={}", lookup::encode(&ip.to_string())));
            let name = name.map(|name| format!("&name={}", lookup::encode(&name)));
            map(session, &ip.or(name).unwrap_or_default()).await
        }
    }
}

async fn map(session: &Session, filter: &str) -> Result<Exit, Failure> {
    let path = format!("/api/v1/dns/map?limit={LIMIT}{filter}");
    let map: DnsMap = session.client.get(&path).await?;
    let out = &session.out;
    if out.json {
        out.document("dns.map/1", &map, &[] as &[String])?;
        return Ok(Exit::Success);
    }
    let mut table = Table::new(&[
        ("ADDRESS", Align::Left),
        ("NAME", Align::Left),
        ("FORGOTTEN IN", Align::Right),
        ("RULES", Align::Left),
    ]);
    for item in &map.items {
        let lines: BTreeSet<_> = item.rules.iter().chain(&item.ambiguous).collect();
        let rules = lines.into_iter().map(|line| {
            let doubt = if item.ambiguous.contains(line) {
                "?"
            } else {
                ""
            };
            format!("{line}{doubt}")
        });
        let rules = rules.collect::<Vec<_>>().join(" ");
        for (n, name) in item.names.iter().enumerate() {
            let first = |text: &str| {
                if n == 0 {
                    text.to_owned()
                } else {
                    String::new()
                }
            };
            table.row(vec![
                first(&item.ip),
                name.name.clone(),
                format!("{} s", name.expires_s),
                first(&rules),
            ]);
        }
    }
    out.text(&table.render(out))?;
    if map.total > map.items.len() {
        let text = format!("{} of {} addresses are shown", map.items.len(), map.total);
        out.note(&text);
    }
    Ok(Exit::Success)
}
