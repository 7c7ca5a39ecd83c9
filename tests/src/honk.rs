//! The daemon as a process: configuration, start, command line, stop, logs.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::lab::Lab;
use crate::netns::Netns;
use crate::{tool, wait};

/// How long a start or an orderly end may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where the daemon under test is: `HONK_BIN`, else the debug build beside the tests.
pub fn binary() -> Result<PathBuf> {
    let path = match std::env::var_os("HONK_BIN") {
        Some(path) => PathBuf::from(path),
        None => {
            let here = std::env::current_exe()?;
            let profile = here.ancestors().find(|dir| dir.join("honk").is_file());
            profile.map_or_else(
                || PathBuf::from("target/debug/honk"),
                |dir| dir.join("honk"),
            )
        }
    };
    if !path.is_file() {
        bail!(
            "no daemon at {}: run `cargo xtask build` or set HONK_BIN",
            path.display()
        );
    }
    Ok(path)
}

/// Folders of one instance; two instances with different homes never meet.
#[derive(Clone, Debug)]
pub struct Home {
    /// Configuration file.
    pub config: PathBuf,
    /// State folder.
    pub state: PathBuf,
    /// Runtime folder: socket, lock.
    pub runtime: PathBuf,
    /// bpf file system.
    pub bpffs: PathBuf,
    /// Everything the daemon printed.
    pub log: PathBuf,
    ns: Netns,
}

impl Home {
    /// The first instance of a lab's gateway.
    pub fn new(lab: &Lab) -> Self {
        Self::named(lab, "honk")
    }

    /// An instance with its own folders, in the gateway's namespace.
    pub fn named(lab: &Lab, name: &str) -> Self {
        let dir = lab.dir().join(name);
        Self {
            config: dir.join("config.dae"),
            state: dir.join("state"),
            runtime: dir.join("run"),
            bpffs: lab.bpffs(),
            log: dir.join("log.txt"),
            ns: lab.hg.clone(),
        }
    }

    /// Writes the configuration, readable by its owner only.
    pub fn write(&self, config: &str) -> Result<()> {
        if let Some(dir) = self.config.parent() {
            std::fs::create_dir_all(dir)?;
        }
        let mut file = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .open(&self.config)
            .with_context(|| format!("cannot write {}", self.config.display()))?;
        file.write_all(config.as_bytes())?;
        Ok(())
    }

    /// A `honk` command with this instance's folders, inside the gateway's namespace.
    pub fn command(&self, args: &[&str]) -> Result<Command> {
        let mut command = self.ns.command(binary()?);
        command
            .arg("--state-dir")
            .arg(&self.state)
            .arg("--runtime-dir")
            .arg(&self.runtime)
            .args(args)
            .env_remove("HONK_CONFIG")
            .env_remove("HONK_BIN")
            .env_remove("HONK_SKIP_LOG")
            .env_remove("HONK_PEERS")
            .env("NO_COLOR", "1");
        Ok(command)
    }

    /// The command that runs the daemon.
    pub fn run_command(&self) -> Result<Command> {
        let mut command = self.command(&["run", "-c"])?;
        command
            .arg(&self.config)
            .arg("--bpf-pin-root")
            .arg(&self.bpffs);
        Ok(command)
    }

    /// Runs a client command to its end.
    pub fn cli(&self, args: &[&str]) -> Result<Output> {
        tool::output(&mut self.command(args)?)
    }

    /// Runs a client command that must succeed; its standard output.
    pub fn must(&self, args: &[&str]) -> Result<String> {
        let output = self.cli(args)?;
        if !output.status.success() {
            bail!(
                "honk {} failed ({}): {}{}\n{}",
                args.join(" "),
                output.status,
                String::from_utf8_lossy(&output.stderr),
                String::from_utf8_lossy(&output.stdout),
                self.log_tail()
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs a client command with `--json` and returns the `data` member.
    pub fn json(&self, args: &[&str]) -> Result<Value> {
        let mut all = vec!["--json"];
        all.extend(args);
        let text = self.must(&all)?;
        let document: Value = serde_json::from_str(&text)
            .with_context(|| format!("honk {} printed no JSON: {text}", args.join(" ")))?;
        Ok(document.get("data").cloned().unwrap_or(document))
    }

    /// Runs the daemon expecting it to refuse: its exit status and what it printed.
    pub fn run_refused(&self) -> Result<(ExitStatus, String)> {
        let mut child = self
            .run_command()?
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start the daemon")?;
        let ended = wait::until("the daemon to refuse", PATIENCE, || {
            child.try_wait().ok().flatten()
        });
        if ended.is_err() {
            let _ = child.kill();
        }
        let output = child.wait_with_output()?;
        ended?;
        Ok((
            output.status,
            String::from_utf8_lossy(&output.stderr).into_owned(),
        ))
    }

    /// The last lines the daemon printed, for messages of failed tests.
    pub fn log_tail(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let from = lines.len().saturating_sub(30);
        format!(
            "--- log of {}:\n{}",
            self.config.display(),
            lines[from..].join("\n")
        )
    }
}

/// A running daemon; killed when dropped.
#[derive(Debug)]
pub struct Honk {
    /// Its folders.
    pub home: Home,
    child: Child,
}

impl Honk {
    /// Writes the configuration, starts the daemon and waits until flows are intercepted.
    pub fn start(lab: &Lab, config: &str) -> Result<Self> {
        let home = Home::new(lab);
        home.write(config)?;
        Self::start_in(home)
    }

    /// Starts with the configuration that lies in `home`.
    pub fn start_in(home: Home) -> Result<Self> {
        let mut honk = Self::spawn(home)?;
        // In short steps, so that a daemon that refuses fails the test at once.
        let started = wait::until("the daemon to start or end", PATIENCE, || {
            let status = honk.home.cli(&["status", "--wait", "1"]);
            if status.is_ok_and(|output| output.status.success()) {
                return Some(true);
            }
            matches!(honk.child.try_wait(), Ok(Some(_)) | Err(_)).then_some(false)
        });
        match started {
            Ok(true) => Ok(honk),
            Ok(false) => bail!("the daemon did not start\n{}", honk.home.log_tail()),
            Err(error) => Err(error.context(honk.home.log_tail())),
        }
    }

    /// Starts without waiting.
    pub fn spawn(home: Home) -> Result<Self> {
        Self::spawn_with(home, &[])
    }

    /// Starts without waiting, with more in the environment.
    pub fn spawn_with(home: Home, env: &[(&str, &OsStr)]) -> Result<Self> {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&home.log)?;
        let child = home
            .run_command()?
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start the daemon")?;
        Ok(Self { home, child })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Changes the configuration and reloads; fails when the daemon refuses.
    pub fn reload(&self, config: &str) -> Result<()> {
        self.home.write(config)?;
        self.home.must(&["reload"]).map(drop)
    }

    /// The private namespace the daemon made, found through its threads.
    pub fn private_ns(&self) -> Result<Netns> {
        for entry in std::fs::read_dir(format!("/proc/{}/task", self.pid()))? {
            if let Some(ns) = Netns::of_thread(&entry?.path(), &self.home.ns)? {
                return Ok(ns);
            }
        }
        bail!("no thread of the daemon lives in another namespace")
    }

    /// The page of metrics.
    pub fn metrics(&self) -> Result<String> {
        self.api("/metrics")
    }

    /// What the API answers to a `GET`.
    pub fn api(&self, path: &str) -> Result<String> {
        let mut curl = Command::new("curl");
        curl.arg("-sS")
            .arg("--unix-socket")
            .arg(self.home.runtime.join("api.sock"));
        tool::run(curl.arg(format!("http://localhost{path}")))
    }

    /// Sum of all samples of a metric whose labels contain `label`; 0 when there is none.
    pub fn metric(&self, name: &str, label: &str) -> Result<f64> {
        let text = self.metrics()?;
        let samples = text.lines().filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            let (found, labels) = series.split_once('{').unwrap_or((series, ""));
            (found == name && labels.contains(label)).then(|| value.parse::<f64>().ok())?
        });
        Ok(samples.sum())
    }

    /// A per-CPU counter of the kernel programs.
    pub fn stat(&self, name: &str) -> Result<f64> {
        self.metric("honk_datapath_stat_total", &format!("\"{name}\""))
    }

    /// Waits until such a counter is not 0: what is shown may be a second old.
    pub fn counts(&self, name: &str) -> Result<()> {
        wait::ok(name, PATIENCE, || {
            ensure!(self.stat(name)? > 0.0, "{name} is 0");
            Ok(())
        })
    }

    /// Seconds of processor time used so far.
    pub fn cpu_seconds(&self) -> Result<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid()))?;
        let after = stat.rsplit_once(')').context("odd /proc stat")?.1;
        let fields: Vec<&str> = after.split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok());
        Ok((ticks(11).context("utime")? + ticks(12).context("stime")?) / 100.0)
    }

    /// Sends SIGTERM and waits for the end.
    pub fn stop(mut self) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        self.wait_end()
    }

    /// Kills it without any chance to clean up.
    pub fn kill(mut self) -> Result<()> {
        self.signal(Signal::KILL)?;
        self.wait_end().map(drop)
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.pid())
            .ok()
            .and_then(Pid::from_raw)
            .context("odd pid")?;
        kill_process(pid, signal).context("cannot signal the daemon")
    }

    fn wait_end(&mut self) -> Result<ExitStatus> {
        let child = &mut self.child;
        let ended = wait::until("the daemon to end", PATIENCE, || {
            child.try_wait().ok().flatten()
        });
        ended.with_context(|| self.home.log_tail())
    }
}

impl Drop for Honk {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            if std::thread::panicking() {
                eprintln!("{}", self.home.log_tail());
            }
            // An orderly end first, so that nothing of it stays behind in a lasting lab.
            let _ = self.signal(Signal::TERM);
            if self.wait_end().is_err() {
                let _ = self.child.kill();
                let _ = self.child.wait();
            }
        }
    }
}

/// Whether a path below `home` exists; for tests on left-overs.
pub fn leftovers(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![dir.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else {
            continue;
        };
        for entry in entries.flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path.clone());
            }
            found.push(path);
        }
    }
    found.sort();
    found
}
