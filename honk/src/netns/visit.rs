//! Looks into the namespace of another process, for diagnosis.

use std::{
    fs::File,
    io,
    os::{fd::AsRawFd, unix::fs::MetadataExt},
};

use super::current_inode;

/// A namespace in which threads of the process live, but not the caller.
pub(crate) fn foreign_to(pid: u32) -> io::Result<Option<File>> {
    let own = current_inode().map_err(io::Error::other)?;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        // Threads end while they are listed.
        let Ok(file) = File::open(thread?.path().join("ns/net")) else {
            continue;
        };
        if file.metadata()?.ino() != own {
            return Ok(Some(file));
        }
    }
    Ok(None)
}

/// Runs `job` on a thread of its own that has entered the namespace.
pub(crate) fn visit<R: Send>(namespace: &File, job: impl FnOnce() -> R + Send) -> io::Result<R> {
    std::thread::scope(|scope| {
        let visitor = scope.spawn(|| {
            // SAFETY: changes the namespace of this thread only, which ends with the job.
            if unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) } != 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(job())
        });
        let ended = visitor.join();
        ended.unwrap_or_else(|_| Err(io::Error::other("the visit failed")))
    })
}

#[cfg(test)]
mod tests {
    use super::{super::Netns, *};

    #[test]
    fn a_process_with_a_thread_elsewhere_is_seen_and_visited() {
        let Ok(netns) = Netns::spawn(current_inode().unwrap()) else {
            return eprintln!("skipped: no right to create a namespace");
        };
        let inside = netns.run(|| current_inode().unwrap()).unwrap();
        let file = File::from(netns.fd().try_clone_to_owned().unwrap());
        assert_eq!(visit(&file, || current_inode().unwrap()).unwrap(), inside);
        assert_ne!(current_inode().unwrap(), inside, "the caller stays");
        // Other tests of this process have namespaces too, so only that one is found counts.
        assert!(foreign_to(std::process::id()).unwrap().is_some());
    }
}
