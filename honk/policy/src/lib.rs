//! honk's decisions as plain functions over plain data.
//!
//! No socket, file, thread or clock is used here: time, randomness and the outside world come
//! in as arguments, so every decision can be replayed in a test.
#![forbid(unsafe_code)]

pub mod address;
pub mod config;
pub mod dns;
mod document;
pub mod geo;
pub mod group;
pub mod health;
pub mod id;
mod name;
pub mod node;
pub mod reload;
pub mod routing;
pub mod score;
pub mod subscription;
pub mod time;
pub mod verdict;
