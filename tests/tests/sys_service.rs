//! What the daemon tells a service manager, heard by a test that plays one.

use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use honk_tests::client;
use honk_tests::honk::{Home, Honk};
use honk_tests::scene::{PROXIED, Scene, config, play};
use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};

/// Longest wait for one message.
const PATIENCE: Duration = Duration::from_secs(60);

/// The manager's end of the notification socket.
struct Manager {
    socket: UnixDatagram,
    honk: Honk,
}

impl Manager {
    /// Starts the daemon as `Type=notify-reload` with `WatchdogSec=2` does.
    fn start(scene: &Scene) -> Result<Self> {
        let home = Home::new(&scene.lab);
        home.write(&config())?;
        let path = scene.lab.dir().join("notify.sock");
        let socket = UnixDatagram::bind(&path).context("notification socket")?;
        socket.set_read_timeout(Some(Duration::from_millis(200)))?;
        let env = [
            ("NOTIFY_SOCKET", path.as_os_str()),
            ("WATCHDOG_USEC", "2000000".as_ref()),
        ];
        let honk = Honk::spawn_with(home, &env)?;
        Ok(Self { socket, honk })
    }

    /// The next message with a line that begins so.
    fn next(&self, prefix: &str) -> Result<Vec<String>> {
        let until = Instant::now() + PATIENCE;
        let mut heard = Vec::new();
        let mut buffer = [0; 4096];
        while Instant::now() < until {
            let Ok(length) = self.socket.recv(&mut buffer) else {
                continue;
            };
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            let lines: Vec<String> = text.lines().map(str::to_owned).collect();
            if lines.iter().any(|line| line.starts_with(prefix)) {
                return Ok(lines);
            }
            heard.push(text);
        }
        bail!("no {prefix} in {heard:?}\n{}", self.honk.home.log_tail())
    }

    /// A reload by signal: the manager believes it only with a time of its own clock.
    fn reload(&self) -> Result<String> {
        let before = monotonic_micros()?;
        self.honk.signal(Signal::HUP)?;
        let begun = self.next("RELOADING=1")?;
        let at = value(&begun, "MONOTONIC_USEC=").context("no time in the same message")?;
        let at: u64 = at.parse().context("odd time")?;
        ensure!((before..=monotonic_micros()?).contains(&at), "{at} us");
        let over = self.next("READY=1")?;
        let status = value(&over, "STATUS=").context("no status")?;
        Ok(status.to_owned())
    }
}

fn value<'a>(lines: &'a [String], key: &str) -> Option<&'a str> {
    lines.iter().find_map(|line| line.strip_prefix(key))
}

fn monotonic_micros() -> Result<u64> {
    let now = clock_gettime(ClockId::Monotonic);
    let micros = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
    u64::try_from(micros).context("odd clock")
}

#[test]
fn the_manager_hears_of_start_watchdog_reload_and_stop() {
    play(
        "the_manager_hears_of_start_watchdog_reload_and_stop",
        |scene| {
            let manager = Manager::start(scene)?;
            let ready = manager.next("READY=1")?;
            ensure!(
                value(&ready, "STATUS=") == Some("generation 1 active"),
                "{ready:?}"
            );
            // Ready means that flows are intercepted: no waiting here.
            scene.lab.hc1.run(|| client::whoami_tcp(PROXIED))?;
            manager.next("WATCHDOG=1")?;

            let status = manager.reload()?;
            ensure!(status.contains('2'), "{status}");
            manager.honk.home.write("global {")?;
            let status = manager.reload()?;
            ensure!(!status.is_empty() && !status.contains('3'), "{status}");
            manager.next("WATCHDOG=1")?;

            manager.honk.signal(Signal::TERM)?;
            manager.next("STOPPING=1")?;
            ensure!(manager.honk.stop()?.success());
            Ok(())
        },
    );
}
