//! What an answer says about the name that was asked for.

use std::net::IpAddr;

use super::{
    CLASS_IN, kind,
    message::{Message, Record},
    name::Name,
    rcode, svcb,
};

/// Addresses taken from one answer; further ones are counted only.
pub const MAX_LEARNED: usize = 256;
/// Aliases followed from the question on.
const MAX_CHAIN: usize = 16;

/// Why bytes are no answer to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// Another id, another question, or no response at all.
    Foreign,
    /// The right question, but what follows cannot be read.
    Malformed,
}

/// One address with its remaining time to live in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Learned {
    /// Where clients will connect to.
    pub address: IpAddr,
    /// As sent.
    pub ttl: u32,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Records, some of them addresses of the name.
    Addresses {
        /// At most [`MAX_LEARNED`].
        list: Vec<Learned>,
        /// How many more there were.
        more: usize,
    },
    /// The name does not exist, or has no such record.
    Negative,
    /// Cut short; the asker will ask again over TCP.
    Truncated,
    /// Any other response code, or an alias chain without end.
    Nothing,
}

/// Reads an answer to a question about `name`. The case of the echoed question does not
/// matter.
pub fn read_answer(id: u16, name: &Name, asked: u16, bytes: &[u8]) -> Result<Answer, Rejected> {
    let message = Message::new(bytes).ok_or(Rejected::Foreign)?;
    if message.id != id || !message.is_response() || message.opcode() != 0 {
        return Err(Rejected::Foreign);
    }
    let code = message.rcode();
    if message.questions == 0 {
        // Servers that could not read the question do not repeat it.
        let failed = matches!(
            code,
            rcode::FORMERR | rcode::SERVFAIL | rcode::NOTIMP | rcode::REFUSED
        );
        return if failed && message.answers == 0 {
            Ok(Answer::Nothing)
        } else {
            Err(Rejected::Foreign)
        };
    }
    let question = message.question().ok_or(Rejected::Foreign)?;
    if question.name != *name || question.kind != asked || question.class != CLASS_IN {
        return Err(Rejected::Foreign);
    }
    if message.is_truncated() {
        return Ok(Answer::Truncated);
    }
    match code {
        rcode::NOERROR => records(&message, name, asked, question.end),
        rcode::NXDOMAIN => Ok(Answer::Negative),
        _ => Ok(Answer::Nothing),
    }
}

fn records(
    message: &Message<'_>,
    name: &Name,
    asked: u16,
    start: usize,
) -> Result<Answer, Rejected> {
    let all = message.records(start, message.answers);
    let Some(owners) = chain(message, name, all.clone())? else {
        return Ok(Answer::Nothing);
    };
    let (mut list, mut more, mut asked_for) = (Vec::new(), 0, false);
    for record in all {
        let record = record.ok_or(Rejected::Malformed)?;
        if !record.is_in() || !owners.contains(&owner(message, &record)?) {
            continue;
        }
        asked_for |= record.kind == asked;
        let mut put = |address: IpAddr| {
            let ttl = record.ttl;
            if list.len() < MAX_LEARNED {
                list.push(Learned { address, ttl });
            } else {
                more += 1;
            }
        };
        if !addresses(&record, &mut put) {
            return Err(Rejected::Malformed);
        }
    }
    if list.is_empty() && !asked_for && matches!(asked, kind::A | kind::AAAA) {
        return Ok(Answer::Negative);
    }
    Ok(Answer::Addresses { list, more })
}

/// The names that stand for the one asked for: itself and its aliases. `None` for a chain
/// that is too long or returns to itself.
fn chain<'a>(
    message: &Message<'a>,
    name: &Name,
    records: impl Iterator<Item = Option<Record<'a>>> + Clone,
) -> Result<Option<Vec<Name>>, Rejected> {
    let mut owners = vec![name.clone()];
    let mut aliases = Vec::new();
    for record in records {
        let record = record.ok_or(Rejected::Malformed)?;
        if record.kind != kind::CNAME || !record.is_in() {
            continue;
        }
        let (target, end) = Name::read(message.bytes, record.at).ok_or(Rejected::Malformed)?;
        if end != record.at + record.data.len() {
            return Err(Rejected::Malformed);
        }
        // More than this cannot all be followed; what is left over is of nobody's.
        if aliases.len() > MAX_CHAIN {
            return Ok(None);
        }
        aliases.push((owner(message, &record)?, target));
    }
    // Records come in any order, so whoever is reachable is looked for until nothing changes.
    let mut at = 0;
    while let Some(current) = owners.get(at).cloned() {
        for (_, target) in aliases.iter().filter(|(from, _)| *from == current) {
            if owners.contains(target) {
                return Ok(None);
            }
            owners.push(target.clone());
        }
        at += 1;
        if owners.len() > MAX_CHAIN + 1 {
            return Ok(None);
        }
    }
    Ok(Some(owners))
}

fn owner(message: &Message<'_>, record: &Record<'_>) -> Result<Name, Rejected> {
    let name = Name::read(message.bytes, record.owner);
    name.map(|(name, _)| name).ok_or(Rejected::Malformed)
}

/// Gives the addresses of a record; false when its data cannot be read.
fn addresses(record: &Record<'_>, give: &mut impl FnMut(IpAddr)) -> bool {
    match record.kind {
        kind::A => match <[u8; 4]>::try_from(record.data) {
            Ok(octets) => give(IpAddr::from(octets)),
            Err(_) => return false,
        },
        kind::AAAA => match <[u8; 16]>::try_from(record.data) {
            Ok(octets) => give(IpAddr::from(octets)),
            Err(_) => return false,
        },
        kind::SVCB | kind::HTTPS => return svcb::hints(record.data, give),
        _ => {}
    }
    true
}
