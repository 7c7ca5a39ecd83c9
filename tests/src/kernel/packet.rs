//! Packets for the tests, built header by header.
