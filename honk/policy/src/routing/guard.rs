//! Networks to which every datagram of a client is blocked, whatever else it says.
//!
//! The early drop program asks for nothing but the destination. A network is listed only if the
//! lines prove that no other verdict can come: no earlier line can take such a datagram unless it
//! blocks too. Names never count as proof, since userspace may want to see them first.

use std::collections::HashMap;

use honk_common::{
    key::LpmKey,
    limits::{GUARDED, UNGUARDED},
    outbound::{BLOCK, MUST_RULES},
    route::RuleBits,
};

use super::{
    prefix::{V4, V4_LEN, mask},
    rule::{Cond, RuleLine, Test},
};

/// IP versions a network holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Family {
    V4,
    V6,
    Both,
}

/// Whether a line takes a datagram of a client whose destination fits it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    Never,
    Always,
    Perhaps,
}

/// Guarded networks, and the ones inside them that are not, from the destination table; sorted by
/// key. The longest match tells.
pub(super) fn table(
    lines: &[RuleLine],
    dest: &[(LpmKey, u32)],
    classes: &[RuleBits],
) -> Vec<(LpmKey, u32)> {
    let to_block = |l: &RuleLine| {
        let named = l.conds.iter().any(|c| matches!(c.test, Test::Dest(_)));
        named && l.action.ordinal.0 == BLOCK
    };
    if !lines.iter().any(to_block) {
        return Vec::new();
    }
    let mut known: HashMap<(u32, Family), bool> = HashMap::new();
    let mut entries: Vec<(u128, u8, bool)> = dest
        .iter()
        .map(|(key, class)| {
            let (addr, len) = (u128::from_be_bytes(key.addr), key.prefix_len as u8);
            let family = family(addr, len);
            let guarded = *known.entry((*class, family)).or_insert_with(|| {
                let bits = classes.get(*class as usize).copied().unwrap_or_default();
                is_blocked(lines, &bits, family)
            });
            (addr, len, guarded)
        })
        .collect();
    if !entries.iter().any(|(.., guarded)| *guarded) {
        return Vec::new();
    }
    // Each after all that cover it.
    entries.sort_unstable();
    let mut covers: Vec<(u128, u8, bool)> = Vec::new();
    let mut table = Vec::new();
    for (addr, len, guarded) in entries {
        while covers
            .pop_if(|(a, l, _)| *l > len || mask(addr, *l) != *a)
            .is_some()
        {}
        let above = covers.last().is_some_and(|(.., guarded)| *guarded);
        if guarded != above {
            let key = LpmKey {
                prefix_len: len.into(),
                addr: addr.to_be_bytes(),
            };
            table.push((key, if guarded { GUARDED } else { UNGUARDED }));
        }
        covers.push((addr, len, guarded));
    }
    table.sort_unstable_by_key(|(key, _)| *key);
    table
}

fn family(addr: u128, len: u8) -> Family {
    if len >= V4_LEN && mask(addr, V4_LEN) == V4 {
        Family::V4
    } else if len < V4_LEN && mask(V4, len) == addr {
        Family::Both
    } else {
        Family::V6
    }
}

/// Whether the lines in `bits`, those whose destination fits, can only block.
fn is_blocked(lines: &[RuleLine], bits: &RuleBits, family: Family) -> bool {
    for (index, line) in lines.iter().enumerate() {
        if bits[index / 64] >> (index % 64) & 1 == 0 {
            continue;
        }
        if line.conds.iter().any(|c| matches!(c.test, Test::Domain(_))) {
            return false;
        }
        match (takes(line, family), line.action.ordinal.0) {
            (Takes::Never, _) | (_, MUST_RULES) | (Takes::Perhaps, BLOCK) => {}
            (Takes::Always, BLOCK) => return true,
            _ => return false,
        }
    }
    false
}

fn takes(line: &RuleLine, family: Family) -> Takes {
    let mut sum = Takes::Always;
    for cond in &line.conds {
        match holds(cond, family) {
            Takes::Never => return Takes::Never,
            Takes::Perhaps => sum = Takes::Perhaps,
            Takes::Always => {}
        }
    }
    sum
}

fn holds(cond: &Cond, family: Family) -> Takes {
    let value = match &cond.test {
        // The class says so already.
        Test::Dest(_) => return Takes::Always,
        Test::L4Proto { udp, .. } => *udp,
        Test::IpVersion { v4, v6 } => match family {
            Family::V4 => *v4,
            Family::V6 => *v6,
            Family::Both if v4 == v6 => *v4,
            Family::Both => return Takes::Perhaps,
        },
        // Clients have no process.
        Test::ProcessName(_) => false,
        _ => return Takes::Perhaps,
    };
    if value == cond.not {
        Takes::Never
    } else {
        Takes::Always
    }
}
