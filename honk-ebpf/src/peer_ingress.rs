//! The door of the private namespace: only handed-over packets of this load come in.

use aya_ebpf::bindings::__sk_buff;
use honk_common::{counter::Stat, param::MAGIC_MAC};

use crate::{
    maps::PARAM,
    packet::ETH_LEN,
    stats::count,
    verdict::{NEXT, SHOT},
};

/// Entry for `honk0p`.
#[unsafe(no_mangle)]
#[unsafe(link_section = "classifier")]
pub extern "C" fn peer_ingress(skb: *mut __sk_buff) -> i32 {
    let (data, end) = unsafe { ((*skb).data as usize, (*skb).data_end as usize) };
    if data + ETH_LEN <= end
        && let Some(param) = PARAM.get(0)
    {
        let mac = (data + 6) as *const u8;
        let at = |i: usize| unsafe { mac.add(i).read() };
        if at(0) == MAGIC_MAC[0]
            && at(1) == MAGIC_MAC[1]
            && at(2) == MAGIC_MAC[2]
            && at(5) == param.nonce
        {
            return NEXT;
        }
    }
    count(Stat::MagicDrop);
    SHOT
}
