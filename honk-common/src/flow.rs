//! Values of the flow, direct-cache, return and fragment maps.

use crate::abi;

/// `FlowWord` flags.
pub const FLAG_MUST: u8 = 1;
pub const FLAG_WAN: u8 = 2;
pub const FLAG_DOMAIN_KNOWN: u8 = 4;
/// The action of `rule` in `generation` is provisional; a name must confirm it.
pub const FLAG_PRELIM: u8 = 8;
pub const FLAG_V6: u8 = 16;
pub const FLAG_L3DEV: u8 = 32;
pub const FLAG_AMBIGUOUS: u8 = 64;

/// `FlowWord` states.
pub const FLOW_ACTIVE: u8 = 0;
pub const FLOW_CLOSING: u8 = 1;
pub const FLOW_REINJECT: u8 = 2;
/// Userspace owns the entry; the janitor leaves it alone.
pub const FLOW_CLAIMED: u8 = 3;
/// The daemon that relayed it died: kept so that its next packet is not taken for direct.
pub const FLOW_STALE: u8 = 4;

/// The part of a flow entry that changes after insertion, as one aligned word: a reader never
/// sees a new ordinal beside an old mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowWord {
    pub ordinal: u8,
    pub flags: u8,
    pub dscp: u8,
    pub state: u8,
    pub mark: u32,
}

impl FlowWord {
    pub const fn pack(self) -> u64 {
        self.ordinal as u64
            | (self.flags as u64) << 8
            | (self.dscp as u64) << 16
            | (self.state as u64) << 24
            | (self.mark as u64) << 32
    }

    pub const fn unpack(w: u64) -> Self {
        Self {
            ordinal: w as u8,
            flags: (w >> 8) as u8,
            dscp: (w >> 16) as u8,
            state: (w >> 24) as u8,
            mark: (w >> 32) as u32,
        }
    }
}

/// `FLOW`: what was decided for a flow, and how to reach its client.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowVal {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub last_seen_ns: u64,
    /// [`FlowWord`], packed.
    pub word: u64,
    /// TCP: sequence number of the SYN, host order.
    pub isn: u32,
    /// Rule generation that decided.
    pub generation: u32,
    /// Index of the rule line.
    pub rule: u16,
    pub vlan: u16,
    pub pid: u32,
    pub pname: [u8; 16],
    /// Source MAC of the client; zero on header-less devices.
    pub mac: [u8; 6],
    /// Destination MAC the client used.
    pub gw_mac: [u8; 6],
    pub ifindex: u32,
}
abi!(FlowVal, 64);

pub const DIRECT_KIND: u8 = 1;
pub const INBOUND_KIND: u8 = 2;

/// `DCACHE`: UDP the kernel passes without evaluating rules again.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectVal {
    pub created_ns: u64,
    pub generation: u32,
    /// [`DIRECT_KIND`] or [`INBOUND_KIND`].
    pub kind: u8,
    pub pad: [u8; 3],
}
abi!(DirectVal, 16);

pub const RETURN_FROM_WAN: u8 = 1;
pub const RETURN_L3DEV: u8 = 2;

/// `RETURN`: where a client's replies leave. Keyed by the client's address alone, so that
/// replies from any source, fragments and ICMP errors find their way.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReturnVal {
    pub last_seen_ns: u64,
    pub ifindex: u32,
    /// Source MAC of the client's packets: destination of replies.
    pub smac: [u8; 6],
    /// Destination MAC of the client's packets: source of replies.
    pub dmac: [u8; 6],
    pub vlan: u16,
    /// `RETURN_*` bits.
    pub flags: u8,
    pub pad: [u8; 5],
}
abi!(ReturnVal, 32);

/// `COOKIE` flags: the name comes from the first argument, not from the kernel's short one.
pub const NAME_FROM_ARGV: u32 = 1;

/// `COOKIE`: which process uses a socket.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CookieVal {
    pub last_seen_ns: u64,
    pub tgid: u32,
    pub flags: u32,
    /// NUL-padded.
    pub name: [u8; 16],
}
abi!(CookieVal, 32);

pub const FRAG_PASS: u8 = 0;
pub const FRAG_DROP: u8 = 1;
pub const FRAG_REDIRECT: u8 = 2;

/// `FRAG`: verdict of a first fragment, for those that carry no ports.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragVal {
    pub ts_ns: u64,
    pub ordinal: u8,
    pub action: u8,
    pub pad: [u8; 2],
    pub mark: u32,
}
abi!(FragVal, 16);
