//! First bytes of TCP flows: a decision stands however much comes behind it.
#![no_main]

use honk_wire::sniff::{Step, stream};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let whole = stream(bytes);
    let first = (0..=bytes.len()).find_map(|n| match stream(&bytes[..n]) {
        Step::More(_) => None,
        step => Some(step),
    });
    if let Some(first) = first {
        assert_eq!(first, whole);
    }
});
