//! What a TLS client shows and what it accepts.

use std::fmt;

/// TLS towards a server. `Debug` shows which features are on.
#[derive(Clone, PartialEq, Eq)]
pub struct Tls {
    /// Server name extension.
    pub sni: Sni,
    /// Protocols offered; `None` leaves it to the protocol, an empty list offers none.
    pub alpn: Option<Vec<String>>,
    /// Neither chain nor name is checked.
    pub insecure: bool,
    /// Certificates that are accepted instead of those of the system's authorities.
    pub pins: Vec<Pin>,
    /// Authorities in PEM that replace those of the system.
    pub ca: Option<String>,
    /// Encrypted Client Hello.
    pub ech: Ech,
    /// The client whose hello is imitated, lower case.
    pub fingerprint: Option<String>,
    /// REALITY instead of ordinary authentication.
    pub reality: Option<Reality>,
    /// Lowest version.
    pub min_version: Option<TlsVersion>,
    /// Highest version.
    pub max_version: Option<TlsVersion>,
}

/// Server name extension.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Sni {
    /// This name, lower case ASCII.
    Name(String),
    /// No extension; the certificate is checked against the server's host.
    Omit,
}

/// A pinned SHA-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pin {
    /// Of the certificate.
    Leaf([u8; 32]),
    /// Of the whole chain, as Juicity computes it.
    Chain([u8; 32]),
    /// Of the public key.
    Key([u8; 32]),
}

/// Encrypted Client Hello.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ech {
    /// Not used.
    #[default]
    Off,
    /// With this list of configurations.
    Static(Vec<u8>),
    /// With what the DNS says, if it says anything.
    Discover,
    /// With what the DNS says, else not at all.
    Require,
}

/// REALITY.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reality {
    /// X25519 key of the server.
    pub public_key: [u8; 32],
    /// Short id, padded with zeros.
    pub short_id: [u8; 8],
    /// Path of the crawler; stored only.
    pub spider: String,
}

/// Versions of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TlsVersion {
    /// 1.2.
    V12,
    /// 1.3.
    V13,
}

impl Tls {
    /// Ordinary TLS with a server name.
    pub fn new(sni: Sni) -> Self {
        Self {
            sni,
            alpn: None,
            insecure: false,
            pins: Vec::new(),
            ca: None,
            ech: Ech::Off,
            fingerprint: None,
            reality: None,
            min_version: None,
            max_version: None,
        }
    }
}

impl TlsVersion {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "1.2" => Some(Self::V12),
            "1.3" => Some(Self::V13),
            _ => None,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::V12 => "1.2",
            Self::V13 => "1.3",
        }
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("insecure", &self.insecure)
            .field("pins", &self.pins.len())
            .field("reality", &self.reality.is_some())
            .finish_non_exhaustive()
    }
}
