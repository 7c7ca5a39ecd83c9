//! Why a subscription brought nothing. No text here holds more of a URL than scheme and host.

use std::io;

use honk_grammar::LoadError;
use honk_policy::subscription::BodyError;

use super::target::BadTarget;
use crate::outbound::resolve::ResolveError;

/// Why a body could not be fetched or read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error("{0}; correct the URL")]
    Url(#[from] BadTarget),
    #[error("`user_agent` holds characters that no header may have")]
    UserAgent,
    #[error("the name of {host} is not resolved: {cause}")]
    Resolve { host: String, cause: ResolveError },
    #[error(
        "{host} is a private address of this network; set `allow_private: true` if that is meant"
    )]
    Private { host: String },
    #[error("no connection to {host}: {cause}")]
    Connect { host: String, cause: io::Error },
    #[error("TLS with {host} failed: {cause}")]
    Tls { host: String, cause: io::Error },
    #[error("{host} broke off or does not speak HTTP: {cause}")]
    Http { host: String, cause: hyper::Error },
    #[error("{host} answered {status}")]
    Status { host: String, status: u16 },
    #[error("more than {0} redirects")]
    Redirects(usize),
    #[error("{host} redirects to {why}")]
    Redirect { host: String, why: &'static str },
    #[error("{host} sent nothing within {seconds} s")]
    Silent { host: String, seconds: u64 },
    #[error("the fetch was not complete after {0} s")]
    Slow(u64),
    #[error("the body is longer than 10 MiB, or becomes so when it is unpacked")]
    TooLong,
    #[error("the body is packed in a way that was not asked for")]
    Encoding,
    #[error("the packed body is damaged or cut off")]
    Damaged,
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error("none of the {0} nodes can be dialed by this build: their protocols are not built yet")]
    NoneBuilt(usize),
    #[error("the file is not used: {0}")]
    File(#[from] LoadError),
    #[error("the work on it stopped unexpectedly: {0}")]
    Stopped(tokio::task::JoinError),
}

impl FetchError {
    /// A word for machines.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Url(_) | Self::UserAgent => "config",
            Self::Resolve { .. } => "resolve",
            Self::Private { .. } => "private_address",
            Self::Connect { .. } => "connect",
            Self::Tls { .. } => "tls",
            Self::Http { .. } => "http",
            Self::Status { .. } => "status",
            Self::Redirects(_) | Self::Redirect { .. } => "redirect",
            Self::Silent { .. } | Self::Slow(_) => "timeout",
            Self::TooLong => "too_long",
            Self::Encoding | Self::Damaged => "damaged",
            Self::Body(BodyError::Empty) => "empty",
            Self::Body(BodyError::NoNodes { .. } | BodyError::OneNode { .. })
            | Self::NoneBuilt(_) => "no_nodes",
            Self::Body(_) => "format",
            Self::File(LoadError::Permission(_)) => "permission",
            Self::File(_) => "file",
            Self::Stopped(_) => "internal",
        }
    }

    /// The label of the metric.
    pub(crate) fn result(&self) -> FetchResult {
        match self {
            Self::Body(
                BodyError::Empty | BodyError::NoNodes { .. } | BodyError::OneNode { .. },
            )
            | Self::NoneBuilt(_) => FetchResult::Empty,
            Self::Body(_) | Self::TooLong | Self::Encoding | Self::Damaged => FetchResult::Parse,
            _ => FetchResult::Network,
        }
    }
}

/// Outcome of a fetch, as counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FetchResult {
    Ok,
    Network,
    Parse,
    Empty,
}

impl FetchResult {
    /// Label values in the order of the variants.
    pub(crate) const NAMES: [&'static str; 4] = ["ok", "network", "parse", "empty"];
}

/// Why the last attempt brought nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

impl Problem {
    pub(super) fn of(error: &FetchError) -> Self {
        Self {
            code: error.code(),
            message: error.to_string(),
        }
    }
}
