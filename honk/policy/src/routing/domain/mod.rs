//! Which `domain(...)` conditions a name satisfies.
//!
//! One index holds all conditions, so that a name costs the same whether one condition asks or
//! a thousand. It is built once and never changes. Names and values are lower-case without
//! trailing dot; names are ASCII.

mod hash;
pub(crate) mod pattern;
mod table;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use super::rule::DomainTest;
use crate::geo::Kind;
use table::{BELOW, WHOLE};

/// The values of many conditions, numbered from 0.
#[derive(Clone, Debug, Default)]
pub struct DomainIndex {
    table: table::Table,
    patterns: pattern::Patterns,
    conds: usize,
}

impl DomainIndex {
    /// Prepares the values of each condition. A pattern that does not compile matches nothing;
    /// the configuration has refused it already.
    pub fn new<'a>(conds: impl IntoIterator<Item = &'a [DomainTest]>) -> Self {
        let mut builder = Builder::default();
        let mut count = 0;
        for (cond, tests) in (0u32..).zip(conds) {
            builder.cond(cond, tests);
            count += 1;
        }
        Self {
            table: builder.names.build(),
            patterns: builder.patterns.build(),
            conds: count,
        }
    }

    /// Number of conditions.
    pub fn conds(&self) -> usize {
        self.conds
    }

    /// Words of the bitmap that [`find`](Self::find) fills.
    pub fn words(&self) -> usize {
        self.conds.div_ceil(64)
    }

    /// Sets the bit of every condition that `name` satisfies; `hits` has [`words`](Self::words)
    /// words.
    pub fn find(&self, name: &str, hits: &mut [u64]) {
        let mut put = |conds: &[u32]| {
            for &cond in conds {
                if let Some(word) = hits.get_mut(cond as usize / 64) {
                    *word |= 1 << (cond % 64);
                }
            }
            false
        };
        self.table.find(name, &mut put);
        self.patterns.find(name, &mut put);
    }

    /// Whether `name` satisfies some condition.
    pub fn any(&self, name: &str) -> bool {
        let mut found = false;
        let mut put = |conds: &[u32]| {
            found |= !conds.is_empty();
            found
        };
        self.table.find(name, &mut put);
        if !found {
            let mut put = |conds: &[u32]| {
                found |= !conds.is_empty();
                found
            };
            self.patterns.find(name, &mut put);
        }
        found
    }

    /// Distinct names in the table.
    pub fn names(&self) -> usize {
        self.table.names()
    }

    /// Bytes on the heap, compiled regular expressions not included.
    pub fn bytes(&self) -> usize {
        self.table.bytes() + self.patterns.bytes()
    }
}

/// The values of one condition.
#[derive(Clone, Debug, Default)]
pub struct DomainSet(DomainIndex);

impl DomainSet {
    /// Prepares the values, as [`DomainIndex::new`].
    pub fn new(tests: &[DomainTest]) -> Self {
        Self(DomainIndex::new([tests]))
    }

    /// Whether some value matches.
    pub fn contains(&self, name: &str) -> bool {
        self.0.any(name)
    }
}

#[derive(Default)]
struct Builder {
    names: table::Builder,
    patterns: pattern::Builder,
}

impl Builder {
    fn cond(&mut self, cond: u32, tests: &[DomainTest]) {
        // The same list twice in one condition says nothing new.
        let mut lists = HashSet::new();
        for test in tests {
            match test {
                DomainTest::Full(name) => self.names.add(name, cond, WHOLE),
                DomainTest::Suffix(name) => self.names.add(name, cond, WHOLE | BELOW),
                DomainTest::SubdomainsOf(name) => {
                    self.names.add(name.trim_start_matches('.'), cond, BELOW);
                }
                DomainTest::Keyword(text) => self.patterns.keyword(text, cond),
                DomainTest::Regex(pattern) => self.patterns.regex(pattern, cond),
                DomainTest::Geosite { list, .. } => {
                    if !lists.insert(std::sync::Arc::as_ptr(list)) {
                        continue;
                    }
                    for (kind, value) in list.iter() {
                        match kind {
                            Kind::Full => self.names.add(value, cond, WHOLE),
                            Kind::Suffix => self.names.add(value, cond, WHOLE | BELOW),
                            Kind::Keyword => self.patterns.keyword(value, cond),
                            Kind::Regex => self.patterns.regex(value, cond),
                        }
                    }
                }
            }
        }
    }
}
