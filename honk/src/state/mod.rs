//! Files below the state and runtime directories: lock, atomic writes.
