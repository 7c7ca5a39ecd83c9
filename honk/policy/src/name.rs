//! Domain names in their ASCII form, and the names that nothing may have.

/// Names no node or group may have.
pub(crate) fn reserved(name: &str) -> bool {
    matches!(
        name,
        "" | "direct" | "block" | "control_plane_routing" | "<OR>" | "<AND>"
    ) || name.starts_with("must_")
}

/// Lower-case ASCII form of a domain name (Punycode for other labels), without trailing dot;
/// `None` when it is no domain name. Only `a-z 0-9 - . _` remain.
pub fn to_ascii(text: &str) -> Option<String> {
    let text = text.strip_suffix('.').unwrap_or(text);
    let mut out = String::with_capacity(text.len());
    for (at, label) in text.split(['.', '\u{3002}']).enumerate() {
        if at > 0 {
            out.push('.');
        }
        if label.is_ascii() {
            out.push_str(&label.to_ascii_lowercase());
        } else {
            let lower: Vec<char> = label.chars().flat_map(char::to_lowercase).collect();
            let legal = |c: &char| c.is_alphanumeric() || *c == '-' || !c.is_ascii();
            if !lower.iter().all(legal) || lower.iter().any(|c| c.is_whitespace()) {
                return None;
            }
            out.push_str("xn--");
            punycode(&lower, &mut out)?;
        }
    }
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    (out.len() <= 253 && out.bytes().all(legal)).then_some(out)
}

/// RFC 3492, encoding only.
fn punycode(label: &[char], out: &mut String) -> Option<()> {
    const BASE: u32 = 36;
    const T_MIN: u32 = 1;
    const T_MAX: u32 = 26;
    let digit = |n: u32| {
        char::from(if n < 26 {
            b'a' + n as u8
        } else {
            b'0' + (n - 26) as u8
        })
    };
    let basic: String = label.iter().filter(|c| c.is_ascii()).collect();
    out.push_str(&basic);
    let ascii = u32::try_from(basic.len()).ok()?;
    if ascii > 0 {
        out.push('-');
    }
    let (mut n, mut delta, mut bias, mut done) = (128u32, 0u32, 72u32, ascii);
    let total = u32::try_from(label.len()).ok()?;
    while done < total {
        let next = label.iter().map(|c| *c as u32).filter(|c| *c >= n).min()?;
        delta = delta.checked_add((next - n).checked_mul(done + 1)?)?;
        n = next;
        for c in label.iter().map(|c| *c as u32) {
            if c < n {
                delta = delta.checked_add(1)?;
            }
            if c != n {
                continue;
            }
            let mut q = delta;
            let mut k = BASE;
            loop {
                let t = k.saturating_sub(bias).clamp(T_MIN, T_MAX);
                if q < t {
                    break;
                }
                out.push(digit(t + (q - t) % (BASE - t)));
                q = (q - t) / (BASE - t);
                k += BASE;
            }
            out.push(digit(q));
            bias = adapt(delta, done + 1, done == ascii);
            delta = 0;
            done += 1;
        }
        delta = delta.checked_add(1)?;
        n += 1;
    }
    Some(())
}

fn adapt(delta: u32, points: u32, first: bool) -> u32 {
    let mut delta = if first { delta / 700 } else { delta / 2 };
    delta += delta / points;
    let mut k = 0;
    while delta > 455 {
        delta /= 35;
        k += 36;
    }
    k + 36 * delta / (delta + 38)
}

#[cfg(test)]
mod tests {
    use super::to_ascii;

    #[test]
    fn ascii_form() {
        for (text, ascii) in [
            ("Example.COM.", Some("example.com")),
            ("bücher.example", Some("xn--bcher-kva.example")),
            ("例え.テスト", Some("xn--r8jz45g.xn--zckzah")),
            ("президент.рф", Some("xn--d1abbgf6aiiy.xn--p1ai")),
            ("a b", None),
            ("a:b", None),
            ("ü b.example", None),
            ("_srv.example", Some("_srv.example")),
        ] {
            assert_eq!(to_ascii(text).as_deref(), ascii, "{text}");
        }
    }
}
