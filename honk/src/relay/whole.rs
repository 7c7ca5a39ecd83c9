//! Whether a client that has sent this now waits for an answer.

/// TLS record type of a handshake (RFC 8446 section 5.1).
const HANDSHAKE: u8 = 22;

/// Exactly one record of a TLS handshake, or an HTTP/1 request without a body. A guess: when it
/// is wrong, an acknowledgement is late by the 40 ms after which the kernel sends it anyway.
pub(super) fn is_request(data: &[u8]) -> bool {
    let tls = match data {
        [HANDSHAKE, 3, _, high, low, record @ ..] => {
            usize::from(u16::from_be_bytes([*high, *low])) == record.len()
        }
        _ => false,
    };
    let bodyless = data.starts_with(b"GET ") || data.starts_with(b"HEAD ");
    tls || bodyless && data.ends_with(b"\r\n\r\n")
}

#[cfg(test)]
mod tests {
    use super::is_request;

    #[test]
    fn only_what_is_complete_can_wait_for_its_answer() {
        for whole in [
            &b"GET / HTTP/1.0\r\n\r\n"[..],
            b"HEAD /x HTTP/1.1\r\nHost: a\r\n\r\n",
            &[22, 3, 1, 0, 2, 1, 0],
        ] {
            assert!(is_request(whole), "{whole:?}");
        }
        for part in [
            &b""[..],
            b"GET / HTTP/1.1\r\nHost: a\r\n",
            b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n",
            b"SSH-2.0-x\r\n\r\n",
            &[22, 3, 1, 0, 3, 1, 0],
            &[22, 3, 1, 0, 1, 1, 0],
            &[23, 3, 1, 0, 2, 1, 0],
            &[22, 3, 1, 0],
        ] {
            assert!(!is_request(part), "{part:?}");
        }
    }
}
