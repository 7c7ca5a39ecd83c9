//! Offsets of kernel structure members, from the type information the kernel publishes.
//!
//! Only what the process hooks need: members of named structures, through anonymous ones.

use std::collections::HashMap;

const MAGIC: u16 = 0xeb9f;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
/// Anonymous structures inside each other.
const DEPTH: usize = 8;

/// Parsed type information.
#[derive(Debug)]
pub(super) struct Btf<'a> {
    bytes: &'a [u8],
    strings: &'a [u8],
    /// Where each type begins; number 1 comes first.
    types: Vec<usize>,
    structs: HashMap<&'a [u8], usize>,
}

impl<'a> Btf<'a> {
    /// `None` when the bytes are no type information this reader understands.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        if u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?) != MAGIC {
            return None;
        }
        let header = word(bytes, 4)? as usize;
        let at = |field| header.checked_add(word(bytes, field)? as usize);
        let (types_at, strings_at) = (at(8)?, at(16)?);
        let types_end = types_at.checked_add(word(bytes, 12)? as usize)?;
        let strings_end = strings_at.checked_add(word(bytes, 20)? as usize)?;
        let mut btf = Self {
            bytes: bytes.get(..types_end)?,
            strings: bytes.get(strings_at..strings_end)?,
            types: Vec::new(),
            structs: HashMap::new(),
        };
        let mut position = types_at;
        while position < types_end {
            let (kind, members) = btf.shape(position)?;
            if kind == KIND_STRUCT {
                let name = btf.text(word(bytes, position)?)?;
                btf.structs.entry(name).or_insert(position);
            }
            btf.types.push(position);
            position = position.checked_add(12 + extra(kind, members)?)?;
        }
        Some(btf)
    }

    /// Offset in bytes of a member, which may stand in an anonymous member.
    pub(super) fn offset(&self, structure: &str, member: &str) -> Option<u32> {
        let position = *self.structs.get(structure.as_bytes())?;
        let bits = self.find(position, member.as_bytes(), DEPTH)?;
        (bits % 8 == 0).then_some(bits / 8)
    }

    fn find(&self, position: usize, member: &[u8], depth: usize) -> Option<u32> {
        let (kind, count) = self.shape(position)?;
        if depth == 0 || (kind != KIND_STRUCT && kind != KIND_UNION) {
            return None;
        }
        let bitfields = word(self.bytes, position + 4)? >> 31 == 1;
        (0..count as usize).find_map(|n| {
            let at = position + 12 + n * 12;
            let bits = word(self.bytes, at + 8)?;
            let bits = if bitfields { bits & 0x00ff_ffff } else { bits };
            let name = self.text(word(self.bytes, at)?)?;
            if name == member {
                return Some(bits);
            }
            if !name.is_empty() {
                return None;
            }
            let number = word(self.bytes, at + 4)?.checked_sub(1)?;
            let inner = self.find(*self.types.get(number as usize)?, member, depth - 1)?;
            bits.checked_add(inner)
        })
    }

    /// Kind and number of members.
    fn shape(&self, position: usize) -> Option<(u32, u32)> {
        let info = word(self.bytes, position + 4)?;
        Some((info >> 24 & 0x1f, info & 0xffff))
    }

    fn text(&self, offset: u32) -> Option<&'a [u8]> {
        let rest = self.strings.get(offset as usize..)?;
        rest.split(|b| *b == 0).next()
    }
}

/// Bytes that follow the common part of a type.
fn extra(kind: u32, members: u32) -> Option<usize> {
    let members = members as usize;
    Some(match kind {
        // int, variable, declaration tag
        1 | 14 | 17 => 4,
        3 => 12,
        // structure, union, section, 64-bit enumeration
        KIND_STRUCT | KIND_UNION | 15 | 19 => members * 12,
        // enumeration, function prototype
        6 | 13 => members * 8,
        // pointer, forward, typedef, qualifiers, function, float, type tag
        2 | 7..=12 | 16 | 18 => 0,
        _ => return None,
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(four.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `struct s { int a; struct { int b; union { int c; }; }; }`, offsets 0, 4, 8.
    fn sample() -> Vec<u8> {
        let strings = b"\0s\0a\0b\0c\0";
        let types: &[u32] = &[
            0,
            1 << 24,
            4,
            32, // 1: int
            0,
            5 << 24 | 1,
            4,
            7,
            1,
            0, // 2: union { c }
            0,
            4 << 24 | 2,
            8,
            5,
            1,
            0,
            0,
            2,
            32, // 3: struct { b; union }
            1,
            4 << 24 | 2,
            12,
            3,
            1,
            0,
            0,
            3,
            32, // 4: struct s
        ];
        let length = types.len() as u32 * 4;
        let mut bytes = Vec::new();
        bytes.extend(MAGIC.to_ne_bytes());
        bytes.extend([1, 0]);
        for w in [24, 0, length, length, strings.len() as u32] {
            bytes.extend(u32::to_ne_bytes(w));
        }
        types.iter().for_each(|w| bytes.extend(w.to_ne_bytes()));
        bytes.extend(strings);
        bytes
    }

    #[test]
    fn members_are_found_through_anonymous_ones() {
        let bytes = sample();
        let btf = Btf::parse(&bytes).unwrap();
        for (member, offset) in [("a", Some(0)), ("b", Some(4)), ("c", Some(8)), ("d", None)] {
            assert_eq!(btf.offset("s", member), offset, "{member}");
        }
        assert_eq!(btf.offset("t", "a"), None);
    }

    #[test]
    fn damaged_information_is_refused_or_lacks_members() {
        let bytes = sample();
        for end in 0..bytes.len() {
            assert!(Btf::parse(&bytes[..end]).is_none(), "{end}");
        }
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 0xff;
            if let Some(btf) = Btf::parse(&bad) {
                let _ = (btf.offset("s", "c"), btf.offset("s", "a"));
            }
        }
    }
}
