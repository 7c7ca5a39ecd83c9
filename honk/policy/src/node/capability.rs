//! Which networks a node carries: the only place that knows.

use super::{Flow, Hint, Kind, Plugin, Proxy, Shadowsocks, UdpOverTcp, VlessMode};

/// What a path carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carries {
    /// TCP streams.
    pub tcp: bool,
    /// UDP datagrams.
    pub udp: bool,
}

/// How a protocol carries UDP.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Udp {
    /// Not at all.
    Never,
    /// Inside its connection.
    Inside,
    /// In datagrams of its own beside the connection.
    Beside,
}

const ALL: Carries = Carries {
    tcp: true,
    udp: true,
};

impl Proxy {
    /// What the node carries over its whole path.
    pub fn carries(&self) -> Carries {
        let all = self.carries_unhinted();
        Carries {
            tcp: all.tcp && self.hint != Hint::Udp,
            udp: all.udp && self.hint != Hint::Tcp,
        }
    }

    /// The same without regard to what the author of the entry asked for.
    pub(crate) fn carries_unhinted(&self) -> Carries {
        let below = self.via.iter().rev().fold(ALL, |below, hop| {
            let Some(hop) = hop.protocol.proxy() else {
                return below;
            };
            let over = hop.over(below);
            Carries {
                tcp: over.tcp && hop.hint != Hint::Udp,
                udp: over.udp && hop.hint != Hint::Tcp,
            }
        });
        self.over(below)
    }

    fn over(&self, below: Carries) -> Carries {
        let carrier = match self.kind.is_quic() {
            true => below.udp,
            false => below.tcp,
        };
        Carries {
            tcp: carrier,
            udp: carrier
                && match self.kind.udp() {
                    Udp::Never => false,
                    Udp::Inside => true,
                    Udp::Beside => below.udp,
                },
        }
    }
}

impl Kind {
    fn udp(&self) -> Udp {
        match self {
            Self::Socks5(_) => Udp::Beside,
            Self::Shadowsocks(Shadowsocks { uot, plugin, .. }) => match (uot, plugin) {
                (UdpOverTcp::V1 | UdpOverTcp::V2, _) => Udp::Inside,
                (UdpOverTcp::Off, Some(Plugin::ShadowTls { .. })) => Udp::Never,
                (UdpOverTcp::Off, Some(Plugin::Obfs(_) | Plugin::V2ray { .. }) | None) => {
                    Udp::Beside
                }
            },
            Self::Vless(vless) => match (vless.mode, vless.flow, &vless.encryption) {
                (Some(VlessMode::Legacy), _, _) | (_, _, Some(_)) => Udp::Never,
                (_, Flow::None | Flow::Vision | Flow::VisionUdp443, None) => Udp::Inside,
            },
            Self::Trojan(_)
            | Self::Hysteria2(_)
            | Self::Tuic(_)
            | Self::Juicity(_)
            | Self::AnyTls(_) => Udp::Inside,
            // VMess could; it is kept out of UDP on purpose.
            Self::Vmess(_)
            | Self::Socks4 { .. }
            | Self::Http(_)
            | Self::Naive(_)
            | Self::ShadowTls(_)
            | Self::SimpleObfs(_)
            | Self::Layer => Udp::Never,
        }
    }
}
