//! What answers taught: names of addresses.

use axum::{Json, extract::State};
use honk_policy::routing::rule::Test;
use serde::Deserialize;

use super::{
    Shared,
    doc::{DnsAddress, DnsMap, DnsName},
    error::ApiError,
    query::Params,
};
use crate::app::engine::Wanted;

/// Addresses shown when nothing is said, and at most.
const LIMIT: usize = 200;
const MAX_LIMIT: usize = 10_000;

/// `GET /dns/map`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    ip: Option<String>,
    name: Option<String>,
    limit: Option<String>,
}

impl Query {
    fn wanted(&self) -> Result<Wanted, ApiError> {
        match (&self.ip, &self.name) {
            (Some(_), Some(_)) => Err(ApiError::bad_query("name", "give `ip` or `name`, not both")),
            (Some(ip), None) => {
                let bad = |_| ApiError::bad_query("ip", "ip is an IPv4 or IPv6 address");
                ip.parse().map(Wanted::Address).map_err(bad)
            }
            (None, Some(name)) => {
                let name = name.strip_suffix('.').unwrap_or(name);
                Ok(Wanted::Name(name.to_ascii_lowercase()))
            }
            (None, None) => Ok(Wanted::All),
        }
    }

    fn limit(&self) -> Result<usize, ApiError> {
        let Some(text) = &self.limit else {
            return Ok(LIMIT);
        };
        let number = text.parse().ok();
        let number = number.filter(|n| (1..=MAX_LIMIT).contains(n));
        number.ok_or_else(|| ApiError::bad_query("limit", format!("limit is 1..{MAX_LIMIT}")))
    }
}

pub(super) async fn map(
    State(shared): State<Shared>,
    Params(query): Params<Query>,
) -> Result<Json<DnsMap>, ApiError> {
    let snapshot = shared.engine.snapshot();
    let named: Vec<usize> = snapshot
        .rules
        .lines
        .iter()
        .enumerate()
        .filter(|(_, line)| line.conds.iter().any(|c| matches!(c.test, Test::Domain(_))))
        .map(|(index, _)| index)
        .collect();
    let lines = |bits: &[u64]| -> Vec<usize> {
        let set = |line: &&usize| {
            bits.get(*line / 64)
                .is_some_and(|w| w >> (*line % 64) & 1 == 1)
        };
        named.iter().filter(set).copied().collect()
    };
    let (known, total) = shared.engine.dns.known(&query.wanted()?, query.limit()?);
    let items = known.into_iter().map(|known| DnsAddress {
        ip: known.address.to_string(),
        names: known
            .names
            .iter()
            .map(|v| DnsName {
                name: v.name.to_string(),
                expires_s: v.left,
            })
            .collect(),
        rules: known.value.map_or_else(Vec::new, |v| lines(&v.bits)),
        ambiguous: known.value.map_or_else(Vec::new, |v| lines(&v.amb)),
    });
    Ok(Json(DnsMap {
        total,
        items: items.collect(),
    }))
}
