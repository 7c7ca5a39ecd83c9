//! Transparent inbound: TCP accept loops and UDP receive loops.
