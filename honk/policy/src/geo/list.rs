//! The names of one geosite code, packed.
//!
//! A code can hold a hundred thousand names; as separate strings they would cost four times
//! their length. They stand in one text instead, each behind two characters that carry its
//! kind and length. Lists are shared by everything that uses the same code.

use std::fmt;

/// How a name of a list matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// As a substring.
    Keyword,
    /// As a regular expression.
    Regex,
    /// The name and everything below.
    Suffix,
    /// Exactly.
    Full,
}

/// Bytes before each name.
const HEAD: usize = 2;
/// Longest value: its length takes 12 of the 14 bits that two ASCII characters hold.
const LONGEST: usize = (1 << 12) - 1;

/// Names with their kinds, in file order.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SiteList {
    packed: Box<str>,
    len: usize,
}

impl SiteList {
    /// The names and how each matches.
    pub fn iter(&self) -> impl Iterator<Item = (Kind, &str)> {
        let mut rest = &*self.packed;
        std::iter::from_fn(move || {
            let (head, after) = rest.split_at_checked(HEAD)?;
            let (kind, len) = unpack(head.as_bytes())?;
            let (value, next) = after.split_at_checked(len)?;
            rest = next;
            Some((kind, value))
        })
    }

    /// Number of names.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl fmt::Debug for SiteList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SiteList({} names)", self.len)
    }
}

impl<T: AsRef<str>> FromIterator<(Kind, T)> for SiteList {
    /// Values that are too long to be a name or a pattern are left out.
    fn from_iter<I: IntoIterator<Item = (Kind, T)>>(names: I) -> Self {
        let mut packer = Packer::default();
        for (kind, value) in names {
            packer.push(kind, value.as_ref());
        }
        packer.finish()
    }
}

/// Builds a list.
#[derive(Debug, Default)]
pub(super) struct Packer {
    packed: String,
    len: usize,
}

impl Packer {
    /// Room for names of so many bytes in all.
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self {
            packed: String::with_capacity(bytes),
            len: 0,
        }
    }

    /// Adds a name; `false` when it is too long.
    pub(super) fn push(&mut self, kind: Kind, value: &str) -> bool {
        if value.len() > LONGEST {
            return false;
        }
        let bits = value.len() << 2 | kind as usize;
        self.packed.push(char::from((bits & 0x7f) as u8));
        self.packed.push(char::from((bits >> 7) as u8));
        self.packed.push_str(value);
        self.len += 1;
        true
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn finish(self) -> SiteList {
        SiteList {
            packed: self.packed.into_boxed_str(),
            len: self.len,
        }
    }
}

fn unpack(head: &[u8]) -> Option<(Kind, usize)> {
    let &[low, high] = head else { return None };
    let bits = usize::from(low) | usize::from(high) << 7;
    let kind = match bits & 3 {
        0 => Kind::Keyword,
        1 => Kind::Regex,
        2 => Kind::Suffix,
        _ => Kind::Full,
    };
    Some((kind, bits >> 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_out_again() {
        let long = "x".repeat(LONGEST);
        let names = [
            (Kind::Suffix, "a.b"),
            (Kind::Regex, "^ü[0-9]+$"),
            (Kind::Keyword, ""),
            (Kind::Full, &long),
            (Kind::Keyword, "ads"),
        ];
        let list: SiteList = names.into_iter().collect();
        assert_eq!(list.iter().collect::<Vec<_>>(), names);
        assert_eq!(list.len(), 5);
    }

    #[test]
    fn a_value_too_long_for_its_length_is_left_out() {
        let long = "x".repeat(LONGEST + 1);
        let list: SiteList = [(Kind::Full, &*long), (Kind::Full, "a")]
            .into_iter()
            .collect();
        assert_eq!(list.iter().collect::<Vec<_>>(), [(Kind::Full, "a")]);
        assert_eq!(list.len(), 1);
    }
}
