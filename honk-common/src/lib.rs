//! What the kernel programs and the daemon agree on.
//!
//! Every type here that enters a BPF map is `repr(C)`, has no implicit padding and a
//! compile-time size check. The crate has no dependencies and no allocation in the kernel
//! build; the `std` feature adds the vectors that the rule compiler hands to the loader.
//! Addresses are 16 bytes in network order, IPv4 as `::ffff:a.b.c.d`; ports in keys are
//! host-order numbers.
#![cfg_attr(not(feature = "std"), no_std)]
#![allow(
    missing_docs,
    reason = "fields are documented where their meaning is not the name"
)]

pub mod counter;
pub mod event;
pub mod flow;
pub mod key;
pub mod limits;
#[cfg(feature = "std")]
pub mod near;
pub mod outbound;
pub mod param;
pub mod route;
#[cfg(feature = "std")]
pub mod tables;

/// Version of the map layouts; a change of any shared struct raises it.
pub const ABI_VERSION: u32 = 4;
/// First word of the `ABI_META` entry: "HNK1" read as a little-endian number.
pub const ABI_MAGIC: u32 = u32::from_le_bytes(*b"HNK1");

/// Marks a type whose every byte pattern is valid and which has no padding, so that it may be
/// copied to and from a BPF map as bytes.
///
/// # Safety
/// The type must be `repr(C)` or `repr(transparent)`, without padding, references or niches.
pub unsafe trait Pod: Copy + 'static {}

// SAFETY: plain integers have neither padding nor invalid values.
unsafe impl Pod for u32 {}
// SAFETY: as above.
unsafe impl Pod for u64 {}

/// Declares the size of an ABI struct and that it is plain data.
macro_rules! abi {
    ($ty:ty, $size:literal) => {
        const _: () = assert!(core::mem::size_of::<$ty>() == $size);
        // SAFETY: the struct is repr(C), and its size equals the sum of its fields.
        unsafe impl $crate::Pod for $ty {}
    };
}
pub(crate) use abi;
