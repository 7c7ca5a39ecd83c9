//! Names in wire form.

use super::word;

/// Longest name, the root label included.
const MAX: usize = 255;
/// Jumps of a compressed name that are followed.
const MAX_JUMPS: usize = 128;

/// A name without compression, its letters lower-case.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Name {
    len: u8,
    bytes: [u8; MAX],
}

impl Name {
    /// Reads the name at `start`; also returns the position behind it. Pointers must lead
    /// strictly backwards.
    pub fn read(message: &[u8], start: usize) -> Option<(Self, usize)> {
        let mut name = Self {
            len: 0,
            bytes: [0; MAX],
        };
        let end = walk(message, start, true, |label| name.push(label))?;
        Some((name, end))
    }

    /// The same for a name that must not be compressed.
    pub(super) fn read_plain(message: &[u8], start: usize) -> Option<(Self, usize)> {
        let mut name = Self {
            len: 0,
            bytes: [0; MAX],
        };
        let end = walk(message, start, false, |label| name.push(label))?;
        Some((name, end))
    }

    /// The position behind a name, whose pointers are not followed.
    pub(super) fn skip(message: &[u8], start: usize) -> Option<usize> {
        let mut at = start;
        loop {
            let len = usize::from(*message.get(at)?);
            match len >> 6 {
                0 if len == 0 => return Some(at + 1),
                0 => at += 1 + len,
                3 => {
                    message.get(at + 1)?;
                    return Some(at + 2);
                }
                _ => return None,
            }
            if at - start > MAX {
                return None;
            }
        }
    }

    /// Wire form.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or(&[])
    }

    /// The labels, root not included.
    pub fn labels(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.as_bytes();
        std::iter::from_fn(move || {
            let (&len, after) = rest.split_first()?;
            let (label, after) = after.split_at_checked(usize::from(len))?;
            rest = after;
            (!label.is_empty()).then_some(label)
        })
    }

    /// The name as rules write it: ASCII, no trailing dot. Bytes that could be mistaken for
    /// something else are written as `\DDD`, so a dot inside a label separates nothing. The
    /// root is empty.
    pub fn text(&self) -> String {
        let mut text = String::with_capacity(usize::from(self.len));
        for label in self.labels() {
            if !text.is_empty() {
                text.push('.');
            }
            for &byte in label {
                if byte.is_ascii_graphic() && !matches!(byte, b'.' | b'\\' | b'"') {
                    text.push(char::from(byte));
                } else {
                    text.push('\\');
                    for digit in [byte / 100, byte / 10 % 10, byte % 10] {
                        text.push(char::from(b'0' + digit));
                    }
                }
            }
        }
        text
    }

    /// Appends a label with its length; false when the name gets too long.
    fn push(&mut self, label: &[u8]) -> bool {
        let at = usize::from(self.len);
        let Some(room) = self.bytes.get_mut(at..at + label.len()) else {
            return false;
        };
        room.copy_from_slice(label);
        room.make_ascii_lowercase();
        self.len += label.len() as u8;
        true
    }
}

/// Gives every label, the root included, with its length byte. Lengths are below 64 and so
/// no letters.
fn walk(
    message: &[u8],
    start: usize,
    compressed: bool,
    mut label: impl FnMut(&[u8]) -> bool,
) -> Option<usize> {
    let (mut at, mut after, mut jumps) = (start, None, 0);
    // Where the labels since the last jump began: the next one must lead before it.
    let mut run = start;
    loop {
        let len = usize::from(*message.get(at)?);
        match len >> 6 {
            0 => {
                let whole = message.get(at..at + 1 + len)?;
                if !label(whole) {
                    return None;
                }
                at += 1 + len;
                if len == 0 {
                    return Some(after.unwrap_or(at));
                }
            }
            3 if compressed => {
                let target = usize::from(word(message, at)? & 0x3fff);
                after.get_or_insert(at + 2);
                jumps += 1;
                if target >= run || jumps > MAX_JUMPS {
                    return None;
                }
                (at, run) = (target, target);
            }
            _ => return None,
        }
    }
}

impl std::fmt::Debug for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Name").field(&self.text()).finish()
    }
}
