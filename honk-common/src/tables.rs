//! A compiled rule set on its way from the compiler to the maps.
//!
//! Pure data: the policy crate produces it, the loader writes it into the spare bank. Class
//! numbers are relative to the bank. Evaluating it in Rust gives what the kernel answers.

use crate::{
    key::LpmKey,
    limits::MAX_RULES,
    route::{DscpClasses, RouteMeta, RuleAct, RuleBits},
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
            pname: Vec::new(),
        }
    }
}
