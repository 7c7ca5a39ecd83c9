//! What holds for every text: no panic, places inside the file, layout without meaning,
//! formatting and editing that change nothing else.

mod support;

use std::fs;

use honk_grammar::{Parsed, ast::Item, diag, edit, format, parse_text};
use proptest::prelude::*;
use support::{
    doc::{Dice, Doc, Layout},
    meaning::meaning,
};

fn corpus() -> Vec<String> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases");
    let mut paths: Vec<_> = fs::read_dir(dir)
        .expect("the cases are part of the package")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|ext| ext == "dae"))
        .collect();
    paths.sort();
    paths
        .iter()
        .map(|path| fs::read_to_string(path).expect("case is text"))
        .collect()
}

/// Tears a text apart and puts odd pieces in.
fn mutate(text: &str, seed: u64) -> String {
    const BITS: [&str; 28] = [
        "{", "}", "(", ")", "[", "]", ":", ",", "->", "&&", "!", "'", "\"", "#", "/*", "*/", "\\",
        ";", "=>", "\n", "\r", "\u{FEFF}", "\u{FF1A}", "\0", "日", " ", "://", "::",
    ];
    let mut dice = Dice::new(seed);
    let mut chars: Vec<char> = text.chars().collect();
    for _ in 0..=dice.roll(4) {
        let at = dice.roll(chars.len() + 1);
        let to = (at + dice.roll(6)).min(chars.len());
        let bit: Vec<char> = match dice.roll(3) {
            0 => Vec::new(),
            1 => BITS[dice.roll(BITS.len())].chars().collect(),
            _ => {
                let from = dice.roll(chars.len() + 1);
                let upto = (from + dice.roll(12)).min(chars.len());
                chars[from..upto].to_vec()
            }
        };
        chars.splice(at..to, bit);
    }
    chars.into_iter().collect()
}

/// Everything that must hold whatever the text is.
fn check(text: &str) -> Parsed {
    let parsed = parse_text("t.dae", text);
    for found in &parsed.diagnostics {
        let span = found.span.expect("syntax errors have a place");
        let file = parsed.sources.file(span.file).expect("known file");
        assert!(
            span.start <= span.end && span.end as usize <= file.text.len(),
            "{found:?}"
        );
        assert!(file.text.is_char_boundary(span.start as usize), "{found:?}");
        assert!(file.text.is_char_boundary(span.end as usize), "{found:?}");
        let human = diag::human(found, &parsed.sources);
        assert!(
            human.lines().all(|line| line.chars().count() < 400),
            "{human}"
        );
        assert!(!diag::short(found, &parsed.sources).contains('\n'));
        let _ = diag::record(found, &parsed.sources);
    }
    parsed
}

fn unquoted(parsed: &Parsed) -> String {
    // Quotes carry no meaning, so `<x>` and `"x"` are the same here; an address without quotes
    // is split at its colon by the syntax and joined again by its meaning.
    support::tree(&parsed.sections)
        .replace(['<', '>'], "\"")
        .replace("\":\"", ":")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,60}|[a-z{}()\\[\\]:,'\"#!&>/* \n-]{0,80}") {
        check(&text);
    }

    #[test]
    fn no_torn_case_makes_the_parser_panic(case in 0_usize..200, seed in any::<u64>()) {
        let corpus = corpus();
        check(&mutate(&corpus[case % corpus.len()], seed));
    }

    #[test]
    fn layout_carries_no_meaning(content in any::<u64>(), layout in any::<u64>()) {
        let tight = check(&Doc::write(content, Layout::Tight));
        prop_assert!(tight.diagnostics.is_empty(), "{:?}", tight.diagnostics);
        let text = Doc::write(content, Layout::Wild(layout));
        let wild = check(&text);
        prop_assert!(wild.diagnostics.is_empty(), "{text}\n{:?}", wild.diagnostics);
        prop_assert_eq!(support::tree(&tight.sections), support::tree(&wild.sections), "{}", text);
    }

    #[test]
    fn quotes_carry_no_meaning(content in any::<u64>()) {
        let bare = check(&Doc::write(content, Layout::Tight));
        let quoted = check(&Doc::write(content, Layout::Quoted));
        prop_assert!(quoted.diagnostics.is_empty(), "{:?}", quoted.diagnostics);
        prop_assert_eq!(unquoted(&bare), unquoted(&quoted));
    }

    #[test]
    fn line_ends_and_byte_order_mark_carry_no_meaning(content in any::<u64>(), layout in any::<u64>()) {
        let text = Doc::write(content, Layout::Wild(layout));
        let plain = check(&text);
        for other in [text.replace('\n', "\r\n"), text.replace('\n', "\r"), format!("\u{FEFF}{text}")] {
            prop_assert_eq!(support::tree(&plain.sections), support::tree(&check(&other).sections));
        }
    }

    #[test]
    fn formatting_keeps_the_tree_and_settles(content in any::<u64>(), layout in any::<u64>()) {
        formatting(&Doc::write(content, Layout::Wild(layout)));
    }

    #[test]
    fn formatting_survives_torn_cases(case in 0_usize..200, seed in any::<u64>()) {
        let corpus = corpus();
        formatting(&mutate(&corpus[case % corpus.len()], seed));
    }

    #[test]
    fn an_edit_touches_its_place_only(content in any::<u64>(), layout in any::<u64>(), value in "[a-z :\"#]{0,9}") {
        editing(&Doc::write(content, Layout::Wild(layout)), &value);
    }
}

fn formatting(text: &str) {
    let parsed = check(text);
    if !parsed.diagnostics.is_empty() {
        assert!(format(text).is_err());
        return;
    }
    assert!(parsed.broken.is_empty() && !parsed.incomplete, "{text}");
    let once = format(text).expect("text parses");
    let again = check(&once);
    assert!(
        again.diagnostics.is_empty(),
        "{text}\n---\n{once}\n{:?}",
        again.diagnostics
    );
    assert_eq!(
        meaning(&parsed.sections),
        meaning(&again.sections),
        "{text}\n---\n{once}"
    );
    assert_eq!(letters(text), letters(&once), "{text}\n---\n{once}");
    assert_eq!(
        format(&once).expect("formatted text parses"),
        once,
        "{text}"
    );
}

/// Letters of all words and comments in order: none is lost, added or moved.
fn letters(text: &str) -> String {
    text.chars().filter(|c| c.is_alphanumeric()).collect()
}

fn editing(text: &str, value: &str) {
    let parsed = check(text);
    for section in &parsed.sections {
        let body = edit::Body {
            section: &section.name.text,
            name: None,
        };
        let target = parsed
            .sections
            .iter()
            .rfind(|s| s.name.text == section.name.text);
        let target = target.expect("at least this one");
        let links = target
            .items
            .iter()
            .any(|item| matches!(item, Item::Link(_) | Item::Path(_)));
        let Ok(edited) = edit::apply(text, body, &[("fresh", edit::Change::Text(value))]) else {
            continue;
        };
        assert!(!links || edited != text);
        let (open, close) = (target.open_brace as usize, target.close_brace as usize);
        assert!(
            edited.starts_with(&text[..open]) && edited.ends_with(&text[close..]),
            "{edited}"
        );
        let changed = edit::apply(&edited, body, &[("fresh", edit::Change::Text("y"))]);
        assert!(changed.is_ok(), "{edited}");
        let removed = edit::apply(&edited, body, &[("fresh", edit::Change::Remove)]);
        let removed = removed.expect("what was inserted can be removed");
        assert_eq!(
            support::tree(&check(&removed).sections),
            support::tree(&parsed.sections),
            "{text}\n---\n{edited}\n---\n{removed}"
        );
    }
}
