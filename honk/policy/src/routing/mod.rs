//! Rules: the model, the compiler for the kernel classifier, and the reference evaluator.

pub mod rule;
