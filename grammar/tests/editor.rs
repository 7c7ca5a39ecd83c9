//! The highlighting grammar under `docs/editor` knows every section and cuts text as we do.

use regex::Regex;
use serde_json::Value;

const GRAMMAR: &str = include_str!("../../docs/editor/honk.tmLanguage.json");

/// One pattern: expression, scope of the whole match, scopes of its groups.
struct Pattern {
    regex: Regex,
    /// End of a begin/end pair.
    end: Option<Regex>,
    name: String,
    groups: Vec<(usize, String)>,
}

fn patterns() -> Vec<Pattern> {
    let grammar: Value = serde_json::from_str(GRAMMAR).expect("the grammar is JSON");
    let mut out = Vec::new();
    for entry in grammar["patterns"].as_array().expect("a list") {
        collect(&grammar, entry, &mut out);
    }
    out
}

fn collect(grammar: &Value, entry: &Value, out: &mut Vec<Pattern>) {
    if let Some(name) = entry["include"].as_str() {
        return collect(grammar, &grammar["repository"][&name[1..]], out);
    }
    if let Some(list) = entry["patterns"].as_array() {
        return list.iter().for_each(|entry| collect(grammar, entry, out));
    }
    let source = entry["match"]
        .as_str()
        .or_else(|| entry["begin"].as_str())
        .expect("an expression");
    let captures = entry["captures"].as_object();
    let groups = captures.into_iter().flatten().map(|(group, scope)| {
        let scope = scope["name"].as_str().expect("a scope").to_owned();
        (group.parse().expect("a number"), scope)
    });
    out.push(Pattern {
        regex: Regex::new(source).expect("expressions need no look-around"),
        end: entry["end"]
            .as_str()
            .map(|end| Regex::new(end).expect("an expression")),
        name: entry["name"].as_str().unwrap_or_default().to_owned(),
        groups: groups.collect(),
    });
}

/// Scope and text of all tokens: the leftmost match wins, the earlier pattern among equals.
fn tokens(line: &str) -> Vec<(String, &str)> {
    let patterns = patterns();
    let mut out = Vec::new();
    let mut at = 0;
    while at < line.len() {
        let next = patterns
            .iter()
            .enumerate()
            .filter_map(|(i, pattern)| Some((pattern.regex.find_at(line, at)?.start(), i)))
            .min();
        let Some((_, i)) = next else { break };
        let pattern = &patterns[i];
        let found = pattern.regex.captures_at(line, at).expect("it was found");
        let whole = found.get(0).expect("group 0 always exists");
        let mut end = whole.end();
        if let Some(close) = &pattern.end {
            end = close
                .find_at(line, end)
                .map_or(line.len(), |close| close.end());
        }
        if !pattern.name.is_empty() {
            out.push((pattern.name.clone(), &line[whole.start()..end]));
        }
        for (group, scope) in &pattern.groups {
            let group = found.get(*group).expect("groups always take part");
            out.push((scope.clone(), group.as_str()));
        }
        assert!(end > at, "patterns match something");
        at = end;
    }
    out
}

fn scope_of(line: &str, text: &str) -> String {
    let found = tokens(line).into_iter().find(|token| token.1 == text);
    found
        .unwrap_or_else(|| panic!("{text} is one token of {line}: {:?}", tokens(line)))
        .0
}

#[test]
fn every_section_is_a_keyword() {
    for name in [
        "include",
        "global",
        "subscription",
        "node",
        "group",
        "routing",
        "dns",
        "experimental",
        "chain",
        "speedtest",
        "watch",
        "bypass",
    ] {
        assert_eq!(
            scope_of(&format!("{name} {{ }}"), name),
            "keyword.control.section.dae"
        );
    }
    for name in [
        "upstream",
        "fixed_domain_ttl",
        "request",
        "response",
        "clash_api",
    ] {
        assert_eq!(
            scope_of(&format!("dns {{ {name} {{"), name),
            "keyword.other.subsection.dae"
        );
    }
}

#[test]
fn words_are_cut_as_the_parser_cuts_them() {
    for (line, text, scope) in [
        (
            "log_level: info # note",
            "# note",
            "comment.line.number-sign.dae",
        ),
        (
            "a: socks5://h:1#home",
            "socks5://h:1#home",
            "markup.underline.link.dae",
        ),
        (
            "include { config.d/*.dae }",
            "config.d/*.dae",
            "string.unquoted.dae",
        ),
        ("/* x */ log_level: info", "/* x */", "comment.block.dae"),
        ("log_level: info", "log_level", "variable.parameter.dae"),
        (
            "!domain(geosite: cn) -> direct",
            "domain",
            "support.function.dae",
        ),
        (
            "!domain(geosite: cn) -> direct",
            "geosite",
            "variable.parameter.dae",
        ),
        (
            "!domain(geosite: cn) -> direct",
            "->",
            "keyword.operator.arrow.dae",
        ),
        (
            "!domain(geosite: cn) -> direct",
            "direct",
            "constant.language.dae",
        ),
        (
            "dip(10.0.0.0/8)",
            "10.0.0.0/8",
            "constant.numeric.address.dae",
        ),
        ("dscp(0x8)", "0x8", "constant.numeric.dae"),
        (
            "a: 'it\\'s # no' # yes",
            "'it\\'s # no'",
            "string.quoted.single.dae",
        ),
        ("a: \"it's\"", "\"it's\"", "string.quoted.double.dae"),
        ("日本 { policy: select }", "日本", "entity.name.section.dae"),
    ] {
        assert_eq!(scope_of(line, text), scope, "{line}");
    }
}
