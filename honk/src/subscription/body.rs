//! An answer's bytes, unpacked while they arrive and never more than allowed of either kind.

use std::io::{self, Write};

use flate2::write::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use honk_policy::subscription::MAX_BODY;

use super::error::FetchError;

/// Collects one body.
pub(super) struct Collector {
    unpack: Unpack,
    /// Bytes as they came over the wire.
    received: usize,
}

enum Unpack {
    Plain(Capped),
    Gzip(Box<MultiGzDecoder<Capped>>),
    /// `deflate` means a zlib stream, but some servers send a bare one: the first byte tells.
    Deflate,
    Zlib(Box<ZlibDecoder<Capped>>),
    Raw(Box<DeflateDecoder<Capped>>),
}

impl Collector {
    /// For a `Content-Encoding`.
    pub(super) fn new(encoding: &str) -> Result<Self, FetchError> {
        let unpack = match encoding.trim().to_ascii_lowercase().as_str() {
            "" | "identity" => Unpack::Plain(Capped::default()),
            "gzip" | "x-gzip" => Unpack::Gzip(Box::new(MultiGzDecoder::new(Capped::default()))),
            "deflate" => Unpack::Deflate,
            _ => return Err(FetchError::Encoding),
        };
        Ok(Self {
            unpack,
            received: 0,
        })
    }

    pub(super) fn received(&self) -> usize {
        self.received
    }

    /// Takes a piece as it arrived.
    pub(super) fn push(&mut self, piece: &[u8]) -> Result<(), FetchError> {
        self.received = self.received.saturating_add(piece.len());
        if self.received > MAX_BODY {
            return Err(FetchError::TooLong);
        }
        if let (Unpack::Deflate, Some(first)) = (&self.unpack, piece.first()) {
            self.unpack = match first & 0x0f {
                8 => Unpack::Zlib(Box::new(ZlibDecoder::new(Capped::default()))),
                _ => Unpack::Raw(Box::new(DeflateDecoder::new(Capped::default()))),
            };
        }
        let written = match &mut self.unpack {
            Unpack::Plain(out) => out.write_all(piece),
            Unpack::Gzip(out) => out.write_all(piece),
            Unpack::Zlib(out) => out.write_all(piece),
            Unpack::Raw(out) => out.write_all(piece),
            Unpack::Deflate => Ok(()),
        };
        written.map_err(|e| unpacking(&e))
    }

    /// The whole body, if it is whole.
    pub(super) fn finish(self) -> Result<Vec<u8>, FetchError> {
        // An answer of length zero is no compressed stream either.
        if self.received == 0 {
            return Ok(Vec::new());
        }
        let out = match self.unpack {
            Unpack::Plain(out) => Ok(out),
            Unpack::Gzip(out) => out.finish(),
            Unpack::Zlib(out) => out.finish(),
            Unpack::Raw(out) => out.finish(),
            Unpack::Deflate => Ok(Capped::default()),
        };
        out.map(|out| out.0).map_err(|e| unpacking(&e))
    }
}

fn unpacking(e: &io::Error) -> FetchError {
    match e.kind() {
        io::ErrorKind::FileTooLarge => FetchError::TooLong,
        _ => FetchError::Damaged,
    }
}

/// Bytes up to [`MAX_BODY`].
#[derive(Default)]
struct Capped(Vec<u8>);

impl Write for Capped {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if self.0.len() + piece.len() > MAX_BODY {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use flate2::{
        Compression,
        write::{DeflateEncoder, GzEncoder, ZlibEncoder},
    };

    use super::*;

    fn unpacked(encoding: &str, bytes: &[u8]) -> Result<Vec<u8>, FetchError> {
        let mut collector = Collector::new(encoding)?;
        for piece in bytes.chunks(1000) {
            collector.push(piece)?;
        }
        collector.finish()
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut out = GzEncoder::new(Vec::new(), Compression::best());
        out.write_all(bytes).unwrap();
        out.finish().unwrap()
    }

    #[test]
    fn every_encoding_that_is_asked_for_and_zlib_of_both_kinds() {
        let text = b"ss://x ".repeat(5000);
        assert_eq!(unpacked("", &text).unwrap(), text);
        assert_eq!(unpacked("GZIP", &gzip(&text)).unwrap(), text);
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
        zlib.write_all(&text).unwrap();
        assert_eq!(unpacked("deflate", &zlib.finish().unwrap()).unwrap(), text);
        let mut raw = DeflateEncoder::new(Vec::new(), Compression::fast());
        raw.write_all(&text).unwrap();
        assert_eq!(unpacked("deflate", &raw.finish().unwrap()).unwrap(), text);
        assert!(unpacked("gzip", b"").unwrap().is_empty());
        assert!(matches!(unpacked("br", b"x"), Err(FetchError::Encoding)));
    }

    #[test]
    fn damage_and_cuts_are_found() {
        let mut packed = gzip(&b"ss://x ".repeat(5000));
        let cut = &packed[..packed.len() / 2];
        assert!(matches!(unpacked("gzip", cut), Err(FetchError::Damaged)));
        let half = packed.len() / 2;
        packed[half] ^= 0xff;
        assert!(matches!(
            unpacked("gzip", &packed),
            Err(FetchError::Damaged)
        ));
        assert!(matches!(
            unpacked("gzip", b"plain text"),
            Err(FetchError::Damaged)
        ));
    }

    #[test]
    fn a_bomb_stops_at_the_limit_and_a_long_body_too() {
        let bomb = gzip(&vec![0; 64 << 20]);
        assert!(bomb.len() < MAX_BODY / 100);
        assert!(matches!(unpacked("gzip", &bomb), Err(FetchError::TooLong)));
        assert!(unpacked("", &vec![b'x'; MAX_BODY]).is_ok());
        let long = vec![b'x'; MAX_BODY + 1];
        assert!(matches!(unpacked("", &long), Err(FetchError::TooLong)));
    }
}
