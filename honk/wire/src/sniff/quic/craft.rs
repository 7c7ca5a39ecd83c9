//! Initial packets for tests.

use super::{Version, keys::Keys};

/// Bytes of a datagram that begins a connection (RFC 9000 section 14.1).
const DATAGRAM: usize = 1200;
/// Number and tag.
const OVERHEAD: usize = 2 + 16;

/// A CRYPTO frame.
pub fn crypto_frame(offset: usize, data: &[u8]) -> Vec<u8> {
    let number = |n: usize| (n as u16 | 0x4000).to_be_bytes();
    [&[6][..], &number(offset), &number(data.len()), data].concat()
}

/// An Initial packet as a client with this first id sends it, padded to a full datagram;
/// `None` for an id that is too long.
pub fn initial(version: Version, dcid: &[u8], number: u16, frames: &[u8]) -> Option<Vec<u8>> {
    packet(version, dcid, dcid, number, frames, DATAGRAM)
}

/// The same with keys of another id, and at least `size` bytes.
pub fn packet(
    version: Version,
    keys: &[u8],
    dcid: &[u8],
    number: u16,
    frames: &[u8],
    size: usize,
) -> Option<Vec<u8>> {
    let (first, version_number) = match version {
        Version::V1 => (0xc1, 1),
        Version::V2 => (0xd1, 0x6b33_43cf_u32),
    };
    let mut header = vec![first];
    header.extend_from_slice(&version_number.to_be_bytes());
    header.push(u8::try_from(dcid.len()).ok()?);
    header.extend_from_slice(dcid);
    // No source id, no token.
    header.extend_from_slice(&[0, 0]);
    let mut frames = frames.to_vec();
    let least = size.saturating_sub(header.len() + 2 + OVERHEAD);
    frames.resize(frames.len().max(least).max(4), 0);
    let length = (frames.len() + OVERHEAD) as u16 | 0x4000;
    header.extend_from_slice(&length.to_be_bytes());
    header.extend_from_slice(&number.to_be_bytes());
    Keys::derive(version, keys)?.seal(&header, 2, &frames)
}
