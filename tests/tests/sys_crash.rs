//! What clients and the WAN see of a daemon that is killed.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use honk_tests::honk::{Home, Honk};
use honk_tests::lab::addr;
use honk_tests::scene::{DIRECT, PROXIED, Scene, at, config_of, play};
use honk_tests::serve::ECHO;
use honk_tests::{client, wait};

/// An echo connection through the daemon.
fn connected(scene: &Scene) -> Result<std::net::TcpStream> {
    let mut stream = scene.lab.hc1.run(|| client::connect(at(PROXIED, ECHO)))?;
    stream.write_all(b"before")?;
    let mut back = [0; 6];
    stream.read_exact(&mut back).context("through the proxy")?;
    ensure!(&back == b"before");
    Ok(stream)
}

#[test]
fn an_idle_connection_is_reset_by_the_next_daemon_and_never_leaves() {
    play(
        "an_idle_connection_is_reset_by_the_next_daemon_and_never_leaves",
        |scene| {
            let honk = scene.honk()?;
            let mut idle: Vec<_> = (0..3).map(|_| connected(scene)).collect::<Result<_>>()?;
            let home = honk.home.clone();
            honk.kill()?;
            let honk = Honk::start_in(home)?;
            scene.wan.reset()?;
            for stream in &mut idle {
                // The write succeeds locally; what follows tells.
                let _ = stream.write_all(b"after");
                stream.set_read_timeout(Some(Duration::from_secs(15)))?;
                let mut rest = Vec::new();
                let end = stream.read_to_end(&mut rest);
                ensure!(rest.is_empty(), "an answer: {rest:?}");
                let waited = |e: &std::io::Error| {
                    matches!(
                        e.kind(),
                        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                    )
                };
                ensure!(!end.as_ref().is_err_and(waited), "still open: {end:?}");
            }
            wait::until("the segments came", Duration::from_secs(15), || {
                let over = idle.iter_mut().all(|s| s.write_all(b"x").is_err());
                over.then_some(())
            })?;
            let leaks = scene.wan.seen(|t| t.touches(PROXIED))?;
            ensure!(leaks.is_empty(), "on the WAN: {leaks:?}");
            ensure!(scene.lab.hc1.run(|| client::whoami_tcp(PROXIED))?.ip() == addr::HP);
            ensure!(honk.stop()?.success());
            Ok(())
        },
    );
}

#[test]
fn with_direct_a_crash_leaves_plain_forwarding() {
    play("with_direct_a_crash_leaves_plain_forwarding", |scene| {
        let home = Home::new(&scene.lab);
        home.write(&config_of("lan", "on_crash: direct", ""))?;
        let honk = Honk::start_in(home.clone())?;
        ensure!(scene.lab.hc1.run(|| client::whoami_tcp(PROXIED))?.ip() == addr::HP);
        honk.kill()?;
        for target in [PROXIED, DIRECT] {
            let seen = scene.lab.hc1.run(|| client::whoami_tcp(target))?.ip();
            ensure!(seen == addr::HG_WAN, "{target}: {seen}");
        }
        let honk = Honk::start_in(home)?;
        ensure!(scene.lab.hc1.run(|| client::whoami_tcp(PROXIED))?.ip() == addr::HP);
        ensure!(honk.stop()?.success());
        Ok(())
    });
}
