//! Base chains of nf_tables: which hooks of the host drop what no rule accepts.
//!
//! Read only, for diagnosis; rules themselves are not read. Legacy iptables keeps its policies
//! where only its own tool finds them.

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};

use super::{BUFFER, Error, attributes, messages, text};

/// `NFNL_SUBSYS_NFTABLES`, in the upper half of a message type.
const NFTABLES: u16 = 10 << 8;
const NEW_CHAIN: u16 = NFTABLES | 3;
const GET_CHAIN: u16 = NFTABLES | 4;
const DONE: u16 = 3;
const ERROR: u16 = 2;
const FLAGS: u16 = 0x301; // request, dump
/// `nfgenmsg`
const HEADER: usize = 4;

const TABLE: u16 = 1;
const NAME: u16 = 3;
const HOOK: u16 = 4;
const POLICY: u16 = 5;
const TYPE: u16 = 7;
const HOOK_NUMBER: u16 = 1;

/// A chain that packets of the host meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BaseChain {
    pub(crate) family: u8,
    pub(crate) table: String,
    pub(crate) name: String,
    /// `NF_INET_*`
    pub(crate) hook: u32,
    /// What happens to packets that no rule decides about.
    pub(crate) drops: bool,
}

/// `NF_INET_LOCAL_IN`
pub(crate) const INPUT: u32 = 1;
/// `NF_INET_LOCAL_OUT`
pub(crate) const OUTPUT: u32 = 3;
/// `NF_INET_FORWARD`
pub(crate) const FORWARD: u32 = 2;

/// Filter chains of the calling thread's namespace. A kernel without nf_tables has none.
pub(crate) fn base_chains() -> Result<Vec<BaseChain>, Error> {
    read().map_err(|e| Error::new("list firewall chains", e))
}

fn read() -> std::io::Result<Vec<BaseChain>> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.send(&request(), 0)?;
    let mut found = Vec::new();
    let mut buffer = vec![0; BUFFER];
    loop {
        let mut room = &mut buffer[..];
        let read = match socket.recv(&mut room, 0) {
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        for message in messages(buffer.get(..read).unwrap_or_default()) {
            match message.kind {
                NEW_CHAIN => found.extend(chain(message.payload)),
                // Also the answer of a kernel without nf_tables.
                DONE | ERROR => return Ok(found),
                _ => {}
            }
        }
    }
}

fn request() -> Vec<u8> {
    let mut bytes = Vec::with_capacity(20);
    bytes.extend(20u32.to_ne_bytes());
    bytes.extend(GET_CHAIN.to_ne_bytes());
    bytes.extend(FLAGS.to_ne_bytes());
    bytes.extend(1u32.to_ne_bytes()); // sequence
    bytes.extend(0u32.to_ne_bytes()); // port
    bytes.extend([0; HEADER]); // any family
    bytes
}

fn chain(payload: &[u8]) -> Option<BaseChain> {
    let mut chain = BaseChain {
        family: *payload.first()?,
        table: String::new(),
        name: String::new(),
        hook: u32::MAX,
        drops: false,
    };
    let mut filters = false;
    for (kind, value) in attributes(payload, HEADER) {
        // The upper bits say that it is nested or in network order.
        match kind & 0x3fff {
            TABLE => chain.table = text(value),
            NAME => chain.name = text(value),
            TYPE => filters = text(value) == "filter",
            POLICY => chain.drops = be32(value) == Some(0),
            HOOK => {
                let number = |(kind, value): (u16, &[u8])| {
                    (kind & 0x3fff == HOOK_NUMBER).then(|| be32(value))?
                };
                chain.hook = attributes(value, 0).find_map(number).unwrap_or(u32::MAX);
            }
            _ => {}
        }
    }
    (filters && chain.hook != u32::MAX).then_some(chain)
}

fn be32(value: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(value.get(..4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = u16::try_from(value.len() + 4)
            .unwrap()
            .to_ne_bytes()
            .to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn a_base_chain_is_read_with_its_policy() {
        let mut bytes = vec![1, 0, 0, 0];
        bytes.extend(attribute(TABLE, b"wall\0"));
        bytes.extend(attribute(NAME, b"out\0"));
        let hook = attribute(HOOK_NUMBER, &3u32.to_be_bytes());
        bytes.extend(attribute(HOOK | 0x8000, &hook));
        bytes.extend(attribute(POLICY, &0u32.to_be_bytes()));
        bytes.extend(attribute(TYPE, b"filter\0"));
        let found = chain(&bytes).unwrap();
        assert_eq!((found.table.as_str(), found.name.as_str()), ("wall", "out"));
        assert_eq!((found.hook, found.drops, found.family), (OUTPUT, true, 1));
    }

    #[test]
    fn other_chains_and_rubbish_are_left_out() {
        assert!(chain(&[]).is_none());
        assert!(chain(&[2, 0, 0, 0, 255, 255]).is_none());
        let mut plain = vec![2, 0, 0, 0];
        plain.extend(attribute(NAME, b"sub\0"));
        assert!(chain(&plain).is_none(), "no hook");
    }

    #[test]
    fn the_kernel_answers() {
        match base_chains() {
            Ok(chains) => assert!(chains.len() < 10_000),
            Err(e) => eprintln!("skipped: {e}"),
        }
    }
}
