//! From bytes to text: only UTF-8 is read, and other encodings are recognised to say so.

/// Bytes looked at to recognise an encoding.
const LOOKED_AT: usize = 4096;

/// Why bytes are no text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Foreign {
    pub(crate) message: String,
    pub(crate) help: String,
}

/// The text, or what can be read of it and what is wrong with the rest.
pub(crate) fn decode(bytes: &[u8]) -> (&str, Option<Foreign>) {
    if let Some(name) = utf16(bytes) {
        return ("", Some(foreign(&format!("the file is {name} text"), name)));
    }
    let error = match std::str::from_utf8(bytes) {
        Ok(text) => return (text, None),
        Err(error) => error,
    };
    let good = error.valid_up_to();
    let text = std::str::from_utf8(&bytes[..good]).unwrap_or_default();
    let message = format!("the file is not UTF-8 (byte {good})");
    let found = if is_gbk(&bytes[good..]) {
        foreign(&format!("{message}; it looks like GBK text"), "GBK")
    } else {
        Foreign {
            message,
            help: "save the file as UTF-8".to_owned(),
        }
    };
    (text, Some(found))
}

fn foreign(message: &str, name: &str) -> Foreign {
    Foreign {
        message: message.to_owned(),
        help: format!("save the file as UTF-8, as with `iconv -f {name} -t UTF-8 old > new`"),
    }
}

/// UTF-16 begins with its mark, or every other byte of its Latin text is zero.
fn utf16(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0xFF, 0xFE, ..] => return Some("UTF-16"),
        [0xFE, 0xFF, ..] => return Some("UTF-16"),
        _ => {}
    }
    let looked_at = &bytes[..bytes.len().min(LOOKED_AT)];
    let zeros = |odd: usize| {
        let places = looked_at.iter().skip(odd).step_by(2);
        places.filter(|byte| **byte == 0).count()
    };
    let most = looked_at.len() / 4;
    match (zeros(0), zeros(1)) {
        (0, little) if little > most => Some("UTF-16LE"),
        (big, 0) if big > most => Some("UTF-16BE"),
        _ => None,
    }
}

/// Whether the bytes above ASCII come in the pairs of GBK.
fn is_gbk(bytes: &[u8]) -> bool {
    let mut rest = &bytes[..bytes.len().min(LOOKED_AT)];
    let mut pairs = 0;
    while let [first, tail @ ..] = rest {
        rest = match (first, tail) {
            (0..=0x7F, _) => tail,
            (0x81..=0xFE, [0x40..=0x7E | 0x80..=0xFE, behind @ ..]) => {
                // Letters of Europe stand alone between ASCII ones.
                pairs += usize::from(tail[0] >= 0x80);
                behind
            }
            // Cut where the looking ends.
            (0x81..=0xFE, []) => tail,
            _ => return false,
        };
    }
    pairs > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(bytes: &[u8]) -> (String, String) {
        let found = decode(bytes).1.expect("this is no UTF-8");
        (found.message, found.help)
    }

    #[test]
    fn utf8_is_text_and_what_precedes_a_bad_byte_is_kept() {
        assert_eq!(decode("日a\0".as_bytes()), ("日a\0", None));
        assert_eq!(decode(b"").1, None);
        assert_eq!(decode(b"ab\xFFc").0, "ab");
        let (text, help) = message(b"ab\xFFc");
        assert_eq!(text, "the file is not UTF-8 (byte 2)");
        assert_eq!(help, "save the file as UTF-8");
    }

    #[test]
    fn other_encodings_are_named_with_the_way_out() {
        let le: Vec<u8> = "global {}".bytes().flat_map(|b| [b, 0]).collect();
        let be: Vec<u8> = "global {}".bytes().flat_map(|b| [0, b]).collect();
        for (bytes, name) in [
            ([b"\xFF\xFE".as_slice(), &le].concat(), "UTF-16"),
            ([b"\xFE\xFF".as_slice(), &be].concat(), "UTF-16"),
            (le, "UTF-16LE"),
            (be, "UTF-16BE"),
            (b"# \xD6\xD0\xCE\xC4 x\nglobal {}".to_vec(), "GBK"),
            (b"a: '\xCF\xE3\xB8\xDB'".to_vec(), "GBK"),
        ] {
            let (text, help) = message(&bytes);
            assert!(text.contains(name), "{text}");
            assert!(help.contains(&format!("iconv -f {name} ")), "{help}");
        }
        // A letter of Latin-1 is not half of a Chinese one.
        assert!(!message(b"# caf\xE9 au lait\n").0.contains("GBK"));
    }
}
