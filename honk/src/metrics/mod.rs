//! Prometheus registry: one list of names.
