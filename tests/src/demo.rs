//! The demo: real flows through honk, what went where and why, PASS or what failed.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::honk::Honk;
use crate::lab::addr;
use crate::netns::Netns;
use crate::scene::{self, BLOCKED, DIRECT, DIRECT_V6, PROXIED, PROXIED_V6, Scene, at};
use crate::serve::{DNS, ECHO, HTTP};
use crate::snapshot::Snapshot;
use crate::{client, tool};

/// A blocked or dead flow must fail within this time.
const FAST: Duration = Duration::from_secs(3);

struct Row {
    flow: String,
    to: String,
    seen: String,
    why: &'static str,
    ok: bool,
}

#[derive(Default)]
struct Report(Vec<Row>);

impl Report {
    /// Adds a row; a failed step shows its error where the origin's view would stand.
    fn add(&mut self, flow: &str, to: &str, why: &'static str, step: Result<String>) {
        let (ok, seen) = match step {
            Ok(seen) => (true, seen),
            Err(error) => (false, format!("{error:#}").replace('\n', " ")),
        };
        eprintln!(
            "  {} {flow} -> {to}: {seen}",
            if ok { "ok  " } else { "FAIL" }
        );
        self.0.push(Row {
            flow: flow.into(),
            to: to.into(),
            seen,
            why,
            ok,
        });
    }

    fn print(&self) -> bool {
        let width = |text: fn(&Row) -> &str, title: &str| {
            self.0
                .iter()
                .map(|row| text(row).chars().count())
                .max()
                .unwrap_or(0)
                .max(title.len())
        };
        let (a, b, c) = (
            width(|r| &r.flow, "FLOW"),
            width(|r| &r.to, "TO"),
            width(|r| &r.seen, "WHAT HAPPENED").min(60),
        );
        println!();
        println!(
            "{:<a$}  {:<b$}  {:<c$}  RESULT  WHY",
            "FLOW", "TO", "WHAT HAPPENED"
        );
        for row in &self.0 {
            let result = if row.ok { "ok" } else { "FAILED" };
            let seen: String = row.seen.chars().take(c).collect();
            println!(
                "{:<a$}  {:<b$}  {:<c$}  {result:<6}  {}",
                row.flow, row.to, seen, row.why
            );
        }
        println!();
        let failed: Vec<&Row> = self.0.iter().filter(|row| !row.ok).collect();
        if failed.is_empty() {
            println!("PASS: {} of {} steps", self.0.len(), self.0.len());
            return true;
        }
        println!("FAIL: {} of {} steps:", failed.len(), self.0.len());
        for row in &failed {
            println!(
                "  {} -> {}: {} (expected: {})",
                row.flow, row.to, row.seen, row.why
            );
        }
        false
    }
}

/// Runs the whole scenario; true when every step did what it should.
pub fn run() -> Result<bool> {
    eprintln!("raising the lab: two clients, gateway, ISP, two upstreams, origins");
    let mut scene = Scene::new()?;
    scene.lab.without_nat()?;
    let before = Snapshot::take(&scene.lab.hg, &scene.lab.bpffs())?;
    let mut report = Report::default();
    let hc1 = scene.lab.hc1.clone();

    report.add("curl", "proxied v4", "no honk yet: plain forwarding", {
        curl(&hc1, PROXIED).and_then(|seen| expect(seen, addr::HC1))
    });
    eprintln!("starting honk in the gateway");
    let honk = Honk::start(&scene.lab, &scene::config())?;
    println!(
        "{}",
        honk.home
            .must(&["status"])
            .unwrap_or_else(|error| format!("{error:#}"))
    );

    flows(&mut report, &hc1);
    switch(&mut report, &scene, &honk);
    dead_node(&mut report, &mut scene, &honk)?;

    eprintln!("stopping honk");
    let status = honk.stop()?;
    report.add("SIGTERM", "honk", "orderly stop", {
        ensure_that(status.success(), format!("exit {status}"))
    });
    report.add("host state", "gateway", "stop leaves nothing behind", {
        Snapshot::take(&scene.lab.hg, &scene.lab.bpffs())
            .and_then(|after| after.must_equal(&before))
            .map(|()| "links, rules, routes, filters, sysctls as before".into())
    });
    report.add(
        "curl",
        "proxied v4",
        "honk is gone: plain forwarding again",
        curl(&hc1, PROXIED).and_then(|seen| expect(seen, addr::HC1)),
    );
    let logs = honk_log(&scene);
    let passed = report.print();
    if !passed {
        println!("{logs}");
    }
    Ok(passed)
}

fn flows(report: &mut Report, hc1: &Netns) {
    for (flow, to, ip, upstream) in [
        ("curl TCP", "proxied v4", PROXIED, addr::HP),
        ("curl TCP", "proxied v6", PROXIED_V6, addr::HP_V6),
    ] {
        let seen = curl(hc1, ip).and_then(|seen| expect(seen, upstream));
        report.add(flow, to, "rule dip(..) -> proxy, member up1", seen);
    }
    for (to, ip, upstream) in [
        ("proxied v4", PROXIED, addr::HP),
        ("proxied v6", PROXIED_V6, addr::HP_V6),
    ] {
        let seen = hc1
            .run(|| client::whoami_udp(ip))
            .and_then(|seen| expect(seen, upstream));
        report.add(
            "UDP",
            to,
            "rule dip(..) -> proxy, UDP ASSOCIATE of up1",
            seen,
        );
        let echo = hc1.run(|| {
            let socket = client::udp(ip)?;
            let back = client::ask_udp(&socket, at(ip, ECHO), &[7; 1200])?;
            ensure_that(
                back == [7; 1200],
                format!("{} bytes back from the asked address", back.len()),
            )
        });
        report.add("UDP echo", to, "replies carry the origin's address", echo);
    }
    for (to, ip, own) in [
        ("direct v4", DIRECT, addr::HC1),
        ("direct v6", DIRECT_V6, addr::HC1_V6),
    ] {
        let seen = curl(hc1, ip).and_then(|seen| expect(seen, own));
        report.add(
            "curl TCP",
            to,
            "fallback direct: the client's own address",
            seen,
        );
        let seen = hc1
            .run(|| client::whoami_udp(ip))
            .and_then(|seen| expect(seen, own));
        report.add("UDP", to, "fallback direct: the client's own address", seen);
    }
    let asked = hc1.run(|| client::dns(at(PROXIED, DNS), "whoami.test", false));
    report.add(
        "DNS",
        "proxied v4",
        "no dns section: relayed by its rule",
        {
            asked
                .and_then(|list| one(&list))
                .and_then(|ip| expect(at(ip, DNS), addr::HP))
        },
    );
    let asked = hc1.run(|| client::dns_tcp(at(PROXIED, DNS), "www.test", true));
    report.add(
        "DNS over TCP",
        "proxied v4",
        "no dns section: relayed by its rule",
        {
            asked
                .and_then(|list| one(&list))
                .map(|ip| format!("www.test is {ip}"))
        },
    );
    report.add(
        "curl TCP",
        "blocked v4",
        "rule dip(..) -> block",
        fails_fast(hc1, BLOCKED),
    );
}

fn switch(report: &mut Report, scene: &Scene, honk: &Honk) {
    let hc1 = &scene.lab.hc1;
    let old = hc1.run(|| client::connect(at(PROXIED, ECHO)));
    let chosen = honk.home.must(&["group", "select", "proxy", "up2"]);
    report.add(
        "group select",
        "proxy = up2",
        "live switch",
        chosen.map(|_| "accepted".into()),
    );
    let seen = curl(hc1, PROXIED).and_then(|seen| expect(seen, addr::HP2));
    report.add("curl TCP", "proxied v4", "new flows take up2 at once", seen);
    let seen = hc1
        .run(|| client::whoami_udp(PROXIED))
        .and_then(|seen| expect(seen, addr::HP2));
    report.add("UDP", "proxied v4", "new flows take up2 at once", seen);
    let survives = old.and_then(|mut stream| {
        stream.write_all(b"still here")?;
        let mut back = [0; 10];
        stream.read_exact(&mut back).context("the old flow broke")?;
        Ok("echo answered".to_owned())
    });
    report.add(
        "old TCP flow",
        "proxied v4",
        "stays on up1 until it ends",
        survives,
    );
}

fn dead_node(report: &mut Report, scene: &mut Scene, honk: &Honk) -> Result<()> {
    eprintln!("killing the second upstream");
    scene.up2 = None;
    scene.wan.reset()?;
    let hc1 = scene.lab.hc1.clone();
    report.add(
        "curl TCP",
        "proxied v4",
        "up2 is dead: refused, not sent direct",
        fails_fast(&hc1, PROXIED),
    );
    let leaked = scene
        .wan
        .count(|tuple| tuple.touches(PROXIED) || tuple.touches(PROXIED_V6));
    report.add(
        "leak meter",
        "wan",
        "no packet of a proxied rule on the WAN",
        leaked.and_then(|n| ensure_that(n == 0, format!("{n} packets"))),
    );
    let seen = curl(&hc1, DIRECT).and_then(|seen| expect(seen, addr::HC1));
    report.add("curl TCP", "direct v4", "direct does not need a node", seen);
    let back = honk.home.must(&["group", "select", "proxy", "up3"]);
    report.add(
        "group select",
        "proxy = up3",
        "an HTTP CONNECT upstream",
        back.map(|_| "accepted".into()),
    );
    let seen = curl(&hc1, PROXIED).and_then(|seen| expect(seen, addr::HP));
    report.add("curl TCP", "proxied v4", "through up3", seen);
    Ok(())
}

/// What the HTTP origin says about our address, asked with the real curl.
fn curl(ns: &Netns, ip: IpAddr) -> Result<SocketAddr> {
    let url = format!("http://{}/whoami", at(ip, HTTP));
    let mut command = ns.command("curl");
    command.args(["-gsS", "--max-time", "5", &url]);
    let text = tool::run(&mut command)?;
    text.trim()
        .parse()
        .with_context(|| format!("the origin answered {text:?}"))
}

fn fails_fast(ns: &Netns, ip: IpAddr) -> Result<String> {
    let start = Instant::now();
    let answer = curl(ns, ip);
    let took = start.elapsed();
    ensure!(answer.is_err(), "it was served: the origin saw {answer:?}");
    ensure!(took < FAST, "it took {:.1} s to fail", took.as_secs_f64());
    Ok(format!("refused after {} ms", took.as_millis()))
}

fn expect(seen: SocketAddr, wanted: impl Into<IpAddr>) -> Result<String> {
    let wanted = wanted.into();
    ensure!(
        seen.ip() == wanted,
        "the origin saw {}, not {wanted}",
        seen.ip()
    );
    Ok(format!("origin saw {wanted}"))
}

fn one(list: &[IpAddr]) -> Result<IpAddr> {
    list.first().copied().context("an answer without addresses")
}

fn ensure_that(ok: bool, text: String) -> Result<String> {
    ensure!(ok, "{text}");
    Ok(text)
}

fn honk_log(scene: &Scene) -> String {
    crate::honk::Home::new(&scene.lab).log_tail()
}
