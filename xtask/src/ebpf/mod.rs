//! Builds the kernel object and proves that the checked-in one equals a fresh build.
//!
//! The bytes depend on the compiler, the source of `core` and the linker, so their names are
//! kept beside the object (`prebuilt/TOOLCHAIN`). `--check` compares bytes only under that set;
//! with another one, or none, it says so and compares a digest of our sources
//! (`prebuilt/SOURCES`): a change without a new object is found on every machine.

mod elf;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use sha2::{Digest as _, Sha256};

use crate::sh;

const OBJECT: &str = "honk.bpf.o";
const TARGET: &str = "bpfel-unknown-none";
const SUMS: &str = "SHA256SUMS";
const TOOLCHAIN: &str = "TOOLCHAIN";
const SOURCES: &str = "SOURCES";
/// The only linker release that works with the LLVM of the toolchain.
const BPF_LINKER: &str = "0.10.4";

/// Arguments of `cargo xtask ebpf`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Prove that the checked-in object equals a fresh build
    #[arg(long)]
    check: bool,
}

impl Args {
    /// The arguments of `--check`.
    pub(crate) fn check() -> Self {
        Self { check: true }
    }
}

/// Builds, or proves with `--check`.
pub(crate) fn run(args: &Args) -> Result<()> {
    let prebuilt = crate_dir().join("prebuilt");
    let tools = match Tools::find() {
        Ok(tools) => tools,
        Err(missing) if args.check => {
            verify_sums(&prebuilt)?;
            verify_sources(&prebuilt)?;
            eprintln!("skipped: ebpf --check: {missing:#}");
            return Ok(());
        }
        Err(missing) => return Err(missing),
    };
    if args.check {
        return check(&prebuilt, &tools);
    }
    let object = build(&tools, &sh::target_dir().join("ebpf"))?;
    std::fs::create_dir_all(&prebuilt)?;
    write(&prebuilt.join(OBJECT), &object)?;
    write(&prebuilt.join(SUMS), sums_line(&object).as_bytes())?;
    write(&prebuilt.join(TOOLCHAIN), tools.describe().as_bytes())?;
    write(&prebuilt.join(SOURCES), our_sources()?.as_bytes())?;
    eprintln!(
        "ebpf: {OBJECT}, {} bytes, {}",
        object.len(),
        sha256(&object)
    );
    Ok(())
}

fn check(prebuilt: &Path, tools: &Tools) -> Result<()> {
    let stored = verify_sums(prebuilt)?;
    verify_sources(prebuilt)?;
    let pinned = std::fs::read_to_string(prebuilt.join(TOOLCHAIN)).context(TOOLCHAIN)?;
    let here = tools.describe();
    if pinned != here {
        eprintln!(
            "skipped: ebpf --check: the object was made with\n{}and here is\n{}\
             bytes may differ, so they are not compared",
            indent(&pinned),
            indent(&here)
        );
        return Ok(());
    }
    let scratch = sh::target_dir().join(format!("ebpf-check-{}", std::process::id()));
    let built = build(tools, &scratch);
    let _ = std::fs::remove_dir_all(&scratch);
    let built = built?;
    ensure!(
        built == stored,
        "the checked-in {OBJECT} ({}) is not what the sources give ({}); \
         run `cargo xtask ebpf` and commit honk-ebpf/prebuilt/",
        sha256(&stored),
        sha256(&built)
    );
    eprintln!(
        "ebpf: {OBJECT} equals a fresh build with\n{}",
        indent(&here).trim_end()
    );
    Ok(())
}

/// What decides the bytes, and where it lies.
struct Tools {
    rustc: String,
    core: String,
    linker: String,
    sysroot: PathBuf,
}

impl Tools {
    fn find() -> Result<Self> {
        let remedy = "run `cargo xtask setup`";
        let rustc = sh::capture(&mut nightly("rustc", &["-vV"]))
            .with_context(|| format!("no nightly toolchain; {remedy}"))?;
        let sysroot = sh::capture(&mut nightly("rustc", &["--print", "sysroot"]))
            .map(PathBuf::from)
            .with_context(|| format!("the nightly toolchain does not answer; {remedy}"))?;
        let library = sysroot.join("lib/rustlib/src/rust/library");
        ensure!(
            library.join("core/src/lib.rs").is_file(),
            "no source of `core` in {} (rust-src); {remedy}",
            library.display()
        );
        let linker = sh::capture(&mut sh::tool("bpf-linker", &["--version"]))
            .with_context(|| format!("no bpf-linker in PATH; {remedy}"))?;
        ensure!(
            linker.split_whitespace().nth(1) == Some(BPF_LINKER),
            "{linker} found, bpf-linker {BPF_LINKER} needed; {remedy}"
        );
        Ok(Self {
            rustc: version_lines(&rustc),
            core: digest(&[library.join("core/src")])?,
            linker,
            sysroot,
        })
    }

    fn describe(&self) -> String {
        format!("{}core {}\n{}\n", self.rustc, self.core, self.linker)
    }
}

/// The lines of `rustc -vV` that name compiler and LLVM.
fn version_lines(verbose: &str) -> String {
    verbose
        .lines()
        .filter(|l| l.starts_with("rustc ") || l.starts_with("LLVM "))
        .fold(String::new(), |all, l| all + l + "\n")
}

/// A digest over all Rust files of some folders.
fn digest(dirs: &[PathBuf]) -> Result<String> {
    let mut hash = Sha256::new();
    for dir in dirs {
        let mut files = Vec::new();
        collect(dir, &mut files)?;
        files.sort();
        for file in files {
            let name = file.strip_prefix(dir).unwrap_or(&file);
            hash.update(name.as_os_str().as_encoded_bytes());
            hash.update([0]);
            hash.update(std::fs::read(&file).with_context(|| file.display().to_string())?);
        }
    }
    Ok(format!("sha256:{}", hex(&hash.finalize())))
}

/// Digest of what the object is made from, as a line.
fn our_sources() -> Result<String> {
    let dirs = [crate_dir().join("src"), sh::root().join("honk-common/src")];
    Ok(format!("{}\n", digest(&dirs)?))
}

fn verify_sources(prebuilt: &Path) -> Result<()> {
    let recorded = std::fs::read_to_string(prebuilt.join(SOURCES)).context(SOURCES)?;
    ensure!(
        recorded == our_sources()?,
        "honk-ebpf or honk-common changed since {OBJECT} was built; \
         run `cargo xtask ebpf` and commit honk-ebpf/prebuilt/"
    );
    Ok(())
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// Folders of unpacked crates, one per registry.
fn registries(cargo_home: &Path) -> Result<Vec<PathBuf>> {
    let all = cargo_home.join("registry/src");
    std::fs::read_dir(&all)
        .with_context(|| all.display().to_string())?
        .map(|entry| Ok(entry?.path()))
        .collect()
}

/// Builds into `target` and returns the object without debug sections.
fn build(tools: &Tools, target: &Path) -> Result<Vec<u8>> {
    let root = sh::root();
    let home = std::env::var_os("CARGO_HOME").map_or_else(
        || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cargo"),
        PathBuf::from,
    );
    // The last matching prefix wins, so the widest comes first.
    let mut flags = vec!["-Cdebuginfo=2".to_owned(), "-Clink-arg=--btf".to_owned()];
    for (from, to) in [
        (home.as_path(), "/cargo"),
        (tools.sysroot.as_path(), "/rust"),
        (target, "/target"),
        (root, "/honk"),
    ] {
        flags.push(format!("--remap-path-prefix={}={to}", from.display()));
    }
    // The folder of a registry carries its host in its name, and exists once its crates were
    // fetched.
    sh::run(sh::cargo_nightly(&["fetch", "--locked"]).current_dir(crate_dir()))?;
    for registry in registries(&home)? {
        flags.push(format!(
            "--remap-path-prefix={}=/crates",
            registry.display()
        ));
    }
    let mut command = sh::cargo_nightly(&["build", "--release", "--locked", "--target-dir"]);
    command
        .arg(target)
        .current_dir(crate_dir())
        .env_remove("RUSTFLAGS")
        .env_remove("RUSTC_WRAPPER")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
    sh::run(&mut command)?;
    let path = target.join(TARGET).join("release/honk");
    let object = std::fs::read(&path).with_context(|| path.display().to_string())?;
    let object = elf::strip_debug(&object)?;
    let names = elf::section_names(&object)?;
    ensure!(
        names.iter().any(|n| n == ".BTF"),
        "the object has no .BTF section; sections: {}",
        names.join(" ")
    );
    let needle = root.as_os_str().as_encoded_bytes();
    if object.windows(needle.len()).any(|w| w == needle) {
        bail!("the object contains the path of this checkout");
    }
    Ok(object)
}

/// The stored object, if its recorded sum is right.
fn verify_sums(prebuilt: &Path) -> Result<Vec<u8>> {
    let object = std::fs::read(prebuilt.join(OBJECT))
        .with_context(|| format!("honk-ebpf/prebuilt/{OBJECT}"))?;
    let sums = std::fs::read_to_string(prebuilt.join(SUMS)).context(SUMS)?;
    ensure!(
        sums == sums_line(&object),
        "honk-ebpf/prebuilt/{OBJECT} does not match {SUMS}; run `cargo xtask ebpf`"
    );
    Ok(object)
}

fn nightly(tool: &str, args: &[&str]) -> Command {
    let mut command = sh::tool(tool, &["+nightly"]);
    command.args(args).env_remove("RUSTUP_TOOLCHAIN");
    command
}

fn crate_dir() -> PathBuf {
    sh::root().join("honk-ebpf")
}

fn write(path: &Path, data: &[u8]) -> Result<()> {
    std::fs::write(path, data).with_context(|| path.display().to_string())
}

fn sums_line(object: &[u8]) -> String {
    format!("{}  {OBJECT}\n", sha256(object))
}

fn sha256(data: &[u8]) -> String {
    hex(&Sha256::digest(data))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn indent(text: &str) -> String {
    text.lines()
        .fold(String::new(), |all, l| all + "  " + l + "\n")
}
