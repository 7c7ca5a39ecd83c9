//! The key tables in docs/CONFIG.md are those of the code. `HONK_BLESS=1` writes them.

#![expect(
    clippy::disallowed_methods,
    reason = "a test may read the document it checks"
)]

use std::fmt::Write as _;

use honk_policy::config::keys::{Built, Key, Reload, tables};

const BEGIN: &str = "<!-- keys: written by the test config_doc -->\n";
const END: &str = "<!-- end of keys -->\n";

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn row(out: &mut String, key: &Key) {
    let built = match key.built {
        Built::Yes => "yes".to_owned(),
        Built::No | Built::Section => "no".to_owned(),
        Built::NoOp => "no effect".to_owned(),
        Built::Deprecated => "deprecated".to_owned(),
    };
    let reload = match key.reload {
        Reload::Hot => "yes",
        Reload::Restart => "restart",
    };
    let default = if key.default.is_empty() {
        "unset".to_owned()
    } else {
        format!("`{}`", key.default)
    };
    let _ = writeln!(
        out,
        "| `{}` | {} | {} | {} | {} | {} |",
        key.name,
        cell(&key.kind.to_string()),
        cell(&default),
        reload,
        built,
        cell(key.meaning)
    );
}

fn generated() -> String {
    let mut out = String::from(BEGIN);
    for (section, keys) in tables() {
        let _ = write!(
            out,
            "\n### {section}\n\n| key | type | default | reload | served | meaning |\n|---|---|---|---|---|---|\n"
        );
        for key in keys {
            row(&mut out, key);
        }
    }
    out.push('\n');
    out.push_str(END);
    out
}

#[test]
fn the_reference_lists_every_key() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/CONFIG.md");
    let doc = std::fs::read_to_string(path).expect("docs/CONFIG.md");
    let head = doc.split(BEGIN).next().unwrap_or(&doc);
    let tail = doc.split(END).nth(1).unwrap_or("");
    let want = format!("{head}{}{tail}", generated());
    if std::env::var_os("HONK_BLESS").is_some() {
        std::fs::write(path, want).expect("write docs/CONFIG.md");
        return;
    }
    assert!(
        doc == want,
        "docs/CONFIG.md is out of date: run this test with HONK_BLESS=1"
    );
}
