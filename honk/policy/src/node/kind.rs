//! The protocols, each with what it needs to be spoken.
//!
//! A new protocol is a new variant: capabilities, identity, links and checks match on it without
//! a wildcard.

use std::fmt;

use uuid::Uuid;

use super::{PortSet, Tls};
use crate::id::Secret;

/// Username and password.
pub type Login = (Secret, Secret);

/// A protocol with its credentials. `Debug` shows the name only.
#[derive(Clone, PartialEq, Eq)]
pub enum Kind {
    /// SOCKS5.
    Socks5(Option<Login>),
    /// SOCKS4, or 4a when `names` is set.
    Socks4 {
        /// User id.
        user: Option<Secret>,
        /// Names are sent to the server (4a).
        names: bool,
    },
    /// HTTP CONNECT; with TLS it is called HTTPS.
    Http(Option<Login>),
    /// HTTPS with padding over HTTP/2.
    Naive(Option<Login>),
    /// Shadowsocks, 2022 included.
    Shadowsocks(Shadowsocks),
    /// Trojan.
    Trojan(Trojan),
    /// VMess with AEAD headers.
    Vmess(Vmess),
    /// VLESS.
    Vless(Vless),
    /// Hysteria 2.
    Hysteria2(Hysteria2),
    /// TUIC version 5.
    Tuic(Tuic),
    /// Juicity.
    Juicity(Juicity),
    /// AnyTLS.
    AnyTls(AnyTls),
    /// A layer: ShadowTLS version 3. Its `tls` is what the handshake with the masquerade server
    /// looks like.
    ShadowTls(Secret),
    /// A layer: simple-obfs.
    SimpleObfs(SimpleObfs),
    /// A layer: nothing but the transport and TLS of the entry.
    Layer,
}

impl Kind {
    /// Name as in the API.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Socks5(_) => "socks5",
            Self::Socks4 { .. } => "socks4",
            Self::Http(_) => "http",
            Self::Naive(_) => "naive",
            Self::Shadowsocks(_) => "ss",
            Self::Trojan(_) => "trojan",
            Self::Vmess(_) => "vmess",
            Self::Vless(_) => "vless",
            Self::Hysteria2(_) => "hysteria2",
            Self::Tuic(_) => "tuic",
            Self::Juicity(_) => "juicity",
            Self::AnyTls(_) => "anytls",
            Self::ShadowTls(_) => "shadowtls",
            Self::SimpleObfs(_) => "simpleobfs",
            Self::Layer => "layer",
        }
    }

    /// Whether it only serves another protocol in front of it.
    pub fn is_layer(&self) -> bool {
        matches!(self, Self::ShadowTls(_) | Self::SimpleObfs(_) | Self::Layer)
    }

    /// Whether it runs over QUIC.
    pub fn is_quic(&self) -> bool {
        matches!(self, Self::Hysteria2(_) | Self::Tuic(_) | Self::Juicity(_))
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The id of a VMess, VLESS, TUIC or Juicity user: a credential.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct UserId(pub Uuid);

impl fmt::Debug for UserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Ciphers of Shadowsocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names are those of the protocol
pub enum Cipher {
    Aes128Gcm,
    Aes192Gcm,
    Aes256Gcm,
    Chacha20Poly1305,
    Xchacha20Poly1305,
    Blake3Aes128Gcm,
    Blake3Aes256Gcm,
    Blake3Chacha20Poly1305,
}

impl Cipher {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Aes128Gcm,
        Self::Aes192Gcm,
        Self::Aes256Gcm,
        Self::Chacha20Poly1305,
        Self::Xchacha20Poly1305,
        Self::Blake3Aes128Gcm,
        Self::Blake3Aes256Gcm,
        Self::Blake3Chacha20Poly1305,
    ];

    /// Name in links.
    pub fn name(self) -> &'static str {
        match self {
            Self::Aes128Gcm => "aes-128-gcm",
            Self::Aes192Gcm => "aes-192-gcm",
            Self::Aes256Gcm => "aes-256-gcm",
            Self::Chacha20Poly1305 => "chacha20-ietf-poly1305",
            Self::Xchacha20Poly1305 => "xchacha20-ietf-poly1305",
            Self::Blake3Aes128Gcm => "2022-blake3-aes-128-gcm",
            Self::Blake3Aes256Gcm => "2022-blake3-aes-256-gcm",
            Self::Blake3Chacha20Poly1305 => "2022-blake3-chacha20-poly1305",
        }
    }

    /// Reads a name, in any case.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        let name = match name.as_str() {
            "chacha20-poly1305" => "chacha20-ietf-poly1305",
            "xchacha20-poly1305" => "xchacha20-ietf-poly1305",
            "2022-blake3-chacha20-ietf-poly1305" => "2022-blake3-chacha20-poly1305",
            other => other,
        };
        Self::ALL.into_iter().find(|cipher| cipher.name() == name)
    }

    /// Length of the pre-shared key of the 2022 edition.
    pub fn psk_len(self) -> Option<usize> {
        match self {
            Self::Blake3Aes128Gcm => Some(16),
            Self::Blake3Aes256Gcm | Self::Blake3Chacha20Poly1305 => Some(32),
            _ => None,
        }
    }
}

/// Shadowsocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shadowsocks {
    /// Cipher.
    pub cipher: Cipher,
    /// Password; of the 2022 edition the keys in base64, identity keys first, joined by `:`.
    pub password: Secret,
    /// Plugin.
    pub plugin: Option<Plugin>,
    /// UDP inside the TCP stream.
    pub uot: UdpOverTcp,
}

/// Whether UDP is carried in a TCP stream, and in which format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum UdpOverTcp {
    /// UDP is native.
    #[default]
    Off,
    /// Version 1.
    V1,
    /// Version 2.
    V2,
}

/// What a Shadowsocks stream is wrapped in. `Debug` shows the name only.
#[derive(Clone, PartialEq, Eq)]
pub enum Plugin {
    /// simple-obfs.
    Obfs(SimpleObfs),
    /// v2ray-plugin in WebSocket mode.
    V2ray {
        /// TLS below the WebSocket.
        tls: Option<Box<Tls>>,
        /// Host header.
        host: String,
        /// Path.
        path: String,
        /// Mux.Cool on the WebSocket.
        mux: bool,
    },
    /// ShadowTLS version 3.
    ShadowTls {
        /// Handshake with the masquerade server.
        tls: Box<Tls>,
        /// Password.
        password: Secret,
    },
}

impl fmt::Debug for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Obfs(_) => "simple-obfs",
            Self::V2ray { .. } => "v2ray-plugin",
            Self::ShadowTls { .. } => "shadow-tls",
        })
    }
}

/// simple-obfs, as a plugin or a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimpleObfs {
    /// Looks like TLS, else like HTTP.
    pub tls: bool,
    /// Host that is shown.
    pub host: String,
    /// Path of the HTTP form.
    pub uri: String,
}

/// Trojan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trojan {
    /// Password.
    pub password: Secret,
    /// Shadowsocks inside TLS, of trojan-go.
    pub inner: Option<(Cipher, Secret)>,
}

/// VMess.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vmess {
    /// User.
    pub user: UserId,
    /// Cipher of the body.
    pub cipher: VmessCipher,
}

/// Ciphers of VMess bodies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum VmessCipher {
    /// Whichever of the next two is faster here.
    #[default]
    Auto,
    /// AES-128-GCM.
    Aes128Gcm,
    /// ChaCha20-Poly1305.
    Chacha20Poly1305,
    /// None; lengths are masked.
    None,
    /// None at all.
    Zero,
}

impl VmessCipher {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Aes128Gcm => "aes-128-gcm",
            Self::Chacha20Poly1305 => "chacha20-poly1305",
            Self::None => "none",
            Self::Zero => "zero",
        }
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "" | "auto" => Some(Self::Auto),
            "aes-128-gcm" => Some(Self::Aes128Gcm),
            "chacha20-poly1305" | "chacha20-ietf-poly1305" => Some(Self::Chacha20Poly1305),
            "none" => Some(Self::None),
            "zero" => Some(Self::Zero),
            _ => None,
        }
    }
}

/// VLESS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vless {
    /// User.
    pub user: UserId,
    /// Vision.
    pub flow: Flow,
    /// How UDP is carried, if written.
    pub mode: Option<VlessMode>,
    /// Encryption of the protocol's own.
    pub encryption: Option<Encryption>,
}

/// Flow control of VLESS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Flow {
    /// None.
    #[default]
    None,
    /// Vision; UDP to port 443 is refused.
    Vision,
    /// Vision that lets UDP to port 443 through.
    VisionUdp443,
}

/// How VLESS carries UDP and multiplexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VlessMode {
    /// Command 2.
    Native,
    /// Not at all.
    Legacy,
    /// UDP over TCP version 2.
    UotV2,
    /// sing-mux with HTTP/2.
    H2mux,
    /// The same, padded.
    H2muxPadded,
    /// XUDP.
    Xudp,
    /// Mux.Cool.
    MuxCool,
}

/// A VLESS encryption string, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encryption(pub(crate) Secret);

impl Encryption {
    /// The string as written.
    pub fn reveal(&self) -> &str {
        self.0.reveal()
    }
}

impl VlessMode {
    pub(crate) const ALL: [Self; 7] = [
        Self::Native,
        Self::Legacy,
        Self::UotV2,
        Self::H2mux,
        Self::H2muxPadded,
        Self::Xudp,
        Self::MuxCool,
    ];

    /// Name in links.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Legacy => "legacy",
            Self::UotV2 => "uot-v2",
            Self::H2mux => "h2mux",
            Self::H2muxPadded => "h2mux-padded",
            Self::Xudp => "xudp",
            Self::MuxCool => "mux-cool",
        }
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

/// Settings that all QUIC protocols share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Quic {
    /// Largest UDP payload.
    pub mtu: Option<u16>,
    /// Receive window of a stream in bytes.
    pub stream_window: Option<u32>,
    /// Receive window of a connection in bytes.
    pub connection_window: Option<u32>,
    /// The path is not probed for larger packets.
    pub fixed_mtu: bool,
}

/// Hysteria 2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hysteria2 {
    /// Authentication, possibly empty.
    pub auth: Secret,
    /// Ports to hop between; the port of the node is then only part of its identity.
    pub ports: Option<PortSet>,
    /// Seconds between hops.
    pub hop_interval: Option<u32>,
    /// Obfuscation with its password.
    pub obfs: Option<(Obfs, Secret)>,
    /// Upload limit in bytes per second.
    pub up: Option<u64>,
    /// Download limit in bytes per second.
    pub down: Option<u64>,
    /// The answer to a request is not awaited.
    pub fast_open: bool,
    /// QUIC settings.
    pub quic: Quic,
}

/// Obfuscation of Hysteria 2 packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Obfs {
    /// Salamander.
    Salamander,
    /// Gecko.
    Gecko,
}

impl Obfs {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Salamander => "salamander",
            Self::Gecko => "gecko",
        }
    }
}

/// Congestion control of TUIC and Juicity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Congestion {
    /// Cubic.
    Cubic,
    /// New Reno.
    NewReno,
    /// BBR.
    Bbr,
}

impl Congestion {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::NewReno => "new_reno",
            Self::Bbr => "bbr",
        }
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "cubic" => Some(Self::Cubic),
            "new_reno" | "newreno" | "reno" => Some(Self::NewReno),
            "bbr" => Some(Self::Bbr),
            _ => None,
        }
    }
}

/// TUIC version 5.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuic {
    /// User.
    pub user: UserId,
    /// Password.
    pub password: Secret,
    /// Congestion control.
    pub congestion: Congestion,
    /// How UDP is carried.
    pub relay: UdpRelay,
    /// Early data of QUIC.
    pub zero_rtt: bool,
    /// Milliseconds between heartbeats.
    pub heartbeat_ms: Option<u32>,
    /// QUIC settings.
    pub quic: Quic,
}

/// How TUIC carries UDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum UdpRelay {
    /// In datagrams.
    #[default]
    Native,
    /// In streams.
    Quic,
}

/// Juicity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Juicity {
    /// User.
    pub user: UserId,
    /// Password.
    pub password: Secret,
    /// Congestion control.
    pub congestion: Congestion,
    /// QUIC settings.
    pub quic: Quic,
}

/// AnyTLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnyTls {
    /// Password.
    pub password: Secret,
    /// Idle sessions that are kept.
    pub min_idle: Option<u16>,
    /// Seconds between looks for idle sessions.
    pub check_interval: Option<u32>,
    /// Seconds after which an idle session is closed.
    pub idle_timeout: Option<u32>,
}
