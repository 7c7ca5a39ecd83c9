//! Share links and chains of them.
#![no_main]

use honk_policy::node::link;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(link) = link::parse(text) {
        honk_fuzz::survives(&link.into());
    }
});
