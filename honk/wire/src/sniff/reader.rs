//! Reading big-endian fields from the front of a slice.

/// What is left to read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(front)
    }

    /// An unsigned number of `n` bytes, at most 4.
    pub(super) fn uint(&mut self, n: usize) -> Option<usize> {
        let bytes = self.take(n)?;
        Some(bytes.iter().fold(0, |sum, &b| sum << 8 | usize::from(b)))
    }

    /// A vector with a length of `n` bytes before it.
    pub(super) fn vector(&mut self, n: usize) -> Option<&'a [u8]> {
        let len = self.uint(n)?;
        self.take(len)
    }

    /// A QUIC number of variable length (RFC 9000 section 16).
    pub(super) fn varint(&mut self) -> Option<u64> {
        let first = *self.0.first()?;
        let bytes = self.take(1 << (first >> 6))?;
        let value = bytes.iter().fold(0, |sum, &b| sum << 8 | u64::from(b));
        Some(value & (u64::MAX >> (66 - 8 * bytes.len())))
    }
}
