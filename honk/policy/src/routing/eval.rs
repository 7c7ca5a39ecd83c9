//! What the kernel computes from the tables, in Rust.
//!
//! Used by tests as the other side of the reference evaluator, and to explain a verdict
//! without a packet. It reads nothing but the tables, exactly as the kernel does.

use honk_common::{
    key::{LpmKey, is_v4_mapped},
    outbound::CONTROL,
    route::{self, ACT_MUST, DomainVal, RuleBits},
    tables::RouteTables,
};

use super::{
    prefix::mask,
    rule::{FlowFacts, Verdict},
};
use crate::id::Ordinal;

/// The kernel's verdict; a flow that no line takes gets [`CONTROL`] and the line number
/// after the last, which cannot happen with compiled tables. `known` is the entry of the
/// destination address; the name in `flow` does not count.
pub fn eval_tables(tables: &RouteTables, flow: &FlowFacts, known: Option<&DomainVal>) -> Verdict {
    let meta = &tables.meta;
    let mut hits = nameless(tables, flow);
    if meta.dims & route::DIM_DOMAIN != 0 {
        let unknown = || bits(tables, meta.domain_unknown_class);
        hits = and(&hits, &known.map_or_else(unknown, |v| v.bits));
    }
    let ending = and(&hits, &bits(tables, meta.final_mask_class));
    let sticky = and(&hits, &bits(tables, meta.must_rules_class));
    let first = lowest(&ending);
    let Some(act) = first.and_then(|line| tables.acts.get(line)) else {
        return Verdict {
            ordinal: Ordinal(CONTROL),
            must: false,
            mark: 0,
            rule: meta.rules,
        };
    };
    Verdict {
        ordinal: Ordinal(act.ordinal),
        must: act.flags & ACT_MUST != 0 || lowest(&sticky) < first && lowest(&sticky).is_some(),
        mark: act.mark,
        rule: act.rule,
    }
}

/// Whether a name that is unknown, or one of several, could change what
/// [`eval_tables`] answers.
pub fn is_sensitive(tables: &RouteTables, flow: &FlowFacts, known: Option<&DomainVal>) -> bool {
    let meta = &tables.meta;
    if meta.dims & route::DIM_DOMAIN == 0 {
        return false;
    }
    let unknown = || bits(tables, meta.domain_rules_class);
    let open = known.map_or_else(unknown, |v| v.amb);
    let open = lowest(&and(&nameless(tables, flow), &open));
    let decides = usize::from(eval_tables(tables, flow, known).rule);
    open.is_some_and(|line| line <= decides)
}

/// Lines that hold as far as everything but the name is concerned.
fn nameless(tables: &RouteTables, flow: &FlowFacts) -> RuleBits {
    let meta = &tables.meta;
    let mut hits = bits(tables, meta.all_class);
    for (dim, class) in used_classes(tables, flow) {
        if meta.dims & dim != 0 {
            hits = and(&hits, &bits(tables, class));
        }
    }
    hits
}

/// The verdict that counts for a packet: without `must`, port 53 belongs to the DNS path.
pub fn dns_first(verdict: Verdict, dport: u16) -> Verdict {
    if dport != 53 || verdict.must {
        return verdict;
    }
    Verdict {
        ordinal: Ordinal(CONTROL),
        ..verdict
    }
}

fn used_classes(t: &RouteTables, flow: &FlowFacts) -> [(u16, u16); 8] {
    let meta = &t.meta;
    let v6 = !is_v4_mapped(&flow.dst);
    let mac = t.mac.iter().find(|(mac, _)| *mac == flow.mac);
    let pname = t.pname.iter().find(|(name, _)| *name == flow.pname);
    let class = |found: Option<u32>, default: u16| found.map_or(default, |c| c as u16);
    [
        (
            route::DIM_DEST,
            class(longest(&t.dest, &flow.dst), meta.dest_default),
        ),
        (
            route::DIM_SRC,
            class(longest(&t.src, &flow.src), meta.src_default),
        ),
        (route::DIM_DPORT, t.dport[usize::from(flow.dport)]),
        (route::DIM_SPORT, t.sport[usize::from(flow.sport)]),
        (
            route::DIM_PROTO,
            meta.proto_class[usize::from(!flow.tcp) * 2 + usize::from(v6)],
        ),
        (route::DIM_MAC, class(mac.map(|m| m.1), meta.mac_default)),
        (route::DIM_DSCP, t.dscp.0[usize::from(flow.dscp & 63)]),
        (
            route::DIM_PNAME,
            class(pname.map(|p| p.1), meta.pname_unknown_class),
        ),
    ]
}

/// Longest match in a table sorted by key, as the prefix maps find it.
pub(super) fn longest(table: &[(LpmKey, u32)], addr: &[u8; 16]) -> Option<u32> {
    let addr = u128::from_be_bytes(*addr);
    (0..=128u8).rev().find_map(|len| {
        let key = LpmKey {
            prefix_len: len.into(),
            addr: mask(addr, len).to_be_bytes(),
        };
        let at = table.binary_search_by_key(&key, |(k, _)| *k).ok()?;
        Some(table[at].1)
    })
}

fn bits(tables: &RouteTables, class: u16) -> RuleBits {
    let found = tables.classes.get(usize::from(class));
    found.copied().unwrap_or_default()
}

fn and(a: &RuleBits, b: &RuleBits) -> RuleBits {
    std::array::from_fn(|word| a[word] & b[word])
}

fn lowest(bits: &RuleBits) -> Option<usize> {
    let word = bits.iter().position(|&w| w != 0)?;
    Some(word * 64 + bits[word].trailing_zeros() as usize)
}
