//! Datagrams of a QUIC client. The first byte says what the rest is: datagrams as they come on
//! the wire, or frames that are sealed first, since no mutation gets past the seal.
#![no_main]

use honk_wire::sniff::quic::{Session, Version, craft};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&kind, rest)) = bytes.split_first() else {
        return;
    };
    let mut session = Session::default();
    for (n, part) in rest.chunks(1200).enumerate() {
        let _ = match kind {
            0 => session.datagram(part),
            _ => {
                let version = if kind & 1 == 1 { Version::V1 } else { Version::V2 };
                let packet = craft::initial(version, &[kind; 8], n as u16, part);
                session.datagram(&packet.expect("the id is short"))
            }
        };
    }
});
