//! Servers of the lab, as tasks of a runtime whose threads live in a namespace.

mod dns;
mod fault;
mod http;
mod origin;
mod provider;
mod proxy;
mod socks;

pub use fault::{Fault, Faults};
pub use origin::Origin;
pub use provider::{Provider, Reply};
pub use proxy::{Entry, Proxy, ProxySettings};

/// TCP and UDP echo.
pub const ECHO: u16 = 7;
/// TCP discard.
pub const DISCARD: u16 = 9;
/// TCP character generator: sends until the peer closes.
pub const CHARGEN: u16 = 19;
/// DNS over UDP and TCP, authoritative for `test.`.
pub const DNS: u16 = 53;
/// HTTP/1.1.
pub const HTTP: u16 = 80;
/// TCP and UDP: answers the source address it saw.
pub const WHOAMI: u16 = 7777;
/// UDP: answers from another address and port of the same family.
pub const ELSEWHERE: u16 = 7778;
/// Port of an upstream proxy: SOCKS5.
pub const SOCKS: u16 = 1080;
/// Port of an upstream proxy: HTTP CONNECT.
pub const CONNECT: u16 = 8080;
