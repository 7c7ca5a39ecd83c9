//! The CRYPTO stream of Initial packets: frames in any order, put together.

use super::super::reader::Reader;

/// Bytes of the stream that are kept: more than the packets that are opened can carry, unless
/// the frames of a link with jumbo frames are full to the brim.
pub(super) const MAX_CRYPTO: usize = 16 << 10;
/// Gaps a sender may leave at once. Browsers shuffle a dozen pieces.
const MAX_PIECES: usize = 64;

/// The stream as far as it is known.
#[derive(Debug, Default)]
pub(super) struct Crypto {
    bytes: Vec<u8>,
    /// Known parts, in order, never touching.
    known: Vec<(usize, usize)>,
}

/// The frames make no sense, or more of the stream than fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bad;

impl Crypto {
    /// The part that has no gap before it.
    pub(super) fn beginning(&self) -> &[u8] {
        match self.known.first() {
            Some(&(0, end)) => &self.bytes[..end],
            _ => &[],
        }
    }

    /// Takes the frames of a packet.
    pub(super) fn take(&mut self, frames: &[u8]) -> Result<(), Bad> {
        let mut rest = Reader(frames);
        while !rest.is_empty() {
            self.frame(&mut rest).ok_or(Bad)??;
        }
        Ok(())
    }

    /// One frame of those an Initial packet may carry; `None` when it is cut short.
    fn frame(&mut self, rest: &mut Reader<'_>) -> Option<Result<(), Bad>> {
        match rest.varint()? {
            // PADDING, PING
            0 | 1 => {}
            // ACK, with counts of congestion marks at 3
            kind @ (2 | 3) => {
                let (_largest, _delay) = (rest.varint()?, rest.varint()?);
                let ranges = rest.varint()?;
                let _first = rest.varint()?;
                let marks = if kind == 3 { 3 } else { 0 };
                for _ in 0..ranges.checked_mul(2)?.checked_add(marks)? {
                    rest.varint()?;
                }
            }
            6 => {
                let offset = usize::try_from(rest.varint()?).ok()?;
                let len = usize::try_from(rest.varint()?).ok()?;
                let data = rest.take(len)?;
                return Some(self.put(offset, data));
            }
            // CONNECTION_CLOSE
            0x1c => {
                let (_code, _kind) = (rest.varint()?, rest.varint()?);
                let reason = usize::try_from(rest.varint()?).ok()?;
                rest.take(reason)?;
            }
            _ => return Some(Err(Bad)),
        }
        Some(Ok(()))
    }

    /// Stores a piece. What came first stays, as it would at the server.
    fn put(&mut self, offset: usize, data: &[u8]) -> Result<(), Bad> {
        let end = offset.checked_add(data.len()).ok_or(Bad)?;
        if end > MAX_CRYPTO {
            return Err(Bad);
        }
        if data.is_empty() {
            return Ok(());
        }
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        let mut at = offset;
        for &(from, to) in self.known.iter().filter(|k| k.1 > offset && k.0 < end) {
            if from > at {
                self.bytes[at..from].copy_from_slice(&data[at - offset..from - offset]);
            }
            at = at.max(to);
        }
        if at < end {
            self.bytes[at..end].copy_from_slice(&data[at - offset..]);
        }
        let (mut from, mut to) = (offset, end);
        self.known.retain(|&(f, t)| {
            let apart = t < from || f > to;
            if !apart {
                (from, to) = (from.min(f), to.max(t));
            }
            apart
        });
        if self.known.len() >= MAX_PIECES {
            return Err(Bad);
        }
        let place = self.known.partition_point(|k| k.0 < from);
        self.known.insert(place, (from, to));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_in_any_order_make_the_whole() {
        let mut crypto = Crypto::default();
        crypto.put(6, b"name").unwrap();
        assert_eq!(crypto.beginning(), b"");
        crypto.put(0, b"a ").unwrap();
        crypto.put(1, b" host").unwrap();
        assert_eq!(crypto.beginning(), b"a hostname");
    }

    #[test]
    fn what_came_first_stays() {
        let mut crypto = Crypto::default();
        crypto.put(2, b"cd").unwrap();
        crypto.put(6, b"gh").unwrap();
        crypto.put(0, b"..........").unwrap();
        assert_eq!(crypto.beginning(), b"..cd..gh..");
    }

    #[test]
    fn the_limits_are_reached() {
        let mut crypto = Crypto::default();
        assert_eq!(crypto.put(MAX_CRYPTO, b"x"), Err(Bad));
        assert_eq!(crypto.put(usize::MAX, b"x"), Err(Bad));
        crypto.put(MAX_CRYPTO - 1, b"x").unwrap();
        for n in 1..MAX_PIECES {
            crypto.put(n * 3, b"x").unwrap();
        }
        assert_eq!(crypto.put(1, b"x"), Err(Bad));
    }

    proptest::proptest! {
        #[test]
        fn the_stream_is_what_was_sent(
            text in proptest::collection::vec(proptest::num::u8::ANY, 1..300),
            cuts in proptest::collection::vec((0_usize..300, 1_usize..40), 0..60),
        ) {
            let mut crypto = Crypto::default();
            let mut seen = vec![false; text.len()];
            for (at, len) in cuts {
                let (at, end) = (at.min(text.len()), (at + len).min(text.len()));
                crypto.put(at, &text[at..end]).unwrap();
                seen[at..end].fill(true);
                let whole = seen.iter().take_while(|s| **s).count();
                assert_eq!(crypto.beginning(), &text[..whole]);
            }
        }

        #[test]
        fn arbitrary_frames_never_panic(frames: Vec<u8>) {
            let _ = Crypto::default().take(&frames);
        }
    }
}
