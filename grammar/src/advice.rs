//! What was probably meant where a text does not parse: mistakes known by their surroundings.

use crate::{
    parse::Rule,
    source::line_and_column,
    syntax::{FOUND, Rules, Scene, Start},
    token::{is_bare, is_bare_value, trim_gap},
};

/// A call that was read as a rule without outbound, and is none.
pub(crate) struct Misread {
    /// Bytes of the item that are to blame.
    pub(crate) len: usize,
    pub(crate) message: String,
    pub(crate) help: String,
}

/// Words that join conditions elsewhere.
const JOINTS: [&str; 4] = ["||", "|", "or", "OR"];

impl<'a> Scene<'a> {
    /// What the rule without outbound that begins at `item` really is, if it is none.
    pub(crate) fn misread(&self, item: Start) -> Option<Misread> {
        let text = self.text.get(item.at..)?;
        let len = text.find(|c| !is_bare(c)).unwrap_or(text.len());
        let word = text.get(..len)?;
        if JOINTS.contains(&word) {
            let help = match item.rules {
                Rules::Taken => "repeat the rule with the other condition",
                Rules::Foreign => {
                    "alternatives are arguments of one call, `name(a, b)`, or lines of their own"
                }
            };
            return Some(Misread {
                len,
                message: format!("conditions cannot be joined with `{word}`"),
                help: help.to_owned(),
            });
        }
        let open = text.get(len..)?.strip_prefix('(')?;
        if item.rules == Rules::Taken || word.is_empty() || len > FOUND || self.hidden(item.at) {
            return None;
        }
        let value = open.split([')', '\n', '\r']).next().unwrap_or_default();
        let shown = value.len() <= FOUND && !self.hidden(item.at + len + 1);
        let help = match word {
            "name" | "subtag" | "group" | "bypass" => format!("write `filter: {word}(...)`"),
            _ if shown && is_bare_value(value) => format!("write `{word}: {value}`"),
            _ => format!("write `{word}: value`"),
        };
        Some(Misread {
            len,
            message: format!("`{word}(...)` stands alone; settings are written `key: value`"),
            help,
        })
    }

    /// Help for mistakes that are known by their surroundings.
    pub(crate) fn advice(&self) -> Option<String> {
        let token = self.found_token();
        match token {
            ";" => return Some("no separator is needed".to_owned()),
            "=>" | "->" => return Some(self.advice_arrow(token)),
            "||" | "|" => return Some("alternatives are separated by commas".to_owned()),
            "(" if self.wants(Rule::rparen) => return Some("calls do not nest".to_owned()),
            "(" if self.word_before().is_empty() || self.after("!") => {
                return Some(
                    "conditions are not grouped with parentheses; `!` negates one call".to_owned(),
                );
            }
            "(" => {
                return Some(
                    "conditions are `name(...)`, the name of letters, digits and `_`".to_owned(),
                );
            }
            "{" if self.after(":") => {
                return Some(format!(
                    "a section has no colon: `{} {{ ... }}`",
                    self.word_before_colon()
                ));
            }
            "}" | "" if self.wants(Rule::rparen) => {
                return Some("close the arguments with `)`".to_owned());
            }
            "[" if self.wants(Rule::lbrace) => {
                return Some("the body of a section stands in braces: `name { ... }`".to_owned());
            }
            ":" => return self.advice_colon(),
            "," => return Some("a value is missing in front of this comma".to_owned()),
            "[" => return Some("lists are written without brackets".to_owned()),
            _ => {}
        }
        if token.starts_with('!') && self.after("->") {
            return Some("an outbound cannot be negated; negate conditions".to_owned());
        }
        if self.wants(Rule::function) && self.after("&&") {
            return Some("a condition must follow `&&`".to_owned());
        }
        if self.wants(Rule::lparen) {
            return Some(format!(
                "`{}` is not a call; write `{0}(...)`",
                self.word_before()
            ));
        }
        if self.wants(Rule::rparen) && self.wants(Rule::comma) && self.found_is_word() {
            let code = trim_gap(self.before());
            if self.before()[code.len()..].contains(['\n', '\r']) {
                let (line, _) = line_and_column(self.text, self.chunk.start + code.len());
                return Some(format!(
                    "add `)` at the end of line {line}, or `,` if the arguments go on"
                ));
            }
            let word = self.word_before();
            if JOINTS.contains(&word) {
                return Some("alternatives are separated by commas".to_owned());
            }
            let keyed = self
                .before()
                .trim_end()
                .trim_end_matches(word)
                .trim_end()
                .ends_with(':');
            if keyed {
                return Some("missing `,` between the arguments?".to_owned());
            }
            if !word.is_empty() {
                return Some(format!(
                    "missing `:` after `{word}`, or missing `,` behind it?"
                ));
            }
        }
        if self.wants(Rule::comma) && self.found_is_word() && self.wants(Rule::rbrack) {
            return Some("separate notes with `,` and close them with `]`".to_owned());
        }
        None
    }

    /// `->` where no rule can be: a condition written like a setting, or an open parenthesis.
    fn advice_arrow(&self, token: &str) -> String {
        if self.wants(Rule::rparen) {
            return "close the arguments with `)`".to_owned();
        }
        if self.after("&&") {
            return "a condition must follow `&&`".to_owned();
        }
        if let Some((key, value)) = self.setting_before() {
            let function = match key {
                "geosite" | "suffix" | "full" | "keyword" | "regex" | "contains" => Some("domain"),
                "geoip" => Some("dip"),
                _ => None,
            };
            return match function {
                Some(function) => format!("write `{function}({key}: {value})`"),
                None => format!("write `{key}({value})`"),
            };
        }
        format!("a rule is `condition(...) -> outbound`; nothing for `{token}` to follow here")
    }

    fn advice_colon(&self) -> Option<String> {
        let word = self.word_before();
        let before = self.before().trim_end();
        let list = before.strip_suffix(word)?;
        if let Some(comma) = last_comma(list) {
            let (line, _) = line_and_column(self.text, comma);
            return Some(format!("trailing comma on line {line}?"));
        }
        if self.wants(Rule::lparen) {
            return Some(format!(
                "`{word}` is not a call; conditions look like `{word}(...)`"
            ));
        }
        Some("a value that ends in `:` must be quoted".to_owned())
    }

    /// The word in front of the colon right before the failure.
    fn word_before_colon(&self) -> &'a str {
        let before = self.before().trim_end().trim_end_matches(':').trim_end();
        let word = before.rsplit(|c| !is_bare(c)).next().unwrap_or_default();
        if word.chars().count() > FOUND {
            ""
        } else {
            word
        }
    }

    /// `key: value` right before the failure.
    fn setting_before(&self) -> Option<(&'a str, &'a str)> {
        let before = self.before().trim_end();
        let colon = before.rfind(':')?;
        let value = before[colon + 1..].trim_start();
        let key = before[..colon].trim_end();
        let start = key
            .char_indices()
            .rev()
            .take_while(|(_, c)| c.is_ascii_alphanumeric() || *c == '_')
            .last()?
            .0;
        let plain = !value.is_empty() && value.chars().all(is_bare) && value.len() <= 64;
        (plain && !self.hidden(self.chunk.start + colon + 1)).then(|| (&key[start..], value))
    }
}

/// Offset of the comma that ends a text, blanks and comments skipped.
fn last_comma(text: &str) -> Option<usize> {
    trim_gap(text).strip_suffix(',').map(str::len)
}
