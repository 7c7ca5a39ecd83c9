//! `honk diag` in a world that is broken on purpose, one fault after the other.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use honk_tests::honk::{Home, Honk};
use honk_tests::scene::{Scene, config, config_of, play};
use honk_tests::wait;
use serde_json::Value;

/// Exit code and document of a run.
fn diag(home: &Home) -> Result<(i32, Value)> {
    let (config, pins) = (
        home.config.display().to_string(),
        home.bpffs.display().to_string(),
    );
    let output = home.cli(&["--json", "diag", "-c", &config, "--bpf-pin-root", &pins])?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let document: Value =
        serde_json::from_str(&text).with_context(|| format!("no JSON: {text}"))?;
    ensure!(document["schema"] == "honk.diag/1", "{document}");
    Ok((output.status.code().unwrap_or(-1), document["data"].clone()))
}

/// Demands that a check says something, and that the exit code follows.
fn expect(home: &Home, id: &str, status: &str, says: &str) -> Result<()> {
    let (code, data) = diag(home)?;
    let checks = data["checks"].as_array().context("no checks")?;
    let hit = checks.iter().any(|check| {
        let text = format!("{} {}", check["message"], check["fix"]);
        check["id"] == id && check["status"] == status && text.contains(says)
    });
    ensure!(hit, "no {id} with {status} that says {says:?} in {data:#}");
    let want = match status {
        "fail" => 10,
        _ if data["issues"] == 0 => 0,
        _ => 10,
    };
    ensure!(code == want, "exit code {code}, not {want}: {data:#}");
    Ok(())
}

#[test]
fn a_sound_gateway_has_no_issue() {
    play("a_sound_gateway_has_no_issue", |scene| {
        let honk = scene.honk()?;
        let (code, data) = diag(&honk.home)?;
        ensure!(code == 0 && data["issues"] == 0, "{code}: {data:#}");
        expect(&honk.home, "interface", "ok", "lan_ingress_l2")?;
        expect(
            &honk.home,
            "private-namespace",
            "ok",
            "rules and routes are in place",
        )?;
        expect(&honk.home, "kernel-hooks", "ok", "programs attach with")?;
        let text = honk.home.must(&[
            "doctor",
            "-c",
            &honk.home.config.display().to_string(),
            "--bpf-pin-root",
            &honk.home.bpffs.display().to_string(),
        ])?;
        ensure!(text.ends_with("diag: all checks passed\n"), "{text}");
        Ok(())
    });
}

#[test]
fn faults_of_the_host_are_named() {
    play("faults_of_the_host_are_named", |scene| {
        let honk = scene.honk()?;
        let (home, lab) = (&honk.home, &scene.lab);
        lab.hg.set_sysctl("net.ipv4.ip_forward", "0")?;
        expect(home, "forwarding", "fail", "ip_forward is 0")?;
        lab.hg.set_sysctl("net.ipv4.ip_forward", "1")?;

        lab.nft(
            &lab.hg,
            "table inet wall {\nchain out {\n\
             type filter hook output priority 0; policy drop;\n\
             meta mark and 0x100 == 0x100 accept\n}\n}\n",
        )?;
        expect(
            home,
            "firewall",
            "warn",
            "meta mark and 0x100 == 0x100 accept",
        )?;
        lab.nft(&lab.hg, "delete table inet wall\n")?;
        lab.nft(
            &lab.hg,
            "table ip wall {\nchain through {\n\
             type filter hook forward priority 0; policy drop;\n}\n}\n",
        )?;
        expect(home, "firewall", "warn", "direct ones may not")?;
        lab.nft(&lab.hg, "delete table ip wall\n")?;
        expect(home, "firewall", "ok", "no chain drops")?;

        lab.ip(
            &lab.hg,
            "route delete default\nroute delete default via 2001:db8:113::1\n",
        )?;
        expect(home, "default-route", "fail", "no default route")?;
        lab.ip(
            &lab.hg,
            "route add default via 203.0.113.1\nroute add default via 2001:db8:113::1\n",
        )?;

        lab.ip(&lab.hg, "link set lan down\n")?;
        expect(home, "interface", "warn", "LAN lan is down")?;
        lab.ip(&lab.hg, "link set lan up\n")?;
        Ok(())
    });
}

#[test]
fn faults_of_the_configuration_are_named() {
    play("faults_of_the_configuration_are_named", |scene| {
        let honk = scene.honk()?;
        let home = &honk.home;
        home.write(&config().replace("log_level", "log_levle"))?;
        expect(home, "config", "fail", "config.dae:")?;
        home.write(&config_of("lan", "", "dport(1) -> direct"))?;
        expect(home, "config", "warn", "honk reload")?;
        home.write(&config())?;
        std::fs::set_permissions(&home.config, std::fs::Permissions::from_mode(0o644))?;
        expect(home, "config", "fail", "chmod 0600")?;
        std::fs::set_permissions(&home.config, std::fs::Permissions::from_mode(0o600))?;
        home.write(&config_of("nosuch0, lp1", "", ""))?;
        expect(home, "interface", "fail", "LAN nosuch0: no such interface")?;
        expect(home, "interface", "warn", "list lan instead")?;
        let named = config_of("lan", "bootstrap_resolver: '198.51.100.140:53'", "");
        home.write(&named.replace(":8080'", ":8080'\n    up4: 'socks5://node.test:1080'"))?;
        expect(home, "server-names", "warn", "set bootstrap_resolver")
    });
}

#[test]
fn a_suspended_a_dead_and_an_absent_daemon_are_told_apart() {
    play(
        "a_suspended_a_dead_and_an_absent_daemon_are_told_apart",
        |scene| {
            let honk = scene.honk()?;
            let home = honk.home.clone();
            home.must(&["suspend"])?;
            expect(&home, "gate", "warn", "honk resume")?;
            home.must(&["resume"])?;
            expect(&home, "gate", "ok", "flows are judged")?;
            honk.kill()?;
            expect(
                &home,
                "daemon",
                "fail",
                "keep blocking everything that is not direct",
            )?;
            expect(
                &home,
                "interface",
                "ok",
                "keeps hooks of a dead daemon: lan_ingress_l2",
            )?;
            let pins = home.bpffs.display().to_string();
            home.must(&["cleanup", "--yes", "--bpf-pin-root", &pins])?;
            expect(&home, "daemon", "fail", "honk does not run")?;
            foreign_link(scene, &home)
        },
    );
}

fn foreign_link(scene: &Scene, home: &Home) -> Result<()> {
    let lab = &scene.lab;
    lab.ip(&lab.hg, "link add name honk0 type veth peer name other0\n")?;
    expect(home, "private-namespace", "fail", "honk did not make")
}

#[test]
fn nodes_that_do_not_answer_are_named() {
    play("nodes_that_do_not_answer_are_named", |scene| {
        (scene.up1, scene.up2) = (None, None);
        // Automatic groups have their nodes checked.
        let config = config_of("lan", "check_interval: 1s", "");
        let config = config.replace("policy: selector", "policy: fallback");
        let config = config.replace("default: up1", "");
        let honk = Honk::start(&scene.lab, &config)?;
        wait::ok("every node to be dead", Duration::from_secs(60), || {
            expect(&honk.home, "nodes", "fail", "no node answers")
        })
    });
}
