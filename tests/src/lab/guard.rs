//! Who owns a lab's names, and the certainty that they go away.
//!
//! A temporary lab has a folder `/run/honk-lab/ID` whose `lock` its process holds, and a shell
//! that waits on a pipe from that process. Closing the pipe (drop, panic, signal, SIGKILL alike)
//! makes the shell end what runs in the namespaces, delete them and remove the folder. Folders
//! without a lock holder are leftovers of a crash and are swept before the next lab is built.

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail};
use rustix::fs::{FlockOperation, flock};

use super::ROLES;
use crate::tool;

const BASE: &str = "/run/honk-lab";
const LASTING: &str = "lasting";

/// Takes down `$1`: kills what runs in its namespaces, deletes them, unmounts, removes.
const TAKE_DOWN: &str = r#"
base=$1; id=$2; shift 2
for role in "$@"; do
    ns="hl-$id-$role"
    [ -e "/run/netns/$ns" ] || continue
    for pid in $(ip netns pids "$ns"); do kill -9 "$pid"; done
    ip netns delete "$ns"
done
for mount in $(awk -v p="$base/$id/" 'index($2, p) == 1 { print $2 }' /proc/self/mounts | sort -r); do
    umount -l "$mount"
done
rm -rf "$base/$id"
"#;

/// Holds the names of one lab.
#[derive(Debug)]
pub(super) struct Guard {
    id: String,
    dir: PathBuf,
    reaper: Option<Child>,
    _lock: File,
}

impl Guard {
    /// A lab that dies with this value or with this process.
    pub(super) fn temporary() -> Result<Self> {
        let id = random_id()?;
        let (dir, lock) = claim(&id)?;
        let script = format!("trap '' INT TERM HUP; exec 2>/dev/null; cat >/dev/null; {TAKE_DOWN}");
        let reaper = take_down_command(&script, &id)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start the shell that takes the lab down")?;
        let guard = Self {
            id,
            dir,
            reaper: Some(reaper),
            _lock: lock,
        };
        guard.mount_bpffs()?;
        Ok(guard)
    }

    /// A lab that stays until it is removed by its id.
    pub(super) fn lasting(id: &str) -> Result<Self> {
        if lasting_ids().iter().any(|up| up == id) {
            bail!("lab {id} is up already; take it down first");
        }
        let (dir, lock) = claim(id)?;
        std::fs::write(dir.join(LASTING), "")?;
        let guard = Self {
            id: id.into(),
            dir,
            reaper: None,
            _lock: lock,
        };
        guard.mount_bpffs()?;
        Ok(guard)
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn bpffs(&self) -> PathBuf {
        self.dir.join("bpf")
    }

    pub(super) fn name(&self, role: &str) -> String {
        format!("hl-{}-{role}", self.id)
    }

    fn mount_bpffs(&self) -> Result<()> {
        let at = self.bpffs();
        std::fs::create_dir_all(&at)?;
        tool::run(Command::new("mount").args(["-t", "bpf", "bpf"]).arg(&at)).map(drop)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(reaper) = &mut self.reaper {
            drop(reaper.stdin.take());
            let _ = reaper.wait();
        }
    }
}

fn take_down_command(script: &str, id: &str) -> Command {
    use std::os::unix::process::CommandExt as _;
    let mut command = Command::new("sh");
    // A process group of its own: Ctrl-C at the terminal must not end the clean-up.
    command
        .args(["-c", script, "lab", BASE, id])
        .args(ROLES)
        .process_group(0);
    command
}

fn random_id() -> Result<String> {
    let mut bytes = [0_u8; 3];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Makes the folder and takes its lock.
fn claim(id: &str) -> Result<(PathBuf, File)> {
    let dir = Path::new(BASE).join(id);
    std::fs::create_dir_all(BASE)?;
    // The lock exists before the folder has its final name, so a sweep never sees it unlocked.
    let draft = Path::new(BASE).join(format!(".{id}.{}", std::process::id()));
    std::fs::create_dir_all(&draft)?;
    let lock = File::create(draft.join("lock"))?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive).context("cannot lock the lab")?;
    std::fs::rename(&draft, &dir)
        .with_context(|| format!("{} exists: a lab with this id is up", dir.display()))?;
    Ok((dir, lock))
}

/// Removes what crashed runs left behind; never touches a living lab or a lasting one.
pub fn sweep() {
    for id in ids() {
        let dir = Path::new(BASE).join(&id);
        if dir.join(LASTING).exists() {
            continue;
        }
        let Ok(lock) = OpenOptions::new().write(true).open(dir.join("lock")) else {
            continue;
        };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = take_down_command(TAKE_DOWN, &id)
                .stderr(Stdio::null())
                .status();
        }
    }
}

/// Ids of the lasting labs.
pub(super) fn lasting_ids() -> Vec<String> {
    ids()
        .into_iter()
        .filter(|id| Path::new(BASE).join(id).join(LASTING).exists())
        .collect()
}

/// Takes a lasting lab down.
pub(super) fn remove_lasting(id: &str) -> Result<()> {
    if !lasting_ids().iter().any(|up| up == id) {
        bail!("no lab {id} is up");
    }
    tool::run(&mut take_down_command(TAKE_DOWN, id)).map(drop)
}

fn ids() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(BASE) else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| !name.starts_with('.'))
        .collect()
}
