//! Exit codes and the one error type of all commands.

use std::io;

use serde_json::{Value, json};

/// What the process tells its parent. Codes 200..=242 belong to systemd and are never used.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done.
    Success = 0,
    /// Anything without a code of its own.
    Failure = 1,
    /// Wrong arguments.
    Usage = 2,
    /// The configuration is invalid, or a reload was rejected.
    Config = 3,
    /// Not root, a missing capability, a file that may not be opened.
    Permission = 4,
    /// No daemon answered.
    Unreachable = 5,
    /// Busy, ambiguous, second instance, name taken.
    Conflict = 6,
    /// No such group, node, member or connection.
    NotFound = 7,
    /// Time over.
    Timeout = 8,
    /// Kernel or platform cannot do it.
    Unsupported = 9,
    /// A check ran and found something.
    Found = 10,
    /// Some of several things failed.
    Partial = 11,
    /// Ctrl-C.
    Interrupted = 130,
}

impl Exit {
    /// The number.
    pub(crate) fn code(self) -> u8 {
        self as u8
    }
}

/// Why a command did not do what was asked.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// Stable word, as in API errors.
    pub(crate) code: String,
    /// One line with cause and remedy; empty when there is nothing more to say.
    pub(crate) message: String,
    pub(crate) details: Option<Value>,
}

impl Failure {
    pub(crate) fn new(exit: Exit, code: &str, message: impl Into<String>) -> Self {
        Self {
            exit,
            code: code.to_owned(),
            message: message.into(),
            details: None,
        }
    }

    /// Ends with a code after the command has said all there is to say.
    pub(crate) fn silent(exit: Exit) -> Self {
        Self::new(exit, "", "")
    }

    #[must_use]
    pub(crate) fn details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// `honk.error/1`.
    pub(crate) fn document(&self) -> Value {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(details) = &self.details {
            error["details"] = details.clone();
        }
        json!({ "schema": "honk.error/1", "error": error, "exit": self.exit.code() })
    }
}

/// Failed writes to stdout. A reader that went away has seen what it wanted.
impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Self {
        if e.kind() == io::ErrorKind::BrokenPipe {
            Self::silent(Exit::Success)
        } else {
            Self::new(Exit::Failure, "io", format!("cannot write the output: {e}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_pipe_is_success_and_a_full_disk_is_not() {
        let pipe = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!((pipe.exit, pipe.message.as_str()), (Exit::Success, ""));
        let disk = Failure::from(io::Error::from(io::ErrorKind::StorageFull));
        assert_eq!(disk.exit, Exit::Failure);
    }

    #[test]
    fn the_error_document_carries_code_and_exit() {
        let document = Failure::new(Exit::NotFound, "not_found", "no group x")
            .details(json!({"kind": "group"}))
            .document();
        assert_eq!(document["exit"], 7);
        assert_eq!(document["error"]["details"]["kind"], "group");
    }
}
