//! Capacities of the kernel maps and other numbers both sides must know.

/// Rule lines of one rule set, the fallback included.
pub const MAX_RULES: usize = 1024;
/// 64-bit words of one rule bitmap.
pub const RULE_WORDS: usize = MAX_RULES / 64;
/// Distinct class bitmaps of one rule set.
pub const MAX_CLASSES: usize = 4096;
/// Bitmaps of usual classes of one rule set: four protocols, and 8 dimensions that have their
/// usual class or not.
pub const USUAL_ROWS: u32 = 4 << 8;
/// Values of `XDP_BLOCK`: every datagram to the network is blocked, or an inner network that is not.
pub const GUARDED: u32 = 1;
pub const UNGUARDED: u32 = 0;
/// Interfaces with an early drop program.
pub const XDP_DEVICES: u32 = 1024;
/// Banks of the double-buffered route maps.
pub const BANKS: u32 = 2;
/// Elements of one direction of `PORT_CLASS`: four ports share an element.
pub const PORT_ELEMS: u32 = 65536 / 4;
/// Entries of `DCACHE` (kernel-direct and inbound UDP flows).
pub const DCACHE_ENTRIES: u32 = 131_072;
/// Entries of `RETURN` (clients that have been proxied).
pub const RETURN_ENTRIES: u32 = 65_536;
/// Entries of `FRAG`.
pub const FRAG_ENTRIES: u32 = 8192;
/// Entries of `LOCAL_ADDR`.
pub const LOCAL_ADDR_ENTRIES: u32 = 4096;
/// Entries of `MAC_CLASS`, both banks together.
pub const MAC_ENTRIES: u32 = 16_384;
/// Addresses with known names, per bank of `DOMAIN`.
pub const DOMAIN_ENTRIES: u32 = 65_536;
/// Entries of `PNAME_CLASS`, both banks together.
pub const PNAME_ENTRIES: u32 = 4096;
/// Sockets whose process is known.
pub const COOKIE_ENTRIES: u32 = 65_536;
/// Bytes of a process's first argument that are looked at for its name.
pub const ARGUMENT_BYTES: usize = 128;
/// Default size of `FLOW`; `global.bpf_conn_state_map_size` replaces it.
pub const FLOW_ENTRIES_DEFAULT: u32 = 262_144;
/// Largest inner LPM map.
pub const LPM_MAX_ENTRIES: u32 = 2_000_000;
/// First part of a near table: a word for each first half of an IPv4 address.
pub const NEAR_HALVES: u32 = 65_536;
/// Chunks of a near table: 256 words for one such half.
pub const NEAR_CHUNKS: u32 = 4096;
/// Elements of a near table, of two words each: the kernel rounds elements up to 8 bytes. 4.5 MB.
pub const NEAR_ENTRIES: u32 = (NEAR_HALVES + NEAR_CHUNKS * 256) / 2;
/// Lists with fewer IPv4 networks get none: the tree is not deep.
pub const NEAR_FROM: usize = 256;
/// Bytes of the event ring.
pub const EVENT_RING_BYTES: u32 = 262_144;
/// Age after which a fragment record no longer counts, in nanoseconds.
pub const FRAG_TTL_NS: u64 = 30_000_000_000;
/// Age after which a packet renews the timestamp of its entry, in nanoseconds.
pub const TOUCH_NS: u64 = 1_000_000_000;
/// IPv6 extension headers the parser walks before it gives up.
pub const MAX_EXT_HEADERS: usize = 8;
/// Events of one type per second and CPU.
pub const EVENTS_PER_SECOND: u64 = 64;
/// LAN interfaces listed in `Param` for the reply fallback.
pub const MAX_LAN_PARAM: usize = 8;
