//! The command line and the metrics of a running daemon, as an owner of a gateway uses them.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use honk_tests::honk::Home;
use honk_tests::lab::addr;
use honk_tests::scene::{DIRECT, PROXIED, at, play};
use honk_tests::serve::ECHO;
use honk_tests::{client, tool, wait};

#[test]
fn a_live_flow_is_listed_with_its_reasons_and_can_be_closed() {
    play(
        "a_live_flow_is_listed_with_its_reasons_and_can_be_closed",
        |scene| {
            let honk = scene.honk()?;
            let mut flow = scene.lab.hc1.run(|| client::connect(at(PROXIED, ECHO)))?;
            flow.write_all(b"ping")?;
            flow.read_exact(&mut [0; 4])?;
            let list = honk.home.json(&["conn", "list"])?;
            let found = list.as_array().context("no list")?;
            ensure!(found.len() == 1, "{list}");
            let flow_json = &found[0];
            ensure!(
                flow_json["chain"] == serde_json::json!(["proxy", "up1"]),
                "{flow_json}"
            );
            ensure!(
                flow_json["src"]["ip"] == addr::HC1.to_string(),
                "{flow_json}"
            );
            ensure!(flow_json["dst"]["port"] == ECHO, "{flow_json}");
            let rule = flow_json["rule"]["text"].as_str().unwrap_or_default();
            ensure!(rule.contains("-> proxy"), "{flow_json}");
            let id = flow_json["id"].as_str().context("no id")?;
            honk.home.must(&["conn", "close", id])?;
            flow.set_read_timeout(Some(client::PATIENCE))?;
            ensure!(
                !matches!(flow.read(&mut [0; 4]), Ok(1..)),
                "the flow is still open"
            );
            Ok(())
        },
    );
}

#[test]
fn groups_and_nodes_are_shown() {
    play("groups_and_nodes_are_shown", |scene| {
        let honk = scene.honk()?;
        let text = honk.home.must(&["group", "list"])?;
        ensure!(text.contains("proxy") && text.contains("selector") && text.contains("up1"));
        let text = honk.home.must(&["node", "list"])?;
        for name in ["up1", "up2", "up3", "socks5", "http"] {
            ensure!(text.contains(name), "{name} is not in:\n{text}");
        }
        ensure!(!text.contains("secret"), "a password is printed:\n{text}");
        let status = honk.home.json(&["status"])?;
        ensure!(status["state"] == "running", "{status}");
        Ok(())
    });
}

#[test]
fn wrong_names_have_their_own_exit_code() {
    play("wrong_names_have_their_own_exit_code", |scene| {
        let honk = scene.honk()?;
        for args in [
            ["group", "select", "nobody", "up1"],
            ["group", "select", "proxy", "nobody"],
        ] {
            let output = honk.home.cli(&args)?;
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            ensure!(
                output.status.code() == Some(7),
                "{args:?}: {}: {text}",
                output.status
            );
            ensure!(text.contains("nobody"), "{text}");
        }
        Ok(())
    });
}

#[test]
fn clients_without_a_daemon_exit_5() {
    play("clients_without_a_daemon_exit_5", |scene| {
        let home = Home::new(&scene.lab);
        for args in [&["group", "list"][..], &["reload"], &["status"]] {
            let output = home.cli(args)?;
            ensure!(
                output.status.code() == Some(5),
                "{args:?}: {}",
                output.status
            );
        }
        Ok(())
    });
}

#[test]
fn metrics_count_what_happened() {
    play("metrics_count_what_happened", |scene| {
        let honk = scene.honk()?;
        for _ in 0..3 {
            scene.lab.hc1.run(|| client::whoami_tcp(PROXIED))?;
            scene.lab.hc1.run(|| client::whoami_tcp(DIRECT))?;
        }
        wait::ok("the counters", Duration::from_secs(5), || {
            for (name, label, least) in [
                ("honk_build_info", "version", 1.0),
                ("honk_up_state", "running", 1.0),
                ("honk_connections_opened_total", "proxy", 3.0),
                ("honk_datapath_attached", "lan", 1.0),
                ("honk_datapath_stat_total", "proxy_new", 3.0),
                ("honk_datapath_stat_total", "direct_new", 3.0),
                ("honk_transfer_bytes_total", "proxy", 1.0),
                ("honk_groups", "selector", 1.0),
            ] {
                let value = honk.metric(name, label)?;
                ensure!(value >= least, "{name}{{{label}}} is {value}");
            }
            Ok(())
        })
    });
}

#[test]
fn a_daemon_without_configuration_explains_itself() {
    play("a_daemon_without_configuration_explains_itself", |scene| {
        if ["/etc/honk/config.dae", "/etc/dae/config.dae"]
            .iter()
            .any(|p| std::path::Path::new(p).exists())
        {
            honk_tests::skip::record(
                "a_daemon_without_configuration_explains_itself",
                "a configuration is installed here",
            );
            return Ok(());
        }
        let home = Home::new(&scene.lab);
        let output = tool::output(&mut home.command(&["run"])?)?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.code() == Some(3), "{}: {text}", output.status);
        ensure!(
            text.contains("/etc/honk/config.dae"),
            "names the search order: {text}"
        );
        ensure!(text.contains("example"), "names the example: {text}");
        Ok(())
    });
}

#[test]
fn suspended_flows_go_direct_until_resume() {
    play("suspended_flows_go_direct_until_resume", |scene| {
        let honk = scene.honk()?;
        let seen = || {
            scene
                .lab
                .hc1
                .run(|| client::whoami_tcp(PROXIED))
                .map(|from| from.ip())
        };
        ensure!(seen()? == addr::HP);
        honk.home.must(&["suspend"])?;
        ensure!(seen()? == addr::HG_WAN, "suspended");
        honk.home.must(&["resume"])?;
        ensure!(seen()? == addr::HP, "resumed");
        Ok(())
    });
}

#[test]
fn the_socket_is_for_its_owner_only() {
    play("the_socket_is_for_its_owner_only", |scene| {
        let honk = scene.honk()?;
        let socket = honk.home.runtime.join("api.sock");
        let mut nobody = std::process::Command::new("setpriv");
        nobody.args([
            "--reuid",
            "65534",
            "--regid",
            "65534",
            "--clear-groups",
            "--",
        ]);
        nobody.args([
            "curl",
            "-sS",
            "--max-time",
            "3",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
        ]);
        nobody
            .arg("--unix-socket")
            .arg(&socket)
            .arg("http://localhost/metrics");
        let output = tool::output(&mut nobody)?;
        let code = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(
            !output.status.success() || code.starts_with('4'),
            "a stranger got {code}"
        );
        Ok(())
    });
}

#[test]
fn the_api_over_tcp_serves_the_lan_with_a_token_and_nobody_without() {
    play(
        "the_api_over_tcp_serves_the_lan_with_a_token_and_nobody_without",
        |scene| {
            let listen = "external_controller: ':9090'";
            let config = format!(
                "{}experimental {{ clash_api {{ {listen} }} }}\n",
                honk_tests::scene::config()
            );
            let honk = honk_tests::honk::Honk::start(&scene.lab, &config)?;
            let url = format!("http://{}:9090", addr::HG_LAN);
            let ask = |headers: &[String]| -> anyhow::Result<String> {
                let mut curl = scene.lab.hc1.command("curl");
                curl.args(["-sS", "--max-time", "20", "-o", "/dev/null"]);
                curl.args(["-w", "%{http_code}"]);
                for header in headers {
                    curl.args(["-H", header]);
                }
                tool::run(curl.arg(format!("{url}/api/v1/status")))
            };
            ensure!(ask(&[])? == "401", "without a token");
            let token = honk.home.must(&["api", "secret"])?;
            let token = token.trim();
            let bearer = format!("Authorization: Bearer {token}");
            ensure!(ask(std::slice::from_ref(&bearer))? == "200");
            ensure!(ask(&[format!("{bearer}x")])? == "401");
            ensure!(ask(&[bearer.clone(), "Host: evil.example".to_owned()])? == "403");
            let mut curl = scene.lab.hc1.command("curl");
            curl.args(["-sS", "--max-time", "20", "-X", "PUT"]);
            curl.args(["-H", &bearer, "-d", r#"{"name":"up2"}"#]);
            curl.args(["-o", "/dev/null", "-w", "%{http_code}"]);
            let chosen = tool::run(curl.arg(format!("{url}/proxies/proxy")))?;
            ensure!(chosen == "204", "{chosen}");
            let from = scene.lab.hc1.run(|| client::whoami_tcp(PROXIED))?;
            ensure!(from.ip() == addr::HP2, "a dashboard chose another upstream");
            // The command line takes the same way.
            honk.home.must(&["group", "list", "--api", &url])?;
            let other = honk.home.state.join("other");
            std::fs::write(&other, "wrong")?;
            let other = other.to_str().context("path")?;
            let args = ["group", "list", "--api", &url, "--token-file", other];
            ensure!(honk.home.cli(&args)?.status.code() == Some(5));
            ensure!(!honk.home.log_tail().contains(token), "the token is logged");
            Ok(())
        },
    );
}

#[test]
fn no_child_process_is_ever_started() {
    play("no_child_process_is_ever_started", |scene| {
        let honk = scene.honk()?;
        honk.reload(&honk_tests::scene::config_with("dip(203.0.113.9) -> up2"))?;
        scene.lab.hc1.run(|| client::whoami_tcp(PROXIED))?;
        for entry in std::fs::read_dir(format!("/proc/{}/task", honk.pid()))? {
            let children = std::fs::read_to_string(entry?.path().join("children"));
            let children = children.unwrap_or_default();
            ensure!(children.trim().is_empty(), "children: {children}");
        }
        Ok(())
    });
}
