//! Real files: from bytes on disk to rules that match.

use std::{fs, hint::black_box, path::Path, time::Instant};

use honk_policy::{
    config,
    geo::{GeoSource, Unreadable},
    routing::{domain::DomainIndex, oracle::Oracle, rule::Test},
};

use crate::{
    plain::{Matcher, Whole},
    print, rss,
    rules::median_ns,
};

/// What people use.
const SITES: [&str; 4] = ["category-ads-all", "geolocation-!cn", "cn", "apple"];
const NETWORKS: [&str; 3] = ["cn", "telegram", "us"];

struct Folder<'a>(&'a Path);

impl GeoSource for Folder<'_> {
    fn read(&mut self, file: &str, _: Option<&str>) -> Result<Vec<u8>, Unreadable> {
        Ok(fs::read(self.0.join(file)).unwrap())
    }
}

pub(crate) fn honk(folder: &Path) {
    let sites = SITES.map(|code| format!("domain(geosite: {code}) -> block\n"));
    let networks = NETWORKS.map(|code| format!("dip(geoip: {code}) -> block\n"));
    let text = format!("routing {{\n{}{}}}", sites.concat(), networks.concat());
    let parsed = honk_grammar::parse_text("bench.dae", &text);
    warm(folder);
    rss::forget_peak();
    let before = rss::now();
    let start = Instant::now();
    let (config, _) = config::lower(&parsed, &mut Folder(folder));
    let config = config.unwrap();
    let oracle = Oracle::new(&config.rules);
    print("geo.load", start.elapsed().as_secs_f64() * 1e3);
    print("geo.load.rss", rss::now() - before);
    print("geo.load.peak", rss::peak() - before);
    black_box(oracle);

    let conds = config.rules.lines.iter().flat_map(|line| &line.conds);
    let names = conds.filter_map(|cond| match &cond.test {
        Test::Domain(tests) => Some(&tests[..]),
        _ => None,
    });
    let index = DomainIndex::new(names);
    real(folder, |name, hits| index.find(name, hits));
}

pub(crate) fn plain(folder: &Path) {
    warm(folder);
    rss::forget_peak();
    let before = rss::now();
    let start = Instant::now();
    let mut whole = Whole::default();
    whole.read_sites(&fs::read(folder.join("geosite.dat")).unwrap());
    whole.read_networks(&fs::read(folder.join("geoip.dat")).unwrap());
    let mut matcher = Matcher::default();
    for (cond, code) in (0..).zip(SITES) {
        for (kind, name) in &whole.sites[code] {
            matcher.add(*kind, name, cond);
        }
    }
    let nets: Vec<_> = NETWORKS.iter().map(|code| &whole.networks[*code]).collect();
    print("geo.load", start.elapsed().as_secs_f64() * 1e3);
    print("geo.load.rss", rss::now() - before);
    print("geo.load.peak", rss::peak() - before);
    black_box(nets);
    real(folder, |name, hits| matcher.find(name, hits));
}

/// Both files in the page cache.
fn warm(folder: &Path) {
    for file in ["geosite.dat", "geoip.dat"] {
        let mut file = fs::File::open(folder.join(file)).unwrap();
        std::io::copy(&mut file, &mut std::io::sink()).unwrap();
    }
}

/// Names of the file itself, most of them of codes that no rule names, with a host before.
fn real(folder: &Path, find: impl Fn(&str, &mut [u64])) {
    let mut whole = Whole::default();
    whole.read_sites(&fs::read(folder.join("geosite.dat")).unwrap());
    let mut codes: Vec<_> = whole
        .sites
        .into_iter()
        .filter(|(_, names)| names.len() < 20_000)
        .collect();
    codes.sort_unstable();
    let names = codes.iter().flat_map(|(_, names)| names);
    let names: Vec<String> = names
        .filter(|(kind, _)| *kind >= honk_policy::geo::Kind::Suffix)
        .map(|(_, name)| format!("www.{name}"))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    print("geo.real.lookup", median_ns(&names, find));
}
