//! Native HTTP API: routes, documents, errors.
