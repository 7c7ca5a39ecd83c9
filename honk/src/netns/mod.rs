//! The private network namespace: one OS thread that is in it and never leaves.
//!
//! Everything that must happen inside (sockets, links, routes, sysctls, attachments to the
//! inner end of the pair) is a closure run by that thread. No other thread of the process ever
//! changes its namespace. The namespace lives as long as this handle or a socket made in it.

mod admin;
mod visit;

use std::{
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    os::unix::fs::MetadataExt,
    sync::{
        Mutex, PoisonError,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::JoinHandle,
};

pub(crate) use admin::give_up_admin;
pub(crate) use visit::{foreign_to, visit};

/// Requests waiting for the thread; callers beyond that wait to get in.
const QUEUE: usize = 64;

/// The calling thread's own view. `/proc/self` would be the main thread's.
const OWN_NS: &str = "/proc/thread-self/ns/net";

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot create a network namespace: {0}")]
    Unshare(#[source] io::Error),
    #[error("cannot open {OWN_NS}: {0}; is /proc mounted?")]
    Open(#[source] io::Error),
    #[error("cannot start the namespace thread: {0}")]
    Spawn(#[source] io::Error),
    #[error("the new namespace is the host's own (inode {0}); refusing to go on")]
    Same(u64),
    #[error("the namespace thread has ended")]
    Gone,
}

type Job = Box<dyn FnOnce() + Send>;

enum Request {
    Run(Job),
    Stop,
}

/// A private namespace and the thread inside it.
#[derive(Debug)]
pub(crate) struct Netns {
    requests: SyncSender<Request>,
    thread: Mutex<Option<JoinHandle<()>>>,
    fd: OwnedFd,
}

/// Inode of the calling thread's network namespace.
pub(crate) fn current_inode() -> Result<u64, Error> {
    std::fs::metadata(OWN_NS)
        .map(|m| m.ino())
        .map_err(Error::Open)
}

impl Netns {
    /// Starts the thread and its namespace; `host` is the inode of the one to stay out of.
    pub(crate) fn spawn(host: u64) -> Result<Self, Error> {
        let (requests, queue) = sync_channel(QUEUE);
        let (ready, entered) = sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("honk-netns".to_owned())
            .spawn(move || {
                let result = enter(host);
                let inside = result.is_ok();
                give_up_admin();
                if ready.send(result).is_ok() && inside {
                    serve(&queue);
                }
            })
            .map_err(Error::Spawn)?;
        let fd = entered.recv().map_err(|_| Error::Gone)??;
        Ok(Self {
            requests,
            thread: Mutex::new(Some(thread)),
            fd,
        })
    }

    /// Runs `job` inside the namespace and waits for its result.
    pub(crate) fn run<R: Send + 'static>(
        &self,
        job: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, Error> {
        let (reply, answer) = sync_channel(1);
        let job = Box::new(move || {
            // The caller waits below; nobody else can have dropped the receiver.
            let _ = reply.send(job());
        });
        self.requests
            .send(Request::Run(job))
            .map_err(|_| Error::Gone)?;
        answer.recv().map_err(|_| Error::Gone)
    }

    /// The namespace, for attaching to it and moving links into it.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Ends the thread. Sockets made inside keep the namespace alive until they close.
    pub(crate) fn stop(&self) {
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread {
            // A thread that already ended took its queue along.
            let _ = self.requests.send(Request::Stop);
            let _ = thread.join();
        }
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        self.stop();
    }
}

fn enter(host: u64) -> Result<OwnedFd, Error> {
    // SAFETY: changes the namespace of this thread only; no memory is involved.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err(Error::Unshare(io::Error::last_os_error()));
    }
    let file = File::open(OWN_NS).map_err(Error::Open)?;
    let inode = file.metadata().map_err(Error::Open)?.ino();
    if inode == host {
        return Err(Error::Same(inode));
    }
    Ok(file.into())
}

fn serve(queue: &Receiver<Request>) {
    while let Ok(Request::Run(job)) = queue.recv() {
        job();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn netns() -> Option<Netns> {
        match Netns::spawn(current_inode().unwrap()) {
            Ok(netns) => Some(netns),
            Err(Error::Unshare(e)) => {
                eprintln!("skipped: no right to create a namespace: {e}");
                None
            }
            Err(e) => panic!("{e}"),
        }
    }

    #[test]
    fn jobs_run_in_another_namespace() {
        let Some(netns) = netns() else { return };
        let host = current_inode().unwrap();
        let inside = netns.run(|| current_inode().unwrap()).unwrap();
        assert_ne!(inside, host);
        let by_fd = File::from(netns.fd().try_clone_to_owned().unwrap())
            .metadata()
            .unwrap()
            .ino();
        assert_eq!(by_fd, inside);
        assert_eq!(current_inode().unwrap(), host, "the caller stays");
    }

    #[test]
    fn sysctls_written_inside_stay_inside() {
        let Some(netns) = netns() else { return };
        let path = "/proc/sys/net/ipv4/conf/all/accept_local";
        let before = std::fs::read_to_string(path).unwrap();
        let written = netns.run(move || {
            std::fs::write(path, "1").map(|()| std::fs::read_to_string(path).unwrap())
        });
        match written.unwrap() {
            Ok(inside) => assert_eq!(inside.trim(), "1"),
            Err(e) => return eprintln!("skipped: /proc/sys is not writable: {e}"),
        }
        assert_eq!(std::fs::read_to_string(path).unwrap(), before);
    }

    #[test]
    fn a_stopped_thread_answers_gone() {
        let Some(netns) = netns() else { return };
        netns.stop();
        netns.stop();
        assert!(matches!(netns.run(|| ()), Err(Error::Gone)));
    }

    #[test]
    fn the_hosts_inode_is_refused() {
        // Any inode but the new one would do; the guard compares what the thread sees.
        let Some(netns) = netns() else { return };
        let inside = netns.run(|| current_inode().unwrap()).unwrap();
        let again = netns.run(move || {
            let file = File::open(OWN_NS).unwrap();
            file.metadata().unwrap().ino() == inside
        });
        assert!(again.unwrap());
    }
}
