//! All maps, one list. Names and layouts are ABI (spec: datapath section 3).
//!
//! The loader may change `FLOW`'s capacity and puts prefix maps of any capacity into the
//! banks of `DEST_LPM` and `SRC_LPM`, hashes of any capacity into those of `DOMAIN`; everything else has the size written here.

use aya_ebpf::{
    bindings::BPF_F_NO_PREALLOC,
    btf_maps::{Array, ArrayOfMaps, HashMap, LpmTrie, LruHashMap, PerCpuArray, RingBuf, SockMap},
    macros::btf_map,
};
use honk_common::{
    counter::{OutStats, STATS_ENTRIES},
    event::{EVENT_TYPES, Event},
    flow::{CookieVal, DirectVal, FlowVal, FragVal, ReturnVal},
    key::{FlowKey, FragKey},
    limits::{
        BANKS, COOKIE_ENTRIES, DCACHE_ENTRIES, EVENT_RING_BYTES, FLOW_ENTRIES_DEFAULT,
        FRAG_ENTRIES, LOCAL_ADDR_ENTRIES, MAC_ENTRIES, MAX_CLASSES, MAX_RULES, NEAR_ENTRIES,
        PNAME_ENTRIES, PORT_ELEMS, RETURN_ENTRIES, USUAL_ROWS, XDP_DEVICES,
    },
    outbound::GROUP_SLOTS,
    param::{AbiMeta, Param, SOCKS_ENTRIES},
    route::{
        ClassBits, DomainVal, DscpClasses, NearWords, PnameKey, PortClasses, RouteMeta, RuleAct,
    },
};

use crate::{packet::Packet, route::Seen};

const LAZY: usize = BPF_F_NO_PREALLOC as usize;
const NBANKS: usize = BANKS as usize;

/// An address as map key: 16 bytes in network order.
pub type Addr = [u8; 16];
/// Prefix to class. The capacity is only that of the template.
pub type Prefixes = LpmTrie<Addr, u32, 1024>;

/// What stands in front of a long list of IPv4 networks.
pub type Near = Array<NearWords, { NEAR_ENTRIES as usize }>;

/// Address to what its names say. The capacity is only that of the template.
pub type Names = HashMap<Addr, DomainVal, 1024, LAZY>;

/// Working memory of one program run on one CPU. Softirqs do not preempt each other, so one
/// entry per CPU is enough. The verifier follows every byte of the stack but not of maps:
/// what lives here also keeps its state count small.
#[repr(C)]
pub struct Scratch {
    pub packet: Packet,
    pub flow: FlowVal,
    /// Headers that are copied out of a packet.
    pub header: [u64; 6],
    pub buckets: [Bucket; EVENT_TYPES],
    pub seen: Seen,
    pub spare: [u64; 23],
}

/// Events of one type sent in the second that began at `start_ns`.
#[repr(C)]
pub struct Bucket {
    pub start_ns: u64,
    pub sent: u64,
}

const _: () = assert!(size_of::<Scratch>() == 512);

#[btf_map]
pub static GATE: Array<u32, 1> = Array::new();
#[btf_map]
pub static PARAM: Array<Param, 1> = Array::new();
#[btf_map]
pub static FLAGS: Array<u32, 1> = Array::new();
#[btf_map]
pub static FLOW: HashMap<FlowKey, FlowVal, { FLOW_ENTRIES_DEFAULT as usize }, LAZY> =
    HashMap::new();
#[btf_map]
pub static DCACHE: LruHashMap<FlowKey, DirectVal, { DCACHE_ENTRIES as usize }> = LruHashMap::new();
#[btf_map]
pub static RETURN: HashMap<Addr, ReturnVal, { RETURN_ENTRIES as usize }, LAZY> = HashMap::new();
#[btf_map]
pub static FRAG: LruHashMap<FragKey, FragVal, { FRAG_ENTRIES as usize }> = LruHashMap::new();
#[btf_map]
pub static LOCAL_ADDR: HashMap<Addr, u32, { LOCAL_ADDR_ENTRIES as usize }, LAZY> = HashMap::new();
#[btf_map]
pub static ROUTE_SEL: Array<u32, 1> = Array::new();
#[btf_map]
pub static ROUTE_META: Array<RouteMeta, NBANKS> = Array::new();
#[btf_map]
pub static RULE_ACT: Array<RuleAct, { NBANKS * MAX_RULES }> = Array::new();
#[btf_map]
pub static CLASS_BITS: Array<ClassBits, { NBANKS * MAX_CLASSES }> = Array::new();
#[btf_map]
pub static USUAL_BITS: Array<ClassBits, { NBANKS * USUAL_ROWS as usize }> = Array::new();
#[btf_map]
pub static PORT_CLASS: Array<PortClasses, { NBANKS * 2 * PORT_ELEMS as usize }> = Array::new();
#[btf_map]
pub static DSCP_CLASS: Array<DscpClasses, NBANKS> = Array::new();
#[btf_map]
pub static MAC_CLASS: HashMap<u64, u32, { MAC_ENTRIES as usize }, LAZY> = HashMap::new();
#[btf_map]
pub static PNAME_CLASS: HashMap<PnameKey, u32, { PNAME_ENTRIES as usize }, LAZY> = HashMap::new();
#[btf_map]
pub static COOKIE: HashMap<u64, CookieVal, { COOKIE_ENTRIES as usize }, LAZY> = HashMap::new();
#[btf_map]
pub static DEST_LPM: ArrayOfMaps<Prefixes, NBANKS> = ArrayOfMaps::new();
#[btf_map]
pub static SRC_LPM: ArrayOfMaps<Prefixes, NBANKS> = ArrayOfMaps::new();
#[btf_map]
pub static DEST_NEAR: ArrayOfMaps<Near, NBANKS> = ArrayOfMaps::new();
#[btf_map]
pub static SRC_NEAR: ArrayOfMaps<Near, NBANKS> = ArrayOfMaps::new();
#[btf_map]
pub static DOMAIN: ArrayOfMaps<Names, NBANKS> = ArrayOfMaps::new();
#[btf_map]
pub static XDP_BLOCK: ArrayOfMaps<Prefixes, NBANKS> = ArrayOfMaps::new();
/// MAC address of an interface as the frame has it, in the first six bytes.
#[btf_map]
pub static XDP_MAC: HashMap<u32, u64, { XDP_DEVICES as usize }, LAZY> = HashMap::new();
#[btf_map]
pub static GROUP_STATE: Array<u32, { GROUP_SLOTS as usize }> = Array::new();
#[btf_map]
pub static SOCKS: SockMap<{ SOCKS_ENTRIES as usize }> = SockMap::new();
#[btf_map]
pub static OUT_STATS: PerCpuArray<OutStats, 256> = PerCpuArray::new();
#[btf_map]
pub static STATS: PerCpuArray<u64, { STATS_ENTRIES as usize }> = PerCpuArray::new();
#[btf_map]
pub static EVENTS: RingBuf<Event, { EVENT_RING_BYTES as usize }> = RingBuf::new();
#[btf_map]
pub static SCRATCH: PerCpuArray<Scratch, 1> = PerCpuArray::new();
#[btf_map]
pub static ABI_META: Array<AbiMeta, 1> = Array::new();

/// The working memory of this CPU. It always exists; the verifier wants the test.
#[inline(always)]
pub fn scratch() -> Option<&'static mut Scratch> {
    SCRATCH.get_ptr_mut(0).map(|s| unsafe { &mut *s })
}
