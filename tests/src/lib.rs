//! The namespace lab, its servers and clients.
//!
//! System tests and the demo use honk as a process only: nothing here imports the daemon. A test
//! builds a [`lab::Lab`], starts servers in its namespaces, runs the real binary with
//! [`honk::Honk`] and asserts on what clients, origins, upstreams and the [`meter::Meter`] saw.

pub mod bench;
pub mod client;
pub mod demo;
pub mod frame;
pub mod honk;
pub mod kernel;
pub mod kernel_bench;
pub mod lab;
pub mod load;
pub mod meter;
pub mod missing;
pub mod netns;
pub mod scene;
pub mod score_lab;
pub mod serve;
pub mod sim;
pub mod skip;
pub mod snapshot;
pub mod tcx;
pub mod tool;
pub mod tun;
pub mod wait;
