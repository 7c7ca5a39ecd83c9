//! Long headers (RFC 9000 section 17.2, RFC 9369 section 3.2).

use super::super::reader::Reader;

/// Longest connection id.
const MAX_ID: usize = 20;

/// Versions whose Initial packets can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// RFC 9000.
    V1,
    /// RFC 9369.
    V2,
}

impl Version {
    fn of(number: usize) -> Option<Self> {
        match number {
            1 => Some(Self::V1),
            0x6b33_43cf => Some(Self::V2),
            _ => None,
        }
    }

    fn kind(self, first: u8) -> Kind {
        let bits = first >> 4 & 3;
        // Version 2 counts the same types from another start.
        let bits = match self {
            Self::V1 => bits,
            Self::V2 => bits.wrapping_sub(1) & 3,
        };
        match bits {
            0 => Kind::Initial,
            3 => Kind::Retry,
            _ => Kind::Other,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Initial,
    /// Has no length and comes from servers only.
    Retry,
    Other,
}

/// A protected Initial packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Initial<'a> {
    pub(super) version: Version,
    pub(super) dcid: &'a [u8],
    /// The whole packet.
    pub(super) bytes: &'a [u8],
    /// Where the packet number begins.
    pub(super) number_at: usize,
}

/// The packets of a datagram, as far as they have long headers of a known version.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packets<'a>(pub(super) &'a [u8]);

impl<'a> Packets<'a> {
    /// `Some(None)` for a packet that is not an Initial.
    fn one(&mut self) -> Option<Option<Initial<'a>>> {
        let mut rest = Reader(self.0);
        let first = rest.uint(1)? as u8;
        // Long header, fixed bit.
        if first & 0xc0 != 0xc0 {
            return None;
        }
        let version = Version::of(rest.uint(4)?)?;
        let dcid = rest.vector(1).filter(|id| id.len() <= MAX_ID)?;
        rest.vector(1).filter(|id| id.len() <= MAX_ID)?;
        let kind = version.kind(first);
        match kind {
            Kind::Retry => return None,
            Kind::Initial => {
                let token = usize::try_from(rest.varint()?).ok()?;
                rest.take(token)?;
            }
            Kind::Other => {}
        }
        let length = usize::try_from(rest.varint()?).ok()?;
        let number_at = self.0.len() - rest.0.len();
        rest.take(length)?;
        let (bytes, behind) = self.0.split_at(number_at + length);
        self.0 = behind;
        Some((kind == Kind::Initial).then_some(Initial {
            version,
            dcid,
            bytes,
            number_at,
        }))
    }
}

impl<'a> Iterator for Packets<'a> {
    type Item = Initial<'a>;

    fn next(&mut self) -> Option<Initial<'a>> {
        loop {
            if let Some(initial) = self.one()? {
                return Some(initial);
            }
        }
    }
}
