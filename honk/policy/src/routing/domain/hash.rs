//! A hash of names that grows label by label from the right.
//!
//! One walk over a name gives the hash of the name and of every parent: 128 bits in two parts.
//! The constants are arbitrary odd numbers and part of no file.

const BODY: [u64; 2] = [0x9e6c_63d0_676a_9a99, 0xd36f_f5b7_0e4d_1c2f];
const TAIL: [u64; 2] = [0xa24b_aed4_963e_e407, 0x8cb9_2ba7_2f3d_8dd7];
const LAST: [u64; 2] = [0xc2b2_ae3d_27d4_eb4f, 0x9fb2_1c65_1e98_df25];

/// Hash of the labels so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct NameHash {
    a: u64,
    b: u64,
}

/// A finished hash: where to look, and what confirms that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) place: u64,
    pub(super) check: u64,
}

impl NameHash {
    pub(super) const EMPTY: Self = Self {
        a: 0x2545_f491_4f6c_dd1d,
        b: 0x6a09_e667_f3bc_c909,
    };

    /// Takes in the next label to the left.
    pub(super) fn label(&mut self, label: &[u8]) {
        let (words, tail) = label.as_chunks::<8>();
        for word in words {
            self.word(u64::from_le_bytes(*word), BODY);
        }
        // The length keeps `ab` apart from `ab\0`, other constants the end from a middle.
        self.word(short(tail) | (tail.len() as u64) << 56, TAIL);
    }

    fn word(&mut self, word: u64, by: [u64; 2]) {
        self.a = fold(self.a ^ word, by[0]);
        self.b = fold(self.b.rotate_left(29) ^ word.rotate_left(32), by[1]);
    }

    /// The key of the labels so far.
    pub(super) fn key(self) -> Key {
        Key {
            place: self.place(),
            check: self.check(),
        }
    }

    /// The first part of the key, enough to know most strangers.
    pub(super) fn place(self) -> u64 {
        fold(self.a ^ self.b.rotate_left(17), LAST[0])
    }

    fn check(self) -> u64 {
        fold(self.b ^ self.a.rotate_left(41), LAST[1])
    }

    /// The key of a whole name and its number of labels.
    pub(super) fn of(name: &str) -> (Key, usize) {
        let mut hash = Self::EMPTY;
        let mut labels = 0;
        for label in name.as_bytes().rsplit(|b| *b == b'.') {
            hash.label(label);
            labels += 1;
        }
        (hash.key(), labels)
    }
}

fn fold(x: u64, by: u64) -> u64 {
    let product = u128::from(x) * u128::from(by);
    product as u64 ^ (product >> 64) as u64
}

/// Up to seven bytes as a number; different for different bytes of one length.
fn short(bytes: &[u8]) -> u64 {
    if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let low = u32::from_le_bytes(*first);
        let high = u32::from_le_bytes(*last);
        return u64::from(low) | u64::from(high) << (8 * (bytes.len() - 4));
    }
    let byte = |at: usize| u64::from(bytes.get(at).copied().unwrap_or(0));
    byte(0) | byte(1) << 8 | byte(2) << 16
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn short_texts_are_their_bytes() {
        for len in 0..8 {
            let bytes: Vec<u8> = (1..=len).collect();
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(&bytes);
            assert_eq!(short(&bytes), u64::from_le_bytes(whole));
        }
    }

    #[test]
    fn names_that_share_their_bytes_have_other_keys() {
        let names = [
            "",
            ".",
            "a",
            "a.",
            ".a",
            "ab",
            "a.b",
            "b.a",
            "a..b",
            "ab.",
            "a.b.",
            "abcdefgh",
            "abcdefgh.",
            "abcdefg.h",
            "abcdefghi",
            "a\0",
            "a\0\0",
            "abcdefg\u{1}",
            "h.abcdefg",
        ];
        let keys: HashSet<_> = names.iter().map(|n| NameHash::of(n).0.place).collect();
        let checks: HashSet<_> = names.iter().map(|n| NameHash::of(n).0.check).collect();
        assert_eq!((keys.len(), checks.len()), (names.len(), names.len()));
    }

    /// Both parts alone are as good as chance: each bit is set in half of the keys, and a
    /// hundred thousand near names meet in 32 bits about as often as they should (1.2 times).
    #[test]
    fn keys_of_near_names_look_random() {
        let keys: Vec<Key> = (0..100_000)
            .map(|n| NameHash::of(&format!("d{n}.example")).0)
            .collect();
        let parts: [fn(&Key) -> u64; 2] = [|k| k.place, |k| k.check];
        for part in parts {
            for bit in 0..64 {
                let ones = keys.iter().filter(|k| part(k) >> bit & 1 == 1).count();
                assert!((49_000..51_000).contains(&ones), "{bit}: {ones}");
            }
            for half in [0, 32] {
                let halves = keys.iter().map(|k| (part(k) >> half) as u32);
                assert!(halves.collect::<HashSet<_>>().len() > keys.len() - 12);
            }
        }
    }
}
