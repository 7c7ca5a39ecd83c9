//! Wiring: start, reload, stop; the only room that knows all others.
