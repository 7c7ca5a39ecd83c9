//! Start, reload, stop, crash: no flow lost, nothing left behind.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use honk_tests::honk::{Home, Honk};
use honk_tests::lab::addr;
use honk_tests::load::Load;
use honk_tests::scene::{DIRECT, PROXIED, PROXIED_V6, at, config, config_of, config_with, play};
use honk_tests::serve::ECHO;
use honk_tests::snapshot::Snapshot;
use honk_tests::{client, missing, wait};

#[test]
fn stop_leaves_the_host_as_it_was() {
    play("stop_leaves_the_host_as_it_was", |scene| {
        let before = Snapshot::take(&scene.lab.hg, &scene.lab.bpffs())?;
        for _ in 0..3 {
            let honk = scene.honk()?;
            scene.lab.hc1.run(|| client::whoami_tcp(PROXIED))?;
            ensure!(honk.stop()?.success(), "exit code of a clean stop");
            Snapshot::take(&scene.lab.hg, &scene.lab.bpffs())?.must_equal(&before)?;
        }
        let seen = scene.lab.hc1.run(|| client::whoami_tcp(PROXIED))?.ip();
        ensure!(
            seen == addr::HG_WAN,
            "plain forwarding after the stop: {seen}"
        );
        Ok(())
    });
}

#[test]
fn forwarding_is_switched_on_and_restored() {
    play("forwarding_is_switched_on_and_restored", |scene| {
        let keys = ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"];
        for key in keys {
            scene.lab.hg.set_sysctl(key, "0")?;
        }
        let before = Snapshot::take(&scene.lab.hg, &scene.lab.bpffs())?;
        let config = config_of("lan", "auto_config_kernel_parameter: true", "");
        let honk = Honk::start(&scene.lab, &config)?;
        scene.lab.hc1.run(|| client::whoami_tcp(DIRECT))?;
        for key in keys {
            ensure!(scene.lab.hg.sysctl(key)? == "1", "{key}");
        }
        ensure!(honk.stop()?.success());
        Snapshot::take(&scene.lab.hg, &scene.lab.bpffs())?.must_equal(&before)
    });
}

#[test]
fn t56_a_killed_daemon_blocks_and_the_next_cleans_up() {
    play(
        "t56_a_killed_daemon_blocks_and_the_next_cleans_up",
        |scene| {
            let before = Snapshot::take(&scene.lab.hg, &scene.lab.bpffs())?;
            let honk = scene.honk()?;
            let hc1 = scene.lab.hc1.clone();
            hc1.run(|| client::whoami_tcp(PROXIED))?;
            let home = honk.home.clone();
            honk.kill()?;
            scene.wan.reset()?;
            ensure!(hc1.run(|| client::whoami_tcp(DIRECT))?.ip() == addr::HG_WAN);
            ensure!(
                hc1.run(|| client::briefly(|| client::whoami_udp(PROXIED)))
                    .is_err(),
                "proxied UDP after the crash"
            );
            let refused = hc1.run(|| client::briefly(|| client::connect(at(PROXIED, ECHO))));
            ensure!(refused.is_err(), "proxied TCP after the crash");
            let leaks = scene.wan.seen(|t| t.touches(PROXIED) || t.port(53))?;
            ensure!(leaks.is_empty(), "on the WAN: {leaks:?}");
            let honk = Honk::start_in(home)?;
            ensure!(hc1.run(|| client::whoami_tcp(PROXIED))?.ip() == addr::HP);
            ensure!(honk.stop()?.success());
            Snapshot::take(&scene.lab.hg, &scene.lab.bpffs())?.must_equal(&before)
        },
    );
}

#[test]
fn cleanup_after_a_crash_leaves_nothing() {
    play("cleanup_after_a_crash_leaves_nothing", |scene| {
        let before = Snapshot::take(&scene.lab.hg, &scene.lab.bpffs())?;
        let honk = scene.honk()?;
        let home = honk.home.clone();
        honk.kill()?;
        let pins = home.bpffs.display().to_string();
        home.must(&["cleanup", "--yes", "--bpf-pin-root", &pins])?;
        Snapshot::take(&scene.lab.hg, &scene.lab.bpffs())?.must_equal(&before)?;
        let seen = scene.lab.hc1.run(|| client::whoami_tcp(PROXIED))?.ip();
        ensure!(seen == addr::HG_WAN, "plain forwarding: {seen}");
        Ok(())
    });
}

#[test]
fn cleanup_with_other_directories_spares_a_live_daemon() {
    play(
        "cleanup_with_other_directories_spares_a_live_daemon",
        |scene| {
            let honk = scene.honk()?;
            let before = Snapshot::take(&scene.lab.hg, &scene.lab.bpffs())?;
            let other = Home::named(&scene.lab, "other");
            let pins = honk.home.bpffs.display().to_string();
            let output = other.cli(&["cleanup", "--yes", "--bpf-pin-root", &pins])?;
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            ensure!(output.status.code() == Some(6), "{}: {text}", output.status);
            ensure!(text.contains("another honk runs"), "{text}");
            Snapshot::take(&scene.lab.hg, &scene.lab.bpffs())?.must_equal(&before)?;
            ensure!(scene.lab.hc1.run(|| client::whoami_tcp(PROXIED))?.ip() == addr::HP);
            Ok(())
        },
    );
}

#[test]
fn twenty_reloads_under_load_fail_no_flow() {
    play("twenty_reloads_under_load_fail_no_flow", |scene| {
        let honk = scene.honk()?;
        let hc1 = scene.lab.hc1.clone();
        let mut old = hc1.run(|| client::connect(at(PROXIED, ECHO)))?;
        let proxied = Load::start(&hc1, PROXIED, 130, &[addr::HP]);
        let direct = Load::start(&scene.lab.hc2, DIRECT, 70, &[addr::HG_WAN]);
        for round in 0..20 {
            let rules = format!("dip(203.0.113.{round}) && dport({}) -> up2", 1000 + round);
            honk.reload(&config_with(&rules))?;
        }
        wait::until("enough flows", Duration::from_secs(20), || {
            (proxied.done() > 100 && direct.done() > 50).then_some(())
        })?;
        for (name, load) in [("proxied", proxied), ("direct", direct)] {
            let (done, failed) = load.finish();
            ensure!(
                failed.is_empty(),
                "{name}: {} of {done}: {failed:?}",
                failed.len()
            );
        }
        use std::io::{Read as _, Write as _};
        old.write_all(b"live")?;
        let mut back = [0; 4];
        old.read_exact(&mut back)
            .context("the flow from before the reloads broke")?;
        ensure!(scene.leaked(PROXIED)? == 0);
        Ok(())
    });
}

#[test]
fn a_reload_changes_the_verdict_of_new_flows() {
    play("a_reload_changes_the_verdict_of_new_flows", |scene| {
        let honk = scene.honk()?;
        let seen = |ip| {
            scene
                .lab
                .hc1
                .run(|| client::whoami_tcp(ip))
                .map(|from| from.ip())
        };
        ensure!(seen(DIRECT)? == addr::HG_WAN);
        honk.reload(&config_with(&format!(
            "dip({DIRECT}) -> up2\ndip({PROXIED}) -> direct"
        )))?;
        ensure!(seen(DIRECT)? == addr::HP2);
        ensure!(seen(PROXIED)? == addr::HG_WAN);
        Ok(())
    });
}

#[test]
fn a_bad_reload_keeps_the_running_state() {
    play("a_bad_reload_keeps_the_running_state", |scene| {
        let honk = scene.honk()?;
        honk.home
            .write(&config_with("dip(198.51.100.130) -> nowhere"))?;
        let output = honk.home.cli(&["reload"])?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(
            output.status.code() == Some(3),
            "exit {:?}: {text}",
            output.status.code()
        );
        ensure!(
            text.contains("nowhere"),
            "the message names the cause: {text}"
        );
        ensure!(scene.lab.hc1.run(|| client::whoami_tcp(PROXIED))?.ip() == addr::HP);
        honk.signal(rustix::process::Signal::HUP)?;
        ensure!(scene.lab.hc1.run(|| client::whoami_tcp(PROXIED))?.ip() == addr::HP);
        Ok(())
    });
}

#[test]
fn sighup_reloads() {
    play("sighup_reloads", |scene| {
        let honk = scene.honk()?;
        honk.home
            .write(&config_with(&format!("dip({PROXIED}) -> up2")))?;
        honk.signal(rustix::process::Signal::HUP)?;
        wait::ok("the new rule", Duration::from_secs(5), || {
            let seen = scene.lab.hc1.run(|| client::whoami_tcp(PROXIED))?;
            ensure!(seen.ip() == addr::HP2, "still {seen}");
            Ok(())
        })
    });
}

#[test]
fn t57_a_second_instance_exits_6_and_touches_nothing() {
    play(
        "t57_a_second_instance_exits_6_and_touches_nothing",
        |scene| {
            let honk = scene.honk()?;
            let before = Snapshot::take(&scene.lab.hg, &scene.lab.bpffs())?;
            let (status, text) = honk.home.run_refused()?;
            ensure!(status.code() == Some(6), "exit {status}: {text}");
            ensure!(
                text.contains(&honk.pid().to_string()),
                "names the owner's pid: {text}"
            );
            Snapshot::take(&scene.lab.hg, &scene.lab.bpffs())?.must_equal(&before)?;
            ensure!(scene.lab.hc1.run(|| client::whoami_tcp(PROXIED))?.ip() == addr::HP);
            Ok(())
        },
    );
}

#[test]
fn a_missing_interface_is_pending_and_hooked_when_it_appears() {
    play(
        "a_missing_interface_is_pending_and_hooked_when_it_appears",
        |scene| {
            let home = Home::new(&scene.lab);
            home.write(&config_of("lan, lan7", "", ""))?;
            let honk = Honk::spawn(home)?;
            wait::ok("the present interface", Duration::from_secs(20), || {
                let seen = scene.lab.hc1.run(|| client::whoami_tcp(PROXIED))?;
                ensure!(seen.ip() == addr::HP, "still {seen}");
                Ok(())
            })
            .with_context(|| honk.home.log_tail())?;
            // The second client moves to a cable of its own, which is the missing interface.
            scene.lab.ip(
                &scene.lab.hg,
                "link set lp2 nomaster\nlink set lp2 down\n\
            link set lp2 name lan7\naddress add 10.77.0.1/24 dev lan7\nlink set lan7 up\n",
            )?;
            scene.lab.ip(
                &scene.lab.hc2,
                "address flush dev eth0 scope global\n\
            address add 10.77.0.12/24 dev eth0\nroute add default via 10.77.0.1\n",
            )?;
            wait::ok("the new interface's hook", Duration::from_secs(5), || {
                let seen = scene.lab.hc2.run(|| client::whoami_tcp(PROXIED))?;
                ensure!(seen.ip() == addr::HP, "still {seen}");
                Ok(())
            })
        },
    );
}

#[test]
fn sigterm_lets_live_flows_end() {
    play("sigterm_lets_live_flows_end", |scene| {
        // The longest there is: the steps below take a while on a busy machine.
        let config = config_of("lan", "drain_timeout: 25s", "");
        let honk = Honk::start(&scene.lab, &config)?;
        let hc1 = scene.lab.hc1.clone();
        let mut flow = hc1.run(|| client::connect(at(PROXIED_V6, ECHO)))?;
        use std::io::{Read as _, Write as _};
        flow.write_all(b"first")?;
        let mut back = [0; 5];
        flow.read_exact(&mut back)?;
        honk.signal(rustix::process::Signal::TERM)?;
        // New flows of the proxied rule go to the kernel once the daemon drains.
        wait::ok("the drain", Duration::from_secs(5), || {
            let seen = hc1.run(|| client::whoami_tcp(PROXIED))?;
            ensure!(seen.ip() == addr::HG_WAN, "still {seen}");
            Ok(())
        })?;
        flow.write_all(b"again")?;
        flow.read_exact(&mut back)
            .context("the live flow was cut before the drain ended")?;
        ensure!(&back == b"again");
        drop(flow);
        ensure!(honk.stop()?.success());
        Ok(())
    });
}

/// Runs the daemon with a prepared home and checks code and message.
fn refused(home: &Home, code: i32, words: &[&str]) -> Result<()> {
    let (status, text) = home.run_refused()?;
    ensure!(
        status.code() == Some(code),
        "exit {status}, not {code}: {text}"
    );
    for word in words {
        ensure!(text.contains(word), "`{word}` is not in: {text}");
    }
    Ok(())
}

#[test]
fn bad_input_is_refused_with_its_own_code_and_leaves_nothing() {
    play(
        "bad_input_is_refused_with_its_own_code_and_leaves_nothing",
        |scene| {
            let before = Snapshot::take(&scene.lab.hg, &scene.lab.bpffs())?;
            let home = Home::new(&scene.lab);
            home.write("global { tproxy_prot: 1 }\n")?;
            refused(&home, 3, &["tproxy_prot", "unknown"]).context("unknown key")?;
            home.write("global {\n")?;
            refused(&home, 3, &["config.dae"]).context("syntax error")?;
            home.write(&config_with("dip(1.2.3.4) -> nowhere"))?;
            refused(&home, 3, &["nowhere"]).context("unknown outbound")?;
            home.write(&config())?;
            std::fs::set_permissions(&home.config, std::fs::Permissions::from_mode(0o644))?;
            refused(&home, 3, &["config.dae"]).context("readable by everyone")?;
            std::fs::remove_file(&home.config)?;
            refused(&home, 3, &["config.dae"]).or_else(|_| refused(&home, 4, &["config.dae"]))?;
            std::fs::create_dir(&home.config)?;
            let (status, text) = home.run_refused()?;
            ensure!(
                matches!(status.code(), Some(3 | 4)),
                "a folder as file: {status}: {text}"
            );
            std::fs::remove_dir(&home.config)?;
            Snapshot::take(&scene.lab.hg, &scene.lab.bpffs())?.must_equal(&before)
        },
    );
}

#[test]
fn a_missing_capability_is_named() {
    play("a_missing_capability_is_named", |scene| {
        let before = Snapshot::take(&scene.lab.hg, &scene.lab.bpffs())?;
        let home = Home::new(&scene.lab);
        home.write(&config())?;
        let run = home.run_command()?;
        let mut command = scene.lab.hg.command("setpriv");
        command.args([
            "--bounding-set",
            "-net_admin",
            "--inh-caps",
            "-net_admin",
            "--",
        ]);
        command.arg(run.get_program()).args(run.get_args());
        let output = honk_tests::tool::output(&mut command)?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(
            output.status.code() == Some(4),
            "exit {}: {text}",
            output.status
        );
        ensure!(
            text.to_lowercase().contains("net_admin"),
            "names the capability: {text}"
        );
        Snapshot::take(&scene.lab.hg, &scene.lab.bpffs())?.must_equal(&before)
    });
}

#[test]
fn memory_comes_back_after_a_large_rule_set_went() {
    play("memory_comes_back_after_a_large_rule_set_went", |scene| {
        let honk = scene.honk()?;
        let memory = |field: &str| -> Result<u64> {
            let status = std::fs::read_to_string(format!("/proc/{}/status", honk.pid()))?;
            let line = status.lines().find_map(|l| l.strip_prefix(field));
            let kib = line.and_then(|l| l.split_whitespace().next());
            Ok(kib.context("no such field")?.parse()?)
        };
        let reload = |rules: &str| {
            honk.home.write(&config_with(rules))?;
            honk.home.must(&["reload", "--timeout", "300s"])
        };
        reload("dip(203.0.113.9) -> up2")?;
        let before = memory("VmRSS:")?;
        let mut rules = String::new();
        for line in 0..20 {
            let prefixes: Vec<String> = (0..3000_u32)
                .map(|n| line * 3000 + n)
                .map(|n| format!("{}.{}.{}.0/25", 20 + (n >> 16), n >> 8 & 255, n & 255))
                .collect();
            rules.push_str(&format!("dip({}) -> block\n", prefixes.join(", ")));
        }
        reload(&rules)?;
        reload("dip(203.0.113.9) -> up2")?;
        let (peak, after) = (memory("VmHWM:")?, memory("VmRSS:")?);
        ensure!(
            peak > before + (8 << 10),
            "{before} KiB grew to {peak} only"
        );
        ensure!(
            after < before + (peak - before) / 2,
            "of {peak} KiB {after} stayed; it began with {before}"
        );
        Ok(())
    });
}

#[test]
fn sigquit_dumps_state_without_secrets_and_ends() {
    play("sigquit_dumps_state_without_secrets_and_ends", |scene| {
        let honk = scene.honk()?;
        let home = honk.home.clone();
        let mut flow = scene.lab.hc1.run(|| client::connect(at(PROXIED, ECHO)))?;
        // An echo has been through the daemon, so that it knows the flow.
        flow.write_all(b"x")?;
        flow.read_exact(&mut [0])?;
        honk.signal(rustix::process::Signal::QUIT)?;
        // The stop that follows is a second signal to a daemon that stops already.
        ensure!(honk.stop()?.success());
        let log = std::fs::read_to_string(&home.log)?;
        for part in [
            "state dump: task",
            "group=proxy",
            "leaf=up1",
            "interface=lan",
            "udp_flows=",
            "flows=1",
        ] {
            let found = log
                .lines()
                .any(|l| l.contains("state dump") && l.contains(part));
            ensure!(found, "no `{part}` in the dump:\n{log}");
        }
        ensure!(!log.contains("secret"), "a password is in the log");
        Ok(())
    });
}

#[test]
fn only_the_thread_that_unmounts_keeps_cap_sys_admin() {
    play(
        "only_the_thread_that_unmounts_keeps_cap_sys_admin",
        |scene| {
            let honk = scene.honk()?;
            honk.reload(&config_with("dip(203.0.113.9) -> up2"))?;
            ensure!(scene.lab.hc1.run(|| client::whoami_tcp(PROXIED))?.ip() == addr::HP);
            let mut names = Vec::new();
            for task in std::fs::read_dir(format!("/proc/{}/task", honk.pid()))? {
                let status = std::fs::read_to_string(task?.path().join("status"))?;
                let field = |key: &str| {
                    let line = status.lines().find_map(|l| l.strip_prefix(key));
                    line.map(str::trim).unwrap_or_default()
                };
                let mut held = 0;
                for set in ["CapEff:", "CapPrm:", "CapInh:", "CapAmb:"] {
                    held |= u64::from_str_radix(field(set), 16)?;
                }
                let name = field("Name:").to_owned();
                // Bits of linux/capability.h: 12 is CAP_NET_ADMIN, 21 CAP_SYS_ADMIN.
                ensure!(held >> 12 & 1 == 1, "{name} cannot work: {held:x}");
                if held >> 21 & 1 == 1 {
                    ensure!(name == "honk-host", "{name} holds CAP_SYS_ADMIN");
                }
                names.push(name);
            }
            for name in [
                "honk",
                "honk-host",
                "honk-netns",
                "honk-keeper",
                "honk-worker",
            ] {
                ensure!(names.iter().any(|n| n == name), "no {name} in {names:?}");
            }
            Ok(())
        },
    );
}

#[test]
fn a_missing_kernel_feature_exits_9_and_leaves_nothing() {
    play(
        "a_missing_kernel_feature_exits_9_and_leaves_nothing",
        |scene| {
            let before = Snapshot::take(&scene.lab.hg, &scene.lab.bpffs())?;
            let home = Home::new(&scene.lab);
            home.write(&config())?;
            let mut without_bpf = home.run_command()?;
            missing::bpf(&mut without_bpf);
            let without_btf = missing::btf(&scene.lab.hg, &home.run_command()?);
            for (mut command, cause, remedy) in [
                (without_bpf, "bpf(2)", "CONFIG_BPF_SYSCALL"),
                (without_btf, "BTF", "CONFIG_DEBUG_INFO_BTF"),
            ] {
                let output = honk_tests::tool::output(&mut command)?;
                let text = String::from_utf8_lossy(&output.stderr).into_owned();
                ensure!(
                    output.status.code() == Some(9),
                    "{cause}: exit {}: {text}",
                    output.status
                );
                let said: Vec<&str> = text.lines().filter(|l| l.contains(cause)).collect();
                ensure!(
                    said.len() == 1 && said[0].contains(remedy),
                    "{cause}: one line with cause and remedy: {text}"
                );
                Snapshot::take(&scene.lab.hg, &scene.lab.bpffs())?.must_equal(&before)?;
            }
            Ok(())
        },
    );
}

#[test]
fn a_foreign_link_of_our_name_is_refused() {
    play("a_foreign_link_of_our_name_is_refused", |scene| {
        scene
            .lab
            .ip(&scene.lab.hg, "link add name honk0 type bridge\n")?;
        let before = Snapshot::take(&scene.lab.hg, &scene.lab.bpffs())?;
        let home = Home::new(&scene.lab);
        home.write(&config())?;
        refused(&home, 6, &["honk0"])?;
        Snapshot::take(&scene.lab.hg, &scene.lab.bpffs())?.must_equal(&before)
    });
}
