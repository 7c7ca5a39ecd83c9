//! A million names, half of them asked for.

use std::{hint::black_box, time::Instant};

use honk_policy::{
    geo::{Kind, SiteList},
    routing::{domain::DomainIndex, rule::DomainTest},
};

use crate::{plain::Matcher, print, rss};

const RULES: usize = 1_000_000;
const CONDS: usize = 8;
const QUERIES: usize = 600_000;
/// Look-ups timed as one.
const SAMPLE: usize = 500;

pub(crate) fn honk() {
    let lists: Vec<Vec<DomainTest>> = (0..CONDS)
        .map(|cond| {
            let of = (cond..RULES).step_by(CONDS);
            let list: SiteList = of.map(|n| (kind(n), name(n))).collect();
            vec![DomainTest::Geosite {
                file: String::new(),
                code: String::new(),
                attr: None,
                list: list.into(),
            }]
        })
        .collect();
    let queries = Queries::new();
    let before = rss::now();
    let start = Instant::now();
    let index = DomainIndex::new(lists.iter().map(Vec::as_slice));
    print("geo.match.build", start.elapsed().as_secs_f64() * 1e3);
    let names = index.names() as f64;
    print("geo.match.rss", (rss::now() - before) * 1048576.0 / names);
    print("geo.match.bytes", index.bytes() as f64 / names);
    queries.time(|name, hits| index.find(name, hits));
}

pub(crate) fn plain() {
    let queries = Queries::new();
    let before = rss::now();
    let start = Instant::now();
    let mut matcher = Matcher::default();
    for n in 0..RULES {
        matcher.add(kind(n), &name(n), (n % CONDS) as u32);
    }
    print("geo.match.build", start.elapsed().as_secs_f64() * 1e3);
    let bytes = (rss::now() - before) * 1048576.0 / RULES as f64;
    print("geo.match.rss", bytes);
    print("geo.match.bytes", bytes);
    queries.time(|name, hits| matcher.find(name, hits));
}

/// A fifth of the names stands alone, the rest for what is below as well.
fn kind(n: usize) -> Kind {
    if n.is_multiple_of(5) {
        Kind::Full
    } else {
        Kind::Suffix
    }
}

/// Different for different numbers, about 17 bytes, a few dozen endings.
fn name(n: usize) -> String {
    const ENDINGS: [&str; 12] = [
        "com", "net", "org", "cn", "com.cn", "io", "ru", "de", "co.uk", "info", "xyz", "com.br",
    ];
    let mut random = mixed(n as u64);
    let mut text = String::new();
    for _ in 0..4 + random % 8 {
        random = mixed(random);
        text.push(char::from(b'a' + (random % 26) as u8));
    }
    let ending = ENDINGS[(mixed(random) % 12) as usize];
    let host = if random.is_multiple_of(4) { "cdn." } else { "" };
    format!("{host}{text}{n:x}.{ending}")
}

fn mixed(n: u64) -> u64 {
    let n = (n ^ n >> 30)
        .wrapping_mul(0xbf58_476d_1ce4_e5b9)
        .wrapping_add(0x9e37_79b9);
    (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb) ^ n >> 31
}

/// Names to look up, in an order that no cache foresees.
struct Queries {
    known: Vec<String>,
    unknown: Vec<String>,
}

impl Queries {
    fn new() -> Self {
        let any = |n: usize| (mixed(n as u64 ^ 0x5555) % RULES as u64) as usize;
        let known = (0..QUERIES).map(|n| match n % 2 {
            0 => name(any(n)),
            _ => format!("www.{}", name(any(n))),
        });
        let unknown = (0..QUERIES).map(|n| name(RULES + any(n)));
        Self {
            known: known.collect(),
            unknown: unknown.collect(),
        }
    }

    fn time(&self, find: impl Fn(&str, &mut [u64])) {
        let mixture = self
            .known
            .iter()
            .zip(&self.unknown)
            .flat_map(|(a, b)| [a, b]);
        let mixture: Vec<&str> = mixture.map(String::as_str).collect();
        let known: Vec<&str> = self.known.iter().map(String::as_str).collect();
        let unknown: Vec<&str> = self.unknown.iter().map(String::as_str).collect();
        print("geo.match.lookup", median_ns(&mixture, &find));
        print("geo.match.hit", median_ns(&known, &find));
        print("geo.match.miss", median_ns(&unknown, &find));
    }
}

/// Nanoseconds of one look-up.
pub(crate) fn median_ns(names: &[&str], find: impl Fn(&str, &mut [u64])) -> f64 {
    let mut samples: Vec<f64> = names
        .chunks_exact(SAMPLE)
        .map(|names| {
            let start = Instant::now();
            for name in names {
                let mut hits = [0; 1];
                find(black_box(name), &mut hits);
                black_box(hits);
            }
            start.elapsed().as_secs_f64() * 1e9 / SAMPLE as f64
        })
        .collect();
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}
