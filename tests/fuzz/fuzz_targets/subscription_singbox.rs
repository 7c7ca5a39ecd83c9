//! Subscription bodies read as `singbox`.
#![no_main]

use honk_policy::subscription::Format;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| honk_fuzz::body(bytes, Format::SingBox));
