//! Where members of a pool are in a view, without an allocation.

use crate::score::consts::POOL_MAX;

/// Members found in a view.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::score) struct Located {
    indices: [usize; POOL_MAX],
    len: usize,
}

impl Located {
    pub(super) fn push(&mut self, index: usize) {
        if self.len < POOL_MAX {
            self.indices[self.len] = index;
            self.len += 1;
        }
    }

    /// In the order of the view.
    pub(super) fn sorted(mut self) -> Self {
        self.indices[..self.len].sort_unstable();
        self
    }

    /// Indices in the view, ascending when [`sorted`](Self::sorted).
    pub(in crate::score) fn indices(&self) -> &[usize] {
        &self.indices[..self.len]
    }
}
