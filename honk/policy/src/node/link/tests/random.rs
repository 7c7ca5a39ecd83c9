//! Random nodes.
