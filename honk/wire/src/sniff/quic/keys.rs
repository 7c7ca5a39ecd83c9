//! Protection of Initial packets: keys anyone can derive from the packet itself (RFC 9001
//! section 5, RFC 9369 section 3).

use aes::{
    Aes128,
    cipher::{BlockEncrypt, KeyInit},
};
use aes_gcm::{AeadInPlace, Aes128Gcm};
use hkdf::Hkdf;
use sha2::Sha256;

use super::packet::{Initial, Version};

const TAG: usize = 16;
/// Bytes of a packet that mask its header.
const SAMPLE: usize = 16;

impl Version {
    fn salt(self) -> [u8; 20] {
        match self {
            Self::V1 => [
                0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17, 0x9a, 0xe6, 0xa4, 0xc8,
                0x0c, 0xad, 0xcc, 0xbb, 0x7f, 0x0a,
            ],
            Self::V2 => [
                0x0d, 0xed, 0xe3, 0xde, 0xf7, 0x00, 0xa6, 0xdb, 0x81, 0x93, 0x81, 0xbe, 0x6e, 0x26,
                0x9d, 0xcb, 0xf9, 0xbd, 0x2e, 0xd9,
            ],
        }
    }

    /// Labels of key, IV and header protection key.
    fn labels(self) -> [&'static str; 3] {
        match self {
            Self::V1 => ["quic key", "quic iv", "quic hp"],
            Self::V2 => ["quicv2 key", "quicv2 iv", "quicv2 hp"],
        }
    }
}

/// What opens the Initial packets of a client.
pub(super) struct Keys {
    aead: Aes128Gcm,
    iv: [u8; 12],
    header: Aes128,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys")
    }
}

impl Keys {
    /// The keys that follow from the destination id of the client's first packet.
    pub(super) fn derive(version: Version, dcid: &[u8]) -> Option<Self> {
        let (_, initial) = Hkdf::<Sha256>::extract(Some(&version.salt()), dcid);
        let client: [u8; 32] = expand(&initial, "client in")?;
        let client = Hkdf::<Sha256>::from_prk(&client).ok()?;
        let [key, iv, header] = version.labels();
        let key: [u8; 16] = expand(&client, key)?;
        let header: [u8; 16] = expand(&client, header)?;
        Some(Self {
            aead: Aes128Gcm::new(&key.into()),
            iv: expand(&client, iv)?,
            header: Aes128::new(&header.into()),
        })
    }

    /// Opens a packet: its frames, if the keys fit.
    pub(super) fn open(&self, packet: &Initial<'_>) -> Option<Vec<u8>> {
        let mut bytes = packet.bytes.to_vec();
        let number = packet.number_at;
        let sample = bytes.get(number + 4..)?.first_chunk::<SAMPLE>()?;
        let mut mask = (*sample).into();
        self.header.encrypt_block(&mut mask);
        let first = bytes.first_mut()?;
        *first ^= mask[0] & 0x0f;
        let length = usize::from(*first & 3) + 1;
        let mut nonce = self.iv;
        for n in 0..length {
            let byte = bytes.get_mut(number + n)?;
            *byte ^= mask[1 + n];
            // The first packets of a client: their numbers are never shortened.
            nonce[12 - length + n] ^= *byte;
        }
        let (header, sealed) = bytes.split_at_mut_checked(number + length)?;
        let (frames, tag) = sealed.split_at_mut_checked(sealed.len().checked_sub(TAG)?)?;
        let tag: [u8; TAG] = (*tag).try_into().ok()?;
        self.aead
            .decrypt_in_place_detached(&nonce.into(), header, frames, &tag.into())
            .ok()?;
        Some(frames.to_vec())
    }

    /// The inverse: a header that ends with a number of `length` bytes, and frames.
    #[cfg(any(test, feature = "testkit"))]
    pub(super) fn seal(&self, header: &[u8], length: usize, frames: &[u8]) -> Option<Vec<u8>> {
        let number = header.len().checked_sub(length)?;
        let mut nonce = self.iv;
        for (at, byte) in header.get(number..)?.iter().enumerate() {
            nonce[12 - length + at] ^= byte;
        }
        let mut sealed = frames.to_vec();
        let tag = self
            .aead
            .encrypt_in_place_detached(&nonce.into(), header, &mut sealed)
            .ok()?;
        let mut packet = [header, &sealed, &tag].concat();
        let sample = packet.get(number + 4..)?.first_chunk::<SAMPLE>()?;
        let mut mask = (*sample).into();
        self.header.encrypt_block(&mut mask);
        *packet.first_mut()? ^= mask[0] & 0x0f;
        for (byte, mask) in packet
            .get_mut(number..header.len())?
            .iter_mut()
            .zip(&mask[1..])
        {
            *byte ^= mask;
        }
        Some(packet)
    }
}

/// `HKDF-Expand-Label` of TLS 1.3 with an empty context.
fn expand<const N: usize>(secret: &Hkdf<Sha256>, label: &str) -> Option<[u8; N]> {
    let mut out = [0; N];
    let length = [0, N as u8];
    let label_length = [b"tls13 ".len() as u8 + label.len() as u8];
    let info: [&[u8]; 5] = [&length, &label_length, b"tls13 ", label.as_bytes(), &[0]];
    secret.expand_multi_info(&info, &mut out).ok()?;
    Some(out)
}
