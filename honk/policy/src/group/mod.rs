//! Groups: membership, nesting, selection.
