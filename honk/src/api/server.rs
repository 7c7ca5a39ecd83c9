//! The unix socket: who may connect.

use std::{
    io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use axum::Router;
use tokio::{
    net::{UnixListener, UnixStream},
    sync::watch,
};

use super::{
    accept::{self, Door},
    guard::Peer,
};

/// Connections refused because of their owner.
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// How many connections were refused because of their owner.
pub(crate) fn refused() -> u64 {
    REFUSED.load(Ordering::Relaxed)
}

/// Users that the socket serves besides root.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peers {
    uid: u32,
    group: Option<u32>,
}

impl Peers {
    /// Ourselves and the group `honk`, if it exists.
    pub(crate) fn system() -> Self {
        let groups = std::fs::read_to_string("/etc/group").unwrap_or_default();
        Self {
            uid: rustix::process::geteuid().as_raw(),
            group: group_number(&groups, "honk"),
        }
    }

    /// Supplementary groups are not part of the credentials; the mode of the socket has
    /// checked them already, so the peer's own groups are looked up.
    fn allows(&self, uid: u32, gid: u32, pid: Option<i32>) -> bool {
        if uid == 0 || uid == self.uid {
            return true;
        }
        let Some(group) = self.group else {
            return false;
        };
        gid == group || pid.is_some_and(|pid| supplementary(pid).contains(&group))
    }
}

fn group_number(text: &str, name: &str) -> Option<u32> {
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok())?
    })
}

fn supplementary(pid: i32) -> Vec<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("Groups:"));
    line.unwrap_or_default()
        .split_whitespace()
        .filter_map(|g| g.parse().ok())
        .collect()
}

/// The listening socket; its file is removed on drop.
#[derive(Debug)]
pub(crate) struct ApiSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of our file: a file somebody else put there is not ours to remove.
    file: (u64, u64),
}

impl ApiSocket {
    /// Replaces a stale socket; the caller holds the instance lock, so nobody listens on it.
    pub(crate) fn bind(path: &Path, peers: Peers) -> io::Result<Self> {
        match std::fs::symlink_metadata(path) {
            Ok(meta) if std::os::unix::fs::FileTypeExt::is_socket(&meta.file_type()) => {
                std::fs::remove_file(path)?;
            }
            Ok(_) => return Err(io::Error::from(io::ErrorKind::AlreadyExists)),
            Err(_) => {}
        }
        let listener = UnixListener::bind(path)?;
        // Bound with whatever the umask leaves; nobody can have connected with more rights
        // than the final mode gives, because peers are checked by identity too.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))?;
        if let Some(group) = peers.group
            && let Err(error) = std::os::unix::fs::chown(path, None, Some(group))
        {
            tracing::warn!(target: "honk::api", %error, "the API socket stays without group honk");
        }
        let meta = std::fs::symlink_metadata(path)?;
        Ok(Self {
            listener,
            path: path.to_owned(),
            file: (meta.dev(), meta.ino()),
        })
    }

    /// Serves until `stop` turns true; then open requests may finish within a second.
    pub(crate) async fn serve(self, router: Router, peers: Peers, stop: watch::Receiver<bool>) {
        accept::serve(&Owned(&self.listener, peers), router, stop).await;
    }
}

/// The listener, for clients of the right users.
struct Owned<'a>(&'a UnixListener, Peers);

impl Door for Owned<'_> {
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<Option<(UnixStream, Option<Peer>)>> {
        let (stream, _) = self.0.accept().await?;
        if admitted(&stream, self.1) {
            return Ok(Some((stream, None)));
        }
        REFUSED.fetch_add(1, Ordering::Relaxed);
        Ok(None)
    }
}

impl Drop for ApiSocket {
    fn drop(&mut self) {
        let same = std::fs::symlink_metadata(&self.path)
            .is_ok_and(|meta| (meta.dev(), meta.ino()) == self.file);
        if same {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn admitted(stream: &UnixStream, peers: Peers) -> bool {
    stream
        .peer_cred()
        .is_ok_and(|cred| peers.allows(cred.uid(), cred.gid(), cred.pid()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_we_and_the_group_may_and_others_may_not() {
        let peers = Peers {
            uid: 990,
            group: Some(991),
        };
        assert!(peers.allows(0, 5, None));
        assert!(peers.allows(990, 5, None));
        assert!(peers.allows(1000, 991, None));
        assert!(!peers.allows(1000, 1000, None));
        let without = Peers {
            group: None,
            ..peers
        };
        assert!(!without.allows(1000, 991, None));
    }

    #[test]
    fn the_group_file_is_read_by_name() {
        let text = "root:x:0:\nhonky:x:5:\nhonk:x:991:a,b\n";
        assert_eq!(group_number(text, "honk"), Some(991));
        assert_eq!(group_number(text, "hon"), None);
    }

    #[tokio::test]
    async fn connections_without_a_request_do_not_keep_others_out() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let dir = crate::state::file::tests::scratch("half-open");
        let path = dir.join("api.sock");
        let peers = Peers::system();
        let socket = ApiSocket::bind(&path, peers).unwrap();
        let (stop, stopped) = watch::channel(false);
        let router = Router::new().route("/", axum::routing::get(|| async { "here" }));
        let server = tokio::spawn(socket.serve(router, peers, stopped));
        let mut half_open = Vec::new();
        for _ in 0..accept::MAX_CONNECTIONS {
            let mut stream = UnixStream::connect(&path).await.unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\nHo").await.unwrap();
            half_open.push(stream);
        }
        let before = super::super::seats::evicted();
        let mut client = UnixStream::connect(&path).await.unwrap();
        let request = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        client.write_all(request).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("here"), "{answer}");
        // Only the oldest went; the deadline for headers would have ended them all.
        assert_eq!(half_open[0].read(&mut [0; 1]).await.unwrap(), 0);
        assert!(super::super::seats::evicted() > before);
        let last = half_open.last_mut().unwrap();
        last.write_all(b"st: x\r\n\r\n").await.unwrap();
        assert_eq!(
            last.read(&mut [0; 1]).await.unwrap(),
            1,
            "it is still served"
        );
        stop.send_replace(true);
        drop(half_open);
        server.await.unwrap();
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_other_files_are_not() {
        let dir = crate::state::file::tests::scratch("sock");
        let path = dir.join("api.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let peers = Peers {
            uid: 0,
            group: None,
        };
        let socket = ApiSocket::bind(&path, peers).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o660);
        drop(socket);
        assert!(!path.exists());
        std::fs::write(&path, "text").unwrap();
        assert!(ApiSocket::bind(&path, peers).is_err());
        std::fs::remove_dir_all(dir).unwrap();
    }
}
