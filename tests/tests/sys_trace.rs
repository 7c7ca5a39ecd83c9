//! `honk trace flow`: decisions of the kernel and of userspace as they are taken.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use honk_tests::honk::{Home, Honk};
use honk_tests::lab::addr;
use honk_tests::scene::{BLOCKED, DIRECT, PROXIED, at, config_of, play};
use honk_tests::serve::ECHO;
use honk_tests::{client, wait};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(30);

/// A running `honk trace flow --json`; killed when dropped.
struct Watcher {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<Value>,
}

impl Watcher {
    /// Starts and waits until the daemon watches.
    fn start(honk: &Honk, filter: &[&str]) -> Result<Self> {
        let before = honk.metric("honk_trace_watchers", "")?;
        let mut args = vec!["--json", "trace", "flow"];
        args.extend(filter);
        let mut command = honk.home.command(&args)?;
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().context("no output")?;
        let (sender, lines) = sync_channel(1024);
        // Ends with the pipe.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let watcher = Self {
            child,
            lines,
            seen: Vec::new(),
        };
        wait::ok("the watch to begin", PATIENCE, || {
            ensure!(honk.metric("honk_trace_watchers", "")? > before);
            Ok(())
        })?;
        Ok(watcher)
    }

    /// Waits for a decision of a stage about a destination; `act` is repeated until it comes.
    fn until(&mut self, stage: &str, dst: &str, act: impl Fn()) -> Result<Value> {
        let found = wait::until("the decision", PATIENCE, || {
            act();
            while let Ok(line) = self.lines.recv_timeout(Duration::from_millis(200)) {
                self.seen.extend(serde_json::from_str::<Value>(&line));
            }
            let fits = |d: &&Value| d["stage"] == stage && d["dst"]["ip"] == dst;
            self.seen.iter().find(fits).cloned()
        });
        found.with_context(|| format!("of {stage} about {dst}; seen: {:#?}", self.seen))
    }

    fn interrupt(&mut self) -> Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.context("odd pid")?, Signal::INT)?;
        wait::until("the end of the watch", PATIENCE, || {
            self.child.try_wait().ok().flatten()
        })?;
        Ok(())
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn field<'a>(decision: &'a Value, path: &str) -> &'a str {
    decision
        .pointer(path)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

#[test]
fn each_decision_is_told_with_its_line_until_ctrl_c() {
    play(
        "each_decision_is_told_with_its_line_until_ctrl_c",
        |scene| {
            let honk = scene.honk()?;
            let hc1 = &scene.lab.hc1;
            // Nobody watches: the kernel tells nothing.
            hc1.run(|| client::whoami_tcp(PROXIED))?;
            ensure!(honk.metric("honk_datapath_events_total", "\"trace\"")? == 0.0);
            let mut watcher = Watcher::start(&honk, &[])?;
            let connect =
                |to| move || drop(hc1.run(|| client::briefly(|| client::connect(at(to, ECHO)))));
            let d = watcher.until("kernel", &DIRECT.to_string(), connect(DIRECT))?;
            ensure!(
                field(&d, "/verdict") == "direct" && field(&d, "/reason") == "rule",
                "{d:#}"
            );
            ensure!(field(&d, "/rule/text").contains("fallback"), "{d:#}");
            ensure!(
                d["ordinal"] == 0 && field(&d, "/src/ip") == addr::HC1.to_string(),
                "{d:#}"
            );
            let d = watcher.until("kernel", &BLOCKED.to_string(), connect(BLOCKED))?;
            ensure!(
                field(&d, "/verdict") == "block" && d["rule"]["index"] == 1,
                "{d:#}"
            );
            let d = watcher.until("kernel", &PROXIED.to_string(), connect(PROXIED))?;
            ensure!(
                field(&d, "/verdict") == "proxy" && field(&d, "/outbound") == "proxy",
                "{d:#}"
            );
            let d = watcher.until("userspace", &PROXIED.to_string(), connect(PROXIED))?;
            ensure!(d["chain"] == serde_json::json!(["proxy", "up1"]), "{d:#}");
            watcher.interrupt()?;
            wait::ok("the watch to be removed", PATIENCE, || {
                ensure!(honk.metric("honk_trace_watchers", "")? == 0.0);
                Ok(())
            })?;
            silent(&honk, || hc1.run(|| client::whoami_tcp(PROXIED)).map(drop))
        },
    );
}

/// Demands that the kernel tells nothing while flows pass.
fn silent(honk: &Honk, act: impl Fn() -> Result<()>) -> Result<()> {
    // Counters are as old as the last sample; a flow that is counted proves a new one.
    let sample = || -> Result<f64> {
        let flows = honk.stat("new_flows")?;
        act()?;
        wait::ok("the flow to be counted", PATIENCE, || {
            ensure!(honk.stat("new_flows")? > flows);
            Ok(())
        })?;
        honk.metric("honk_datapath_events_total", "\"trace\"")
    };
    let before = sample()?;
    let after = sample()?;
    ensure!(after == before, "it tells though nobody watches");
    Ok(())
}

#[test]
fn filters_and_the_own_flows_of_the_gateway() {
    play("filters_and_the_own_flows_of_the_gateway", |scene| {
        let config = config_of("lan", "wan_interface: wan", "pname(sh) -> direct");
        let honk = Honk::start(&scene.lab, &config)?;
        let (hc1, hg) = (&scene.lab.hc1, &scene.lab.hg);
        let dst = PROXIED.to_string();
        let mut watcher = Watcher::start(&honk, &["--dst", &dst, "--group", "proxy"])?;
        let act = || {
            drop(hc1.run(|| client::briefly(|| client::connect(at(DIRECT, ECHO)))));
            drop(hg.run(|| client::briefly(|| client::connect(at(PROXIED, ECHO)))));
        };
        let d = watcher.until("kernel", &dst, act)?;
        ensure!(
            d["own"] == true && field(&d, "/src/ip") == addr::HG_WAN.to_string(),
            "{d:#}"
        );
        let pid = u64::from(std::process::id());
        ensure!(d["process"]["pid"].as_u64() == Some(pid), "{d:#}");
        let other = watcher.seen.iter().find(|d| field(d, "/dst/ip") != dst);
        ensure!(other.is_none(), "not filtered: {other:?}");
        counted(&honk.home, hc1)
    });
}

/// `--count` ends it, and text is one line per decision.
fn counted(home: &Home, client_ns: &honk_tests::netns::Netns) -> Result<()> {
    let mut command = home.command(&["trace", "flow", "--count", "1", "--network", "udp"])?;
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let ended = wait::until("the one decision", PATIENCE, || {
        let _ = client_ns.run(|| client::briefly(|| client::whoami_udp(DIRECT)));
        child.try_wait().ok().flatten()
    });
    if ended.is_err() {
        let _ = child.kill();
    }
    let output = child.wait_with_output()?;
    ended?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success() && text.lines().count() == 1,
        "{text}"
    );
    ensure!(text.contains(" udp ") && text.contains("direct"), "{text}");
    Ok(())
}
