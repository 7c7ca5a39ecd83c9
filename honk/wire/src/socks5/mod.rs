//! SOCKS5 client (RFC 1928) with username/password authentication (RFC 1929).
//!
//! [`Handshake`] is the stream side: it says what to send and eats what arrives. `udp` holds
//! the header of relayed datagrams. Replies are parsed exactly; whatever follows the last
//! reply belongs to the target and is left to the caller.

mod handshake;
pub mod udp;

pub use handshake::{Bound, Handshake, Mode, Step};

use crate::addr::AddrError;

const VERSION: u8 = 5;
const AUTH_VERSION: u8 = 1;
const METHOD_NONE: u8 = 0;
const METHOD_PASSWORD: u8 = 2;
const METHOD_REFUSED: u8 = 0xff;

/// What is asked of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// A stream to the target.
    Connect = 1,
    /// A datagram relay.
    UdpAssociate = 3,
}

/// Username and password, each at most 255 bytes.
#[derive(Clone, Copy)]
pub struct Credentials<'a> {
    /// Username.
    pub user: &'a str,
    /// Password.
    pub password: &'a str,
}

impl std::fmt::Debug for Credentials<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials(***)")
    }
}

/// Reply codes other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// 1: general failure; many servers answer it when their own dial failed.
    General,
    /// 2: the ruleset of the server forbids it.
    NotAllowed,
    /// 3: network unreachable.
    NetworkUnreachable,
    /// 4: host unreachable.
    HostUnreachable,
    /// 5: the target refused the connection.
    ConnectionRefused,
    /// 6: TTL expired.
    TtlExpired,
    /// 7: the server does not know the command.
    CommandUnsupported,
    /// 8: the server cannot dial this address type.
    AddressUnsupported,
    /// Any other code.
    Other(u8),
}

impl Refusal {
    fn from_code(code: u8) -> Self {
        match code {
            1 => Self::General,
            2 => Self::NotAllowed,
            3 => Self::NetworkUnreachable,
            4 => Self::HostUnreachable,
            5 => Self::ConnectionRefused,
            6 => Self::TtlExpired,
            7 => Self::CommandUnsupported,
            8 => Self::AddressUnsupported,
            other => Self::Other(other),
        }
    }
}

/// Why a handshake failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The peer does not speak SOCKS5.
    #[error("the server answered with version {0}, not 5; is it a SOCKS5 server?")]
    Version(u8),
    /// No offered authentication method is accepted.
    #[error("the server accepts none of our authentication methods; check the credentials")]
    NoMethod,
    /// The server chose a method that was not offered.
    #[error("the server chose authentication method {0}, which was not offered")]
    MethodNotOffered(u8),
    /// Username or password were refused.
    #[error("the server refused username or password (status {0})")]
    AuthRefused(u8),
    /// The request was refused.
    #[error("the server refused the request: {0:?}")]
    Refused(Refusal),
    /// The bound address in the reply is malformed.
    #[error("the reply is malformed: {0}")]
    BoundAddress(AddrError),
    /// The target does not fit the protocol.
    #[error("the target cannot be requested: {0}")]
    Target(AddrError),
    /// Username or password do not fit the protocol.
    #[error("username and password may have at most 255 bytes each")]
    CredentialsTooLong,
}
