//! The protobuf wire format, as far as geodata files use it.
//!
//! Walks the fields of one message over borrowed bytes. Every step takes at least one byte or
//! ends the walk, so the time is linear in the input whatever it holds.

/// The bytes are no protobuf message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Corrupt;

/// Content of a field. Fixed-width numbers occur in no field that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Fixed,
}

impl<'a> Value<'a> {
    /// The bytes of a text or message field; another type in its place is corruption.
    pub(super) fn bytes(self) -> Result<&'a [u8], Corrupt> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Number(_) | Self::Fixed => Err(Corrupt),
        }
    }

    pub(super) fn number(self) -> Result<u64, Corrupt> {
        match self {
            Self::Number(n) => Ok(n),
            Self::Bytes(_) | Self::Fixed => Err(Corrupt),
        }
    }
}

/// The fields of a message in the order they are written. Nothing follows an error.
#[derive(Clone, Debug)]
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn of(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    fn field(&mut self) -> Result<(u64, Value<'a>), Corrupt> {
        let key = self.varint()?;
        let number = key >> 3;
        if number == 0 || number > 0x1fff_ffff {
            return Err(Corrupt);
        }
        let value = match key & 7 {
            0 => Value::Number(self.varint()?),
            1 => self.take(8).map(|_| Value::Fixed)?,
            2 => {
                let len = usize::try_from(self.varint()?).map_err(|_| Corrupt)?;
                Value::Bytes(self.take(len)?)
            }
            5 => self.take(4).map(|_| Value::Fixed)?,
            // Groups left the format before these files existed.
            _ => return Err(Corrupt),
        };
        Ok((number, value))
    }

    fn varint(&mut self) -> Result<u64, Corrupt> {
        let mut n = 0u64;
        for (at, &byte) in self.rest.iter().take(10).enumerate() {
            let part = u64::from(byte & 0x7f);
            if at == 9 && part > 1 {
                return Err(Corrupt);
            }
            n |= part << (7 * at);
            if byte < 0x80 {
                self.rest = &self.rest[at + 1..];
                return Ok(n);
            }
        }
        Err(Corrupt)
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Corrupt> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(Corrupt)?;
        self.rest = rest;
        Ok(taken)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Value<'a>), Corrupt>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> Result<Vec<(u64, Value<'_>)>, Corrupt> {
        Fields::of(bytes).collect()
    }

    #[test]
    fn every_type_is_read_or_stepped_over() {
        let bytes = [
            0x08, 0x96, 0x01, // 1: 150
            0x12, 0x02, b'h', b'i', // 2: "hi"
            0x19, 0, 0, 0, 0, 0, 0, 0, 0, // 3: fixed64
            0x25, 0, 0, 0, 0, // 4: fixed32
        ];
        let want = vec![
            (1, Value::Number(150)),
            (2, Value::Bytes(b"hi")),
            (3, Value::Fixed),
            (4, Value::Fixed),
        ];
        assert_eq!(all(&bytes), Ok(want));
        assert_eq!(all(&[]), Ok(vec![]));
    }

    #[test]
    fn what_is_cut_or_no_protobuf_is_corrupt() {
        for bytes in [
            &[0x08][..],                                             // no value
            &[0x08, 0x80],                                           // number cut
            &[0x12, 0x03, b'h', b'i'],                               // text cut
            &[0x19, 0, 0],                                           // fixed64 cut
            &[0x25, 0, 0],                                           // fixed32 cut
            &[0x00, 0x00],                                           // field 0
            &[0x0b],                                                 // group
            b"<html>",                                               // a web page
            &[0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2], // over 64 bits
            &[0x12, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1], // longer than all
            &[
                0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x0,
            ], // endless key
        ] {
            assert_eq!(all(bytes), Err(Corrupt), "{bytes:?}");
        }
    }

    #[test]
    fn an_error_ends_the_walk() {
        let mut fields = Fields::of(&[0x0b, 0x08, 0x01]);
        assert_eq!(fields.next(), Some(Err(Corrupt)));
        assert_eq!(fields.next(), None);
    }
}
