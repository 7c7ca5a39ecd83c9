//! Names of the per-CPU counters. The order is ABI: new ones go to the end.

macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Index in `STATS`.
        #[repr(u32)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Stat { $($(#[$doc])* $name),* }

        impl Stat {
            /// All counters in index order, with the label value used in metrics.
            pub const ALL: &'static [(Self, &'static str)] = &[$((Self::$name, $text)),*];
        }
    };
}

stats! {
    PktsLan = "pkts_lan",
    PktsWan = "pkts_wan",
    NewFlows = "new_flows",
    DirectNew = "direct_new",
    ProxyNew = "proxy_new",
    Block = "block",
    DeadDrop = "dead_drop",
    FlowOverflow = "flow_overflow",
    ReturnOverflow = "return_overflow",
    ReturnMiss = "return_miss",
    FragFirst = "frag_first",
    FragHit = "frag_hit",
    FragMiss = "frag_miss",
    VlanPass = "vlan_pass",
    LocalPass = "local_pass",
    SpecialPass = "special_pass",
    ExtDrop = "ext_drop",
    MagicDrop = "magic_drop",
    LookupNosock = "lookup_nosock",
    CookieFail = "cookie_fail",
    EventDrop = "event_drop",
    Reinject = "reinject",
    DnsRedirect = "dns_redirect",
    SynRetransmit = "syn_retransmit",
    OwnBypass = "own_bypass",
    InboundTrack = "inbound_track",
    NoflowPass = "noflow_pass",
    Malformed = "malformed",
    ChangeHeadFail = "change_head_fail",
    RouteNomatch = "route_nomatch",
    /// ICMP errors about proxied flows that were handed to the private namespace.
    IcmpRedirect = "icmp_redirect",
    /// Locally generated neighbour-discovery redirects that were dropped.
    NdpRedirectDrop = "ndp_redirect_drop",
    /// Blocked connections that were answered with a reset.
    BlockReset = "block_reset",
    /// Datagrams to blocked networks that were dropped before the stack saw them.
    XdpDrop = "xdp_drop",
    /// Frames whose IP header contradicts itself, dropped likewise.
    XdpBogus = "xdp_bogus",
    /// Decisions that were not told to those who watch: too many, or the ring was full.
    TraceDrop = "trace_drop",
    /// Packets that are not IP.
    NotIpPass = "not_ip_pass",
    /// Packets of other protocols than TCP and UDP.
    OtherPass = "other_pass",
    /// Frames to groups of stations, or to others.
    GroupPass = "group_pass",
    /// Packets whose TCP or UDP header is not whole, or is spread over fragments.
    ShortDrop = "short_drop",
    /// Packets that came without their link header, which was put back.
    FrameMended = "frame_mended",
    /// Packets whose link header is lost.
    FrameDrop = "frame_drop",
    /// Frames with more tags than anybody sends.
    TagDrop = "tag_drop",
}

/// Elements of `STATS`.
pub const STATS_ENTRIES: u32 = 64;

/// `OUT_STATS`: traffic of one ordinal, as the kernel programs saw it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutStats {
    pub tx_packets: u64,
    pub tx_bytes: u64,
    pub rx_packets: u64,
    pub rx_bytes: u64,
}
crate::abi!(OutStats, 32);
