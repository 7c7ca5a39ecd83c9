//! The settings of one link or entry as keys and values.
//!
//! Reading: query parameters, or the scalars of a JSON object. Keys are compared without regard
//! to case; of several spellings of one meaning the caller names the order. Writing: the same
//! pairs, default values left out by the caller.

use super::text::{boolean, percent_decode, percent_encode};
use crate::document::Tree;

/// Values of these keys are base64: `+` is no blank.
const PLUS_STAYS: &[&str] = &[
    "pbk",
    "ech",
    "ech_config",
    "echconfig",
    "pinned_certchain_sha256",
    "encryption",
    "password",
];

/// What is worth telling about an accepted link; never the text itself.
pub(crate) type Note = &'static str;

/// Keys with values, decoded, in the order written.
#[derive(Default)]
pub(crate) struct Fields {
    pairs: Vec<(String, String)>,
    pub(crate) notes: Vec<Note>,
}

impl Fields {
    /// From the text between `?` and `#`.
    pub(crate) fn query(query: &str) -> Self {
        let query = query.replace("&amp;", "&");
        let parts = query.split('&').filter(|part| !part.is_empty());
        let pairs = parts.map(|part| {
            let (key, value) = part.split_once('=').unwrap_or((part, "1"));
            let key = decoded(key).to_ascii_lowercase();
            let value = match PLUS_STAYS.contains(&key.as_str()) {
                true => decoded(value),
                false => decoded(&value.replace('+', " ")),
            };
            (key, value)
        });
        Self::new(pairs.collect())
    }

    /// From the scalars of a mapping.
    pub(crate) fn tree(tree: &Tree) -> Self {
        let Tree::Map(pairs) = tree else {
            return Self::default();
        };
        let scalar = |(key, value): &(String, _)| {
            let value: &Tree = std::rc::Rc::as_ref(value);
            Some((key.to_ascii_lowercase(), value.as_text()?.to_owned()))
        };
        Self::new(pairs.iter().filter_map(scalar).collect())
    }

    fn new(pairs: Vec<(String, String)>) -> Self {
        let mut fields = Self {
            pairs,
            notes: Vec::new(),
        };
        let keys = fields.pairs.iter().map(|(key, _)| key);
        if keys.collect::<std::collections::HashSet<_>>().len() < fields.pairs.len() {
            fields.note("a key is repeated: the last value counts");
        }
        fields
    }

    pub(crate) fn note(&mut self, note: Note) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Adds a value, or replaces it.
    pub(crate) fn set(&mut self, key: &str, value: impl Into<String>) {
        self.pairs.push((key.to_ascii_lowercase(), value.into()));
    }

    /// Every pair of a key.
    pub(crate) fn all(&self, key: &str) -> impl Iterator<Item = &str> {
        let same = move |(k, _): &&(String, String)| k.eq_ignore_ascii_case(key);
        self.pairs.iter().filter(same).map(|(_, v)| v.as_str())
    }

    /// Whether one of the keys is present, even if empty.
    pub(crate) fn has(&self, keys: &[&str]) -> bool {
        keys.iter().any(|key| self.all(key).next().is_some())
    }

    /// The value of the first key that has one which is not empty.
    pub(crate) fn get(&self, keys: &[&str]) -> Option<&str> {
        keys.iter()
            .filter_map(|key| self.all(key).last())
            .find(|value| !value.is_empty())
    }

    /// As [`Self::get`], owned.
    pub(crate) fn text(&self, keys: &[&str]) -> Option<String> {
        self.get(keys).map(str::to_owned)
    }

    /// Whether a key is true.
    pub(crate) fn flag(&mut self, key: &str) -> bool {
        let Some(value) = self.all(key).last().map(boolean) else {
            return false;
        };
        if value.is_none() {
            self.note("a value is neither true nor false: false is assumed");
        }
        value.unwrap_or(false)
    }

    /// Whether any of the keys is true.
    pub(crate) fn any(&mut self, keys: &[&str]) -> bool {
        keys.iter().fold(false, |on, key| self.flag(key) | on)
    }
}

fn decoded(text: &str) -> String {
    String::from_utf8_lossy(&percent_decode(text)).into_owned()
}

/// Pairs to be written.
#[derive(Default)]
pub(crate) struct Out(pub(crate) Vec<(&'static str, String)>);

impl Out {
    pub(crate) fn add(&mut self, key: &'static str, value: impl Into<String>) {
        self.0.push((key, value.into()));
    }

    pub(crate) fn flag(&mut self, key: &'static str, on: bool) {
        if on {
            self.add(key, "1");
        }
    }

    pub(crate) fn some(&mut self, key: &'static str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.add(key, value.to_string());
        }
    }

    /// `?a=b&c=d`, or nothing.
    pub(crate) fn query(&self) -> String {
        let pairs = self.0.iter().enumerate().map(|(at, (key, value))| {
            let before = if at == 0 { '?' } else { '&' };
            format!("{before}{key}={}", percent_encode(value))
        });
        pairs.collect()
    }
}
