//! The bit-vector classifier: which rule line decides a new flow.
//!
//! Each used dimension turns the packet into a class, each class into a bitmap of lines. The
//! lowest bit of the AND is the first matching line. Lines are compared word by word, so the
//! usual early match touches one word of each bitmap. The bitmaps of the domain dimension stand in
//! the entry of the destination address. Only local packets have a process name, only LAN packets a MAC.

use aya_ebpf::btf_maps::{ArrayOfMaps, lpm_trie::Key};
use honk_common::{
    key::PROTO_UDP,
    limits::{MAX_CLASSES, MAX_RULES, PORT_ELEMS, RULE_WORDS},
    outbound::CONTROL,
    route::{
        ACT_MUST, DIM_DEST, DIM_DOMAIN, DIM_DPORT, DIM_DSCP, DIM_MAC, DIM_PNAME, DIM_PROTO,
        DIM_SPORT, DIM_SRC, DIR_DPORT, DIR_SPORT, PnameKey, RouteMeta, RuleBits, bank, mac_key,
    },
};

use crate::{
    maps::{
        Addr, CLASS_BITS, DEST_LPM, DOMAIN, DSCP_CLASS, MAC_CLASS, PNAME_CLASS, PORT_CLASS,
        Prefixes, ROUTE_META, ROUTE_SEL, RULE_ACT, SRC_LPM,
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
    /// A name could change the verdict.
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
pub fn route<const WAN: bool>(p: &Packet, pname: &[u8; 16]) -> Decision {
    let generation = generation();
    evaluate::<WAN>(p, pname, generation).unwrap_or(Decision::unmatched(generation))
}

#[inline(always)]
fn evaluate<const WAN: bool>(p: &Packet, pname: &[u8; 16], generation: u32) -> Option<Decision> {
    let bank = bank(generation);
    let meta = ROUTE_META.get(bank)?;
    let dims = meta.dims;
    let all = class(bank, meta.all_class.into())?;
    let finals = class(bank, meta.final_mask_class.into())?;
    let must_rules = class(bank, meta.must_rules_class.into())?;
    let dest = if dims & DIM_DEST != 0 {
        class(bank, prefix(&DEST_LPM, bank, p.key.dst, meta.dest_default))?
    } else {
        all
    };
    let src = if dims & DIM_SRC != 0 {
        class(bank, prefix(&SRC_LPM, bank, p.key.src, meta.src_default))?
    } else {
        all
    };
    let dport = if dims & DIM_DPORT != 0 {
        class(bank, port(bank, DIR_DPORT, p.key.dport)?)?
    } else {
        all
    };
    let sport = if dims & DIM_SPORT != 0 {
        class(bank, port(bank, DIR_SPORT, p.key.sport)?)?
    } else {
        all
    };
    let proto = if dims & DIM_PROTO != 0 {
        class(bank, proto_class(meta, p))?
    } else {
        all
    };
    let mac = if dims & DIM_MAC != 0 {
        let mac = if WAN { [0; 6] } else { p.smac };
        let c = MAC_CLASS.get_ptr(&mac_key(bank, mac));
        class(bank, c.map_or(meta.mac_default.into(), |c| unsafe { *c }))?
    } else {
        all
    };
    let dscp = if dims & DIM_DSCP != 0 {
        let table = DSCP_CLASS.get(bank)?;
        class(bank, table.0[usize::from(p.dscp & 63)].into())?
    } else {
        all
    };
    let pname = if dims & DIM_PNAME != 0 {
        let known = if WAN && pname[0] != 0 {
            PNAME_CLASS.get_ptr(&PnameKey { name: *pname, bank })
        } else {
            None
        };
        let unknown = meta.pname_unknown_class.into();
        class(bank, known.map_or(unknown, |c| unsafe { *c }))?
    } else {
        all
    };
    let mut domain_known = false;
    let (domain, ambiguous) = if dims & DIM_DOMAIN == 0 {
        (all, all)
    } else if let Some(names) = DOMAIN.get(bank).and_then(|map| map.get_ptr(&p.key.dst)) {
        domain_known = true;
        unsafe { (&(*names).bits, &(*names).amb) }
    } else {
        (
            class(bank, meta.domain_unknown_class.into())?,
            class(bank, meta.domain_rules_class.into())?,
        )
    };
    let name_matters = if dims & DIM_DOMAIN != 0 { u64::MAX } else { 0 };

    let mut must = false;
    let mut sensitive = false;
    let mut w = 0;
    while w < RULE_WORDS {
        let nameless = all[w]
            & dest[w]
            & src[w]
            & dport[w]
            & sport[w]
            & proto[w]
            & mac[w]
            & dscp[w]
            & pname[w];
        let hits = nameless & domain[w];
        let open = nameless & ambiguous[w] & name_matters;
        let sticky = hits & must_rules[w];
        let deciding = hits & finals[w];
        if deciding != 0 {
            let first = deciding & deciding.wrapping_neg();
            must |= sticky & (first - 1) != 0;
            sensitive |= open & (first | (first - 1)) != 0;
            let line = w as u32 * 64 + bit_index(first);
            let act = RULE_ACT.get(bank * MAX_RULES as u32 + line)?;
            return Some(Decision {
                ordinal: act.ordinal,
                must: must || act.flags & ACT_MUST != 0,
                matched: true,
                domain_known,
                sensitive,
                rule: act.rule,
                mark: act.mark,
                generation,
            });
        }
        must |= sticky != 0;
        sensitive |= open != 0;
        w += 1;
    }
    None
}

#[inline(always)]
fn class(bank: u32, class: u32) -> Option<&'static RuleBits> {
    Some(&CLASS_BITS.get(bank * MAX_CLASSES as u32 + class)?.0)
}

#[inline(always)]
fn prefix(banks: &ArrayOfMaps<Prefixes, 2>, bank: u32, addr: Addr, miss: u16) -> u32 {
    banks
        .get(bank)
        .and_then(|map| map.get(&Key::new(128, addr)))
        .copied()
        .unwrap_or(miss.into())
}

#[inline(always)]
fn port(bank: u32, dir: u32, port: u16) -> Option<u32> {
    let element = (bank * 2 + dir) * PORT_ELEMS + u32::from(port >> 2);
    let four = PORT_CLASS.get(element)?;
    Some(four.0[usize::from(port & 3)].into())
}

#[inline(always)]
fn proto_class(meta: &RouteMeta, p: &Packet) -> u32 {
    let udp = p.key.proto == PROTO_UDP;
    match (udp, p.v6) {
        (false, false) => meta.proto_class[0],
        (false, true) => meta.proto_class[1],
        (true, false) => meta.proto_class[2],
        (true, true) => meta.proto_class[3],
    }
    .into()
}

/// Index of the only set bit. BPF has no instruction for it.
#[inline(always)]
fn bit_index(bit: u64) -> u32 {
    let mut n = 0;
    n += if bit & 0xffff_ffff_0000_0000 != 0 {
        32
    } else {
        0
    };
    n += if bit & 0xffff_0000_ffff_0000 != 0 {
        16
    } else {
        0
    };
    n += if bit & 0xff00_ff00_ff00_ff00 != 0 {
        8
    } else {
        0
    };
    n += if bit & 0xf0f0_f0f0_f0f0_f0f0 != 0 {
        4
    } else {
        0
    };
    n += if bit & 0xcccc_cccc_cccc_cccc != 0 {
        2
    } else {
        0
    };
    n += if bit & 0xaaaa_aaaa_aaaa_aaaa != 0 {
        1
    } else {
        0
    };
    n
}
