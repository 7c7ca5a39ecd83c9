//! Native HTTP API: routes, documents, errors.

pub(crate) mod doc;
pub(crate) mod error;
pub(crate) mod server;
pub(crate) mod time;
