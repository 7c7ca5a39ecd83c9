//! Settings the daemon writes for the kernel programs.

use crate::{abi, limits::MAX_LAN_PARAM};

/// `GATE` values. Closed passes everything, draining keeps only known flows proxied.
pub const GATE_CLOSED: u32 = 0;
pub const GATE_OPEN: u32 = 1;
pub const GATE_DRAINING: u32 = 2;

/// `FLAGS` bits.
pub const OFFLOAD_DIRECT: u32 = 1 << 0;
pub const OFFLOAD_ALL: u32 = 1 << 1;
pub const SNI_STRICT: u32 = 1 << 2;
pub const REINJECT: u32 = 1 << 3;
pub const WAN_PNAME: u32 = 1 << 4;
pub const AMBIG_USER: u32 = 1 << 5;
/// No DNS module answers: port 53 of the gateway's own addresses is a local service like any
/// other, and its resolver sees its clients.
pub const DNS_LOCAL: u32 = 1 << 6;
/// Somebody watches decisions: each new flow is told, within the limits of events.
pub const TRACE: u32 = 1 << 7;

/// `Param::features` bits.
pub const FEATURE_REDIRECT_PEER: u32 = 1;
/// One interface is both LAN and WAN: `lan_ingress` also watches for UDP to local sockets.
pub const FEATURE_ONE_ARMED: u32 = 2;

/// Mark of honk's own sockets in the host namespace when the configuration names none.
pub const OWN_MARK_DEFAULT: u32 = 0x100;
/// On re-injected datagrams only; `lan_ingress` clears it on sight.
pub const MARK_CLASSIFIED: u32 = 0x4000_0000;
/// On replies injected into a WAN receive path only; `wan_ingress` clears it on sight.
pub const MARK_REPLY: u32 = 0x8000_0000;
/// Bits a configured mark may not use.
pub const MARK_RESERVED: u32 = 0xC800_0000;

/// First three bytes of the source MAC that carries a hand-off across the pair; then follow
/// kind, layer-4 protocol and the nonce of this load.
pub const MAGIC_MAC: [u8; 3] = [0x02, 0x68, 0x6e];
pub const HANDOFF_LAN: u8 = 1;
pub const HANDOFF_WAN: u8 = 2;

/// `SOCKS` slots.
pub const SOCK_TCP4: u32 = 0;
pub const SOCK_TCP6: u32 = 1;
pub const SOCK_UDP4: u32 = 2;
pub const SOCK_UDP6: u32 = 3;
pub const SOCKS_ENTRIES: u32 = 8;

/// `PARAM[0]`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Param {
    pub own_mark: u32,
    pub own_tgid: u32,
    pub honk0_ifindex: u32,
    /// `FEATURE_*` bits.
    pub features: u32,
    /// MAC of `honk0p`: destination of packets sent into the private namespace.
    pub peer_mac: [u8; 6],
    pub nonce: u8,
    pub cg_level: u8,
    pub cg_id: u64,
    pub off_task_mm: u32,
    pub off_mm_arg_start: u32,
    pub off_task_group_leader: u32,
    pub off_task_comm: u32,
    pub lan_ifindex: [u32; MAX_LAN_PARAM],
    pub pad: [u8; 16],
}
abi!(Param, 96);

/// `ABI_META[0]`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AbiMeta {
    pub magic: u32,
    pub abi: u32,
    pub hash: u64,
    pub created: u64,
    pub pad: u64,
}
abi!(AbiMeta, 32);
