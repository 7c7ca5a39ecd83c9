//! The bit-vector classifier: which rule line decides a new flow.
//!
//! Each used dimension turns the packet into a class, each class into a bitmap of lines. The
//! lowest bit of the AND is the first matching line. Most packets are ordinary in most
//! dimensions (in no listed network, from no listed port), so the AND of the bitmaps of the usual
//! classes stands ready for every set of dimensions; a packet adds the few in which it is not
//! usual. With one bitmap per dimension, a thousand lines cost a quarter more than ten. The bitmaps of the domain
//! dimension stand in the entry of the destination address. Only local packets have a process
//! name, only LAN packets a MAC.

use aya_ebpf::btf_maps::{ArrayOfMaps, lpm_trie::Key};
use honk_common::{
    key::PROTO_UDP,
    limits::{MAX_CLASSES, MAX_RULES, PORT_ELEMS, RULE_WORDS},
    outbound::CONTROL,
    route::{
        ACT_MUST, DIM_DEST, DIM_DOMAIN, DIM_DPORT, DIM_DSCP, DIM_MAC, DIM_PNAME, DIM_SPORT,
        DIM_SRC, DIR_DPORT, DIR_SPORT, NEAR_CHUNK, NEAR_DEEP, PnameKey, RuleBits, USUAL_ALL,
        USUAL_DEST, USUAL_DOMAIN, USUAL_DPORT, USUAL_DSCP, USUAL_MAC, USUAL_PNAME, USUAL_SPORT,
        USUAL_SRC, bank, mac_key, near_word, usual_row,
    },
};

use crate::{
    maps::{
        Addr, CLASS_BITS, DEST_LPM, DEST_NEAR, DOMAIN, DSCP_CLASS, MAC_CLASS, Near, PNAME_CLASS,
        PORT_CLASS, Prefixes, ROUTE_META, ROUTE_SEL, RULE_ACT, SRC_LPM, SRC_NEAR, USUAL_BITS,
        scratch,
    },
    packet::Packet,
};

/// What the rules say about a packet.
pub struct Decision {
    pub ordinal: u8,
    pub must: bool,
    /// A line decided; otherwise userspace must, whatever the flags say.
    pub matched: bool,
    /// The destination's name is known.
    pub domain_known: bool,
    /// A name could change the verdict; found out only where that matters.
    pub sensitive: bool,
    pub rule: u16,
    pub mark: u32,
    pub generation: u32,
}

impl Decision {
    const fn unmatched(generation: u32) -> Self {
        Self {
            ordinal: CONTROL,
            must: false,
            matched: false,
            domain_known: false,
            sensitive: false,
            rule: u16::MAX,
            mark: 0,
            generation,
        }
    }
}

/// Generation in force.
#[inline(always)]
pub fn generation() -> u32 {
    ROUTE_SEL.get(0).copied().unwrap_or(0)
}

/// Evaluates the rules of one generation; a swap meanwhile does not mix two.
#[inline(always)]
pub fn route<const WAN: bool>(p: &Packet, pname: &[u8; 16], names_matter: bool) -> Decision {
    let generation = generation();
    evaluate::<WAN>(p, pname, generation, names_matter).unwrap_or(Decision::unmatched(generation))
}

#[inline(always)]
fn evaluate<const WAN: bool>(
    p: &Packet,
    pname: &[u8; 16],
    generation: u32,
    names_matter: bool,
) -> Option<Decision> {
    let bank = bank(generation);
    let meta = ROUTE_META.get(bank)?;
    let dims = meta.dims;
    let seen = &mut scratch()?.seen;
    seen.usual = USUAL_ALL;
    seen.count = 0;
    if dims & DIM_DEST != 0 {
        let miss = meta.dest_default.into();
        let found = near(&DEST_NEAR, bank, p.v6, &p.key.dst, miss)
            .unwrap_or_else(|| prefix(&DEST_LPM, bank, p.key.dst, miss));
        seen.note(USUAL_DEST, found, meta.dest_default);
    }
    if dims & DIM_SRC != 0 {
        let miss = meta.src_default.into();
        let found = near(&SRC_NEAR, bank, p.v6, &p.key.src, miss)
            .unwrap_or_else(|| prefix(&SRC_LPM, bank, p.key.src, miss));
        seen.note(USUAL_SRC, found, meta.src_default);
    }
    if dims & DIM_DPORT != 0 {
        let found = port(bank, DIR_DPORT, p.key.dport)?;
        seen.note(USUAL_DPORT, found, meta.dport_default);
    }
    if dims & DIM_SPORT != 0 {
        let found = port(bank, DIR_SPORT, p.key.sport)?;
        seen.note(USUAL_SPORT, found, meta.sport_default);
    }
    if dims & DIM_MAC != 0 {
        let mac = if WAN { [0; 6] } else { p.smac };
        if let Some(c) = MAC_CLASS.get_ptr(&mac_key(bank, mac)) {
            seen.note(USUAL_MAC, unsafe { *c }, meta.mac_default);
        }
    }
    if dims & DIM_DSCP != 0 {
        let found = DSCP_CLASS.get(bank)?.0[usize::from(p.dscp & 63)];
        seen.note(USUAL_DSCP, found.into(), meta.dscp_default);
    }
    if WAN && dims & DIM_PNAME != 0 && pname[0] != 0 {
        let key = PnameKey { name: *pname, bank };
        if let Some(c) = PNAME_CLASS.get_ptr(&key) {
            seen.note(USUAL_PNAME, unsafe { *c }, meta.pname_unknown_class);
        }
    }
    let mut names = None;
    if dims & DIM_DOMAIN != 0 {
        names = DOMAIN
            .get(bank)
            .and_then(|map| map.get_ptr(&p.key.dst))
            .map(|entry| unsafe { &*entry });
        if names.is_some() {
            seen.usual &= !USUAL_DOMAIN;
        }
    }
    let row = usual_row(bank, p.key.proto == PROTO_UDP, p.v6);
    let usual = &USUAL_BITS.get(row + (seen.usual & USUAL_ALL))?.0;
    let finals = class(bank, meta.final_mask_class.into())?;
    let other = |i: usize| class(bank, seen.other[i]);
    let found = match (seen.count, names) {
        (0, None) => first_line([usual], finals),
        (0, Some(n)) => first_line([usual, &n.bits], finals),
        (1, None) => first_line([usual, other(0)?], finals),
        (1, Some(n)) => first_line([usual, &n.bits, other(0)?], finals),
        (2, None) => first_line([usual, other(0)?, other(1)?], finals),
        _ => {
            let all = class(bank, meta.all_class.into())?;
            let bits = names.map_or(all, |n| &n.bits);
            let o = seen.others(bank, all)?;
            let sets = [usual, bits, o[0], o[1], o[2], o[3], o[4], o[5], o[6]];
            first_line(sets, finals)
        }
    };
    let (line, sticky) = found?;
    let mut sensitive = false;
    if names_matter && dims & DIM_DOMAIN != 0 {
        // As if the name were the only thing that is not known.
        let nameless = &USUAL_BITS
            .get(row + (seen.usual & USUAL_ALL & !USUAL_DOMAIN))?
            .0;
        let open = match names {
            Some(n) => &n.amb,
            None => class(bank, meta.domain_rules_class.into())?,
        };
        sensitive = if seen.count == 0 {
            any_up_to([nameless, open], line)
        } else {
            let all = class(bank, meta.all_class.into())?;
            let o = seen.others(bank, all)?;
            any_up_to(
                [nameless, open, o[0], o[1], o[2], o[3], o[4], o[5], o[6]],
                line,
            )
        };
    }
    let act = RULE_ACT.get(bank * MAX_RULES as u32 + line)?;
    Some(Decision {
        ordinal: act.ordinal,
        must: sticky || act.flags & ACT_MUST != 0,
        matched: true,
        domain_known: names.is_some(),
        sensitive,
        rule: act.rule,
        mark: act.mark,
        generation,
    })
}

/// Which dimensions of a packet have their usual class, and the classes of the others. In map
/// memory: the verifier would follow every combination of values on the stack.
#[repr(C)]
pub struct Seen {
    usual: u32,
    count: u32,
    other: [u32; 8],
}

impl Seen {
    #[inline(always)]
    fn note(&mut self, dimension: u32, class: u32, usual: u16) {
        if class != usual.into() {
            self.usual &= !dimension;
            let at = self.count & 7;
            self.other[at as usize] = class;
            self.count = at + 1;
        }
    }

    /// The bitmaps of the other classes; `all` stands where there is none.
    #[inline(always)]
    fn others(&self, bank: u32, all: &'static RuleBits) -> Option<[&'static RuleBits; 7]> {
        let mut sets = [all; 7];
        let mut i = 0;
        while i < 7 {
            if (i as u32) < self.count {
                sets[i] = class(bank, self.other[i])?;
            }
            i += 1;
        }
        Some(sets)
    }
}

/// The first line in all sets that ends the evaluation, and whether a `must_rules` line comes
/// before it.
#[inline(always)]
fn first_line<const N: usize>(sets: [&RuleBits; N], finals: &RuleBits) -> Option<(u32, bool)> {
    let mut sticky = 0;
    let mut w = first_block(&sets);
    while w < RULE_WORDS {
        let hits = and(&sets, w);
        if hits != 0 {
            let deciding = hits & finals[w];
            let continuing = hits & !finals[w];
            if deciding != 0 {
                let first = deciding & deciding.wrapping_neg();
                sticky |= continuing & (first - 1);
                return Some((w as u32 * 64 + bit_index(first), sticky != 0));
            }
            sticky |= continuing;
        }
        w += 1;
    }
    None
}

/// The first word that may have a line: most packets reach only lines near the end, so four
/// words are skipped at a time.
#[inline(always)]
fn first_block<const N: usize>(sets: &[&RuleBits; N]) -> usize {
    let mut w = 0;
    while w < RULE_WORDS {
        if and(sets, w) | and(sets, w + 1) | and(sets, w + 2) | and(sets, w + 3) != 0 {
            break;
        }
        w += 4;
    }
    w
}

/// Whether some line up to `last` is in all sets.
#[inline(always)]
fn any_up_to<const N: usize>(sets: [&RuleBits; N], last: u32) -> bool {
    let mut w = 0;
    while w < RULE_WORDS {
        let open = and(&sets, w);
        if open != 0 {
            let first = open & open.wrapping_neg();
            return w as u32 * 64 + bit_index(first) <= last;
        }
        w += 1;
    }
    false
}

#[inline(always)]
fn and<const N: usize>(sets: &[&RuleBits; N], word: usize) -> u64 {
    let mut bits = sets[0][word];
    let mut i = 1;
    while i < N {
        bits &= sets[i][word];
        i += 1;
    }
    bits
}

#[inline(always)]
fn class(bank: u32, class: u32) -> Option<&'static RuleBits> {
    Some(&CLASS_BITS.get(bank * MAX_CLASSES as u32 + class)?.0)
}

#[inline(always)]
fn prefix(banks: &ArrayOfMaps<Prefixes, 2>, bank: u32, addr: Addr, miss: u32) -> u32 {
    banks
        .get(bank)
        .and_then(|map| map.get(&Key::new(128, addr)))
        .copied()
        .unwrap_or(miss)
}

/// The same from the table in front; `None` where there is none, or it cannot tell.
#[inline(always)]
fn near(banks: &ArrayOfMaps<Near, 2>, bank: u32, v6: bool, addr: &Addr, miss: u32) -> Option<u32> {
    if v6 {
        return None;
    }
    let table = banks.get(bank)?;
    let half = u32::from(addr[12]) << 8 | u32::from(addr[13]);
    let mut word = near_at(table, half)?;
    if word & NEAR_CHUNK != 0 {
        word = near_at(table, near_word(word & !NEAR_CHUNK, addr[14]))?;
    }
    match word {
        0 => Some(miss),
        _ if word & NEAR_DEEP != 0 => None,
        class => Some(class - 1),
    }
}

#[inline(always)]
fn near_at(table: &Near, at: u32) -> Option<u32> {
    Some(table.get(at >> 1)?.0[(at & 1) as usize])
}

#[inline(always)]
fn port(bank: u32, dir: u32, port: u16) -> Option<u32> {
    let element = (bank * 2 + dir) * PORT_ELEMS + u32::from(port >> 2);
    let four = PORT_CLASS.get(element)?;
    Some(four.0[usize::from(port & 3)].into())
}

/// Index of the only set bit. BPF has no instruction for it, and branches would be followed one
/// by one: the sign of the negated part tells whether the bit is in it.
#[inline(always)]
fn bit_index(bit: u64) -> u32 {
    let within = |mask: u64| ((bit & mask).wrapping_neg() >> 63) as u32;
    within(0xffff_ffff_0000_0000) << 5
        | within(0xffff_0000_ffff_0000) << 4
        | within(0xff00_ff00_ff00_ff00) << 3
        | within(0xf0f0_f0f0_f0f0_f0f0) << 2
        | within(0xcccc_cccc_cccc_cccc) << 1
        | within(0xaaaa_aaaa_aaaa_aaaa)
}
