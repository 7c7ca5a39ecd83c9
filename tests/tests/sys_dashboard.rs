//! A dashboard as people use it: a real browser loads it from the daemon and shows the groups.
//!
//! Needs Chromium and the dashboard, which `cargo xtask setup --browser` brings.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use honk_tests::honk::Honk;
use honk_tests::scene::{Scene, config, play};
use honk_tests::{skip, tool, wait};

const PATIENCE: Duration = Duration::from_secs(120);
const TOKEN: &str = "token-of-the-dashboard-test";
/// Names that stand nowhere in the dashboard itself.
const GROUP: &str = "gans-gruppe";
const NODE: &str = "up1";

fn dashboard() -> PathBuf {
    let peers = std::env::var_os("HONK_PEERS").map(PathBuf::from);
    let peers = peers.unwrap_or_else(|| Path::new("..").join("target/peers"));
    peers.join("zashboard")
}

fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut places = std::env::split_paths(&path).map(|dir| dir.join("chromium"));
    places.find(|file| file.is_file())
}

/// What the page looks like a while after it was opened.
fn page(scene: &Scene, browser: &Path, port: u16) -> Result<String> {
    let profile = scene.lab.dir().join("browser");
    let mut command = scene.lab.hg.command(browser);
    command.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--timeout=10000",
        "--dump-dom",
    ]);
    command.arg(format!("--user-data-dir={}", profile.display()));
    command.arg(format!(
        "http://127.0.0.1:{port}/ui/#/setup?hostname=127.0.0.1&port={port}&secret={TOKEN}"
    ));
    let output = tool::output(&mut command)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn a_browser_shows_the_groups() {
    const NAME: &str = "a_browser_shows_the_groups";
    let Some(browser) = browser() else {
        return skip::record(NAME, "chromium is not installed");
    };
    let files = dashboard();
    let Ok(files) = files.canonicalize() else {
        return skip::record(NAME, "the dashboard was not fetched");
    };
    play(NAME, |scene| {
        let port = 9090;
        let config = config().replace("    proxy {", &format!("    {GROUP} {{"));
        let config = config.replace("-> proxy", &format!("-> {GROUP}"));
        let api = format!(
            "{config}experimental {{ clash_api {{ external_controller: '127.0.0.1:{port}'
                secret: '{TOKEN}' external_ui: '{}' }} }}\n",
            files.display()
        );
        let honk = Honk::start(&scene.lab, &api)?;
        // A slow machine may need more than one look.
        wait::ok("the dashboard shows the group", PATIENCE, || {
            let page = page(scene, &browser, port)?;
            ensure!(
                page.contains(GROUP),
                "no {GROUP} in a page of {} bytes",
                page.len()
            );
            ensure!(
                page.contains(NODE),
                "no {NODE} in a page of {} bytes",
                page.len()
            );
            Ok(())
        })?;
        let log = std::fs::read_to_string(&honk.home.log).context("no log")?;
        ensure!(!log.contains(TOKEN), "the token is in the log");
        Ok(())
    });
}
