//! Regular expressions: whether they can be used, and what they cost.
//!
//! Ten characters can describe an automaton of ten mebibytes, which takes a tenth of a second to
//! build. So the cost is worked out from the syntax first, and a configuration may only spend so
//! much on all its patterns; what is within that compiles.

use regex_syntax::{
    Parser,
    ast::{
        Ast, ClassPerl, ClassPerlKind, ClassSetItem, Flag, FlagsItem, FlagsItemKind,
        RepetitionKind, RepetitionRange, Visitor, parse, visit,
    },
};

use super::{BadValue, Read};

/// What a configuration may spend on patterns whatever its size: about 3 MiB of automata.
pub(crate) const BUDGET: usize = 100_000;
/// A pattern of no letters.
const BASE: usize = 20;
/// Classes of many letters in many scripts, such as `\w`.
const LARGE: usize = 2500;

/// The texts a pattern is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Letters {
    /// Domain names: classes are those of ASCII unless the pattern asks for more.
    Ascii,
    /// Names that people gave.
    Any,
}

/// Checks a pattern and takes its cost from what is left to spend.
pub(crate) fn pattern(text: &str, letters: Letters, left: &mut usize) -> Read<()> {
    let ast = parse::Parser::new().parse(text);
    let ast = ast.map_err(|error| bad(&error.to_string()))?;
    *left = left.checked_sub(cost(&ast, letters)).ok_or_else(|| {
        let why = "it is too large, or the patterns of the configuration are together";
        BadValue::shape("E409", format!("bad regular expression: {why}"))
    })?;
    match Parser::new().parse(text) {
        Ok(_) => Ok(()),
        Err(error) => Err(bad(&error.to_string())),
    }
}

/// What to do about a pattern of a richer dialect than ours.
pub(crate) fn remedy(text: &str, function: &str) -> Option<String> {
    let around = ["(?=", "(?!", "(?<=", "(?<!"]
        .iter()
        .any(|mark| text.contains(mark));
    let back = (1..=9).any(|n| text.contains(&format!("\\{n}")));
    match (around, back) {
        (true, _) => Some(format!(
            "look-ahead and look-behind do not exist here: join a condition that excludes, as in \
             `{function}(regex: '...') && !{function}(keyword: '...')`"
        )),
        (_, true) => Some("back-references do not exist here: write the text again".to_owned()),
        _ => None,
    }
}

fn bad(error: &str) -> BadValue {
    let why = error.lines().last().unwrap_or_default();
    let why = why.trim_start_matches("error: ");
    BadValue::shape("E409", format!("bad regular expression: {why}"))
}

/// Roughly the states of the automaton; each takes about 32 bytes.
fn cost(ast: &Ast, letters: Letters) -> usize {
    let cost = |letters| {
        let cost = Cost {
            letters,
            open: vec![0],
            asks: false,
        };
        visit(ast, cost).unwrap_or((usize::MAX, true))
    };
    match cost(letters) {
        (_, true) if letters == Letters::Ascii => cost(Letters::Any).0,
        (cost, _) => cost,
    }
}

struct Cost {
    letters: Letters,
    /// Cost so far of every part that is not complete, the whole first.
    open: Vec<usize>,
    /// The pattern asks for letters of all scripts itself.
    asks: bool,
}

impl Cost {
    fn add(&mut self, cost: usize) {
        if let Some(last) = self.open.last_mut() {
            *last = last.saturating_add(cost);
        }
    }

    fn close(&mut self, times: usize) {
        let cost = self.open.pop().unwrap_or_default();
        self.add(cost.max(1).saturating_mul(times));
    }

    fn perl(&mut self, class: &ClassPerl) {
        let cost = match (self.letters, &class.kind) {
            (Letters::Ascii, _) => 4,
            (Letters::Any, ClassPerlKind::Space) => 20,
            (Letters::Any, ClassPerlKind::Digit | ClassPerlKind::Word) => LARGE,
        };
        self.add(cost);
    }

    fn letter(&mut self, letter: char) {
        self.add(if letter.is_ascii() { 1 } else { 4 });
    }

    fn flags(&mut self, items: &[FlagsItem]) {
        let unicode = FlagsItemKind::Flag(Flag::Unicode);
        self.asks |= items.iter().any(|item| item.kind == unicode);
    }
}

impl Visitor for Cost {
    type Output = (usize, bool);
    type Err = std::convert::Infallible;

    fn finish(self) -> Result<Self::Output, Self::Err> {
        let cost = self.open.first().copied().unwrap_or_default();
        Ok((cost.saturating_add(BASE), self.asks))
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), Self::Err> {
        match ast {
            Ast::Repetition(_) | Ast::Alternation(_) | Ast::Concat(_) => self.open.push(0),
            Ast::Group(group) => {
                if let Some(flags) = group.flags() {
                    self.flags(&flags.items);
                }
                self.open.push(0);
            }
            Ast::Flags(set) => self.flags(&set.flags.items),
            Ast::Literal(literal) => self.letter(literal.c),
            Ast::ClassUnicode(_) => {
                self.asks = true;
                self.add(LARGE);
            }
            Ast::ClassPerl(class) => self.perl(class),
            Ast::Dot(_) | Ast::ClassBracketed(_) => self.add(8),
            Ast::Empty(_) | Ast::Assertion(_) => self.add(1),
        }
        Ok(())
    }

    fn visit_post(&mut self, ast: &Ast) -> Result<(), Self::Err> {
        match ast {
            Ast::Repetition(repetition) => self.close(match &repetition.op.kind {
                RepetitionKind::ZeroOrOne
                | RepetitionKind::ZeroOrMore
                | RepetitionKind::OneOrMore => 1,
                RepetitionKind::Range(range) => match *range {
                    RepetitionRange::Exactly(n) | RepetitionRange::Bounded(_, n) => {
                        n.max(1) as usize
                    }
                    RepetitionRange::AtLeast(n) => n as usize + 1,
                },
            }),
            Ast::Group(_) | Ast::Alternation(_) | Ast::Concat(_) => self.close(1),
            _ => {}
        }
        Ok(())
    }

    fn visit_class_set_item_pre(&mut self, item: &ClassSetItem) -> Result<(), Self::Err> {
        match item {
            ClassSetItem::Literal(literal) => self.letter(literal.c),
            ClassSetItem::Range(range) => {
                let letters =
                    range.end.c as usize - (range.start.c as usize).min(range.end.c as usize);
                // Capitals of other scripts are looked up one by one.
                self.add(2 + (letters / 16).min(LARGE));
            }
            ClassSetItem::Unicode(_) => {
                self.asks = true;
                self.add(LARGE);
            }
            ClassSetItem::Perl(class) => self.perl(class),
            ClassSetItem::Ascii(_) | ClassSetItem::Bracketed(_) => self.add(4),
            ClassSetItem::Empty(_) | ClassSetItem::Union(_) => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn price(text: &str, letters: Letters) -> usize {
        let mut left = usize::MAX;
        pattern(text, letters, &mut left).unwrap();
        usize::MAX - left - BASE
    }

    #[test]
    fn cost_follows_repetition_and_classes() {
        for (text, cost) in [
            ("", 1),
            ("abc", 3),
            ("a{10}", 10),
            ("(a{10}b){2,5}", 55),
            ("a*b+c?", 3),
            ("(ab|cd){3,}", 16),
            ("a{0}", 1),
        ] {
            assert_eq!(price(text, Letters::Any), cost, "{text}");
        }
        assert!(price(r"\w", Letters::Any) > 1000);
        assert!(price(r"[\d\w]", Letters::Any) > 4000);
        for large in [r"\pL", r"(?u)\w", r"(?u:\d)", r"[\pL\d]"] {
            assert!(price(large, Letters::Ascii) > 1000, "{large}");
        }
        assert!(price(r"\w+[\d.]\s{3}", Letters::Ascii) < 50);
    }

    #[test]
    fn what_is_within_the_budget_compiles() {
        let mut left = BUDGET;
        for text in [
            r"\w{30}",
            r"(a{500}b){40}",
            r"[^a-z]{200}",
            r"(?i)[\x{80}-\x{24F}]{9}",
        ] {
            pattern(text, Letters::Any, &mut left).unwrap();
            regex::Regex::new(text).unwrap();
        }
    }

    #[test]
    fn patterns_share_one_budget() {
        let mut left = BUDGET;
        let mut read =
            |text: &str| pattern(text, Letters::Any, &mut left).map_err(|bad| bad.number);
        assert_eq!(read(r"(a{1000}){1000}"), Err("E409"));
        assert_eq!(read(r"(a{1000}){60}"), Ok(()));
        assert_eq!(read(r"(b{1000}){60}"), Err("E409"));
        assert_eq!(read("b"), Ok(()));
        assert_eq!(read("(?!x)"), Err("E409"));
        assert_eq!(read(r"\p{none}"), Err("E409"));
        assert_eq!(read(r"(?-u:\xFF)"), Err("E409"));
    }
}
