//! Encodings of the bit-vector classifier.
//!
//! One bit per rule line. Each used dimension maps a packet's value to a class, each class to
//! a bitmap of the lines it satisfies; the AND of the bitmaps holds the matching lines, and
//! the lowest set bit is the first of them.

use crate::{
    abi,
    limits::{NEAR_CHUNKS, NEAR_HALVES, RULE_WORDS, USUAL_ROWS},
};

/// A set of rule lines: bit `r % 64` of word `r / 64`.
pub type RuleBits = [u64; RULE_WORDS];

/// Class 0 satisfies every line.
pub const CLASS_ALL: u16 = 0;

/// Bits of `RouteMeta::dims`: which dimensions some rule uses.
pub const DIM_DEST: u16 = 1 << 0;
pub const DIM_SRC: u16 = 1 << 1;
pub const DIM_DPORT: u16 = 1 << 2;
pub const DIM_SPORT: u16 = 1 << 3;
pub const DIM_PROTO: u16 = 1 << 4;
pub const DIM_MAC: u16 = 1 << 5;
pub const DIM_DSCP: u16 = 1 << 6;
pub const DIM_PNAME: u16 = 1 << 7;
pub const DIM_DOMAIN: u16 = 1 << 8;

/// Which dimensions of a packet have their usual class: in no listed network, port or set. The
/// protocol has no usual class and is part of the row.
pub const USUAL_DEST: u32 = 1 << 0;
pub const USUAL_SRC: u32 = 1 << 1;
pub const USUAL_DPORT: u32 = 1 << 2;
pub const USUAL_SPORT: u32 = 1 << 3;
pub const USUAL_MAC: u32 = 1 << 4;
pub const USUAL_DSCP: u32 = 1 << 5;
pub const USUAL_PNAME: u32 = 1 << 6;
/// The names of the destination are not known.
pub const USUAL_DOMAIN: u32 = 1 << 7;
pub const USUAL_ALL: u32 = 0xff;

/// First element of a protocol in `USUAL_BITS`; the `USUAL_*` bits count on from there.
pub const fn usual_row(bank: u32, udp: bool, v6: bool) -> u32 {
    bank * USUAL_ROWS + (((udp as u32) << 1 | v6 as u32) << 8)
}

/// `PORT_CLASS` directions.
pub const DIR_DPORT: u32 = 0;
pub const DIR_SPORT: u32 = 1;

/// Per-bank constants of one rule set. Class fields index `CLASS_BITS`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteMeta {
    pub generation: u32,
    /// Number of lines, the fallback included.
    pub rules: u16,
    /// `DIM_*` bits.
    pub dims: u16,
    /// tcp4, tcp6, udp4, udp6.
    pub proto_class: [u16; 4],
    pub domain_unknown_class: u16,
    pub pname_unknown_class: u16,
    pub mac_default: u16,
    pub pad0: u16,
    /// Destination outside every listed prefix.
    pub dest_default: u16,
    pub src_default: u16,
    pub all_class: u16,
    pub pad1: u16,
    /// Lines that end the evaluation (all but `must_rules`).
    pub final_mask_class: u16,
    /// Lines whose outbound is `must_rules`.
    pub must_rules_class: u16,
    /// Lines that have a domain condition.
    pub domain_rules_class: u16,
    /// Ports and DSCP in no set.
    pub dport_default: u16,
    pub sport_default: u16,
    pub dscp_default: u16,
    pub pad2: [u8; 20],
}
abi!(RouteMeta, 64);

/// A word of a near table: 0 for an address in no network, else its class plus one, unless one
/// of these bits says otherwise.
pub const NEAR_DEEP: u32 = 1 << 31;
/// The low bits number the chunk that has a word for each third byte.
pub const NEAR_CHUNK: u32 = 1 << 30;

/// An element of a near table: word `n` is in element `n / 2`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NearWords(pub [u32; 2]);
abi!(NearWords, 8);

/// Word of a chunk.
pub const fn near_word(chunk: u32, third: u8) -> u32 {
    NEAR_HALVES + (chunk % NEAR_CHUNKS) * 256 + third as u32
}

/// `RuleAct` flags.
pub const ACT_MUST: u8 = 1;
pub const ACT_MUST_RULES: u8 = 2;
pub const ACT_FALLBACK: u8 = 4;

/// What a matched line says.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleAct {
    pub ordinal: u8,
    /// `ACT_*` bits.
    pub flags: u8,
    /// Index of the line.
    pub rule: u16,
    pub mark: u32,
    /// Line number in the configuration source.
    pub source_line: u32,
    pub pad: u32,
}
abi!(RuleAct, 16);

/// Classes of four neighbouring ports.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortClasses(pub [u16; 4]);
abi!(PortClasses, 8);

/// Classes of the 64 DSCP values.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DscpClasses(pub [u16; 64]);
abi!(DscpClasses, 128);

/// One bitmap as a map value.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassBits(pub RuleBits);
abi!(ClassBits, 128);

/// `DOMAIN`: what the names of one address say about the rule lines.
///
/// Bits belong to one generation; a bank holds those of the rules beside it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DomainVal {
    /// Lines whose name conditions hold when any owner's match counts.
    pub bits: RuleBits,
    /// Lines on which the owners of the address disagree.
    pub amb: RuleBits,
    /// How many names the address has.
    pub owners: u32,
    pub pad: u32,
}
abi!(DomainVal, 264);

/// Key of `MAC_CLASS`: bank above, the address below.
pub const fn mac_key(bank: u32, mac: [u8; 6]) -> u64 {
    let m = (mac[0] as u64) << 40
        | (mac[1] as u64) << 32
        | (mac[2] as u64) << 24
        | (mac[3] as u64) << 16
        | (mac[4] as u64) << 8
        | mac[5] as u64;
    (bank as u64) << 48 | m
}

/// Key of `PNAME_CLASS`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PnameKey {
    /// NUL-padded.
    pub name: [u8; 16],
    pub bank: u32,
}
abi!(PnameKey, 20);

/// Bank of a generation.
pub const fn bank(generation: u32) -> u32 {
    generation & 1
}
