//! Why a dial failed: whose fault it is and whether another leaf may be tried.
//!
//! Errors name the protocol stage and the class, never the target or a secret.

use std::{borrow::Cow, fmt, io};

use honk_wire::{http, socks5};
use rustix::io::Errno;

use crate::flow::Fault;

/// Where a dial was when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Looking up the name of the server.
    Resolve,
    /// TCP connect to the server.
    Connect,
    /// Talking to the server, before it heard the target.
    Greeting,
    /// Waiting for its word about the target.
    Reply,
}

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Out of descriptors, memory or routes on this machine.
    LocalResource,
    /// The node cannot do what was asked.
    ConfigUnsupported,
    /// The way to the server is broken.
    Carrier(Stage),
    /// The server refuses our credentials.
    ProxyAuth,
    /// The server does not speak the protocol.
    ProxyProtocol,
    /// The server refuses to serve.
    ProxyPolicy,
    /// No answer in time.
    Timeout(Stage),
    /// The target refused, does not exist or is forbidden.
    TargetRefused,
    /// The target did not answer in time.
    TargetTimeout,
    /// The server closed without a word after the request.
    UnknownPreResponse,
}

/// Whose fault a failure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blame {
    /// The configuration.
    Config,
    /// This machine.
    Kernel,
    /// The node, or the way to it.
    Node,
    /// The target behind the node.
    Target,
}

/// Whether the same flow may be tried again, before payload was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    /// No.
    No,
    /// Through another leaf.
    OtherLeaf,
}

/// Values of the metric label `result`; index into the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DialResult {
    Ok,
    Resolve,
    Connect,
    Auth,
    Timeout,
    Refused,
    Cancelled,
}

impl DialResult {
    /// Label values in index order.
    pub(crate) const NAMES: [&str; 7] = [
        "ok",
        "resolve",
        "connect",
        "auth",
        "timeout",
        "refused",
        "cancelled",
    ];
}

/// A failed dial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DialError {
    pub(crate) class: Class,
    pub(crate) detail: Cow<'static, str>,
    pub(crate) os: Option<i32>,
}

impl DialError {
    pub(crate) fn new(class: Class, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            class,
            detail: detail.into(),
            os: None,
        }
    }

    /// A deadline passed at `stage`. After the server was reached only the target is slow.
    pub(crate) fn timeout(stage: Stage) -> Self {
        let class = match stage {
            Stage::Reply => Class::TargetTimeout,
            other => Class::Timeout(other),
        };
        Self::new(class, "no answer in time")
    }

    /// An error of the socket to a server.
    pub(crate) fn carrier(stage: Stage, error: &io::Error) -> Self {
        let class = match (local(error), error.kind(), stage) {
            (true, ..) => Class::LocalResource,
            (false, io::ErrorKind::TimedOut, stage) => Class::Timeout(stage),
            (false, _, Stage::Reply) => Class::UnknownPreResponse,
            (false, _, stage) => Class::Carrier(stage),
        };
        Self::os(class, error)
    }

    /// An error of a socket that goes straight to the target.
    pub(crate) fn direct(error: &io::Error) -> Self {
        let class = match (local(error), error.kind()) {
            (true, _) => Class::LocalResource,
            (false, io::ErrorKind::TimedOut) => Class::TargetTimeout,
            _ => Class::TargetRefused,
        };
        Self::os(class, error)
    }

    fn os(class: Class, error: &io::Error) -> Self {
        Self {
            class,
            detail: Cow::Owned(error.to_string()),
            os: error.raw_os_error(),
        }
    }

    pub(crate) fn blame(&self) -> Blame {
        match self.class {
            Class::LocalResource => Blame::Kernel,
            Class::ConfigUnsupported => Blame::Config,
            Class::Carrier(_)
            | Class::ProxyAuth
            | Class::ProxyProtocol
            | Class::ProxyPolicy
            | Class::Timeout(_)
            | Class::UnknownPreResponse => Blame::Node,
            Class::TargetRefused | Class::TargetTimeout => Blame::Target,
        }
    }

    /// The same for whoever learns from it.
    pub(crate) fn fault(&self) -> Fault {
        match self.class {
            Class::LocalResource | Class::ConfigUnsupported => Fault::Own,
            Class::Carrier(_)
            | Class::ProxyAuth
            | Class::ProxyProtocol
            | Class::ProxyPolicy
            | Class::Timeout(_) => Fault::Node,
            Class::TargetRefused => Fault::Refused,
            Class::TargetTimeout => Fault::Silent,
            Class::UnknownPreResponse => Fault::Unknown,
        }
    }

    pub(crate) fn retry(&self) -> Retry {
        match self.class {
            Class::Carrier(_)
            | Class::ProxyAuth
            | Class::ProxyProtocol
            | Class::Timeout(_)
            | Class::UnknownPreResponse => Retry::OtherLeaf,
            Class::LocalResource
            | Class::ConfigUnsupported
            | Class::ProxyPolicy
            | Class::TargetRefused
            | Class::TargetTimeout => Retry::No,
        }
    }

    /// The metric label.
    pub(crate) fn result(&self) -> DialResult {
        match self.class {
            Class::Carrier(Stage::Resolve) => DialResult::Resolve,
            Class::Carrier(_) | Class::LocalResource => DialResult::Connect,
            Class::ProxyAuth | Class::ProxyProtocol | Class::ProxyPolicy => DialResult::Auth,
            Class::Timeout(_) => DialResult::Timeout,
            Class::TargetRefused
            | Class::TargetTimeout
            | Class::ConfigUnsupported
            | Class::UnknownPreResponse => DialResult::Refused,
        }
    }
}

impl fmt::Display for DialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.class, self.detail)
    }
}

impl std::error::Error for DialError {}

impl From<socks5::Error> for DialError {
    fn from(error: socks5::Error) -> Self {
        use socks5::{Error, Refusal};
        let class = match error {
            Error::Version(_) | Error::MethodNotOffered(_) | Error::BoundAddress(_) => {
                Class::ProxyProtocol
            }
            Error::NoMethod | Error::AuthRefused(_) => Class::ProxyAuth,
            Error::Target(_) | Error::CredentialsTooLong => Class::ConfigUnsupported,
            Error::Refused(refusal) => match refusal {
                Refusal::TtlExpired => Class::TargetTimeout,
                Refusal::CommandUnsupported => Class::ProxyPolicy,
                Refusal::AddressUnsupported => Class::ConfigUnsupported,
                Refusal::General
                | Refusal::NotAllowed
                | Refusal::NetworkUnreachable
                | Refusal::HostUnreachable
                | Refusal::ConnectionRefused => Class::TargetRefused,
                Refusal::Other(_) => Class::ProxyProtocol,
            },
        };
        Self::new(class, error.to_string())
    }
}

impl From<http::Error> for DialError {
    fn from(error: http::Error) -> Self {
        let class = match error {
            http::Error::Target => Class::ConfigUnsupported,
            _ => Class::ProxyProtocol,
        };
        Self::new(class, error.to_string())
    }
}

/// A node whose protocol this build does not dial. Configurations with such nodes are refused,
/// so this is the last line of defence: never a connection without the proxy.
pub(crate) fn not_built() -> DialError {
    DialError::new(
        Class::ConfigUnsupported,
        "this build does not dial the protocol of the node",
    )
}

/// The meaning of a CONNECT status other than 2xx.
pub(crate) fn http_status(status: u16) -> DialError {
    let class = match status {
        401 | 407 => Class::ProxyAuth,
        403 | 502 | 503 | 521 | 523 => Class::TargetRefused,
        504 | 522 | 524 => Class::TargetTimeout,
        400 | 404 | 405 | 429 | 501 => Class::ProxyPolicy,
        _ => Class::ProxyProtocol,
    };
    DialError::new(class, format!("the proxy answered with status {status}"))
}

/// Whether this machine, not the network, refused.
fn local(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(
            Errno::MFILE
                | Errno::NFILE
                | Errno::NOMEM
                | Errno::NOBUFS
                | Errno::ADDRNOTAVAIL
                | Errno::NETUNREACH
                | Errno::PERM
                | Errno::ACCESS
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_target_is_never_the_nodes_fault() {
        for code in 1..=5u8 {
            let mut hs = reply(code);
            let error = DialError::from(hs.read(&[5, code], &mut Vec::new()).unwrap_err());
            assert_eq!(error.class, Class::TargetRefused, "{code}");
            assert_eq!((error.blame(), error.retry()), (Blame::Target, Retry::No));
        }
    }

    fn reply(_: u8) -> socks5::Handshake {
        let target = honk_wire::Target::Name("a", 1);
        let mut out = Vec::new();
        let mut hs = socks5::Handshake::start(
            socks5::Command::Connect,
            &target,
            None,
            socks5::Mode::Serial,
            &mut out,
        )
        .unwrap();
        hs.read(&[5, 0], &mut out).unwrap();
        hs
    }

    #[test]
    fn statuses_are_told_apart() {
        assert_eq!(http_status(407).class, Class::ProxyAuth);
        assert_eq!(http_status(502).class, Class::TargetRefused);
        assert_eq!(http_status(504).class, Class::TargetTimeout);
        assert_eq!(http_status(302).class, Class::ProxyProtocol);
        assert_eq!(http_status(429).retry(), Retry::No);
    }

    #[test]
    fn the_stage_decides_about_timeouts() {
        let connect = DialError::timeout(Stage::Connect);
        assert_eq!(connect.blame(), Blame::Node);
        assert_eq!(connect.result(), DialResult::Timeout);
        assert_eq!(DialError::timeout(Stage::Reply).blame(), Blame::Target);
    }

    #[test]
    fn local_shortage_is_neutral() {
        let full = io::Error::from_raw_os_error(libc::EMFILE);
        for error in [
            DialError::carrier(Stage::Connect, &full),
            DialError::direct(&full),
        ] {
            assert_eq!(error.class, Class::LocalResource);
            assert_eq!((error.blame(), error.retry()), (Blame::Kernel, Retry::No));
        }
        let refused = io::Error::from_raw_os_error(libc::ECONNREFUSED);
        assert_eq!(DialError::direct(&refused).class, Class::TargetRefused);
        let error = DialError::carrier(Stage::Connect, &refused);
        assert_eq!(error.class, Class::Carrier(Stage::Connect));
    }
}
