//! Rules as dashboards list them: one condition in their words, anything else as written.

use axum::{Json, extract::State};
use honk_policy::routing::rule::{DomainTest, Prefix, RuleLine, Test};
use serde_json::{Value, json};

use super::Shared;
use crate::app::snapshot::Snapshot;

pub(super) async fn list(State(shared): State<Shared>) -> Json<Value> {
    let snapshot = shared.engine.snapshot();
    let lines = snapshot.rules.lines.iter().enumerate();
    let rule = |(index, line): (usize, &RuleLine)| {
        let (kind, payload) = words(line);
        json!({
            "index": index,
            "type": kind,
            "payload": payload,
            "proxy": target(&snapshot, line),
            "size": -1,
        })
    };
    let rules: Vec<Value> = lines.map(rule).collect();
    Json(json!({ "rules": rules }))
}

/// Type and payload of a rule; also what connections say about theirs.
pub(super) fn words(line: &RuleLine) -> (&'static str, String) {
    let complex = || ("complex", line.text.clone());
    let [cond] = &*line.conds else {
        return match line.conds.is_empty() && !line.action.must {
            true => ("match", String::new()),
            false => complex(),
        };
    };
    match kind(&cond.test) {
        Some(kind) if !cond.not && !line.action.must => (kind, payload(&cond.test)),
        _ => complex(),
    }
}

fn target(snapshot: &Snapshot, line: &RuleLine) -> String {
    let name = snapshot.name_of(line.action.ordinal.0);
    let written = || {
        line.text
            .rsplit("->")
            .next()
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    name.map_or_else(written, ToString::to_string)
}

/// `None` where values of several types stand together.
fn kind(test: &Test) -> Option<&'static str> {
    Some(match test {
        Test::Dest(_) => "ip-cidr",
        Test::Source(_) => "src-ip-cidr",
        Test::DestPort(_) => "dst-port",
        Test::SourcePort(_) => "src-port",
        Test::L4Proto { .. } => "network",
        Test::IpVersion { .. } => "ip-version",
        Test::Mac(_) => "src-mac",
        Test::Dscp(_) => "dscp",
        Test::ProcessName(_) => "process-name",
        Test::Domain(tests) => {
            let mut kinds = tests.iter().map(domain_kind);
            let first = kinds.next()?;
            return kinds.all(|kind| kind == first).then_some(first);
        }
    })
}

fn domain_kind(test: &DomainTest) -> &'static str {
    match test {
        DomainTest::Suffix(_) | DomainTest::SubdomainsOf(_) => "domain-suffix",
        DomainTest::Full(_) => "domain",
        DomainTest::Keyword(_) => "domain-keyword",
        DomainTest::Regex(_) => "domain-regex",
        DomainTest::Geosite { .. } => "geosite",
    }
}

/// Values of one rule that are written out.
const VALUES: usize = 16;

fn payload(test: &Test) -> String {
    match test {
        Test::Dest(prefixes) | Test::Source(prefixes) => list_of(prefixes, prefix),
        Test::DestPort(ranges) | Test::SourcePort(ranges) => {
            list_of(ranges, |(from, to)| match from == to {
                true => from.to_string(),
                false => format!("{from}-{to}"),
            })
        }
        Test::L4Proto { tcp, udp } => chosen(*tcp, "tcp", *udp, "udp"),
        Test::IpVersion { v4, v6 } => chosen(*v4, "4", *v6, "6"),
        Test::Mac(macs) => list_of(macs, |mac| mac.map(|byte| format!("{byte:02x}")).join(":")),
        Test::Dscp(values) => list_of(values, ToString::to_string),
        Test::ProcessName(names) => list_of(names, |name| {
            let name: Vec<u8> = name.iter().copied().take_while(|b| *b != 0).collect();
            String::from_utf8_lossy(&name).into_owned()
        }),
        Test::Domain(tests) => list_of(tests, domain),
    }
}

fn list_of<T>(values: &[T], text: impl Fn(&T) -> String) -> String {
    let mut list: Vec<String> = values.iter().take(VALUES).map(text).collect();
    if values.len() > VALUES {
        list.push(format!("… ({} in all)", values.len()));
    }
    list.join(", ")
}

fn chosen(one: bool, first: &str, other: bool, second: &str) -> String {
    let words = [(one, first), (other, second)];
    let words = words.iter().filter(|(on, _)| *on).map(|(_, word)| *word);
    words.collect::<Vec<&str>>().join(", ")
}

fn domain(test: &DomainTest) -> String {
    match test {
        DomainTest::SubdomainsOf(name) => format!(".{name}"),
        DomainTest::Suffix(text)
        | DomainTest::Full(text)
        | DomainTest::Keyword(text)
        | DomainTest::Regex(text) => text.clone(),
        DomainTest::Geosite { code, attr, .. } => match attr {
            Some(attr) => format!("{code}@{attr}"),
            None => code.clone(),
        },
    }
}

fn prefix(prefix: &Prefix) -> String {
    let address = std::net::Ipv6Addr::from(prefix.addr);
    match address.to_ipv4_mapped().filter(|_| prefix.len >= 96) {
        Some(v4) => format!("{v4}/{}", prefix.len - 96),
        None => format!("{address}/{}", prefix.len),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::get;
    use super::*;
    use crate::app::testkit::{CONFIG, World};

    #[tokio::test]
    async fn rules_are_listed_in_the_words_of_dashboards() {
        let rules = "routing {
            domain(suffix: example.org, suffix: x.example) -> b
            domain(full: a.example, keyword: ads) -> block
            domain(keyword: ads) -> block
            !dip(10.1.0.0/16) -> c
            dport(443, 8000-8080) -> must_proxy
            sip(2001:db8::/32) -> proxy
            l4proto(udp) -> direct
            mac('02:00:00:00:00:01') -> direct
        ";
        let world = World::new(&CONFIG.replace("routing {", rules));
        let rules = get(&world, "/rules").await["rules"].clone();
        let rules = rules.as_array().unwrap();
        for (at, (kind, payload, proxy)) in [
            ("domain-suffix", "example.org, x.example", "b"),
            ("complex", "", "block"),
            ("domain-keyword", "ads", "block"),
            ("complex", "", "c"),
            ("complex", "", "proxy"),
            ("src-ip-cidr", "2001:db8::/32", "proxy"),
            ("network", "udp", "direct"),
            ("src-mac", "02:00:00:00:00:01", "direct"),
            ("ip-cidr", "10.0.0.0/8", "direct"),
            ("ip-cidr", "198.51.100.0/24", "block"),
            ("complex", "", "c"),
            ("match", "", "proxy"),
        ]
        .into_iter()
        .enumerate()
        {
            let rule = &rules[at];
            assert_eq!(
                (&rule["index"], &rule["type"]),
                (&json!(at), &json!(kind)),
                "{rule}"
            );
            match kind {
                // As written.
                "complex" => assert!(rule["payload"].as_str().unwrap().contains('('), "{rule}"),
                _ => assert_eq!(rule["payload"], payload, "{rule}"),
            }
            assert_eq!(
                (&rule["proxy"], &rule["size"]),
                (&json!(proxy), &json!(-1)),
                "{rule}"
            );
            assert!(rule.get("extra").is_none() && rule.get("uuid").is_none());
        }
        assert_eq!(rules.len(), 12);
    }

    #[test]
    fn long_lists_are_cut() {
        let ports: Vec<(u16, u16)> = (0..40).map(|port| (port, port)).collect();
        let text = payload(&Test::DestPort(ports));
        assert!(
            text.starts_with("0, 1, ") && text.ends_with("15, … (40 in all)"),
            "{text}"
        );
    }
}
