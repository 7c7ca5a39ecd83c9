//! Moving bytes: copy, splice, half-close, drain.
