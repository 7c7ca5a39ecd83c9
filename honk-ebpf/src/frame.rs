//! What stands before the IP header of a received packet: tags, and the link header itself.
//!
//! Two things hide a packet that the stack would forward all the same. A tag for VLAN 0 carries a
//! priority and no VLAN. And in front of a foreign XDP program in generic mode that takes packets of
//! several pages, the kernel copies each packet and forgets how long its link header is (seen on
//! 6.18): classifiers then find the IP header where the frame should begin.

use core::ffi::c_void;

use aya_ebpf::{
    bindings::{
        __sk_buff,
        bpf_hdr_start_off::{BPF_HDR_START_MAC, BPF_HDR_START_NET},
    },
    helpers::generated::{
        bpf_skb_change_head, bpf_skb_load_bytes, bpf_skb_load_bytes_relative, bpf_skb_store_bytes,
        bpf_skb_vlan_pop,
    },
};

use crate::packet::{ETH_IPV4, ETH_IPV6, ETH_LEN};

const VLAN_ID: u32 = 0x0fff;
const ETH_8021Q: u32 = 0x8100u16.to_be() as u32;
const ETH_8021AD: u32 = 0x88a8u16.to_be() as u32;
/// Tags for VLAN 0 in a row that hide nothing. A tag behind them is one too many, whatever follows.
const PRIORITY_TAGS: usize = 3;

/// What the tags of a frame say.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Tag {
    /// None, or only a priority: the stack takes the packet as it is.
    Ours,
    /// It belongs to the device of a VLAN.
    Vlan,
    /// More tags than anybody sends.
    TooMany,
}

/// Reads the tag that the kernel took from the frame, and takes further ones behind a priority.
#[inline(always)]
pub fn tag(skb: *mut __sk_buff) -> Tag {
    if unsafe { (*skb).vlan_present } == 0 {
        return Tag::Ours;
    }
    tagged(skb)
}

#[inline(never)]
fn tagged(skb: *mut __sk_buff) -> Tag {
    let mut i = 0;
    while i < PRIORITY_TAGS {
        let (present, id, inner) = unsafe {
            (
                (*skb).vlan_present,
                (*skb).vlan_tci & VLAN_ID,
                (*skb).protocol,
            )
        };
        if present != 0 && id != 0 {
            return Tag::Vlan;
        }
        if inner != ETH_8021Q && inner != ETH_8021AD {
            return Tag::Ours;
        }
        // The one behind takes its place.
        if !untag(skb) {
            return Tag::TooMany;
        }
        i += 1;
    }
    Tag::TooMany
}

/// Takes off a priority, which would go along over the pair.
#[inline(always)]
pub fn untag(skb: *mut __sk_buff) -> bool {
    unsafe { (*skb).vlan_present == 0 || bpf_skb_vlan_pop(skb) == 0 }
}

/// What became of the link header of a packet.
#[derive(Clone, Copy)]
#[repr(u32)]
pub enum Header {
    /// The packet begins with it, or is of no concern.
    Whole = 0,
    /// It was missing, and was put back.
    Mended = 1,
    /// It is missing for good: nobody could say what the packet is.
    Lost = 2,
}

/// Sees to it that the packet begins with its link header.
#[inline(always)]
pub fn link_header(skb: *mut __sk_buff) -> Header {
    let (proto, data, end) = unsafe {
        (
            (*skb).protocol,
            (*skb).data as usize,
            (*skb).data_end as usize,
        )
    };
    let version = match proto {
        ETH_IPV4 => 4,
        ETH_IPV6 => 6,
        _ => return Header::Whole,
    };
    if data + ETH_LEN <= end {
        let (ethertype, first) = unsafe {
            (
                ((data + 12) as *const u16).read(),
                (data as *const u8).read(),
            )
        };
        // An address within an IP header may look like an ethertype, but that header begins with
        // its version. So do some MAC addresses: `mend` knows better.
        if u32::from(ethertype) == proto && first >> 4 != version {
            return Header::Whole;
        }
    }
    mend(skb, proto)
}

/// Puts the link header back in front, from where the kernel still has it, if it is missing.
#[inline(never)]
fn mend(skb: *mut __sk_buff, proto: u32) -> Header {
    let (mut header, mut first) = ([0u16; ETH_LEN / 2], [0u16; ETH_LEN / 2]);
    let known = load(skb, 0, &mut first)
        && load_from(skb, BPF_HDR_START_MAC, &mut header)
        && u32::from(header[6]) == proto;
    if !known {
        return Header::Lost;
    }
    let at_link = same(&header, &first, ETH_LEN / 2);
    // What is too short for this is no IP header.
    let mut ip = [0u16; 4];
    let at_network = load_from(skb, BPF_HDR_START_NET, &mut ip) && same(&ip, &first, ip.len());
    if at_link && !at_network {
        return Header::Whole;
    }
    // If both headers begin alike, somebody made them so.
    if at_link || !at_network {
        return Header::Lost;
    }
    let mended =
        unsafe { bpf_skb_change_head(skb, ETH_LEN as u32, 0) == 0 && store(skb, 0, &header) };
    if mended { Header::Mended } else { Header::Lost }
}

#[inline(always)]
fn same(a: &[u16], b: &[u16], words: usize) -> bool {
    let mut differ = 0;
    let mut i = 0;
    while i < words {
        differ |= a[i] ^ b[i];
        i += 1;
    }
    differ == 0
}

/// Reads from the packet, however it lies in memory.
#[inline(always)]
pub fn load<T>(skb: *mut __sk_buff, at: usize, to: &mut T) -> bool {
    let to = (&raw mut *to).cast::<c_void>();
    unsafe { bpf_skb_load_bytes(skb.cast(), at as u32, to, size_of::<T>() as u32) == 0 }
}

/// Writes into the packet.
#[inline(always)]
pub fn store<T>(skb: *mut __sk_buff, at: usize, from: &T) -> bool {
    let from = (&raw const *from).cast::<c_void>();
    unsafe { bpf_skb_store_bytes(skb, at as u32, from, size_of::<T>() as u32, 0) == 0 }
}

#[inline(always)]
fn load_from<T>(skb: *mut __sk_buff, start: u32, to: &mut T) -> bool {
    let to = (&raw mut *to).cast::<c_void>();
    let size = size_of::<T>() as u32;
    unsafe { bpf_skb_load_bytes_relative(skb.cast(), 0, to, size, start) == 0 }
}
