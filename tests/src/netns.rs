//! One network namespace: run a closure, a command or a runtime inside it.
//!
//! A thread enters with `setns` and never comes back, so every entry has a thread of its own.
//! Commands enter between fork and exec: `ip netns exec` would give them another mount
//! namespace, which hides the cgroup and bpf file systems.

use std::fs::File;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::runtime::Runtime;

/// Folder of named namespaces.
pub const NAMED: &str = "/run/netns";

/// A handle on a namespace; cloning shares it.
#[derive(Clone, Debug)]
pub struct Netns {
    name: Arc<str>,
    fd: Arc<OwnedFd>,
}

impl Netns {
    /// Opens the named namespace.
    pub fn open(name: &str) -> Result<Self> {
        let path = Path::new(NAMED).join(name);
        let file = File::open(&path)
            .with_context(|| format!("cannot open namespace {}", path.display()))?;
        Ok(Self {
            name: name.into(),
            fd: Arc::new(file.into()),
        })
    }

    /// The namespace of a thread, for namespaces without a name; `None` when it is the one of
    /// `unlike`.
    pub fn of_thread(task: &Path, unlike: &Self) -> Result<Option<Self>> {
        let file = File::open(task.join("ns/net"))?;
        let (own, other) = (rustix::fs::fstat(&file)?, rustix::fs::fstat(&*unlike.fd)?);
        if (own.st_dev, own.st_ino) == (other.st_dev, other.st_ino) {
            return Ok(None);
        }
        Ok(Some(Self {
            name: "private".into(),
            fd: Arc::new(file.into()),
        }))
    }

    /// Its name under `/run/netns`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its path under `/run/netns`.
    pub fn path(&self) -> PathBuf {
        Path::new(NAMED).join(&*self.name)
    }

    /// Moves the calling thread into the namespace for the rest of its life.
    pub fn enter(&self) -> Result<()> {
        move_into_link_name_space(self.fd.as_fd(), Some(LinkNameSpaceType::Network))
            .with_context(|| format!("cannot enter namespace {}", self.name))
    }

    /// Runs `work` on a fresh thread inside the namespace and returns its result.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let inside = || {
            if let Err(error) = self.enter() {
                panic!("{error:#}");
            }
            work()
        };
        std::thread::scope(|scope| match scope.spawn(inside).join() {
            Ok(value) => value,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }

    /// Spawns a thread inside the namespace.
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> std::thread::JoinHandle<T> {
        let here = self.clone();
        std::thread::spawn(move || {
            if let Err(error) = here.enter() {
                panic!("{error:#}");
            }
            work()
        })
    }

    /// A command that starts inside the namespace, in our own mount namespace.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        let fd = Arc::clone(&self.fd);
        let enter = move || {
            // SAFETY: setns is a plain system call on a descriptor the closure keeps open.
            match unsafe { libc::setns(fd.as_raw_fd(), libc::CLONE_NEWNET) } {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        };
        // SAFETY: the closure only makes one async-signal-safe system call and allocates nothing.
        unsafe { command.pre_exec(enter) };
        command
    }

    /// A runtime whose threads live inside the namespace: every socket a task opens is there.
    /// Only spawned tasks are inside; the future given to `block_on` is not.
    pub fn runtime(&self) -> Result<Runtime> {
        let here = self.clone();
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(4)
            .enable_all()
            .on_thread_start(move || {
                if let Err(error) = here.enter() {
                    panic!("{error:#}");
                }
            })
            .build()
            .context("cannot start a runtime")
    }

    /// Writes a sysctl (`net.ipv4.ip_forward`) inside the namespace.
    pub fn set_sysctl(&self, key: &str, value: &str) -> Result<()> {
        let path = sysctl_path(key);
        self.run(|| std::fs::write(&path, value))
            .with_context(|| format!("cannot set {key} in {}", self.name))
    }

    /// Reads a sysctl inside the namespace.
    pub fn sysctl(&self, key: &str) -> Result<String> {
        let path = sysctl_path(key);
        let text = self
            .run(|| std::fs::read_to_string(&path))
            .with_context(|| format!("cannot read {key} in {}", self.name))?;
        Ok(text.trim().to_owned())
    }
}

/// Keys are written with dots as in `sysctl`; an interface name must not contain one.
fn sysctl_path(key: &str) -> PathBuf {
    Path::new("/proc/sys").join(key.replace('.', "/"))
}
