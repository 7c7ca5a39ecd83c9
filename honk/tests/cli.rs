//! The real binary: exit codes, streams, files. Nothing here needs root or a kernel.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::{
    fs,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::Value;

/// A directory of one test, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("honk-cli-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).unwrap();
        Self(dir)
    }

    fn file(&self, name: &str, text: &str, mode: u32) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.display().to_string()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn honk(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_honk"));
    command.args(args).env_clear().stdin(Stdio::null());
    command
}

fn run(args: &[&str]) -> Output {
    honk(args).output().unwrap()
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

const GOOD: &str = "global { lan_interface: lan0 }\nrouting { fallback: direct }\n";

#[test]
fn without_a_command_help_is_short_and_the_code_2() {
    let output = run(&[]);
    assert_eq!(code(&output), Some(2));
    assert!(stderr(&output).contains("Usage: honk"));
}

#[test]
fn the_shipped_example_is_valid_and_quiet() {
    let dir = Scratch::new("example");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/examples/config.dae");
    let text = fs::read_to_string(source).unwrap();
    let path = dir.file("config.dae", &text, 0o640);
    let output = run(&["validate", "-q", "-c", &path]);
    assert_eq!(code(&output), Some(0));
    assert!(
        output.stdout.is_empty() && output.stderr.is_empty(),
        "{output:?}"
    );
}

#[test]
fn a_too_open_file_is_refused_unless_a_warning_will_do() {
    let dir = Scratch::new("open");
    let path = dir.file("config.dae", GOOD, 0o644);
    let output = run(&["validate", "-c", &path]);
    assert_eq!(code(&output), Some(3));
    assert!(stderr(&output).contains("perm-open") && stderr(&output).contains("0640"));
    let output = run(&["validate", "-c", &path, "--config-perm", "warn", "--json"]);
    assert_eq!(code(&output), Some(0));
    assert_eq!(
        json(&output)["data"]["diagnostics"][0]["severity"],
        "warning"
    );
    let denied = run(&["validate", "-c", &path, "--config-perm", "warn", "--strict"]);
    assert_eq!(code(&denied), Some(10));
}

#[test]
fn all_errors_of_all_files_come_in_one_run_in_file_order() {
    let dir = Scratch::new("order");
    dir.file("a.dae", "routing { fallback: nowhere }\n", 0o600);
    dir.file("b.dae", "group { g { policy: honk } }\n", 0o600);
    let entry = "include { a.dae b.dae }\nglobal { tproxy_prot: 1 }\n";
    let path = dir.file("main.dae", entry, 0o600);
    let output = run(&["validate", "-c", &path, "--format", "json"]);
    assert_eq!(code(&output), Some(3));
    let report = json(&output);
    assert_eq!(report["schema"], "honk.validate/1");
    let errors: Vec<(String, u64)> = report["data"]["diagnostics"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|d| d["severity"] == "error")
        .map(|d| {
            (
                d["code"].as_str().unwrap().to_owned(),
                d["line"].as_u64().unwrap(),
            )
        })
        .collect();
    let expected = [
        ("unknown-key", 2),
        ("rule-target-unknown", 1),
        ("policy-honk", 1),
    ];
    assert_eq!(errors, expected.map(|(c, l)| (c.to_owned(), l)));
}

#[test]
fn stdin_is_a_document_like_any_other() {
    let mut child = honk(&["validate", "--stdin", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(GOOD.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), Some(0));
    assert_eq!(json(&output)["data"]["ok"], true);
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let dir = Scratch::new("pipe");
    let path = dir.file("config.dae", GOOD, 0o600);
    for args in [
        &["validate", "-c", &path, "--json"][..],
        &["man"],
        &["completion", "bash"],
        &["version", "--json"],
        &["--help"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = honk(args)
            .stdout(writer)
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        assert_eq!(code(&output), Some(0), "{args:?}");
        assert!(!stderr(&output).contains("panicked"), "{args:?}");
    }
}

#[test]
fn run_without_any_configuration_explains_the_search_and_the_example() {
    let output = run(&["run"]);
    // On a machine that has one this test would start it, which needs root and a LAN.
    if Path::new("/etc/honk/config.dae").exists() || Path::new("/etc/dae/config.dae").exists() {
        return;
    }
    assert_eq!(code(&output), Some(3));
    for part in [
        "HONK_CONFIG",
        "/etc/honk/config.dae",
        "packaging/examples/config.dae",
    ] {
        assert!(stderr(&output).contains(part), "{part}");
    }
}

#[test]
fn run_refuses_what_is_not_built_and_validate_only_warns() {
    let dir = Scratch::new("unbuilt");
    let text = format!("{GOOD}dns {{ upstream {{ a: 'udp://192.0.2.1:53' }} }}\n");
    let path = dir.file("config.dae", &text, 0o600);
    assert_eq!(code(&run(&["validate", "-q", "-c", &path])), Some(0));
    let runtime = dir.0.join("run").display().to_string();
    let output = run(&["run", "-c", &path, "--runtime-dir", &runtime]);
    assert_eq!(code(&output), Some(3));
    assert!(stderr(&output).contains("not-built"), "{}", stderr(&output));
    assert!(
        !Path::new(&runtime).exists(),
        "nothing is made before the configuration holds"
    );
}

#[test]
fn without_a_daemon_clients_end_with_5_and_say_where_they_looked() {
    let dir = Scratch::new("nodaemon");
    let runtime = dir.0.display().to_string();
    for command in ["status", "reload", "suspend", "resume"] {
        let output = run(&[command, "--runtime-dir", &runtime]);
        assert_eq!(code(&output), Some(5), "{command}");
        assert!(stderr(&output).contains("api.sock"), "{command}");
    }
    let output = run(&["group", "list", "--json", "--runtime-dir", &runtime]);
    assert_eq!(code(&output), Some(5));
    let document = json(&output);
    assert_eq!(document["schema"], "honk.error/1");
    assert_eq!(document["exit"], 5);
    let output = run(&["status", "--wait", "0", "--runtime-dir", &runtime]);
    assert_eq!(code(&output), Some(8));
}

#[test]
fn a_socket_path_that_cannot_exist_is_a_usage_error() {
    let long = format!("/{}", "x".repeat(120));
    assert_eq!(code(&run(&["status", "--runtime-dir", &long])), Some(2));
}

#[test]
fn destructive_commands_do_not_ask_an_empty_room() {
    let dir = Scratch::new("ask");
    let runtime = dir.0.display().to_string();
    for args in [&["cleanup"][..], &["conn", "close", "--all"]] {
        let args = [args, &["--runtime-dir", &runtime]].concat();
        let output = run(&args);
        assert_eq!(code(&output), Some(2), "{args:?}");
        assert!(stderr(&output).contains("--yes"), "{args:?}");
    }
}

#[test]
fn formatting_is_idempotent_and_check_tells() {
    let dir = Scratch::new("fmt");
    let path = dir.file("config.dae", "global{lan_interface:lan0}", 0o600);
    assert_eq!(code(&run(&["fmt", "--check", "-c", &path])), Some(10));
    let output = run(&["fmt", "-c", &path]);
    assert_eq!(code(&output), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    let path = dir.file("config.dae", &text, 0o600);
    assert_eq!(code(&run(&["fmt", "--check", "-c", &path])), Some(0));
}

#[test]
fn no_colour_reaches_a_pipe() {
    let dir = Scratch::new("color");
    let path = dir.file("config.dae", GOOD, 0o600);
    let output = run(&["validate", "-c", &path, "--explain"]);
    assert!(!output.stdout.contains(&0x1b) && !output.stderr.contains(&0x1b));
}

#[test]
fn the_picture_names_what_each_include_gave() {
    let dir = Scratch::new("explain");
    let entry = format!("include {{ more.dae }}\n{GOOD}");
    let path = dir.file("config.dae", &entry, 0o600);
    dir.file("more.dae", "node { extra: 'http://192.0.2.9:80' }", 0o600);
    let output = run(&["validate", "-c", &path, "--explain"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let from = format!("more.dae (included from {path}:1)\n       node 1\n");
    assert!(text.contains(&from), "{text}");
    let output = run(&["validate", "-c", &path, "--explain", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let shares = &report["data"]["explain"]["sections"];
    assert_eq!(shares[1]["included_from"]["line"], 1, "{shares}");
    assert_eq!(shares[1]["sections"][0]["name"], "node");
    let groups = &report["data"]["explain"]["groups"];
    assert!(groups.is_array(), "{report}");
}

#[test]
fn a_misspelt_code_to_deny_is_refused() {
    let dir = Scratch::new("deny");
    let path = dir.file("config.dae", GOOD, 0o600);
    let output = run(&["validate", "-c", &path, "--deny", "sectoin-missing"]);
    assert_eq!(code(&output), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("did you mean `section-missing`?"), "{text}");
    let output = run(&["validate", "-c", &path, "--json", "--allow", "nonsense"]);
    assert_eq!(code(&output), Some(2));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["error"]["code"], "usage", "{report}");
}
