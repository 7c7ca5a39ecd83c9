//! Tells the binary what it was built from: source revision, target, compiler.

use std::{env, fs, path::PathBuf, process::Command};

fn main() {
    println!("cargo::rerun-if-env-changed=HONK_REVISION");
    println!("cargo::rerun-if-changed=build.rs");
    let revision = env::var("HONK_REVISION")
        .ok()
        .or_else(git_revision)
        .unwrap_or_else(|| "unknown".to_owned());
    let target = env::var("TARGET").unwrap_or_else(|_| "unknown".to_owned());
    println!("cargo::rustc-env=HONK_REVISION={revision}");
    println!("cargo::rustc-env=HONK_TARGET={target}");
    println!("cargo::rustc-env=HONK_RUSTC={}", compiler());
}

/// First 12 digits of the commit, read from the files git keeps; a source archive has none.
fn git_revision() -> Option<String> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").ok()?);
    let dot_git = root.parent()?.join(".git");
    // In a linked worktree `.git` is a file that names the directory.
    let dir = match fs::read_to_string(&dot_git) {
        Ok(text) => PathBuf::from(text.strip_prefix("gitdir:")?.trim()),
        Err(_) => dot_git,
    };
    let head_file = dir.join("HEAD");
    let head = fs::read_to_string(&head_file).ok()?;
    println!("cargo::rerun-if-changed={}", head_file.display());
    let Some(name) = head.trim().strip_prefix("ref: ") else {
        return short(head.trim());
    };
    let common = fs::read_to_string(dir.join("commondir"))
        .map_or_else(|_| dir.clone(), |text| dir.join(text.trim()));
    let loose = common.join(name);
    if let Ok(text) = fs::read_to_string(&loose) {
        println!("cargo::rerun-if-changed={}", loose.display());
        return short(text.trim());
    }
    let packed = common.join("packed-refs");
    println!("cargo::rerun-if-changed={}", packed.display());
    let text = fs::read_to_string(packed).ok()?;
    let line = text.lines().find(|l| l.ends_with(name))?;
    short(line.split(' ').next()?)
}

fn short(hash: &str) -> Option<String> {
    let valid = hash.len() >= 12 && hash.bytes().all(|b| b.is_ascii_hexdigit());
    valid.then(|| hash[..12].to_owned())
}

/// `rustc 1.95.0`
fn compiler() -> String {
    let rustc = env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let text = Command::new(rustc)
        .arg("--version")
        .output()
        .ok()
        .and_then(|o| String::from_utf8(o.stdout).ok())
        .unwrap_or_default();
    let words: Vec<&str> = text.split_whitespace().take(2).collect();
    if words.is_empty() {
        "rustc unknown".to_owned()
    } else {
        words.join(" ")
    }
}
