//! New connections and datagrams in the private namespace go to the transparent listeners,
//! whatever address and port they ask for.

use aya_ebpf::{bindings::bpf_sk_lookup, programs::SkLookupContext};
use honk_common::{
    counter::Stat,
    event::EVENT_LISTENER_MISSING,
    key::{FlowKey, PROTO_TCP, PROTO_UDP},
    outbound::CONTROL,
    param::{SOCK_TCP4, SOCK_TCP6, SOCK_UDP4, SOCK_UDP6},
};

use crate::{event::emit, maps::SOCKS, stats::count};

const SK_DROP: u32 = 0;
const SK_PASS: u32 = 1;
const AF_INET6: u32 = 10;

/// Entry for the private namespace.
#[unsafe(no_mangle)]
#[unsafe(link_section = "sk_lookup")]
pub extern "C" fn listener_lookup(ctx: *mut bpf_sk_lookup) -> u32 {
    // Only family and protocol are read: addresses chosen by family would need one
    // non-inlined function each, or LLVM merges the branches into an offset.
    let (v6, proto) = unsafe { ((*ctx).family == AF_INET6, (*ctx).protocol) };
    let slot = if proto == u32::from(PROTO_TCP) {
        if v6 { SOCK_TCP6 } else { SOCK_TCP4 }
    } else if proto == u32::from(PROTO_UDP) {
        if v6 { SOCK_UDP6 } else { SOCK_UDP4 }
    } else {
        return SK_PASS;
    };
    if SOCKS
        .redirect_sk_lookup(&SkLookupContext::new(ctx), slot, 0)
        .is_ok()
    {
        return SK_PASS;
    }
    count(Stat::LookupNosock);
    let key = FlowKey {
        src: [0; 16],
        dst: [0; 16],
        sport: 0,
        dport: 0,
        proto: proto as u8,
        pad: [0; 3],
    };
    emit(EVENT_LISTENER_MISSING, CONTROL, u16::MAX, &key);
    SK_DROP
}
