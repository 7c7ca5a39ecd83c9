//! What a clean stop, or a start that is refused, leaves as it was.

use super::*;

fn setting(key: &str) -> PathBuf {
    Path::new("/proc/sys/net").join(key)
}

/// Every setting of every interface that can be read.
fn all_settings() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for family in ["ipv4", "ipv6"] {
        let interfaces = std::fs::read_dir(setting(family).join("conf")).unwrap();
        for interface in interfaces.flatten() {
            for key in std::fs::read_dir(interface.path()).unwrap().flatten() {
                if let Ok(value) = std::fs::read_to_string(key.path()) {
                    found.push((key.path(), value));
                }
            }
        }
    }
    found.push((
        setting("ipv4/ip_forward"),
        std::fs::read_to_string(setting("ipv4/ip_forward")).unwrap(),
    ));
    found.sort();
    found
}

#[test]
fn settings_changed_along_come_back() {
    lab("cascade", |lab| {
        // The order matters: the first two overwrite the others.
        for (key, value) in [
            ("ipv4/ip_forward", "0"),
            ("ipv6/conf/all/forwarding", "0"),
            ("ipv4/conf/all/accept_redirects", "1"),
            ("ipv4/conf/default/forwarding", "1"),
            ("ipv4/conf/lan/forwarding", "1"),
            ("ipv6/conf/default/forwarding", "1"),
            ("ipv6/conf/lan/forwarding", "1"),
        ] {
            std::fs::write(setting(key), value).unwrap();
        }
        let before = all_settings();
        let settings = Settings {
            sysctls: true,
            ..lab.settings()
        };
        let (dp, listeners) = Datapath::start(settings.clone()).unwrap();
        let read = |key| std::fs::read_to_string(setting(key)).unwrap();
        assert_eq!(read("ipv4/ip_forward"), "1\n");
        assert_eq!(read("ipv4/conf/lo/forwarding"), "1\n");
        assert_eq!(read("ipv4/conf/all/accept_redirects"), "0\n");
        dp.stop().unwrap();
        drop(listeners);
        assert_eq!(all_settings(), before);

        // What an administrator sets meanwhile survives the way back.
        let (dp, _listeners) = Datapath::start(settings).unwrap();
        std::fs::write(setting("ipv4/conf/all/accept_redirects"), "1").unwrap();
        std::fs::write(setting("ipv6/conf/default/forwarding"), "0").unwrap();
        dp.stop().unwrap();
        assert_eq!(read("ipv4/ip_forward"), "0\n");
        assert_eq!(read("ipv4/conf/all/accept_redirects"), "1\n");
        assert_eq!(read("ipv6/conf/default/forwarding"), "0\n");
        assert_eq!(read("ipv6/conf/lan/forwarding"), "1\n");
    });
}

#[test]
fn a_second_daemon_is_refused() {
    lab("second", |lab| {
        let (dp, listeners) = lab.start();
        let before = snapshot();
        let other = Settings {
            runtime_dir: lab.dir.join("run2"),
            ..lab.settings()
        };
        let e = Datapath::start(other.clone()).unwrap_err();
        assert_eq!(e.blame(), Blame::Conflict, "{e}");
        assert!(e.to_string().contains("another honk runs"), "{e}");
        let e = cleanup(&lab.dir.join("bpf"), &lab.dir.join("run2")).unwrap_err();
        assert_eq!(e.blame(), Blame::Conflict, "{e}");
        assert_eq!(snapshot(), before, "the first one is unharmed");
        drop(listeners);
        // Dead, it is in nobody's way, whether or not its pair is gone by now.
        dp.crash();
        let (dp, _listeners) = Datapath::start(other).unwrap();
        dp.stop().unwrap();
    });
}

#[test]
fn a_mount_made_here_goes_at_stop() {
    lab("mount", |lab| {
        let root = lab.dir.join("pins");
        let settings = Settings {
            pin_root: root.clone(),
            on_crash_block: true,
            ..lab.settings()
        };
        let e = Datapath::start(settings.clone()).unwrap_err();
        assert_eq!(e.blame(), Blame::Config, "{e}");
        assert!(e.to_string().contains(&root.display().to_string()), "{e}");
        assert!(!root.exists());

        std::fs::create_dir(&root).unwrap();
        let start = || {
            let (dp, listeners) = Datapath::start(settings.clone()).unwrap();
            dp.set_gate(GATE_OPEN).unwrap();
            (dp, listeners)
        };
        let (dp, listeners) = start();
        assert!(pins::is_bpffs(&root));
        dp.stop().unwrap();
        drop(listeners);
        assert!(!pins::is_bpffs(&root), "unmounted");
        assert_eq!(std::fs::read_dir(&root).unwrap().count(), 0);

        // After a crash the pins decide, so their file system stays.
        let (dp, listeners) = start();
        drop(listeners);
        dp.crash();
        assert!(pins::is_bpffs(&root));
        let report = cleanup(&root, &settings.runtime_dir).unwrap();
        assert_eq!((report.links, report.mount), (2, true));
        assert!(!pins::is_bpffs(&root), "unmounted by the cleanup");
        // The next daemon knows it for honk's own.
        let (dp, listeners) = start();
        drop(listeners);
        dp.crash();
        let (dp, listeners) = start();
        dp.stop().unwrap();
        drop(listeners);
        assert!(!pins::is_bpffs(&root), "unmounted by the next");
        // One that was there before stays.
        let foreign = lab.dir.join("bpf");
        assert!(!cleanup(&foreign, &settings.runtime_dir).unwrap().mount);
        assert!(pins::is_bpffs(&foreign));
    });
}
