//! The engines of a comparison: honk, plain forwarding, and the rivals behind TPROXY rules.
//!
//! Every engine runs in the same gateway namespace, one at a time, sends to the same upstream
//! and takes the host's rules away with itself.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::stats::cpu_seconds;
use super::{ONE_SHOT, UPSTREAM};
use crate::honk::Honk;
use crate::lab::{Lab, addr};
use crate::{client, scene, tool, wait};

/// Who moves the traffic in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    /// The kernel alone: routing, conntrack, masquerade.
    Kernel,
    /// honk, with the destination direct.
    HonkDirect,
    /// honk, with the destination proxied.
    HonkRelay,
    /// sing-box, tproxy inbound.
    SingBox,
    /// mihomo, tproxy port.
    Mihomo,
}

impl Engine {
    /// Name in reports.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::HonkDirect | Self::HonkRelay => "honk",
            Self::SingBox => "sing-box",
            Self::Mihomo => "mihomo",
        }
    }

    /// Starts it and returns once a real flow came through.
    pub(super) fn start(self, lab: &Lab) -> Result<Running> {
        let running = match self {
            Self::Kernel => Running::Nothing,
            Self::HonkDirect => honk(lab, "fallback: direct")?,
            Self::HonkRelay => honk(lab, "fallback: proxy")?,
            Self::SingBox => rival(lab, "sing-box", SING_BOX_PORT)?,
            Self::Mihomo => rival(lab, "mihomo", MIHOMO_PORT)?,
        };
        let to = scene::at(scene::PROXIED, ONE_SHOT);
        wait::ok("a first flow", Duration::from_secs(10), || {
            lab.hc1.run(|| one_flow(to))
        })
        .with_context(|| running.log_tail())?;
        Ok(running)
    }
}

const SING_BOX_PORT: u16 = 12401;
const MIHOMO_PORT: u16 = 12402;

/// A running engine; dropping it ends it and removes its rules.
pub(super) enum Running {
    /// Nothing to end.
    Nothing,
    /// The daemon under test.
    Honk(Honk),
    /// A rival with its TPROXY rules.
    Rival(Rival),
}

impl Running {
    /// The last lines the engine printed.
    pub(super) fn log_tail(&self) -> String {
        match self {
            Self::Nothing => String::new(),
            Self::Honk(honk) => honk.home.log_tail(),
            Self::Rival(rival) => std::fs::read_to_string(&rival.log).unwrap_or_default(),
        }
    }

    /// Processor seconds of the engine's process so far.
    pub(super) fn cpu_seconds(&self) -> f64 {
        match self {
            Self::Nothing => 0.0,
            Self::Honk(honk) => honk.cpu_seconds().unwrap_or(0.0),
            Self::Rival(rival) => cpu_seconds(rival.child.id()).unwrap_or(0.0),
        }
    }
}

fn one_flow(to: SocketAddr) -> Result<()> {
    let mut stream = client::connect(to)?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
    let mut answer = [0];
    stream.read_exact(&mut answer).context("no answer")
}

fn honk(lab: &Lab, fallback: &str) -> Result<Running> {
    let config = format!(
        "global {{\n lan_interface: lan\n log_level: warn\n}}\n\
         node {{\n up: 'socks5://{}:{UPSTREAM}'\n}}\n\
         group {{\n proxy {{\n filter: name(up)\n policy: selector\n }}\n}}\n\
         routing {{\n dip(192.0.2.0/24) -> proxy\n {fallback}\n}}\n",
        addr::HP
    );
    Ok(Running::Honk(Honk::start(lab, &config)?))
}

/// A rival process.
pub(super) struct Rival {
    child: Child,
    log: PathBuf,
    lab_hg: crate::netns::Netns,
}

impl Drop for Rival {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        for line in [
            "-4 rule del fwmark 0x71 lookup 171",
            "-4 route flush table 171",
        ] {
            let _ = tool::run(self.lab_hg.command("ip").args(line.split(' ')));
        }
        let args = ["delete", "table", "ip", "rival"];
        let _ = tool::run(self.lab_hg.command("nft").args(args));
    }
}

fn rival(lab: &Lab, name: &str, port: u16) -> Result<Running> {
    let binary = peers_folder().join(name);
    if !binary.is_file() {
        bail!("no {name} at {}: run `cargo xtask peers`", binary.display());
    }
    let home = lab.dir().join(name);
    std::fs::create_dir_all(&home)?;
    let mut command = lab.hg.command(&binary);
    if name == "sing-box" {
        std::fs::write(home.join("config.json"), sing_box_config())?;
        command
            .args(["run", "-c"])
            .arg(home.join("config.json"))
            .arg("-D")
            .arg(&home);
    } else {
        std::fs::write(home.join("config.yaml"), mihomo_config())?;
        command
            .arg("-d")
            .arg(&home)
            .arg("-f")
            .arg(home.join("config.yaml"));
    }
    let log = std::fs::File::create(home.join("log.txt"))?;
    let child = command
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .with_context(|| format!("cannot start {name}"))?;
    let rival = Rival {
        child,
        log: home.join("log.txt"),
        lab_hg: lab.hg.clone(),
    };
    // It listens before the rules send it anything.
    wait::until("the rival to listen", Duration::from_secs(20), || {
        let at = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
        lab.hg
            .run(|| std::net::TcpStream::connect_timeout(&at, Duration::from_millis(200)).ok())
    })
    .with_context(|| std::fs::read_to_string(home.join("log.txt")).unwrap_or_default())?;
    lab.nft(&lab.hg, &tproxy_rules(port))?;
    lab.ip(
        &lab.hg,
        "rule add fwmark 0x71 lookup 171\nroute add local default dev lo table 171\n",
    )?;
    Ok(Running::Rival(rival))
}

fn peers_folder() -> PathBuf {
    std::env::var_os("HONK_PEERS").map_or_else(|| PathBuf::from("target/peers"), PathBuf::from)
}

/// New connections are assigned to the rival; packets of its open sockets take the short way.
fn tproxy_rules(port: u16) -> String {
    format!(
        "table ip rival {{\n\
         chain divert {{\n\
         type filter hook prerouting priority mangle; policy accept;\n\
         iifname != \"lan\" return\n\
         meta l4proto tcp tcp flags & (fin | syn | rst | ack) != syn socket transparent 1 \
         meta mark set 0x71 accept\n\
         ip daddr {} meta l4proto {{ tcp, udp }} meta mark set 0x71 tproxy to :{port} accept\n\
         }}\n}}\n",
        match scene::PROXIED {
            std::net::IpAddr::V4(v4) => v4,
            std::net::IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
        }
    )
}

fn sing_box_config() -> String {
    format!(
        r#"{{"log":{{"level":"error"}},
"inbounds":[{{"type":"tproxy","tag":"in","listen":"0.0.0.0","listen_port":{SING_BOX_PORT}}}],
"outbounds":[{{"type":"socks","tag":"up","server":"{}","server_port":{UPSTREAM},"version":"5"}}],
"route":{{"final":"up"}}}}"#,
        addr::HP
    )
}

fn mihomo_config() -> String {
    format!(
        "tproxy-port: {MIHOMO_PORT}\nallow-lan: true\nbind-address: '*'\nmode: rule\n\
         log-level: warning\nipv6: false\nfind-process-mode: 'off'\n\
         profile:\n  store-selected: false\n  store-fake-ip: false\n\
         dns:\n  enable: false\n\
         proxies:\n  - {{name: up, type: socks5, server: {}, port: {UPSTREAM}, udp: true}}\n\
         rules:\n  - MATCH,up\n",
        addr::HP
    )
}
