//! Resolving host names of honk's own, such as those of nodes: one question of type A or
//! AAAA, and the addresses of the answer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{
    CLASS_IN, FLAG_RESPONSE, FLAG_TRUNCATED, HEADER,
    kind::{A as TYPE_A, AAAA as TYPE_AAAA, CNAME as TYPE_CNAME},
    name::Name,
    word,
};

/// Most addresses taken from one answer.
pub const MAX_ADDRESSES: usize = 16;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
}

impl Kind {
    fn code(self) -> u16 {
        match self {
            Self::A => TYPE_A,
            Self::Aaaa => TYPE_AAAA,
        }
    }
}

/// Why a message could not be written or read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not a host name.
    #[error("the name is not a valid host name")]
    Name,
    /// The message ends early or points outside itself.
    #[error("the answer is malformed")]
    Malformed,
    /// Id or question differ: an answer to somebody else, or a forgery.
    #[error("the answer does not belong to the question")]
    Foreign,
    /// Ask again over TCP.
    #[error("the answer is truncated")]
    Truncated,
    /// The name does not exist.
    #[error("the name does not exist")]
    NoSuchName,
    /// Any other response code.
    #[error("the server answered with code {0}")]
    Code(u8),
}

/// Addresses of a name; none is a valid answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// In the order of the answer.
    pub addresses: Vec<IpAddr>,
    /// Smallest TTL on the way, in seconds; 0 when there is no address.
    pub ttl: u32,
}

/// Appends a recursive query.
pub fn query(id: u16, name: &str, kind: Kind, out: &mut Vec<u8>) -> Result<(), Error> {
    for word in [id, 0x0100, 1, 0, 0, 0] {
        out.extend_from_slice(&word.to_be_bytes());
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.is_empty() || name.len() > 253 {
        return Err(Error::Name);
    }
    for label in name.split('.') {
        let clean = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        if label.is_empty() || label.len() > 63 || !label.bytes().all(clean) {
            return Err(Error::Name);
        }
        out.push(label.len() as u8);
        out.extend_from_slice(label.as_bytes());
    }
    out.push(0);
    for word in [kind.code(), CLASS_IN] {
        out.extend_from_slice(&word.to_be_bytes());
    }
    Ok(())
}

/// Reads the answer to `question`, the bytes written by [`query`].
pub fn answer(question: &[u8], message: &[u8]) -> Result<Addresses, Error> {
    let asked = question.get(HEADER..).ok_or(Error::Malformed)?;
    let header = |at: usize| word(message, at).ok_or(Error::Malformed);
    let (flags, questions, answers) = (header(2)?, header(4)?, header(6)?);
    header(10)?;
    let echoed = message.get(HEADER..HEADER + asked.len());
    if message[..2] != question[..2]
        || flags & FLAG_RESPONSE == 0
        || questions != 1
        || !echoed.is_some_and(|echoed| echoed.eq_ignore_ascii_case(asked))
    {
        return Err(Error::Foreign);
    }
    if flags & FLAG_TRUNCATED != 0 {
        return Err(Error::Truncated);
    }
    match flags & 15 {
        0 => {}
        3 => return Err(Error::NoSuchName),
        code => return Err(Error::Code(code as u8)),
    }
    let kind = word(asked, asked.len() - 4).ok_or(Error::Malformed)?;
    records(message, HEADER + asked.len(), answers, kind)
}

/// Walks the answer section along the chain of aliases that starts at the question.
fn records(message: &[u8], start: usize, count: u16, kind: u16) -> Result<Addresses, Error> {
    let mut owner = name(message, HEADER)?.0;
    let mut found = Addresses::default();
    let mut ttl_seen = u32::MAX;
    let mut at = start;
    for _ in 0..count {
        let (record_owner, after) = name(message, at)?;
        let fixed = message.get(after..after + 10).ok_or(Error::Malformed)?;
        let record = u16::from_be_bytes([fixed[0], fixed[1]]);
        let class = u16::from_be_bytes([fixed[2], fixed[3]]);
        let ttl = u32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]);
        let len = usize::from(u16::from_be_bytes([fixed[8], fixed[9]]));
        let data = after + 10;
        let body = message.get(data..data + len).ok_or(Error::Malformed)?;
        at = data + len;
        if class != CLASS_IN || record_owner != owner {
            continue;
        }
        if record == TYPE_CNAME {
            owner = name(message, data)?.0;
            ttl_seen = ttl_seen.min(ttl);
        } else if record == kind && found.addresses.len() < MAX_ADDRESSES {
            found.addresses.push(address(body, kind)?);
            ttl_seen = ttl_seen.min(ttl);
        }
    }
    if !found.addresses.is_empty() {
        found.ttl = ttl_seen;
    }
    Ok(found)
}

fn address(body: &[u8], kind: u16) -> Result<IpAddr, Error> {
    if kind == TYPE_A {
        let octets = <[u8; 4]>::try_from(body).map_err(|_| Error::Malformed)?;
        return Ok(IpAddr::V4(Ipv4Addr::from(octets)));
    }
    let octets = <[u8; 16]>::try_from(body).map_err(|_| Error::Malformed)?;
    Ok(IpAddr::V6(Ipv6Addr::from(octets)))
}

fn name(message: &[u8], start: usize) -> Result<(Name, usize), Error> {
    Name::read(message, start).ok_or(Error::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(kind: Kind) -> Vec<u8> {
        let mut out = Vec::new();
        query(0x1234, "Node.example.com", kind, &mut out).unwrap();
        out
    }

    /// An answer with the given records: owner offset or name bytes, type, ttl, data.
    fn reply(question: &[u8], flags: u16, records: &[(&[u8], u16, u32, &[u8])]) -> Vec<u8> {
        let mut out = question.to_vec();
        out[2..4].copy_from_slice(&(FLAG_RESPONSE | flags).to_be_bytes());
        out[6..8].copy_from_slice(&(records.len() as u16).to_be_bytes());
        for (owner, kind, ttl, data) in records {
            out.extend_from_slice(owner);
            out.extend_from_slice(&kind.to_be_bytes());
            out.extend_from_slice(&CLASS_IN.to_be_bytes());
            out.extend_from_slice(&ttl.to_be_bytes());
            out.extend_from_slice(&(data.len() as u16).to_be_bytes());
            out.extend_from_slice(data);
        }
        out
    }

    const QNAME: &[u8] = &[0xc0, 12];

    #[test]
    fn addresses_and_the_smallest_ttl_are_found() {
        let question = ask(Kind::A);
        let message = reply(
            &question,
            0,
            &[
                (QNAME, TYPE_CNAME, 30, b"\x01a\x01b\0"),
                (b"\x01a\x01b\0", TYPE_A, 60, &[192, 0, 2, 1]),
                (b"\x01x\x01b\0", TYPE_A, 60, &[192, 0, 2, 9]),
                (b"\x01a\x01b\0", TYPE_AAAA, 60, &[0; 16]),
            ],
        );
        let got = answer(&question, &message).unwrap();
        assert_eq!(got.addresses, ["192.0.2.1".parse::<IpAddr>().unwrap()]);
        assert_eq!(got.ttl, 30);
    }

    #[test]
    fn ipv6_and_empty_answers() {
        let question = ask(Kind::Aaaa);
        let message = reply(&question, 0, &[(QNAME, TYPE_AAAA, 5, &[1; 16])]);
        let got = answer(&question, &message).unwrap();
        assert_eq!(got.addresses, [IpAddr::V6(Ipv6Addr::from([1; 16]))]);
        let none = answer(&question, &reply(&question, 0, &[])).unwrap();
        assert_eq!(none, Addresses::default());
    }

    #[test]
    fn foreign_truncated_and_negative_answers() {
        let question = ask(Kind::A);
        let good = reply(&question, 0, &[]);
        let mut other_id = good.clone();
        other_id[0] ^= 1;
        assert_eq!(answer(&question, &other_id), Err(Error::Foreign));
        assert_eq!(answer(&ask(Kind::Aaaa), &good), Err(Error::Foreign));
        assert_eq!(answer(&question, &question), Err(Error::Foreign));
        let flags = |flags| answer(&question, &reply(&question, flags, &[]));
        assert_eq!(flags(FLAG_TRUNCATED), Err(Error::Truncated));
        assert_eq!(flags(3), Err(Error::NoSuchName));
        assert_eq!(flags(2), Err(Error::Code(2)));
    }

    #[test]
    fn the_case_of_the_echo_may_differ() {
        let question = ask(Kind::A);
        let mut message = reply(&question, 0, &[(QNAME, TYPE_A, 9, &[10, 0, 0, 1])]);
        message[HEADER + 1] = b'n';
        assert_eq!(answer(&question, &message).unwrap().addresses.len(), 1);
    }

    #[test]
    fn names_are_checked_before_they_are_sent() {
        let label = "x".repeat(64);
        for bad in ["", ".", "a..b", "a b", label.as_str(), &"a.".repeat(130)] {
            assert_eq!(query(1, bad, Kind::A, &mut Vec::new()), Err(Error::Name));
        }
    }

    #[test]
    fn a_pointer_loop_ends() {
        let question = ask(Kind::A);
        let at = question.len() as u16 | 0xc000;
        let message = reply(
            &question,
            0,
            &[(&at.to_be_bytes(), TYPE_A, 1, &[1, 2, 3, 4])],
        );
        assert_eq!(answer(&question, &message), Err(Error::Malformed));
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_answers_never_panic(tail: Vec<u8>, count: u16, raw: Vec<u8>) {
            let question = ask(Kind::A);
            let mut message = reply(&question, 0, &[]);
            message[6..8].copy_from_slice(&count.to_be_bytes());
            message.extend_from_slice(&tail);
            if let Ok(found) = answer(&question, &message) {
                assert!(found.addresses.len() <= MAX_ADDRESSES);
            }
            let _ = answer(&question, &raw);
        }
    }
}
