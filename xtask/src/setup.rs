//! `cargo xtask setup`: what a fresh Debian 12 with Rust lacks.
//!
//! Every need is one row: how to see it, how to get it. Idempotent; `--check` installs nothing,
//! asks no network and exits 10 when a required row is missing.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use sha2::{Digest as _, Sha256};

use crate::{peers, sh};

const BPF_LINKER: &str = "0.10.4";

/// Tools of the lab: program and the Debian package that brings it.
const TOOLS: [(&str, &str); 10] = [
    ("ip", "iproute2"),
    ("tc", "iproute2"),
    ("nft", "nftables"),
    ("curl", "curl"),
    ("iperf3", "iperf3"),
    ("tcpdump", "tcpdump"),
    ("ethtool", "ethtool"),
    ("sysctl", "procps"),
    ("xz", "xz-utils"),
    ("pip3", "python3-pip"),
];

/// Shows dashboards in the lab; program and package.
const BROWSER: &str = "chromium";

/// Arguments of `cargo xtask setup`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only print what is there and what is missing
    #[arg(long)]
    check: bool,
    /// Archive with the source of `core`, used when rustup cannot download rust-src
    #[arg(long, value_name = "FILE", env = "HONK_RUST_SRC")]
    rust_src: Option<PathBuf>,
    /// Also install cargo-deny (about four minutes on two cores)
    #[arg(long)]
    deny: bool,
    /// Also install Chromium and a dashboard for it to show (about 400 MB)
    #[arg(long)]
    browser: bool,
}

struct Row {
    name: &'static str,
    found: Option<String>,
    needed: bool,
    remedy: String,
}

/// Installs what is missing, or reports with `--check`.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if !args.check {
        let start = Instant::now();
        debian_packages().context("Debian packages for the lab")?;
        nightly().context("nightly toolchain")?;
        rust_src(args.rust_src.as_deref()).context("source of core for the nightly toolchain")?;
        bpf_linker().context("bpf-linker")?;
        if args.deny {
            cargo_deny();
        }
        if args.browser {
            if !sh::in_path(BROWSER) {
                install(&[BROWSER]).context("the browser of the lab")?;
            }
            peers::fetch_dashboard().context("the dashboard of the lab")?;
        }
        eprintln!("setup: done in {}", sh::secs(start));
    }
    let rows = survey();
    print_table(&rows);
    let missing = rows.iter().any(|row| row.needed && row.found.is_none());
    Ok(if missing {
        ExitCode::from(10)
    } else {
        ExitCode::SUCCESS
    })
}

/// Fails with the remedy when a tool of the lab is missing.
pub(crate) fn require_lab_tools() -> Result<()> {
    let missing: Vec<&str> = TOOLS
        .iter()
        .filter(|(tool, _)| !sh::in_path(tool))
        .map(|(tool, _)| *tool)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    bail!("missing {}: run `cargo xtask setup`", missing.join(", "))
}

fn survey() -> Vec<Row> {
    let mut rows: Vec<Row> = TOOLS
        .iter()
        .map(|&(tool, package)| Row {
            name: tool,
            found: sh::in_path(tool).then(|| format!("package {package}")),
            needed: true,
            remedy: format!("apt-get install {package}"),
        })
        .collect();
    let mut row = |name, found, needed, remedy: &str| {
        rows.push(Row {
            name,
            found,
            needed,
            remedy: remedy.into(),
        });
    };
    row(
        "rustc nightly",
        nightly_version(),
        true,
        "rustup toolchain install nightly",
    );
    row(
        "rust-src (nightly)",
        core_source().map(|dir| dir.display().to_string()),
        true,
        "rustup component add rust-src --toolchain nightly, or setup --rust-src FILE",
    );
    row(
        "bpf-linker",
        linker_version().filter(|v| v.ends_with(BPF_LINKER)),
        true,
        "cargo +nightly install bpf-linker --version 0.10.4 --locked",
    );
    row(
        "cargo-deny",
        deny_version(),
        false,
        "cargo xtask setup --deny (suite `deny` skips)",
    );
    row(
        "browser, dashboard",
        peers::dashboard()
            .filter(|_| sh::in_path(BROWSER))
            .map(|dir| dir.display().to_string()),
        false,
        "cargo xtask setup --browser (sys_dashboard skips)",
    );
    row(
        "kernel BTF",
        Path::new("/sys/kernel/btf/vmlinux")
            .exists()
            .then(|| "/sys/kernel/btf/vmlinux".into()),
        true,
        "a kernel with CONFIG_DEBUG_INFO_BTF=y",
    );
    row(
        "root",
        sh::is_root().then(|| "yes".into()),
        false,
        "demo, bench, lab and the system tests need root",
    );
    rows
}

fn print_table(rows: &[Row]) {
    println!("{:<20} {:<8} DETAIL", "NEED", "STATE");
    for row in rows {
        let (state, detail) = match (&row.found, row.needed) {
            (Some(found), _) => ("ok", found.as_str()),
            (None, true) => ("MISSING", row.remedy.as_str()),
            (None, false) => ("absent", row.remedy.as_str()),
        };
        println!("{:<20} {state:<8} {detail}", row.name);
    }
}

fn debian_packages() -> Result<()> {
    let mut packages: Vec<&str> = TOOLS
        .iter()
        .filter(|(tool, _)| !sh::in_path(tool))
        .map(|&(_, package)| package)
        .collect();
    packages.dedup();
    if packages.is_empty() {
        eprintln!("lab tools: present");
        return Ok(());
    }
    install(&packages)
}

/// Has Debian's package manager bring what is missing.
fn install(packages: &[&str]) -> Result<()> {
    if !sh::in_path("apt-get") {
        bail!(
            "no apt-get here; install by hand what gives: {}",
            packages.join(" ")
        );
    }
    if !sh::is_root() {
        bail!(
            "needs root to install {}; run setup as root",
            packages.join(" ")
        );
    }
    eprintln!("lab tools: installing {}", packages.join(" "));
    let install = || {
        let mut command = sh::tool("apt-get", &["install", "-y", "--no-install-recommends"]);
        command
            .args(packages)
            .env("DEBIAN_FRONTEND", "noninteractive");
        sh::status(&mut command)
    };
    if install()?.success() {
        return Ok(());
    }
    eprintln!("lab tools: refreshing the package lists, then once more");
    sh::run(&mut sh::tool("apt-get", &["update"]))?;
    if !install()?.success() {
        bail!("apt-get could not install {}", packages.join(" "));
    }
    Ok(())
}

fn nightly_version() -> Option<String> {
    sh::capture(&mut nightly_tool("rustc", &["--version"]))
}

/// A tool of the nightly toolchain, reached through rustup.
fn nightly_tool(name: &str, args: &[&str]) -> std::process::Command {
    let mut command = sh::tool(name, &["+nightly"]);
    command.args(args).env_remove("RUSTUP_TOOLCHAIN");
    command
}

fn nightly() -> Result<()> {
    if let Some(version) = nightly_version() {
        eprintln!("nightly: present ({version})");
        return Ok(());
    }
    eprintln!("nightly: installing through rustup");
    sh::run(&mut sh::tool(
        "rustup",
        &["toolchain", "install", "nightly", "--profile", "minimal"],
    ))
}

/// Folder that must contain `library/` for `-Z build-std`.
fn source_dir() -> Option<PathBuf> {
    let sysroot = sh::capture(&mut nightly_tool("rustc", &["--print", "sysroot"]))?;
    Some(Path::new(&sysroot).join("lib/rustlib/src/rust"))
}

/// Source of `core` in the nightly sysroot, when it is there.
pub(crate) fn core_source() -> Option<PathBuf> {
    let dir = source_dir()?;
    dir.join("library/core/src/lib.rs").is_file().then_some(dir)
}

fn rust_src(archive: Option<&Path>) -> Result<()> {
    if let Some(dir) = core_source() {
        eprintln!("rust-src: present ({})", dir.display());
        return Ok(());
    }
    eprintln!("rust-src: asking rustup");
    let mut rustup = sh::tool(
        "rustup",
        &["component", "add", "rust-src", "--toolchain", "nightly"],
    );
    let asked = sh::status(&mut rustup).is_ok_and(|status| status.success());
    if asked && core_source().is_some() {
        return Ok(());
    }
    let Some(archive) = archive else {
        bail!(
            "rustup could not download rust-src; give an archive with `library/` by \
             --rust-src FILE or HONK_RUST_SRC"
        );
    };
    unpack_source(archive)
}

fn unpack_source(archive: &Path) -> Result<()> {
    let digest = peers::hex(&Sha256::digest(
        std::fs::read(archive).with_context(|| format!("cannot read {}", archive.display()))?,
    ));
    check_sum(archive, &digest)?;
    let dir = source_dir().context("the nightly toolchain does not answer")?;
    std::fs::create_dir_all(&dir)?;
    eprintln!(
        "rust-src: unpacking {} into {}",
        archive.display(),
        dir.display()
    );
    let mut tar = sh::tool("tar", &["-xf"]);
    // The path may be relative to the caller's folder, not to the workspace.
    sh::run(tar.arg(std::path::absolute(archive)?).arg("-C").arg(&dir))?;
    if core_source().is_none() {
        bail!(
            "{} holds no library/core/src/lib.rs at its top",
            archive.display()
        );
    }
    Ok(())
}

/// Compares with SHA256SUMS beside the archive, when there is one.
fn check_sum(archive: &Path, digest: &str) -> Result<()> {
    let Ok(sums) = std::fs::read_to_string(archive.with_file_name("SHA256SUMS")) else {
        eprintln!("rust-src: no SHA256SUMS beside the archive; SHA-256 is {digest}");
        return Ok(());
    };
    let name = archive.file_name().unwrap_or_default().to_string_lossy();
    match listed_sum(&sums, &name) {
        Some(sum) if sum.eq_ignore_ascii_case(digest) => Ok(()),
        Some(sum) => bail!("{name}: SHA-256 is {digest}, SHA256SUMS says {sum}"),
        None => bail!("{name} is not listed in the SHA256SUMS beside it"),
    }
}

fn listed_sum<'a>(sums: &'a str, name: &str) -> Option<&'a str> {
    sums.lines().find_map(|line| {
        let (sum, file) = line.split_once(char::is_whitespace)?;
        let file = file.trim().trim_start_matches('*').trim_start_matches("./");
        (file == name).then_some(sum)
    })
}

fn linker_version() -> Option<String> {
    sh::capture(&mut sh::tool("bpf-linker", &["--version"]))
}

fn bpf_linker() -> Result<()> {
    if let Some(version) = linker_version().filter(|v| v.ends_with(BPF_LINKER)) {
        eprintln!("bpf-linker: present ({version})");
        return Ok(());
    }
    eprintln!("bpf-linker: building {BPF_LINKER} with the nightly toolchain (about a minute)");
    sh::run(&mut sh::cargo_nightly(&[
        "install",
        "bpf-linker",
        "--version",
        BPF_LINKER,
        "--locked",
        "--force",
    ]))
}

fn deny_version() -> Option<String> {
    sh::capture(&mut sh::tool("cargo-deny", &["--version"]))
}

fn cargo_deny() {
    if deny_version().is_some() {
        return;
    }
    eprintln!("cargo-deny: building (optional)");
    if let Err(error) = sh::run(&mut sh::cargo(&["install", "--locked", "cargo-deny"])) {
        eprintln!("cargo-deny: {error}; the suite `deny` will be skipped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_found_by_file_name() {
        let sums = "aa  other.tar\nbb *./src.tar.xz\n";
        assert_eq!(listed_sum(sums, "src.tar.xz"), Some("bb"));
        assert_eq!(listed_sum(sums, "src.tar"), None);
    }
}
