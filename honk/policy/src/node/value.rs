//! Single values with rules of their own, shared by links and subscription formats.

use uuid::Uuid;

use super::{Cipher, Encryption, Fault, Host, Pin, Reality, Sni, UserId, text, url};
use crate::id::Secret;

/// Login fields of SOCKS5 have one byte of length.
pub(crate) const MAX_LOGIN: usize = 255;

/// A user id: a UUID in either form, or another text that stands for one.
pub(crate) fn user_id(text: &str) -> Result<UserId, &'static str> {
    match text.len() {
        32 | 36 => {
            if let Ok(uuid) = Uuid::try_parse(text) {
                return Ok(UserId(uuid));
            }
            Err("the user id is not a UUID")
        }
        1..=30 => Ok(UserId(Uuid::new_v5(&Uuid::nil(), text.as_bytes()))),
        _ => Err("the user id is neither a UUID nor a text of at most 30 bytes"),
    }
}

/// A user id that must be a UUID.
pub(crate) fn uuid(text: &str) -> Result<UserId, &'static str> {
    match (text.len(), Uuid::try_parse(text)) {
        (32 | 36, Ok(uuid)) => Ok(UserId(uuid)),
        _ => Err("the user id is not a UUID"),
    }
}

/// Keys of Shadowsocks 2022 are checked and written one way; other passwords stay as they are.
pub(crate) fn password(cipher: Cipher, text: &str) -> Result<Secret, Fault> {
    let Some(length) = cipher.psk_len() else {
        return Ok(Secret::new(text));
    };
    let mut keys = Vec::new();
    for key in text.split(':') {
        let key = text::base64(key).ok_or("a key is not base64")?;
        if key.len() != length {
            return Err(Fault::Wrong(match length {
                16 => "a key has not 16 bytes, as the cipher needs",
                _ => "a key has not 32 bytes, as the cipher needs",
            }));
        }
        keys.push(text::to_base64(&key));
    }
    if keys.len() > 1 && cipher == Cipher::Blake3Chacha20Poly1305 {
        return Err(Fault::Wrong("identity keys need an AES cipher"));
    }
    Ok(Secret::new(keys.join(":")))
}

/// A cipher of Shadowsocks.
pub(crate) fn cipher(name: &str) -> Result<Cipher, Fault> {
    Cipher::parse(name).ok_or_else(|| Fault::unsupported("cipher", &name.to_ascii_lowercase()))
}

/// Ciphers that exist, but not here.
pub(crate) fn is_old_cipher(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let families = ["aes-", "camellia-", "rc4", "chacha20", "xchacha20", "2022-"];
    families.iter().any(|family| name.starts_with(family))
        || matches!(
            name.as_str(),
            "none" | "plain" | "dummy" | "table" | "bf-cfb" | "salsa20" | "idea-cfb" | "seed-cfb"
        )
}

/// A server name: a name, or an address, which is never sent.
pub(crate) fn sni(text: &str) -> Result<Sni, &'static str> {
    match url::bare_host(text) {
        Ok(host) => Ok(server_name(&host)),
        Err(_) => Err("the server name is not a host name"),
    }
}

/// The server name that a host has by itself.
pub(crate) fn server_name(host: &Host) -> Sni {
    match host {
        Host::Ip(_) => Sni::Omit,
        Host::Name(name) => Sni::Name(name.clone()),
    }
}

/// What REALITY needs; `key` and `short_id` as links write them.
pub(crate) fn reality(
    key: Option<&str>,
    short_id: &str,
    spider: Option<&str>,
) -> Result<Reality, &'static str> {
    let key = key.ok_or("the REALITY public key is missing")?;
    let key = text::base64(key).and_then(|key| key.try_into().ok());
    let public_key = key.ok_or("the REALITY public key has not 32 bytes in base64")?;
    let id = text::hex(short_id).filter(|id| id.len() <= 8);
    let id = id.ok_or("the REALITY short id is not an even number of up to 16 hex digits")?;
    let mut padded = [0; 8];
    padded[..id.len()].copy_from_slice(&id);
    Ok(Reality {
        public_key,
        short_id: padded,
        spider: spider.unwrap_or("/").to_owned(),
    })
}

/// Pins of certificates: SHA-256 in hexadecimal with or without separators, comma separated.
pub(crate) fn leaf_pins(text: &str) -> Result<Vec<Pin>, &'static str> {
    text.split(',')
        .map(|pin| {
            let digits: String = pin.chars().filter(|c| !":- ".contains(*c)).collect();
            let bytes = text::hex(&digits).and_then(|pin| pin.try_into().ok());
            bytes
                .map(Pin::Leaf)
                .ok_or("a certificate pin has not 64 hex digits")
        })
        .collect()
}

/// A SHA-256 in base64 or hexadecimal.
pub(crate) fn digest(text: &str) -> Option<[u8; 32]> {
    let hex = (text.len() == 64).then(|| text::hex(text)).flatten();
    hex.or_else(|| text::base64(text))?.try_into().ok()
}

/// Names of clients whose hello is imitated.
pub(crate) fn fingerprint(text: &str) -> Option<String> {
    let text = text.trim().to_ascii_lowercase();
    let known = [
        "chrome", "firefox", "safari", "ios", "android", "edge", "360", "qq", "random", "hello",
        "none",
    ];
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    let legal = text.len() <= 40 && text.bytes().all(word);
    (legal && known.iter().any(|name| text.starts_with(name))).then_some(text)
}

/// A VLESS encryption string: method, obfuscation, round trips, padding, keys.
pub(crate) fn encryption(text: &str) -> Result<Encryption, Fault> {
    const WRONG: Fault = Fault::Wrong("the VLESS encryption string is not complete");
    let mut blocks = text.split('.');
    if blocks.next() != Some("mlkem768x25519plus") {
        return Err(Fault::Unsupported("VLESS encryption of that kind".into()));
    }
    let mode = blocks.next().unwrap_or_default();
    let trips = blocks.next().unwrap_or_default();
    if !matches!(mode, "native" | "xorpub" | "random") || !matches!(trips, "0rtt" | "1rtt") {
        return Err(WRONG);
    }
    let (mut keys, mut padding) = (0, 0);
    for block in blocks {
        if block.len() < 20 && keys == 0 {
            pad(block, padding).ok_or(WRONG)?;
            padding += 1;
        } else {
            let key = text::base64(block).filter(|key| matches!(key.len(), 32 | 1184));
            key.ok_or(WRONG)?;
            keys += 1;
        }
    }
    match keys {
        0 => Err(WRONG),
        _ => Ok(Encryption(Secret::new(text))),
    }
}

/// `probability-min-max`.
fn pad(block: &str, at: usize) -> Option<()> {
    let mut numbers = block.split('-').map(str::parse::<u32>);
    let (chance, min, max) = (
        numbers.next()?.ok()?,
        numbers.next()?.ok()?,
        numbers.next()?.ok()?,
    );
    let first = at > 0 || (chance >= 100 && min >= 35 && max >= 35);
    (numbers.next().is_none() && min <= max && max <= 65_553 && first).then_some(())
}
