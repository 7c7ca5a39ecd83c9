//! Messages for tests.

use super::{FLAG_RESPONSE, HEADER, word};

/// The name of the question, as an owner.
pub(super) const QNAME: &[u8] = &[0xc0, 12];

/// A name without compression.
pub(super) fn plain(name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for label in name.split('.').filter(|l| !l.is_empty()) {
        out.push(label.len() as u8);
        out.extend_from_slice(label.as_bytes());
    }
    out.push(0);
    out
}

/// A query with RD.
pub(super) fn ask(name: &str, kind: u16) -> Vec<u8> {
    let mut out = Vec::new();
    for word in [0x1234_u16, 0x0100, 1, 0, 0, 0] {
        out.extend_from_slice(&word.to_be_bytes());
    }
    out.extend(plain(name));
    for word in [kind, 1] {
        out.extend_from_slice(&word.to_be_bytes());
    }
    out
}

/// Appends an OPT record and counts it.
pub(super) fn with_opt(mut message: Vec<u8>, size: u16, ttl: u32) -> Vec<u8> {
    message.extend([0, 0, 41]);
    message.extend(size.to_be_bytes());
    message.extend(ttl.to_be_bytes());
    message.extend([0, 0]);
    let count = word(&message, 10).unwrap() + 1;
    message[10..12].copy_from_slice(&count.to_be_bytes());
    message
}

/// An answer to `question` with records of owner, type, TTL and data.
pub(super) fn reply(question: &[u8], flags: u16, records: &[(&[u8], u16, u32, &[u8])]) -> Vec<u8> {
    let mut out = question.to_vec();
    assert!(out.len() > HEADER);
    out[2..4].copy_from_slice(&(FLAG_RESPONSE | flags).to_be_bytes());
    out[6..8].copy_from_slice(&(records.len() as u16).to_be_bytes());
    for (owner, kind, ttl, data) in records {
        out.extend_from_slice(owner);
        out.extend_from_slice(&kind.to_be_bytes());
        out.extend_from_slice(&1_u16.to_be_bytes());
        out.extend_from_slice(&ttl.to_be_bytes());
        out.extend_from_slice(&(data.len() as u16).to_be_bytes());
        out.extend_from_slice(data);
    }
    out
}
