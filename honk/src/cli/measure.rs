//! `honk node ping` and `honk group test`: measurements with progress, called off by Ctrl-C.

use std::{collections::HashMap, time::Duration};

use hyper::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use super::{
    Session,
    args::{self, Sort},
    exit::{Exit, Failure},
    latency,
    output::clean,
    progress::Progress,
    table::{Align, Table, plain},
};

/// Pause between two looks at a run.
const POLL: Duration = Duration::from_millis(100);

/// A run as the daemon tells it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Test {
    id: String,
    state: String,
    total: usize,
    done: usize,
    ok: usize,
    failed: usize,
    results: Vec<Outcome>,
    url: String,
    timeout_ms: u64,
}

/// What became of one node.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Outcome {
    node_id: String,
    ok: bool,
    delay_ms: Option<u16>,
    error: Option<String>,
    /// Added here.
    #[serde(default)]
    name: String,
}

/// What is measured, and how it is shown.
pub(crate) struct Wanted<'a> {
    /// `scope` of the request.
    pub(crate) scope: Value,
    /// Names by id.
    pub(crate) names: HashMap<String, String>,
    pub(crate) how: &'a args::Measure,
    pub(crate) schema: &'static str,
}

/// How the measurement ended.
enum End {
    /// By itself, or called off by somebody else.
    Over,
    Interrupted,
}

/// Measures, shows progress, and prints what was found.
pub(crate) async fn run(session: &Session, wanted: Wanted<'_>) -> Result<Exit, Failure> {
    // Listened for before anything begins: a run must not go on without the one who wants it.
    let mut interrupted = signal(SignalKind::interrupt())?;
    let how = wanted.how;
    let timeout = session.timeout.map(|t| t.as_millis());
    let body = json!({
        "kind": "delay",
        "scope": wanted.scope,
        "url": how.url,
        "timeout_ms": timeout.and_then(|ms| u64::try_from(ms).ok()),
        "family": how.family,
        "concurrency": how.concurrency,
    });
    // The limit of the command line is that of a measurement.
    let client = session.client.clone().waiting(super::client::DEFAULT_WAIT);
    let begun = client.call(Method::POST, "/api/v1/tests", Some(body));
    let mut test: Test = begun.await?;
    let path = format!("/api/v1/tests/{}", test.id);
    let mut progress = Progress::new(session.progress, session.out.quiet, "measured");
    let end = loop {
        let last = test.results.last().map(|r| r.node_id.as_str());
        let last = last.and_then(|id| wanted.names.get(id));
        progress.at(test.done, test.total, last.map(String::as_str));
        if test.state != "running" {
            break End::Over;
        }
        tokio::select! {
            _ = interrupted.recv() => break End::Interrupted,
            () = tokio::time::sleep(POLL) => {}
        }
        test = client.get(&path).await?;
    };
    if let End::Interrupted = end {
        // Its answer comes when the last connection is closed.
        client.send(Method::DELETE, &path, None).await?;
        test = client.get(&path).await?;
    }
    progress.end();
    for outcome in &mut test.results {
        let name = wanted.names.get(&outcome.node_id);
        outcome.name = name.cloned().unwrap_or_else(|| outcome.node_id.clone());
    }
    how.arrange(&mut test.results);
    show(session, wanted.schema, &test)?;
    Ok(match end {
        End::Interrupted => Exit::Interrupted,
        End::Over if test.state == "cancelled" => {
            session.out.note("somebody called the measurement off");
            Exit::Failure
        }
        End::Over if test.failed > 0 => Exit::Partial,
        End::Over => Exit::Success,
    })
}

impl args::Measure {
    /// Failures last; then as asked.
    fn arrange(&self, results: &mut Vec<Outcome>) {
        match self.sort {
            Sort::Name => results.sort_by(|a, b| a.name.cmp(&b.name)),
            Sort::Latency => results.sort_by_key(|r| (!r.ok, r.delay_ms)),
        }
        results.truncate(self.limit.unwrap_or(usize::MAX));
    }
}

fn show(session: &Session, schema: &str, test: &Test) -> Result<(), Failure> {
    let out = &session.out;
    if out.json {
        return out.document(schema, test, &[] as &[String]);
    }
    let mut columns = vec![("NODE", Align::Left), ("DELAY", Align::Right)];
    if out.width.is_some() {
        columns.push(("", Align::Left));
    }
    columns.push(("PROBLEM", Align::Left));
    let mut table = Table::new(&columns);
    for outcome in &test.results {
        let delay = outcome.delay_ms.filter(|_| outcome.ok).ok_or(());
        let mut row = vec![plain(outcome.name.clone()), latency::measured(delay)];
        if out.width.is_some() {
            row.push(latency::bar(delay.ok()));
        }
        row.push(plain(outcome.error.clone().unwrap_or_default()));
        table.cells(row);
    }
    let mut text = table.render(out);
    text.push_str(&format!(
        "{} of {} answered {} within {} ms{}\n",
        test.ok,
        test.total,
        clean(&test.url),
        test.timeout_ms,
        match test.state.as_str() {
            "cancelled" => "; called off",
            _ => "",
        }
    ));
    out.text(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_come_first_and_failures_last() {
        let outcome = |name: &str, delay_ms: Option<u16>| Outcome {
            node_id: name.to_owned(),
            ok: delay_ms.is_some(),
            delay_ms,
            error: None,
            name: name.to_owned(),
        };
        let all = [
            outcome("b", Some(30)),
            outcome("a", None),
            outcome("c", Some(10)),
        ];
        let order = |sort, limit| {
            let measure = args::Measure {
                url: None,
                concurrency: None,
                family: None,
                sort,
                limit,
            };
            let mut results = all.to_vec();
            measure.arrange(&mut results);
            let names: Vec<String> = results.into_iter().map(|r| r.name).collect();
            names.concat()
        };
        assert_eq!(order(Sort::Latency, None), "cba");
        assert_eq!(order(Sort::Name, None), "abc");
        assert_eq!(order(Sort::Latency, Some(1)), "c");
    }
}
