//! What the verifier had to do. The recorded numbers are in `honk-ebpf/prebuilt/INSNS`;
//! `HONK_BLESS=1` rewrites them.

use std::collections::BTreeMap;
use std::path::Path;

use honk_tests::kernel::{CLASSIFIERS, GUARD, GUARD_GENERIC, LOOKUP, PROCESS_HOOKS, object_path};

use crate::rig;

/// Beyond this an older kernel may refuse.
const MOST: u32 = 200_000;

#[test]
fn verified_instructions_stay_near_the_recorded_ones() {
    let rig = rig!();
    let now: BTreeMap<&str, u32> = CLASSIFIERS
        .iter()
        .chain([&LOOKUP, &GUARD, &GUARD_GENERIC])
        .chain(&PROCESS_HOOKS)
        .map(|p| (*p, rig.verified_insns(p).expect("instruction count")))
        .collect();
    let file = object_path().with_file_name("INSNS");
    if std::env::var_os("HONK_BLESS").is_some() {
        bless(&file, &now);
    }
    let text = std::fs::read_to_string(&file).expect("honk-ebpf/prebuilt/INSNS");
    let recorded: BTreeMap<&str, u32> = text
        .lines()
        .filter(|l| !l.starts_with('#'))
        .filter_map(|l| l.split_once(' '))
        .map(|(name, n)| (name, n.trim().parse().expect("a number")))
        .collect();
    for (name, n) in &now {
        let before = *recorded
            .get(name)
            .unwrap_or_else(|| panic!("{name} is not recorded"));
        println!("{name}: {n} verified instructions, recorded {before}");
        assert!(*n < MOST, "{name} needs {n} instructions");
        assert!(
            u64::from(*n) * 10 <= u64::from(before) * 12,
            "{name} grew from {before} to {n}; if that is meant, run with HONK_BLESS=1"
        );
    }
    assert_eq!(
        recorded.len(),
        now.len(),
        "programs that no longer exist are recorded"
    );
}

fn bless(file: &Path, now: &BTreeMap<&str, u32>) {
    let mut text =
        String::from("# Instructions the verifier walked (verified_insns), per program.\n");
    for (name, n) in now {
        text += &format!("{name} {n}\n");
    }
    std::fs::write(file, text).expect("INSNS is writable");
}
