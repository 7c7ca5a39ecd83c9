//! The host's network state as text, for "byte-equal to before".
//!
//! Links, addresses, rules, routes, qdiscs and filters, TCX programs, nft tables, named
//! namespaces, pins and sysctls. Values that change by themselves (counters, ages) are left out.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Result, bail};

use crate::honk::leftovers;
use crate::netns::{NAMED, Netns};
use crate::tool;

/// Sysctls whose values move without anybody setting them.
const MOVING: [&str; 4] = [
    "nf_conntrack_count",
    "/neigh/",
    "tcp_fastopen_key",
    "stable_secret",
];

/// State of one namespace plus the pins of one bpf file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot(String);

impl Snapshot {
    /// Reads everything.
    pub fn take(ns: &Netns, bpffs: &Path) -> Result<Self> {
        let mut text = String::new();
        for args in [
            "-details link show",
            "address show",
            "-4 rule show",
            "-6 rule show",
            "-4 route show table all",
            "-6 route show table all",
        ] {
            section(
                &mut text,
                args,
                &tool::run(ns.command("ip").args(args.split(' ')))?,
            );
        }
        section(
            &mut text,
            "nft",
            &tool::run(ns.command("nft").args(["list", "ruleset"]))?,
        );
        section(
            &mut text,
            "qdiscs",
            &tool::run(ns.command("tc").args(["qdisc", "show"]))?,
        );
        for (index, name) in links(ns)? {
            for side in ["ingress", "egress"] {
                let args = ["filter", "show", "dev", &name, side];
                let filters = tool::run(ns.command("tc").args(args))?;
                section(&mut text, &format!("filters {name} {side}"), &filters);
                let programs = ns.run(|| tcx_programs(index, side == "egress"));
                section(
                    &mut text,
                    &format!("tcx {name} {side}"),
                    &format!("{programs}\n"),
                );
            }
        }
        let mut names: Vec<String> = std::fs::read_dir(NAMED)?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            // Other labs come and go while this one is looked at.
            .filter(|name| !name.starts_with("hl-") || ns.name() == name)
            .collect();
        names.sort();
        section(&mut text, "named namespaces", &names.join("\n"));
        let pins: Vec<String> = leftovers(bpffs)
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        section(&mut text, "pins", &pins.join("\n"));
        section(&mut text, "sysctls", &ns.run(sysctls));
        Ok(Self(text))
    }

    /// Fails with the lines that differ.
    pub fn must_equal(&self, before: &Self) -> Result<()> {
        if self == before {
            return Ok(());
        }
        let (old, new): (Vec<&str>, Vec<&str>) =
            (before.0.lines().collect(), self.0.lines().collect());
        let mut report = String::new();
        for line in old.iter().filter(|line| !new.contains(line)) {
            let _ = writeln!(report, "- {line}");
        }
        for line in new.iter().filter(|line| !old.contains(line)) {
            let _ = writeln!(report, "+ {line}");
        }
        bail!("the host's state changed:\n{report}")
    }
}

fn section(text: &mut String, title: &str, body: &str) {
    let _ = writeln!(text, "## {title}");
    for line in body.lines() {
        let _ = writeln!(text, "{}", without_ages(line));
    }
}

/// Cuts `expires 12sec`, bridge timers and the like out of a line.
fn without_ages(line: &str) -> String {
    let indent = line.len() - line.trim_start().len();
    let mut words = Vec::new();
    let mut skip = false;
    for word in line.split_whitespace() {
        if skip {
            skip = false;
        } else if matches!(word, "expires" | "valid_lft" | "preferred_lft" | "age")
            || word.ends_with("_timer")
        {
            skip = true;
        } else {
            words.push(word);
        }
    }
    format!("{}{}", &line[..indent], words.join(" "))
}

fn links(ns: &Netns) -> Result<Vec<(u32, String)>> {
    let text = tool::run(ns.command("ip").args(["-oneline", "link", "show"]))?;
    let parse = |line: &str| {
        let mut parts = line.split(": ");
        let index = parts.next()?.trim().parse().ok()?;
        let name = parts.next()?.split('@').next()?.to_owned();
        Some((index, name))
    };
    Ok(text.lines().filter_map(parse).collect())
}

/// Program ids attached through TCX to an interface, by the query command of bpf(2).
fn tcx_programs(index: u32, egress: bool) -> String {
    const PROG_QUERY: libc::c_int = 16;
    const TCX_INGRESS: u32 = 46;
    #[repr(C)]
    struct Query {
        target: u32,
        attach_type: u32,
        query_flags: u32,
        attach_flags: u32,
        prog_ids: u64,
        prog_cnt: u32,
        pad: u32,
        prog_attach_flags: u64,
        link_ids: u64,
        link_attach_flags: u64,
        revision: u64,
    }
    let mut ids = [0_u32; 64];
    let mut query = Query {
        target: index,
        attach_type: TCX_INGRESS + u32::from(egress),
        query_flags: 0,
        attach_flags: 0,
        prog_ids: ids.as_mut_ptr() as u64,
        prog_cnt: ids.len() as u32,
        pad: 0,
        prog_attach_flags: 0,
        link_ids: 0,
        link_attach_flags: 0,
        revision: 0,
    };
    // SAFETY: the attribute block is as long as stated and its array outlives the call.
    let code = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            PROG_QUERY,
            std::ptr::from_mut(&mut query),
            size_of::<Query>(),
        )
    };
    if code != 0 {
        return format!("query failed: {}", std::io::Error::last_os_error());
    }
    format!("{:?}", &ids[..(query.prog_cnt as usize).min(ids.len())])
}

/// All readable sysctls below `net`, without the moving ones.
fn sysctls() -> String {
    let mut text = String::new();
    for path in leftovers(Path::new("/proc/sys/net")) {
        let name = path.display().to_string();
        if path.is_dir() || MOVING.iter().any(|moving| name.contains(moving)) {
            continue;
        }
        if let Ok(value) = std::fs::read_to_string(&path) {
            let _ = writeln!(text, "{name}={}", value.trim());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_cut_out() {
        let line = "default via fe80::1 dev wan proto ra metric 1024 expires 29sec pref medium";
        assert!(!without_ages(line).contains("29sec"));
        assert!(without_ages(line).ends_with("pref medium"));
    }

    #[test]
    fn a_difference_is_shown_with_its_direction() {
        let old = Snapshot("a\nb\n".into());
        let new = Snapshot("a\nc\n".into());
        let text = new.must_equal(&old).expect_err("they differ").to_string();
        assert!(text.contains("- b") && text.contains("+ c"), "{text}");
        assert!(old.must_equal(&old.clone()).is_ok());
    }
}
