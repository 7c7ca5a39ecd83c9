//! The namespace lab, its servers and clients.

pub mod kernel;
