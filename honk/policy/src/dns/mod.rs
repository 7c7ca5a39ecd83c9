//! What answers teach: which names an address was given out for, for how long, and what that
//! means for the rules.
//!
//! [`Leases`] is the memory, independent of rules; [`Projection`] is what one generation of
//! rules makes of it and what of that the kernel has been told; [`teaches`] decides which
//! addresses are remembered at all. Times are seconds of any clock that never goes back.

mod lease;
mod projection;
mod recent;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

pub use lease::{Leases, Lesson, Limits, NameId, OwnerView};
pub use projection::{Change, Projection};

/// Shortest time an address is remembered beside the grace, in seconds: clients keep using
/// addresses past their time.
pub const TTL_MIN: u64 = 600;
/// Added to every time to live, in seconds.
pub const GRACE: u64 = 300;
/// Longest time an address is remembered, in seconds.
pub const LIFE_MAX: u64 = 86_700;
/// What is left to the leases of a name that turned out to have no such address, in seconds.
pub const NEGATIVE_LEFT: u64 = 60;
/// A lease is renewed at most this often, in seconds.
pub const RENEW: u64 = 30;

/// Whether an address in an answer is worth remembering: flows to it can meet a rule about
/// names. Private addresses can.
pub fn teaches(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let [first, ..] = v4.octets();
            // 0/8 is "this network", 240/4 is reserved and holds broadcast.
            !(first == 0
                || first >= 240
                || v4.is_loopback()
                || v4.is_multicast()
                || v4.is_link_local())
        }
        IpAddr::V6(v6) => {
            !(v6.is_unspecified()
                || v6.is_loopback()
                || v6.is_multicast()
                || v6.is_unicast_link_local())
        }
    }
}

/// When a lease taken now ends.
pub fn expiry(now: u64, ttl: u32) -> u64 {
    now + (u64::from(ttl).max(TTL_MIN) + GRACE).min(LIFE_MAX)
}
