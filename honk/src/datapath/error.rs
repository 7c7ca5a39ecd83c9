//! What can go wrong in the datapath, whose fault it is, and what to do about it.

use std::{io, path::PathBuf};

use crate::{netlink, netns};

/// Class of an error, from which the exit code follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blame {
    /// A capability or file permission is missing.
    Permission,
    /// The kernel lacks something.
    Unsupported,
    /// Something else owns what honk needs.
    Conflict,
    /// The configuration asks for the impossible.
    Config,
    /// Anything else.
    Other,
}

/// A failure of the datapath.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("missing {missing}; run as root or grant the capability to the service")]
    Capability { missing: &'static str },
    #[error("the kernel does not support {feature}; {remedy}")]
    Unsupported {
        feature: String,
        remedy: &'static str,
    },
    #[error(
        "a link named {0} exists that honk did not make; rename or delete it (`ip link delete {0}`)"
    )]
    ForeignLink(&'static str),
    #[error(
        "another honk runs in this network namespace and owns {0}; stop it first (another --runtime-dir does not help)"
    )]
    InUse(&'static str),
    #[error("interface {name}: link type {kind} is neither Ethernet nor a known header-less type")]
    LinkType { name: String, kind: u16 },
    #[error("interface {name}: cannot attach {program}: {source}")]
    Attach {
        name: String,
        program: &'static str,
        source: Box<Self>,
    },
    #[error("the rule set does not fit the kernel tables: {0}")]
    Tables(String),
    #[error(
        "the embedded kernel object is unusable: {0}; rebuild it with `cargo xtask ebpf` and honk"
    )]
    Object(String),
    #[error("the kernel refused program {name}: {source}; the verifier's words are in the log")]
    Program {
        name: &'static str,
        source: io::Error,
    },
    #[error("cannot open the gate: no listener in slot {0}")]
    NoListener(u32),
    #[error(
        "{path} is not a bpf file system and none can be mounted there: {source}; mount one, or set `on_crash: direct`"
    )]
    Bpffs { path: PathBuf, source: io::Error },
    #[error(
        "directory {0} of --bpf-pin-root does not exist; create it, or name one that exists (usually /sys/fs/bpf)"
    )]
    NoPinRoot(PathBuf),
    #[error("cannot write {path}: {source}; /proc/sys must be writable")]
    Sysctl { path: PathBuf, source: io::Error },
    #[error("cannot {what}: {source}")]
    Io { what: String, source: io::Error },
    #[error(transparent)]
    Netlink(#[from] netlink::Error),
    #[error(transparent)]
    Netns(#[from] netns::Error),
    #[error("the datapath has been stopped")]
    Stopped,
}

impl Error {
    /// Attaches what was being done to an I/O error.
    pub(super) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// Whose fault it is.
    pub(crate) fn blame(&self) -> Blame {
        match self {
            Self::Capability { .. } => Blame::Permission,
            Self::Unsupported { .. } => Blame::Unsupported,
            Self::ForeignLink(_) | Self::InUse(_) => Blame::Conflict,
            Self::LinkType { .. } | Self::Tables(_) | Self::NoPinRoot(_) => Blame::Config,
            Self::Attach { source, .. } => source.blame(),
            // The verifier says EACCES, which has nothing to do with permissions.
            Self::Program { source, .. } if source.raw_os_error() == Some(libc::EPERM) => {
                Blame::Permission
            }
            Self::Program { .. } => Blame::Unsupported,
            Self::Netns(netns::Error::Unshare(e)) => blame_of(e),
            Self::Netlink(e) => blame_of(&e.source),
            Self::Sysctl { source, .. } | Self::Io { source, .. } | Self::Bpffs { source, .. } => {
                blame_of(source)
            }
            Self::Netns(_) | Self::Object(_) | Self::NoListener(_) | Self::Stopped => Blame::Other,
        }
    }
}

fn blame_of(e: &io::Error) -> Blame {
    match e.raw_os_error() {
        Some(libc::EPERM | libc::EACCES | libc::EROFS) => Blame::Permission,
        Some(libc::ENOSYS | libc::EOPNOTSUPP | libc::EAFNOSUPPORT) => Blame::Unsupported,
        _ => Blame::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blame_follows_the_cause() {
        let e = Error::io("open x")(io::Error::from_raw_os_error(libc::EPERM));
        assert_eq!(e.blame(), Blame::Permission);
        let e = Error::Attach {
            name: "lan".to_owned(),
            program: "lan_ingress_l2",
            source: Box::new(e),
        };
        assert_eq!(e.blame(), Blame::Permission);
        assert_eq!(Error::ForeignLink("honk0").blame(), Blame::Conflict);
        let e = Error::Netns(netns::Error::Unshare(io::Error::from_raw_os_error(
            libc::ENOSYS,
        )));
        assert_eq!(e.blame(), Blame::Unsupported);
        let refused = |errno| {
            let source = io::Error::from_raw_os_error(errno);
            Error::Program { name: "x", source }.blame()
        };
        assert_eq!(refused(libc::EACCES), Blame::Unsupported);
        assert_eq!(refused(libc::EPERM), Blame::Permission);
        assert!(Error::ForeignLink("honk0").to_string().contains("honk0"));
    }
}
