//! Ordinals: the number a rule's verdict carries, in rules, flow entries and group slots.

/// Leaves through ordinary kernel forwarding.
pub const DIRECT: u8 = 0;
/// Dropped.
pub const BLOCK: u8 = 1;
/// First and last ordinal of groups and implicit node outbounds.
pub const USER_FIRST: u8 = 2;
pub const USER_LAST: u8 = 251;
/// Number of user outbounds one configuration may have.
pub const USER_MAX: usize = (USER_LAST - USER_FIRST + 1) as usize;
/// A matched line that sets the sticky must flag and continues.
pub const MUST_RULES: u8 = 252;
/// Userspace decides.
pub const CONTROL: u8 = 253;
/// Reference encoding only: more values of the same condition follow.
pub const LOGICAL_OR: u8 = 254;
/// Reference encoding only: more conditions of the same line follow.
pub const LOGICAL_AND: u8 = 255;

/// Whether the ordinal names a group or an implicit node outbound.
pub const fn is_user(ordinal: u8) -> bool {
    ordinal >= USER_FIRST && ordinal <= USER_LAST
}

/// `GROUP_STATE` networks: TCP, UDP to port 53, other UDP.
pub const NET_TCP: u32 = 0;
pub const NET_DNS: u32 = 1;
pub const NET_UDP: u32 = 2;
pub const NETS: u32 = 3;
pub const FAMS: u32 = 2;

/// Elements of `GROUP_STATE`.
pub const GROUP_SLOTS: u32 = 256 * NETS * FAMS;

/// Index in `GROUP_STATE`; `v6` tells the family of the target.
pub const fn group_slot(ordinal: u8, net: u32, v6: bool) -> u32 {
    ordinal as u32 * (NETS * FAMS) + net * FAMS + v6 as u32
}

/// The group has nothing to send with: drop.
pub const STATE_DEAD: u32 = 1;
/// The group's selection is the built-in `direct`: the kernel may take the flow.
pub const STATE_DIRECT: u32 = 2;
/// The group's selection is the built-in `block`: the kernel may drop the flow.
pub const STATE_BLOCK: u32 = 4;
