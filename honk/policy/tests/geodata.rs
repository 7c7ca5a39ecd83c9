//! The published files, when `cargo xtask peers` has fetched them: what is read from them is
//! what stands in them.
#![allow(
    clippy::disallowed_methods,
    reason = "the files are read and the time is taken here"
)]

use std::{collections::HashMap, fs, path::PathBuf, time::Duration};

use honk_policy::{
    config,
    routing::{
        oracle::Oracle,
        rule::{FlowFacts, Test},
    },
};

/// The files by name; `None`, with the reason printed, when they are not there.
fn files() -> Option<HashMap<String, Vec<u8>>> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target
        .unwrap_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target")));
    let mut files = HashMap::new();
    for name in ["geosite.dat", "geoip.dat"] {
        let path = target.join("peers").join(name);
        match fs::read(&path) {
            Ok(bytes) => files.insert(name.to_owned(), bytes),
            Err(e) => {
                eprintln!(
                    "skipped: {}: {e}; `cargo xtask peers` fetches it",
                    path.display()
                );
                return None;
            }
        };
    }
    Some(files)
}

#[test]
fn published_files_are_read_and_match() {
    let Some(mut files) = files() else { return };
    let text = "routing {
        domain(geosite: category-ads-all) -> block
        domain(geosite: cn) -> direct
        domain(geosite: geolocation-!cn) -> direct
        dip(geoip: cn) -> block
        dip(geoip: us) -> direct
        fallback: block
    }";
    let parsed = honk_grammar::parse_text("real.dae", text);
    let (config, findings) = config::lower(&parsed, &mut files);
    let geo: Vec<_> = findings
        .iter()
        .filter(|f| f.slug.starts_with("geo-"))
        .collect();
    assert!(geo.is_empty(), "{geo:?}");
    let rules = config.unwrap().rules;
    let Test::Dest(us) = &rules.lines[4].conds[0].test else {
        panic!("networks");
    };
    assert_eq!(us.len(), 265_482, "the file has no neighbours left to join");
    let oracle = Oracle::new(&rules);
    let rule = |domain: Option<&str>, dst| {
        oracle
            .eval(&FlowFacts {
                src: honk_common::key::v4_mapped([192, 168, 0, 2]),
                dst: honk_common::key::v4_mapped(dst),
                sport: 1,
                dport: 443,
                tcp: true,
                mac: [2; 6],
                dscp: 0,
                pname: [0; 16],
                domain: domain.map(str::to_owned),
            })
            .rule
    };
    let nowhere = [192, 0, 2, 1];
    assert_eq!(rule(Some("ad.doubleclick.net"), nowhere), 0);
    assert_eq!(rule(Some("www.baidu.com"), nowhere), 1);
    assert_eq!(rule(Some("www.youtube.com"), nowhere), 2);
    assert_eq!(rule(Some("notyoutube.com.invalid"), nowhere), 5);
    assert_eq!(rule(None, [114, 114, 114, 114]), 3);
    assert_eq!(rule(None, [8, 8, 8, 8]), 4);
    assert_eq!(rule(None, nowhere), 5);
}

/// Damage anywhere in real files: an answer, soon, and no panic.
#[test]
fn damaged_files_do_no_harm() {
    let Some(files) = files() else { return };
    let text = "routing { domain(geosite: apple) -> block dip(geoip: jp) -> block }";
    let parsed = honk_grammar::parse_text("real.dae", text);
    let mut place = 7usize;
    for round in 0..10 {
        let mut damaged = files.clone();
        for bytes in damaged.values_mut() {
            for _ in 0..1 << round {
                place = place
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let at = (place >> 20) % bytes.len();
                bytes[at] = (place >> 50) as u8;
            }
        }
        let start = std::time::Instant::now();
        let _ = config::lower(&parsed, &mut damaged);
        assert!(start.elapsed() < Duration::from_secs(10));
    }
}
