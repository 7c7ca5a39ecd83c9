//! Per-CPU counters. Plain adds: softirq does not preempt softirq on one CPU.

use honk_common::counter::Stat;

use crate::maps::{OUT_STATS, STATS};

/// Adds one to a named counter.
#[inline(always)]
pub fn count(stat: Stat) {
    if let Some(n) = STATS.get_ptr_mut(stat as u32) {
        unsafe { *n += 1 }
    }
}

/// Charges a packet from a client to an ordinal.
#[inline(always)]
pub fn sent(ordinal: u8, bytes: u32) {
    if let Some(s) = OUT_STATS.get_ptr_mut(ordinal.into()) {
        unsafe {
            (*s).tx_packets += 1;
            (*s).tx_bytes += u64::from(bytes);
        }
    }
}

/// Charges a packet to a client to an ordinal.
#[inline(always)]
pub fn received(ordinal: u8, bytes: u32) {
    if let Some(s) = OUT_STATS.get_ptr_mut(ordinal.into()) {
        unsafe {
            (*s).rx_packets += 1;
            (*s).rx_bytes += u64::from(bytes);
        }
    }
}
