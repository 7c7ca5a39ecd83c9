//! What must hold for every accepted text: quotes, line ends and a byte order mark change
//! nothing; and no text makes lowering panic.

use honk_grammar::{
    ast::{Arg, Item, Lit, Section, Span, Value},
    format, parse_text,
};
use honk_policy::config::{self, Config};
use proptest::prelude::*;

use super::{
    accepted::CASES,
    geodata::files,
    real::{HOUSEHOLD, MOVED},
};

/// Sections that may not be quoted.
const BARE: &[&str] = &[
    "include",
    "node",
    "subscription",
    "dns",
    "upstream",
    "fixed_domain_ttl",
];

fn plain(text: &str) -> String {
    text.replace('⏎', "\n")
        .replace('⇥', "\t")
        .replace('␍', "\r")
}

/// The model without what depends on the spelling.
pub(crate) fn model(text: &str) -> Option<Config> {
    let mut config = config::lower(&parse_text("test.dae", text), &mut files()).0?;
    for line in &mut config.rules.lines {
        line.text.clear();
        line.line = 0;
    }
    Some(config)
}

#[test]
fn quoting_changes_nothing() {
    for (id, text, _) in CASES {
        let text = plain(text);
        let mut spans = Vec::new();
        for section in &parse_text("test.dae", &text).sections {
            names_of(section, &mut spans);
        }
        let bom = usize::from(text.starts_with('\u{FEFF}')) * 3;
        let mut quoted = text.clone();
        for span in spans.iter().rev() {
            let (start, end) = (span.start as usize + bom, span.end as usize + bom);
            let word = format!("'{}'", &text[start..end]);
            quoted.replace_range(start..end, &word);
        }
        assert_eq!(model(&text), model(&quoted), "{id}: {quoted}");
    }
}

fn names_of(section: &Section, out: &mut Vec<Span>) {
    if !BARE.contains(&section.name.text.as_str()) {
        bare(&section.name, out);
    }
    for item in &section.items {
        match item {
            Item::Decl(decl) => {
                bare(&decl.key, out);
                match &decl.value {
                    Value::Literals(literals) => literals.iter().for_each(|l| bare(l, out)),
                    Value::Calls(calls) => {
                        calls
                            .iter()
                            .flat_map(|call| &call.args)
                            .for_each(|arg| value(arg, out));
                    }
                    Value::Empty => {}
                }
            }
            Item::Rule(rule) => {
                for arg in rule.conds.iter().flat_map(|call| &call.args) {
                    value(arg, out);
                }
                bare(&rule.out.name, out);
                rule.out.args.iter().for_each(|arg| value(arg, out));
            }
            Item::Sub(sub) => names_of(sub, out),
            Item::Link(_) | Item::Path(_) | Item::Stray(_) => {}
        }
    }
}

fn bare(lit: &Lit, out: &mut Vec<Span>) {
    if !lit.quoted {
        out.push(lit.span);
    }
}

fn value(arg: &Arg, out: &mut Vec<Span>) {
    if arg.key.is_none() {
        bare(&arg.value, out);
    }
}

#[test]
fn line_ends_and_byte_order_marks_change_nothing() {
    for (id, text, _) in CASES {
        let text = plain(text);
        let crlf = text.replace("\r\n", "\n").replace('\n', "\r\n");
        assert_eq!(model(&text), model(&crlf), "{id}");
        let marked = format!("\u{FEFF}{}", text.trim_start_matches('\u{FEFF}'));
        assert_eq!(model(&text), model(&marked), "{id}");
    }
}

/// Newlines only matter behind `key:` without a value and in comments.
#[test]
fn other_newlines_are_blanks() {
    let mut compared = 0;
    for (id, text, _) in CASES {
        let text = plain(text).replace('\r', "");
        let empty = text.lines().any(|line| line.trim_end().ends_with(':'));
        if empty || text.contains('#') || text.lines().count() < 2 {
            continue;
        }
        assert_eq!(model(&text), model(&text.replace('\n', " ")), "{id}");
        compared += 1;
    }
    assert!(compared > 8, "{compared}");
}

#[test]
fn the_canonical_form_means_the_same() {
    let cases = CASES.iter().map(|(_, text, _)| plain(text));
    let mut compared = 0;
    for text in cases.chain([HOUSEHOLD, MOVED].map(str::to_owned)) {
        let Ok(written) = format(&text) else {
            continue;
        };
        assert_eq!(model(&text), model(&written), "{text}\n{written}");
        compared += 1;
    }
    assert!(compared > 40, "{compared}");
}

proptest! {
    /// Damaged texts are refused or accepted, with findings inside the file.
    #[test]
    fn damaged_texts_do_no_harm(
        which in 0..CASES.len(),
        other in 0..CASES.len(),
        cut in 0usize..400,
        len in 0usize..12,
        put in "[ -~]{0,3}",
    ) {
        let text = format!("{}\n{}", plain(CASES[which].1), plain(CASES[other].1));
        let mut chars: Vec<char> = text.chars().collect();
        let start = cut.min(chars.len());
        let end = (start + len).min(chars.len());
        chars.splice(start..end, put.chars());
        let text: String = chars.into_iter().collect();
        let parsed = parse_text("test.dae", &text);
        let (_, findings) = config::lower(&parsed, &mut ());
        for span in findings.iter().filter_map(|f| f.span) {
            prop_assert!(span.start <= span.end && span.end as usize <= text.len());
        }
    }
}

// GI-11, for the canonical spelling: there is no other written form of the model yet.
proptest! {
    #[test]
    fn membership_survives_the_canonical_spelling(
        lines in prop::option::of(prop::collection::vec(prop::sample::select(FILTERS.to_vec()), 0..5)),
    ) {
        let filters: Vec<String> = lines.iter().flatten().map(|l| format!("  filter: {l}\n")).collect();
        let text = format!(
            "node {{ a: 'socks5://192.0.2.1:1' b: 'socks5://192.0.2.2:1' }}\n\
             group {{ g {{\n{}  policy: fallback }}\n x {{ filter: name(a) }}\n y {{ filter: name(b) }} }}\n\
             routing {{ fallback: g }}\n",
            filters.concat()
        );
        let first = model(&text).expect("filters are no reason to refuse");
        let canonical = format(&text).expect("what is accepted can be printed");
        let again = model(&canonical).expect("what was printed is accepted");
        prop_assert_eq!(&first.groups, &again.groups, "{}", canonical);
        let declared = first.groups.iter().find(|g| g.name == "g").expect("declared");
        prop_assert_eq!(declared.filters.is_none(), filters.is_empty(), "empty is not all");
        prop_assert_eq!(format(&canonical).expect("twice"), canonical);
    }
}

/// Lines that select, select nothing, or are ignored.
const FILTERS: &[&str] = &[
    "name(a)",
    "",
    "group()",
    "group('x', 'y|x')",
    "name(regex: '(')",
    "group(x) && name(b)",
    "!subtag('s') && name(keyword: \"a\")",
    "subtag(regex: '^air', exact)",
    "name('a, b') [add_latency: -20ms]",
];
