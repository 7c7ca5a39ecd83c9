//! The namespace lab, its servers and clients.
