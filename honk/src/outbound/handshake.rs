//! The conversation with a node before payload flows, whatever its protocol.

use honk_policy::node::{Protocol, Server};
use honk_wire::{
    Target, http,
    socks5::{self, Command, Credentials, Mode},
};

use super::error::{self, Class, DialError, Stage};

/// A handshake under way.
#[derive(Debug)]
pub(crate) enum Handshake {
    Socks5(socks5::Handshake),
    Http(http::Answer),
}

/// Result of feeding bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Send what was appended, then read on.
    More,
    /// Agreed; the first `usize` bytes of the input belonged to the handshake.
    Done(usize),
}

impl Handshake {
    /// Starts a stream to `target` and appends the first flight to `out`. `None` for
    /// protocols without a server.
    pub(crate) fn start(
        protocol: &Protocol,
        target: &Target<'_>,
        mode: Mode,
        out: &mut Vec<u8>,
    ) -> Result<Option<Self>, DialError> {
        match protocol {
            Protocol::Direct | Protocol::Block => Ok(None),
            Protocol::Socks5(server) => {
                let auth = credentials(server);
                let hs = socks5::Handshake::start(Command::Connect, target, auth, mode, out)?;
                Ok(Some(Self::Socks5(hs)))
            }
            Protocol::Http(server) => {
                http::connect(target, credentials(server), out)?;
                Ok(Some(Self::Http(http::Answer::default())))
            }
            Protocol::Proxy(_) => Err(error::not_built()),
        }
    }

    /// Takes what arrived; may append the next flight to `out`.
    pub(crate) fn read(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<Progress, DialError> {
        match self {
            Self::Socks5(hs) => match hs.read(input, out)? {
                socks5::Step::More => Ok(Progress::More),
                socks5::Step::Done { used, .. } => Ok(Progress::Done(used)),
            },
            Self::Http(answer) => match answer.read(input)? {
                http::Step::More => Ok(Progress::More),
                http::Step::Done { status, used } if (200..300).contains(&status) => {
                    Ok(Progress::Done(used))
                }
                http::Step::Done { status, .. } => Err(error::http_status(status)),
            },
        }
    }

    /// What is being waited for.
    pub(crate) fn stage(&self) -> Stage {
        match self {
            Self::Socks5(hs) if !hs.awaits_reply() => Stage::Greeting,
            Self::Socks5(_) | Self::Http(_) => Stage::Reply,
        }
    }

    /// The server closed in the middle.
    pub(crate) fn eof(&self) -> DialError {
        let class = match self.stage() {
            Stage::Reply => Class::UnknownPreResponse,
            _ => Class::ProxyProtocol,
        };
        DialError::new(
            class,
            "the server closed the connection during the handshake",
        )
    }
}

/// The credentials of a server in wire form.
pub(crate) fn credentials(server: &Server) -> Option<Credentials<'_>> {
    server.auth.as_ref().map(|(user, password)| Credentials {
        user: user.reveal(),
        password: password.reveal(),
    })
}
