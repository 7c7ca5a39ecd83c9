//! A compiled rule set on its way from the compiler to the maps.
//!
//! Pure data: the policy crate produces it, the loader writes it into the spare bank. Class
//! numbers are relative to the bank. Evaluating it in Rust gives what the kernel answers.

use crate::{
    key::LpmKey,
    limits::{MAX_RULES, USUAL_ROWS},
    route::{self, DscpClasses, RouteMeta, RuleAct, RuleBits},
};

/// Everything the classifier needs for one generation.
#[derive(Clone, Debug)]
pub struct RouteTables {
    /// `generation` is 0 here; the loader fills it in.
    pub meta: RouteMeta,
    /// One per rule line, at most [`MAX_RULES`]; the last is the fallback.
    pub acts: Vec<RuleAct>,
    /// Bitmaps by class number; class 0 has a bit for every line.
    pub classes: Vec<RuleBits>,
    /// Destination prefixes with their class, ancestor-closed.
    pub dest: Vec<(LpmKey, u32)>,
    /// Source prefixes, likewise.
    pub src: Vec<(LpmKey, u32)>,
    /// Class of every destination port; 65,536 entries.
    pub dport: Box<[u16]>,
    /// Class of every source port; 65,536 entries.
    pub sport: Box<[u16]>,
    pub dscp: DscpClasses,
    pub mac: Vec<([u8; 6], u32)>,
    /// Networks to which every datagram of a client is blocked (`GUARDED`), and exceptions.
    pub guard: Vec<(LpmKey, u32)>,
    /// NUL-padded process names.
    pub pname: Vec<([u8; 16], u32)>,
}

impl RouteTables {
    /// One line, the fallback, sending everything to `ordinal`.
    pub fn fallback_only(ordinal: u8) -> Self {
        let mut all = [0u64; MAX_RULES / 64];
        all[0] = 1;
        let act = RuleAct {
            ordinal,
            flags: crate::route::ACT_FALLBACK,
            ..RuleAct::default()
        };
        Self {
            // Class 1 is the empty set: no must_rules line, no domain line.
            meta: RouteMeta {
                rules: 1,
                must_rules_class: 1,
                domain_rules_class: 1,
                ..RouteMeta::default()
            },
            acts: vec![act],
            classes: vec![all, [0; MAX_RULES / 64]],
            dest: Vec::new(),
            src: Vec::new(),
            dport: vec![0; 65_536].into(),
            sport: vec![0; 65_536].into(),
            dscp: DscpClasses([0; 64]),
            mac: Vec::new(),
            guard: Vec::new(),
            pname: Vec::new(),
        }
    }

    /// What `USUAL_BITS` holds: for every protocol and every set of dimensions, the lines that
    /// a packet satisfies which is usual in just these.
    pub fn usual_bits(&self) -> Vec<RuleBits> {
        let m = &self.meta;
        let usual = [
            (route::DIM_DEST, m.dest_default),
            (route::DIM_SRC, m.src_default),
            (route::DIM_DPORT, m.dport_default),
            (route::DIM_SPORT, m.sport_default),
            (route::DIM_MAC, m.mac_default),
            (route::DIM_DSCP, m.dscp_default),
            (route::DIM_PNAME, m.pname_unknown_class),
            (route::DIM_DOMAIN, m.domain_unknown_class),
        ]
        .map(|(dim, class)| self.bits_of(dim, class));
        let mut rows: Vec<RuleBits> = Vec::with_capacity(USUAL_ROWS as usize);
        for class in m.proto_class {
            let first = rows.len();
            rows.push(self.bits_of(route::DIM_PROTO, class));
            for set in 1..1usize << usual.len() {
                // The same without the lowest dimension is there already.
                let rest = rows[first + (set & (set - 1))];
                rows.push(and(&rest, &usual[set.trailing_zeros() as usize]));
            }
        }
        rows
    }

    /// Lines a class satisfies; all where no line uses the dimension.
    fn bits_of(&self, dim: u16, class: u16) -> RuleBits {
        let used = self.meta.dims & dim != 0;
        let class = if used { class } else { self.meta.all_class };
        let bits = self.classes.get(usize::from(class));
        bits.copied().unwrap_or_default()
    }
}

fn and(a: &RuleBits, b: &RuleBits) -> RuleBits {
    core::array::from_fn(|word| a[word] & b[word])
}
