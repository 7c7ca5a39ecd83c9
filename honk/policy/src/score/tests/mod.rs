//! The engine as a whole: stories told through its public calls, and invariants under any calls.

mod bounds;
mod compared;
mod evidence;
mod lifecycle;
mod machine;
mod reports;
mod stories;
mod world;
