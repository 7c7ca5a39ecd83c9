//! Kernel programs of honk: one program per file, raw entry points.
//!
//! Programs decide per packet: pass (-1), drop (2) or hand over to the private namespace (7).
//! They never fail open once a packet was classified as not direct. The daemon owns every
//! table; `honk-common` names the layouts. See README.md for the habits the verifier imposes.
#![no_std]
#![no_main]
// Packet and map pointers are raw by nature here, and the verifier checks every access; a
// comment per block would repeat that on each line.
#![allow(clippy::missing_safety_doc, clippy::undocumented_unsafe_blocks)]
// Keys passed by value would be copied to the stack first.
#![allow(clippy::needless_borrows_for_generic_args)]

mod decide;
mod dev0_ingress;
mod event;
mod fragment;
mod frame;
mod group;
mod handoff;
mod inbound;
mod judge;
mod known;
mod lan_egress;
mod lan_ingress;
mod listener_lookup;
mod maps;
mod new_flow;
mod packet;
mod peer_ingress;
mod process;
mod refuse;
mod route;
mod special;
mod stats;
mod verdict;
mod walk;
mod wan_egress;
mod wan_ingress;
mod xdp_guard;

#[unsafe(no_mangle)]
#[unsafe(link_section = "license")]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // The verifier proves that no path leads here; a reachable panic does not load.
    loop {}
}
