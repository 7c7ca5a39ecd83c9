//! Log set-up and redaction.
