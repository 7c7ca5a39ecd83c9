//! A view of any message: header, question, records.

use super::{CLASS_IN, FLAG_RESPONSE, FLAG_TRUNCATED, HEADER, OPCODE, long, name::Name, word};

/// A message whose header is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) id: u16,
    pub(super) flags: u16,
    pub(super) questions: u16,
    pub(super) answers: u16,
    pub(super) authorities: u16,
    pub(super) additionals: u16,
}

/// The question of a message.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) name: Name,
    pub(super) kind: u16,
    pub(super) class: u16,
    /// Position behind it.
    pub(super) end: usize,
}

/// One record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    /// Where the owner's name begins.
    pub(super) owner: usize,
    pub(super) kind: u16,
    pub(super) class: u16,
    pub(super) ttl: u32,
    /// Where the data begins; names inside may point elsewhere.
    pub(super) at: usize,
    pub(super) data: &'a [u8],
}

impl<'a> Message<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Option<Self> {
        Some(Self {
            bytes,
            id: word(bytes, 0)?,
            flags: word(bytes, 2)?,
            questions: word(bytes, 4)?,
            answers: word(bytes, 6)?,
            authorities: word(bytes, 8)?,
            additionals: word(bytes, 10)?,
        })
    }

    pub(super) fn is_response(&self) -> bool {
        self.flags & FLAG_RESPONSE != 0
    }

    pub(super) fn is_truncated(&self) -> bool {
        self.flags & FLAG_TRUNCATED != 0
    }

    pub(super) fn opcode(&self) -> u16 {
        (self.flags & OPCODE) >> 11
    }

    pub(super) fn rcode(&self) -> u8 {
        (self.flags & 15) as u8
    }

    /// The one question; `None` when there are none or several, or it cannot be read. Nothing
    /// stands before it that it could point to, so its name is never compressed.
    pub(super) fn question(&self) -> Option<Question> {
        if self.questions != 1 {
            return None;
        }
        let (name, at) = Name::read_plain(self.bytes, HEADER)?;
        Some(Question {
            name,
            kind: word(self.bytes, at)?,
            class: word(self.bytes, at + 2)?,
            end: at + 4,
        })
    }

    /// The next `count` records from `start` on; `None` stands for one that cannot be read
    /// and is the last.
    pub(super) fn records(&self, start: usize, count: u16) -> Records<'a> {
        Records {
            bytes: self.bytes,
            at: Some(start),
            left: count,
        }
    }
}

/// Walks records.
#[derive(Clone, Debug)]
pub(super) struct Records<'a> {
    bytes: &'a [u8],
    at: Option<usize>,
    left: u16,
}

impl<'a> Records<'a> {
    fn record(&mut self) -> Option<Record<'a>> {
        let owner = self.at.take()?;
        let fixed = Name::skip(self.bytes, owner)?;
        let len = usize::from(word(self.bytes, fixed + 8)?);
        let at = fixed + 10;
        let data = self.bytes.get(at..at + len)?;
        self.at = Some(at + len);
        let ttl = long(self.bytes, fixed + 4)?;
        Some(Record {
            owner,
            kind: word(self.bytes, fixed)?,
            class: word(self.bytes, fixed + 2)?,
            // RFC 2181: the top bit means nothing sensible.
            ttl: if ttl >> 31 == 1 { 0 } else { ttl },
            at,
            data,
        })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Option<Record<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let record = self.record();
        if record.is_none() {
            self.left = 0;
        }
        Some(record)
    }
}

impl Record<'_> {
    pub(super) fn is_in(&self) -> bool {
        self.class == CLASS_IN
    }
}
