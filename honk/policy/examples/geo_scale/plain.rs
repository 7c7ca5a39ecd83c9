//! The peer: what one writes first. A map of exact names, a trie of labels for suffixes, lists
//! of keywords and expressions; and files read whole into maps of strings.

use std::collections::{HashMap, HashSet};

use honk_policy::geo::Kind;
use regex::Regex;

/// Names of all conditions.
#[derive(Default)]
pub(crate) struct Matcher {
    full: HashMap<String, Vec<u32>>,
    root: Node,
    keywords: Vec<(String, u32)>,
    regexes: Vec<(Regex, u32)>,
}

#[derive(Default)]
struct Node {
    below: HashMap<String, Self>,
    conds: Vec<u32>,
}

impl Matcher {
    pub(crate) fn add(&mut self, kind: Kind, name: &str, cond: u32) {
        match kind {
            Kind::Full => self.full.entry(name.to_owned()).or_default().push(cond),
            Kind::Suffix => {
                let mut node = &mut self.root;
                for label in name.rsplit('.') {
                    node = node.below.entry(label.to_owned()).or_default();
                }
                node.conds.push(cond);
            }
            Kind::Keyword => self.keywords.push((name.to_owned(), cond)),
            Kind::Regex => self.regexes.push((Regex::new(name).unwrap(), cond)),
        }
    }

    pub(crate) fn find(&self, name: &str, hits: &mut [u64]) {
        let mut put = |cond: u32| hits[cond as usize / 64] |= 1 << (cond % 64);
        self.full
            .get(name)
            .into_iter()
            .flatten()
            .for_each(|c| put(*c));
        let mut node = &self.root;
        for label in name.rsplit('.') {
            let Some(next) = node.below.get(label) else {
                break;
            };
            node = next;
            node.conds.iter().for_each(|c| put(*c));
        }
        for (keyword, cond) in &self.keywords {
            if name.contains(keyword.as_str()) {
                put(*cond);
            }
        }
        for (regex, cond) in &self.regexes {
            if regex.is_match(name) {
                put(*cond);
            }
        }
    }
}

/// A file of either kind: every code with its names, or with its networks.
#[derive(Default)]
pub(crate) struct Whole {
    pub(crate) sites: HashMap<String, Vec<(Kind, String)>>,
    pub(crate) networks: HashMap<String, HashSet<(Vec<u8>, u8)>>,
}

impl Whole {
    pub(crate) fn read_sites(&mut self, bytes: &[u8]) {
        for (code, items) in entries(bytes) {
            let names = items.into_iter().map(|item| {
                let (mut kind, mut name) = (Kind::Keyword, String::new());
                for (number, n, text) in fields(item) {
                    match number {
                        1 => {
                            kind =
                                [Kind::Keyword, Kind::Regex, Kind::Suffix, Kind::Full][n as usize]
                        }
                        2 => name = String::from_utf8(text.to_vec()).unwrap(),
                        _ => {}
                    }
                }
                (kind, name)
            });
            self.sites.insert(code, names.collect());
        }
    }

    pub(crate) fn read_networks(&mut self, bytes: &[u8]) {
        for (code, items) in entries(bytes) {
            let nets = items.into_iter().map(|item| {
                let (mut ip, mut len) = (Vec::new(), 0);
                for (number, n, text) in fields(item) {
                    match number {
                        1 => ip = text.to_vec(),
                        _ => len = n as u8,
                    }
                }
                (ip, len)
            });
            self.networks.insert(code, nets.collect());
        }
    }
}

fn entries(bytes: &[u8]) -> Vec<(String, Vec<&[u8]>)> {
    let entry = |(_, _, body)| {
        let (mut code, mut items) = (String::new(), Vec::new());
        for (number, _, text) in fields(body) {
            match number {
                1 => code = String::from_utf8(text.to_vec()).unwrap().to_lowercase(),
                2 => items.push(text),
                _ => {}
            }
        }
        (code, items)
    };
    fields(bytes).into_iter().map(entry).collect()
}

/// Number, integer and bytes of every field; files without faults only.
fn fields(mut rest: &[u8]) -> Vec<(u64, u64, &[u8])> {
    let mut all = Vec::new();
    while !rest.is_empty() {
        let (key, after) = varint(rest);
        let (n, after) = varint(after);
        let len = if key & 7 == 2 { n as usize } else { 0 };
        all.push((key >> 3, n, &after[..len]));
        rest = &after[len..];
    }
    all
}

fn varint(bytes: &[u8]) -> (u64, &[u8]) {
    let end = bytes.iter().position(|b| *b < 0x80).unwrap() + 1;
    let n = bytes[..end]
        .iter()
        .rev()
        .fold(0, |n, b| n << 7 | u64::from(b & 0x7f));
    (n, &bytes[end..])
}
