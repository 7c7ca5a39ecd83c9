//! Records of the event ring.

use crate::abi;

pub const EVENT_BLOCKED: u32 = 0;
pub const EVENT_FLOW_OVERFLOW: u32 = 1;
pub const EVENT_RETURN_OVERFLOW: u32 = 2;
pub const EVENT_GROUP_DEAD: u32 = 3;
pub const EVENT_EXT_CHAIN: u32 = 4;
pub const EVENT_LISTENER_MISSING: u32 = 5;
/// A new flow was decided, while somebody watches (`TRACE`). Bits 8 to 15 of the kind are the
/// flags of the flow (`FLAG_*`).
pub const EVENT_TRACE: u32 = 6;
pub const EVENT_TYPES: usize = 7;

/// Kind of an event without the flags that a trace carries.
pub const fn kind_of(kind: u32) -> u32 {
    kind & 0xff
}

/// Flags that a trace carries in its kind.
pub const fn flags_of(kind: u32) -> u8 {
    (kind >> 8) as u8
}

/// One thing worth telling the daemon about; rate-limited per CPU and type.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    pub ts_ns: u64,
    pub kind: u32,
    pub pid: u32,
    pub pname: [u8; 16],
    pub ordinal: u8,
    pub proto: u8,
    pub rule: u16,
    pub src: [u8; 16],
    pub dst: [u8; 16],
    pub sport: u16,
    pub dport: u16,
}
abi!(Event, 72);
