//! The runner against a shell script that acts as a test binary.

use super::*;

/// Ends of scripts that behave.
const GOOD: &str = "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out";
const BAD: &str = "test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out";

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs `plan` as a binary; the last line and everything that was told.
fn outcome(name: &str, plan: &str, patience: Duration) -> (String, Vec<String>) {
    let folder = std::env::temp_dir().join(format!("xtask-runner-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let folder = Folder(folder);
    std::fs::write(folder.0.join("plan"), plan).unwrap();
    let binary = Binary {
        name: "fake".into(),
        program: Path::new(env!("CARGO_MANIFEST_DIR")).join("src/test/fake_binary.sh"),
        folder: folder.0.clone(),
    };
    let setting = Setting {
        skips: &folder.0.join("skips"),
        honk: None,
        patience,
    };
    let mut tally = Tally::default();
    one(&mut tally, &binary, &setting).unwrap();
    let told = tally.told().into_iter().map(str::to_owned).collect();
    (tally.last_line(), told)
}

const LONG: Duration = Duration::from_secs(120);

#[test]
fn a_test_that_passes_alone_is_flaky_not_failed() {
    let plan = format!(
        "if [ \"$1\" = --exact ]; then echo \"test $2 ... ok\"; echo '{GOOD}'; exit 0; fi\n\
         printf 'test a::good ... ok\\ntest a::weak ... FAILED\\n'\n\
         echo 'test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out'\n\
         exit 101"
    );
    let (last, told) = outcome("flaky", &plan, LONG);
    assert_eq!(last, "2 passed, 0 failed, 0 skipped, 1 flaky");
    assert_eq!(told, ["FLAKY a::weak: failed once, passed alone"]);
}

#[test]
fn a_test_that_fails_twice_is_failed() {
    let plan = format!("echo 'test broken ... FAILED'; echo '{BAD}'; exit 101");
    let (last, told) = outcome("twice", &plan, LONG);
    assert_eq!(last, "0 passed, 1 failed, 0 skipped, 0 flaky");
    assert_eq!(told, ["FAILED broken: failed once, failed alone"]);
}

#[test]
fn a_second_run_that_finds_no_such_test_does_not_pass() {
    let plan = "if [ \"$1\" = --exact ]; then\n\
         echo 'test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out'; exit 0\n\
         fi\n\
         echo 'test a ... FAILED'\n\
         echo 'test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out'";
    let (last, _) = outcome("none", plan, LONG);
    assert_eq!(last, "0 passed, 1 failed, 0 skipped, 0 flaky");
}

#[test]
fn a_binary_that_breaks_off_loses_no_test() {
    let plan = format!(
        "case \"$1\" in\n\
         --list) printf 'a: test\\nb: test\\nc: test\\n'; exit 0 ;;\n\
         --exact) if [ \"$2\" = c ]; then echo 'test c ... FAILED'; echo '{BAD}'; exit 101; fi\n\
         echo \"test $2 ... ok\"; echo '{GOOD}'; exit 0 ;;\n\
         esac\n\
         echo 'test a ... ok'; kill -9 $$"
    );
    let (last, told) = outcome("broke", &plan, LONG);
    assert_eq!(last, "2 passed, 1 failed, 0 skipped, 1 flaky");
    assert_eq!(
        told,
        [
            "FAILED c: not reported at first, failed alone",
            "FLAKY fake: broke off: signal: 9 (SIGKILL)",
        ]
    );
}

#[test]
fn a_binary_that_breaks_off_after_its_last_test_is_failed() {
    let plan = "if [ \"$1\" = --list ]; then echo 'a: test'; exit 0; fi\n\
         echo 'test a ... ok'; kill -9 $$";
    let (last, told) = outcome("late", plan, LONG);
    assert_eq!(last, "1 passed, 1 failed, 0 skipped, 0 flaky");
    assert_eq!(told, ["FAILED fake: broke off: signal: 9 (SIGKILL)"]);
}

#[test]
fn a_binary_that_hangs_is_killed_and_the_stuck_test_named() {
    let plan = "if [ \"$1\" = --list ]; then printf 'a: test\\nb: test\\nc: test\\n'; exit 0; fi\n\
         if [ \"$1\" != --exact ]; then echo 'test a ... ok'; fi\n\
         echo 'test b has been running for over 60 seconds'\n\
         exec sleep 1000";
    let (last, told) = outcome("hang", plan, Duration::from_secs(5));
    assert_eq!(last, "1 passed, 2 failed, 0 skipped, 1 flaky");
    assert_eq!(
        told,
        [
            "FAILED b: ended no test for 5 s and was killed; still running: b",
            "FAILED c: not run: its binary hangs",
            "FLAKY fake: ended no test for 5 s and was killed; still running: b",
        ]
    );
}

#[test]
fn many_failures_get_no_second_run() {
    let plan = "[ \"$1\" = --exact ] && exit 9\n\
         for i in $(seq 21); do echo \"test t$i ... FAILED\"; done\n\
         echo 'test result: FAILED. 0 passed; 21 failed; 0 ignored; 0 measured; 0 filtered out'";
    let (last, told) = outcome("many", plan, LONG);
    assert_eq!(last, "0 passed, 21 failed, 0 skipped, 0 flaky");
    assert!(
        told.iter().all(|line| line.ends_with("second run")),
        "{told:?}"
    );
}

#[test]
fn cargo_names_the_binaries() {
    let message = r#"{"reason":"compiler-artifact","manifest_path":"/x/honk/wire/Cargo.toml",
        "target":{"kind":["lib"],"name":"honk_wire"},"profile":{"test":true},
        "executable":"/x/target/debug/deps/honk_wire-1"}"#;
    let expected = Binary {
        name: "wire lib honk_wire".into(),
        program: "/x/target/debug/deps/honk_wire-1".into(),
        folder: "/x/honk/wire".into(),
    };
    assert_eq!(binary(message), Some(expected));
    let plain = message.replace("true", "false");
    assert_eq!(binary(&plain), None);
    assert_eq!(binary("Compiling honk"), None);
}
