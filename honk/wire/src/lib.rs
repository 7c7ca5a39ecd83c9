//! Wire formats as pure functions: no socket, no clock, no randomness that was not passed in.
#![forbid(unsafe_code)]
