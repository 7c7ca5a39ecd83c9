//! Findings as SARIF 2.1.0, which editors and code hosts show beside the text.
//!
//! One run with one result for each finding. Columns count characters, and the end is the place
//! behind the last one, in both forms.

use std::{collections::BTreeSet, fmt::Write as _};

use serde_json::{Value, json};

use super::version::VERSION;
use crate::api::doc::Diag;

/// The log of one run.
pub(crate) fn log(findings: &[Diag]) -> Value {
    let codes: BTreeSet<&str> = findings.iter().map(|d| d.code.as_str()).collect();
    let rules: Vec<Value> = codes.iter().map(|code| json!({ "id": code })).collect();
    let results: Vec<Value> = findings.iter().map(result).collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": { "name": "honk", "version": VERSION, "rules": rules } },
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
}

fn result(d: &Diag) -> Value {
    let text = match &d.help {
        Some(help) => format!("{} (help: {help})", d.message),
        None => d.message.clone(),
    };
    let mut result = json!({
        "ruleId": d.code,
        "level": d.severity,
        "message": { "text": text },
    });
    if let Some(file) = &d.file {
        let mut place = json!({ "artifactLocation": { "uri": uri(file) } });
        if let (Some(line), Some(column)) = (d.line, d.column) {
            place["region"] = json!({ "startLine": line, "startColumn": column });
            if let (Some(line), Some(column)) = (d.end_line, d.end_column) {
                place["region"]["endLine"] = json!(line);
                place["region"]["endColumn"] = json!(column);
            }
        }
        result["locations"] = json!([{ "physicalLocation": place }]);
    }
    if !d.related.is_empty() {
        let related = d.related.iter().map(|r| {
            json!({
                "physicalLocation": {
                    "artifactLocation": { "uri": uri(&r.file) },
                    "region": { "startLine": r.line, "startColumn": r.column },
                },
                "message": { "text": r.message },
            })
        });
        result["relatedLocations"] = related.collect();
    }
    result
}

/// A path as a URI: absolute ones name the scheme, others are relative to where honk ran.
fn uri(path: &str) -> String {
    let mut uri = String::with_capacity(path.len() + 8);
    if path.starts_with('/') {
        uri.push_str("file://");
    }
    for byte in path.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' => {
                uri.push(char::from(byte));
            }
            _ => {
                let _ = write!(uri, "%{byte:02X}");
            }
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        app::source::{self, Purpose},
        cli::tests::invocation,
    };

    #[test]
    fn each_finding_is_a_result_with_its_place() {
        let text = "global { lan_interface: lan0 log_level: info log_level: debug\n tproxy_prot: 1 }\n\
                    routing { fallback: direct }";
        let spec = invocation().spec_or_here();
        let outcome =
            source::load_text(&spec, "/a b/\u{65E5}.dae", text.as_bytes(), Purpose::Check);
        let log = log(&outcome.findings.documents());
        let run = &log["runs"][0];
        assert_eq!(log["version"], "2.1.0");
        assert_eq!(
            run["tool"]["driver"]["rules"],
            json!([{ "id": "duplicate-key" }, { "id": "unknown-key" }])
        );
        let results = run["results"].as_array().unwrap();
        assert_eq!(results.len(), 2, "{results:?}");
        let [repeated, unknown] = [&results[0], &results[1]];
        assert_eq!(repeated["level"], "warning");
        let place = &repeated["relatedLocations"][0]["physicalLocation"];
        assert_eq!(place["region"]["startColumn"], 30);
        assert_eq!(
            (&unknown["ruleId"], &unknown["level"]),
            (&json!("unknown-key"), &json!("error"))
        );
        let place = &unknown["locations"][0]["physicalLocation"];
        assert_eq!(
            place["artifactLocation"]["uri"],
            "file:///a%20b/%E6%97%A5.dae"
        );
        assert_eq!(
            place["region"],
            json!({ "startLine": 2, "startColumn": 2, "endLine": 2, "endColumn": 13 })
        );
        let text = unknown["message"]["text"].as_str().unwrap();
        assert!(text.contains("did you mean `tproxy_port`?"), "{text}");
        assert_eq!(uri("<stdin>"), "%3Cstdin%3E");
    }
}
