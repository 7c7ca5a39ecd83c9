//! The ClientHello inside QUIC Initial packets, versions 1 and 2.
//!
//! The packets are encrypted with keys that follow from their own header, so reading them is
//! allowed to anyone on the way. A hello often spans several packets, whose order is not given.

mod crypto;
mod keys;
mod packet;

#[cfg(any(test, feature = "testkit"))]
pub mod craft;

use self::{
    crypto::{Crypto, MAX_CRYPTO},
    keys::Keys,
    packet::{Initial, Packets},
};
use super::{
    Hello,
    tls::{Read, read},
};

pub use self::packet::Version;

/// Initial packets that are opened for one hello.
const MAX_PACKETS: usize = 8;
/// Packets that could not be opened until the rest is not tried.
const MAX_FAILURES: usize = 2;

/// What the datagrams of a flow have said so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The hello is not complete.
    More,
    /// All there is to know.
    Done(Hello),
    /// Not QUIC, a version that cannot be read, or nonsense: further datagrams cannot help.
    Foreign,
}

/// Whether a datagram looks like the beginning of a QUIC connection.
pub fn begins(datagram: &[u8]) -> bool {
    Packets(datagram).next().is_some()
}

/// The hello of one client socket and server, put together from datagrams.
#[derive(Debug, Default)]
pub struct Session {
    keys: Option<Keys>,
    /// What the keys were derived from.
    dcid: Vec<u8>,
    crypto: Crypto,
    opened: usize,
    failures: usize,
}

impl Session {
    /// Takes a datagram of the client.
    pub fn datagram(&mut self, datagram: &[u8]) -> Step {
        if self.opened == 0 && !begins(datagram) {
            return Step::Foreign;
        }
        for packet in Packets(datagram) {
            if self.opened >= MAX_PACKETS {
                return Step::Foreign;
            }
            let Some(frames) = self.open(&packet) else {
                self.failures += 1;
                if self.failures >= MAX_FAILURES {
                    return Step::Foreign;
                }
                continue;
            };
            self.opened += 1;
            if self.crypto.take(&frames).is_err() {
                return Step::Foreign;
            }
            if let Read::Done(hello) = read(self.crypto.beginning(), MAX_CRYPTO - 4) {
                return Step::Done(hello);
            }
        }
        Step::More
    }

    /// Opens a packet with the keys at hand, else with its own: after a Retry the client
    /// starts over with an id the server chose.
    fn open(&mut self, packet: &Initial<'_>) -> Option<Vec<u8>> {
        if let Some(frames) = self.keys.as_ref().and_then(|keys| keys.open(packet)) {
            return Some(frames);
        }
        if self.keys.is_some() && self.dcid == packet.dcid {
            return None;
        }
        let keys = Keys::derive(packet.version, packet.dcid)?;
        let frames = keys.open(packet)?;
        (self.keys, self.dcid) = (Some(keys), packet.dcid.to_vec());
        self.crypto = Crypto::default();
        Some(frames)
    }
}

#[cfg(test)]
mod tests;
