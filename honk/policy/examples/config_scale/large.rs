//! A configuration of more than 10,000 lines: 10,000 nodes of all protocols, 250 groups with
//! members by keyword, pattern and name, nested ones among them, and 500 rules.

use std::{
    collections::BTreeMap, env, fmt::Write as _, fs, hint::black_box, path::Path, process,
    time::Instant,
};

use honk_policy::{config, group::GroupTable, id::Uuid, routing};

use crate::support::{Figure, median, print, rss, run as again};

const NODES: usize = 10_000;
const GROUPS: usize = 250;
const RULES: usize = 500;
const ROUNDS: usize = 9;
/// Places that node names begin with.
const PLACES: [&str; 16] = [
    "HK", "JP", "US", "SG", "TW", "KR", "DE", "UK", "FR", "NL", "CA", "AU", "IN", "TR", "AR", "BR",
];
/// A figure, its unit and what it must not exceed.
const FIGURES: [(&str, &str, f64); 5] = [
    ("config.load", "ms", 100.0),
    ("config.load.wall", "ms", 0.0),
    ("config.load.peak", "MiB", 30.0),
    ("config.parse", "ms", 0.0),
    ("config.lower", "ms", 0.0),
];

pub(crate) fn run(file: &Path) {
    let start = Instant::now();
    let mut marks = Vec::new();
    let cpu = crate::cpu::seconds(|| {
        let text = fs::read(file).unwrap();
        let parsed = honk_grammar::parse_document("large.dae", &text, "/", &mut NoFiles);
        drop(text);
        marks.push(start.elapsed());
        let (config, findings) = config::lower(&parsed, &mut ());
        let config = config.unwrap_or_else(|| panic!("{findings:?}"));
        marks.push(start.elapsed());
        let (groups, found) = GroupTable::build(&config, None, &mut Uuid::new_v4);
        assert!(found.is_empty(), "{found:?}");
        let rules = config.rules.map_ordinals(|o| groups.slot_of(o));
        let tables = routing::compile(&rules).unwrap();
        marks.push(start.elapsed());
        assert_eq!((config.nodes.len(), config.groups.len()), (NODES, GROUPS));
        let members: usize = groups.groups().map(|g| g.members.len()).sum();
        assert!(members > 100 * GROUPS, "{members}");
        black_box((parsed, config, groups, tables));
    });
    let ms = |at: usize| marks[at].as_secs_f64() * 1e3;
    // One thread: on a machine with nothing else to do both are the same.
    print("config.load", cpu * 1e3);
    print("config.load.wall", ms(2));
    print("config.load.peak", rss::peak());
    print("config.parse", ms(0));
    print("config.lower", ms(1) - ms(0));
}

/// The file includes nothing.
struct NoFiles;

impl honk_grammar::Loader for NoFiles {
    fn canonical(&mut self, _: &str) -> Result<String, honk_grammar::LoadError> {
        Err(honk_grammar::LoadError::NotFound)
    }

    fn read(&mut self, _: &str) -> Result<honk_grammar::Loaded, honk_grammar::LoadError> {
        Err(honk_grammar::LoadError::NotFound)
    }

    fn is_dir(&mut self, _: &str) -> bool {
        false
    }

    fn list(&mut self, _: &str) -> Vec<String> {
        Vec::new()
    }
}

pub(crate) fn compare() {
    let file = env::temp_dir().join(format!("config_scale.{}.dae", process::id()));
    fs::write(&file, text()).unwrap();
    let mut values: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for _ in 0..ROUNDS {
        for (name, value) in again(&["large", file.to_str().unwrap()]) {
            values.entry(name).or_default().push(value);
        }
    }
    fs::remove_file(file).unwrap();
    for (case, unit, most) in FIGURES {
        let (value, spread) = median(values.get_mut(case).unwrap());
        let figure = Figure {
            case,
            unit,
            value,
            spread,
            runs: ROUNDS,
        };
        match most > 0.0 {
            true => figure.line("target", most),
            false => eprintln!("{case}: {value:.2} {unit}"),
        }
    }
}

fn text() -> String {
    let mut text =
        "global {\n    lan_interface: lan0\n    log_level: info\n}\n\nnode {\n".to_owned();
    for n in 0..NODES {
        writeln!(text, "    {}", node(n)).unwrap();
    }
    text.push_str("}\n\ngroup {\n");
    for n in 0..GROUPS {
        writeln!(
            text,
            "    g{n} {{\n        {}\n        policy: select\n    }}",
            filter(n)
        )
        .unwrap();
    }
    text.push_str("}\n\nrouting {\n");
    for n in 0..RULES {
        writeln!(text, "    {} -> g{}", rule(n), n % GROUPS).unwrap();
    }
    text.push_str("    fallback: g0\n}\n");
    text
}

fn node(n: usize) -> String {
    let name = format!(
        "{} {:02} x{}",
        PLACES[n % PLACES.len()],
        n / PLACES.len() % 100,
        n
    );
    let host = format!("n{n}.example.com");
    let link = match n % 6 {
        0 => format!("ss://YWVzLTEyOC1nY206cGFzc3dvcmQ@{host}:8388"),
        1 => format!("trojan://secret{n}@{host}:443?sni=cdn.example.com&alpn=h2,http/1.1"),
        2 => format!(
            "vless://9b0f6f5e-0c1d-4c59-8a5e-{n:012x}@{host}:443?security=tls&sni=cdn.example.com\
             &type=ws&path=%2Fpath&host=cdn.example.com&fp=chrome"
        ),
        3 => format!("hysteria2://secret{n}@{host}:8443?sni=cdn.example.com&mport=5000-6000"),
        4 => {
            format!("tuic://9b0f6f5e-0c1d-4c59-8a5e-{n:012x}:secret@{host}:443?sni=cdn.example.com")
        }
        _ => format!("socks5://user:secret@{host}:1080"),
    };
    format!("'{name}': '{link}'")
}

fn filter(n: usize) -> String {
    let place = PLACES[n % PLACES.len()];
    match n % 5 {
        0 => format!(
            "filter: name(keyword: '{place} {:02}') && !name(keyword: 'x1')",
            n % 100
        ),
        1 => format!("filter: name(keyword: '{place}')"),
        2 => format!("filter: name(regex: '^{place} [0-9]+ x[0-9]*{}$')", n % 10),
        3 => format!(
            "filter: name('{place} 00 x{}', '{place} 01 x{}')",
            n % PLACES.len(),
            n % PLACES.len() + 16
        ),
        _ => format!("filter: group(g{}, g{})", n - 1, n - 2),
    }
}

fn rule(n: usize) -> String {
    match n % 4 {
        0 => format!(
            "dip({}.{}.0.0/16, 2001:db8:{n:x}::/48)",
            n % 200 + 20,
            n % 256
        ),
        1 => format!(
            "l4proto(tcp) && dport({}, {}-{})",
            n + 1000,
            n + 2000,
            n + 2010
        ),
        2 => format!("sip(192.168.{}.0/24) && dport(443)", n % 256),
        _ => format!("mac('02:00:00:00:{:02x}:{:02x}')", n / 256, n % 256),
    }
}
