//! Which messages of clients are queries that honk looks at.

use super::{
    CLASS_IN, FLAG_CHECKING_DISABLED, FLAG_RECURSION_DESIRED,
    edns::{self, Edns},
    kind,
    message::Message,
    name::Name,
};

/// A query of class IN with one question.
#[derive(Clone, Debug)]
pub struct Query<'a> {
    /// Chosen by the asker.
    pub id: u16,
    /// Name asked for.
    pub name: Name,
    /// Record type asked for.
    pub kind: u16,
    /// OPT record, if there is one.
    pub edns: Option<Edns>,
    /// The question as written.
    pub(super) question: &'a [u8],
    /// Flags a reply repeats: RD and CD.
    pub(super) copied: u16,
}

impl<'a> Query<'a> {
    /// Reads a query. `None` for everything else: other protocols on the port, responses,
    /// other operations and classes, zone transfers, and malformed queries, which are for the
    /// server to refuse.
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let message = Message::new(bytes)?;
        if message.is_response()
            || message.opcode() != 0
            || message.answers != 0
            || message.authorities != 0
        {
            return None;
        }
        let question = message.question()?;
        let transfer = matches!(question.kind, kind::AXFR | kind::IXFR);
        if question.class != CLASS_IN || transfer {
            return None;
        }
        let edns = edns::find(&message, question.end)?;
        Some(Self {
            id: message.id,
            name: question.name,
            kind: question.kind,
            edns,
            question: bytes.get(super::HEADER..question.end)?,
            copied: message.flags & (FLAG_RECURSION_DESIRED | FLAG_CHECKING_DISABLED),
        })
    }
}
