//! No text may cost more than in proportion to its size. What is counted are bytes that the
//! parser walks over, so the machine does not matter; the walks beside it are timed by the hostile families
//! of `honk-policy`.

use std::cell::Cell;

use super::file;
use crate::ast::FileId;

thread_local! {
    static BYTES: Cell<usize> = const { Cell::new(0) };
}

/// Notes that the parser walked over so many bytes.
pub(super) fn count(bytes: usize) {
    BYTES.with(|sum| sum.set(sum.get() + bytes));
}

/// Bytes that the parser walks over for one text.
fn cost(text: &str) -> usize {
    BYTES.with(|sum| sum.set(0));
    let _ = file(FileId(0), text);
    BYTES.with(Cell::get)
}

/// What a body is filled with, up to a size.
fn filled(head: &str, piece: &str, tail: &str, size: usize) -> String {
    let room = size.saturating_sub(head.len() + tail.len());
    format!("{head}{}{tail}", piece.repeat(room / piece.len()))
}

/// Sections in which mistakes are repeated: how they begin and end.
const BODIES: &[(&str, &str)] = &[
    ("", ""),
    ("global {\n", "}\n"),
    ("node {\n", "}\n"),
    ("include {\n", "}\n"),
    ("group {\n a {\n", "}\n}\n"),
    ("routing {\n", "}\n"),
    ("routing {\n domain(", ") -> a\n}\n"),
    ("dns {\n upstream {\n", "}\n}\n"),
];

/// Mistakes, and what looks like one.
const PIECES: &[&str] = &[
    "'\n",
    "\"\n",
    "a: '\n",
    "a: 'b\n c\n",
    "a('\n",
    "f(x) -> '\n",
    "' ; ( ;\n",
    "{\n",
    "a {\n",
    "}\n",
    "a { }\n",
    "a { ( }\n",
    "a { '\n}\n",
    "(\n",
    "a(\n",
    "a(b(\n",
    ")\n",
    "[\n",
    "a: [\n",
    "a: b [c: d\n",
    "]\n",
    "/*\n",
    "/* */\n",
    "a /* ' */ (\n",
    "// it's {\n",
    "#\n",
    "# '\n",
    "&&\n",
    "f(x) &&\n",
    "f(x) && ",
    "||\n",
    "f(x) || ",
    "f(x) || g(y) -> z\n",
    "->\n",
    "f(x) ->\n",
    "a -> ",
    "'a' -> b -> c\n",
    "a: b,\n",
    "a,\n",
    ",",
    ":",
    "::",
    "a:",
    "a: b\n",
    "a: b; ",
    ";",
    "f(x)\n",
    "f(x) -> y\n",
    "f(x y) -> z\n",
    "f(x y)->z\ng()->y\n",
    "f(x\n",
    "a b c ( d\n",
    "a = b\n",
    "=> ",
    "!",
    "\\",
    "\\'",
    "x",
    "\u{65E5}",
    "\u{FF1A}",
    "\u{201C}\n",
    "\r",
    "a.dae\n",
    "a.dae,\n",
];

#[test]
fn the_work_of_the_parser_grows_with_the_text() {
    // Small enough to be quick, large enough for as many mistakes as are followed.
    const SMALL: usize = 2 << 10;
    let mut bad = Vec::new();
    for (head, tail) in BODIES {
        for piece in PIECES {
            let small = filled(head, piece, tail, SMALL);
            let large = filled(head, piece, tail, 4 * SMALL);
            let (a, b) = (cost(&small), cost(&large));
            // Four times the text; with its square it would be sixteen.
            if b > 8 * a.max(SMALL) {
                bad.push(format!("{head:?} {piece:?}: {a} -> {b}"));
            }
        }
    }
    assert!(bad.is_empty(), "{bad:#?}");
}
