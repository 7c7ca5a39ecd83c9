//! `geosite.dat` and `geoip.dat`: entries by code, and what stands in one.
//!
//! A file is a list of entries, each a code with names or prefixes. Only the entries that are
//! asked for are looked into; the others cost the reading of their length. Files come from
//! strangers: whatever the bytes, the answer is data or [`Corrupt`].

use std::borrow::Cow;

use super::{
    list::{Kind, Packer, SiteList},
    wire::{Corrupt, Fields, Value},
};
use crate::{name::to_ascii, routing::rule::Prefix};

/// Fields of an entry, the same numbers in both kinds of file.
mod field {
    pub(super) const ENTRY: u64 = 1;
    pub(super) const CODE: u64 = 1;
    /// A name or a prefix.
    pub(super) const ITEM: u64 = 2;
    pub(super) const INVERSE: u64 = 3;
}

/// One entry of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'a> {
    pub(super) code: &'a str,
    body: &'a [u8],
}

/// The entries of a file in order; entries without a code have the empty one.
pub(super) fn entries(file: &[u8]) -> impl Iterator<Item = Result<Entry<'_>, Corrupt>> {
    Fields::of(file).filter_map(|field| match field {
        Ok((field::ENTRY, value)) => Some(value.bytes().and_then(entry)),
        Ok(_) => None,
        Err(corrupt) => Some(Err(corrupt)),
    })
}

fn entry(body: &[u8]) -> Result<Entry<'_>, Corrupt> {
    // The code comes first, so this looks no further than its field.
    for field in Fields::of(body) {
        if let (field::CODE, value) = field? {
            let code = std::str::from_utf8(value.bytes()?).map_err(|_| Corrupt)?;
            return Ok(Entry { code, body });
        }
    }
    Ok(Entry { code: "", body })
}

/// The names of a code.
#[derive(Debug, Default)]
pub(super) struct Sites {
    packer: Packer,
    /// Values that are neither a name nor a pattern.
    pub(super) unusable: usize,
}

impl Sites {
    /// Adds the names of an entry, with `attr` only those that carry the attribute.
    pub(super) fn add(&mut self, entry: Entry<'_>, attr: Option<&str>) -> Result<(), Corrupt> {
        if self.packer.is_empty() && attr.is_none() {
            // Type and tags take what kind and length do in the list.
            self.packer = Packer::with_capacity(entry.body.len());
        }
        for field in Fields::of(entry.body) {
            let (field::ITEM, value) = field? else {
                continue;
            };
            let site = Site::read(value.bytes()?)?;
            if attr.is_some_and(|attr| !site.has(attr)) {
                continue;
            }
            let kept = site
                .named()
                .is_some_and(|(kind, value)| self.packer.push(kind, &value));
            self.unusable += usize::from(!kept);
        }
        Ok(())
    }

    pub(super) fn finish(self) -> SiteList {
        self.packer.finish()
    }
}

/// One name as it stands in the file.
struct Site<'a> {
    kind: u64,
    value: &'a [u8],
    message: &'a [u8],
}

impl<'a> Site<'a> {
    const TYPE: u64 = 1;
    const VALUE: u64 = 2;
    const ATTRIBUTE: u64 = 3;

    fn read(message: &'a [u8]) -> Result<Self, Corrupt> {
        let mut site = Self {
            kind: 0,
            value: &[],
            message,
        };
        for field in Fields::of(message) {
            match field? {
                (Self::TYPE, value) => site.kind = value.number()?,
                (Self::VALUE, value) => site.value = value.bytes()?,
                _ => {}
            }
        }
        Ok(site)
    }

    /// Whether it carries the attribute, whatever the attribute's value. The message has been
    /// walked already.
    fn has(&self, attr: &str) -> bool {
        let attributes = Fields::of(self.message).flatten();
        let keys = attributes
            .filter(|(number, _)| *number == Self::ATTRIBUTE)
            .filter_map(|(_, value)| Fields::of(value.bytes().ok()?).flatten().next());
        keys.into_iter().any(|(number, key)| {
            number == 1
                && matches!(key, Value::Bytes(key) if key.eq_ignore_ascii_case(attr.as_bytes()))
        })
    }

    /// Kind and text as the matcher wants them.
    fn named(&self) -> Option<(Kind, Cow<'a, str>)> {
        let text = std::str::from_utf8(self.value)
            .ok()
            .filter(|t| !t.is_empty())?;
        match self.kind {
            0 => Some((Kind::Keyword, lower(text))),
            1 => Some((Kind::Regex, text.into())),
            2 => Some((Kind::Suffix, ascii(text)?)),
            3 => Some((Kind::Full, ascii(text)?)),
            _ => None,
        }
    }
}

fn lower(text: &str) -> Cow<'_, str> {
    if text.chars().any(char::is_uppercase) {
        return text.to_lowercase().into();
    }
    text.into()
}

/// Nearly all names are in their final form.
fn ascii(text: &str) -> Option<Cow<'_, str>> {
    let plain = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_');
    let edge = |b: Option<&u8>| b == Some(&b'.');
    let bytes = text.as_bytes();
    if edge(bytes.first()) {
        return None;
    }
    if bytes.len() <= 253 && bytes.iter().all(|b| plain(*b)) && !edge(bytes.last()) {
        return Some(text.into());
    }
    to_ascii(text)
        .filter(|name| !name.is_empty())
        .map(Cow::Owned)
}

/// Adds the prefixes of an entry. `Ok(false)`: the entry means everything else.
pub(super) fn prefixes(entry: Entry<'_>, out: &mut Vec<Prefix>) -> Result<bool, Corrupt> {
    let mut inverse = false;
    for field in Fields::of(entry.body) {
        match field? {
            (field::ITEM, value) => out.push(prefix(value.bytes()?)?),
            (field::INVERSE, value) => inverse = value.number()? != 0,
            _ => {}
        }
    }
    Ok(!inverse)
}

fn prefix(message: &[u8]) -> Result<Prefix, Corrupt> {
    let (mut ip, mut len) = (&[][..], 0);
    for field in Fields::of(message) {
        match field? {
            (1, value) => ip = value.bytes()?,
            (2, value) => len = value.number()?,
            _ => {}
        }
    }
    let (addr, base) = match *ip {
        [a, b, c, d] => ([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d], 96),
        _ => (<[u8; 16]>::try_from(ip).map_err(|_| Corrupt)?, 0),
    };
    let len = u8::try_from(len).ok().filter(|len| *len <= 128 - base);
    let len = len.ok_or(Corrupt)? + base;
    let hosts = u128::MAX.checked_shr(len.into()).unwrap_or(0);
    Ok(Prefix {
        addr: (u128::from_be_bytes(addr) & !hosts).to_be_bytes(),
        len,
    })
}
