//! Standard base64 with padding, encoding only: Basic credentials need nothing else.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Appends the encoding of `input`.
pub(crate) fn encode(input: &[u8], out: &mut Vec<u8>) {
    for chunk in input.chunks(3) {
        let mut group = [0u8; 3];
        group[..chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes([0, group[0], group[1], group[2]]);
        for i in 0..4 {
            let index = (bits >> (18 - 6 * i)) & 63;
            out.push(if i <= chunk.len() {
                ALPHABET[index as usize]
            } else {
                b'='
            });
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn rfc_4648_vectors() {
        for (plain, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            let mut out = Vec::new();
            super::encode(plain.as_bytes(), &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), coded);
        }
    }
}
