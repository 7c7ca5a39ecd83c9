//! Dialers: how a flow leaves through a node.
