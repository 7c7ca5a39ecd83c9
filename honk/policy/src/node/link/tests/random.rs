//! Any node survives being written as a link, and no text is too strange to be read.

use std::sync::Arc;

use proptest::{collection::vec, option, prelude::*};

use crate::{
    id::{Secret, Uuid},
    node::{
        AnyTls, Cipher, Congestion, EarlyData, Ech, Flow, Hint, Host, Hysteria2, Juicity, Kind,
        Login, Node, Obfs, Pin, Plugin, PortSet, Proxy, Quic, Reality, Shadowsocks, SimpleObfs,
        Sni, Tls, TlsVersion, Transport, Trojan, Tuic, Tuning, UdpOverTcp, UdpRelay, UserId, Vless,
        VlessMode, Vmess, VmessCipher, check,
        link::{SCHEMES, format, parse},
        text::{display_name, to_base64},
        transport::path,
        value,
    },
};

/// Text with everything that links give a meaning to.
const TEXT: &str = "[a-zA-Z0-9:/?#&=@%+;,.\\\\ '\"\\[\\]~<>{}|^`!$()*_é节\u{1f600}-]";

fn text(length: std::ops::Range<usize>) -> impl Strategy<Value = String> {
    proptest::string::string_regex(&std::format!(
        "{TEXT}{{{},{}}}",
        length.start,
        length.end - 1
    ))
    .expect("a legal pattern")
}

fn secret(length: std::ops::Range<usize>) -> impl Strategy<Value = Secret> {
    text(length).prop_map(Secret::new)
}

fn name() -> impl Strategy<Value = String> {
    text(1..60).prop_filter_map("a blank name", |text| display_name(&text))
}

fn host_name() -> impl Strategy<Value = String> {
    "[a-z][a-z0-9-]{0,10}(\\.[a-z][a-z0-9]{0,8}){0,3}"
}

fn host() -> impl Strategy<Value = Host> {
    prop_oneof![
        host_name().prop_map(Host::Name),
        any::<[u8; 4]>().prop_map(|ip| Host::Ip(ip.into())),
        any::<[u8; 16]>().prop_map(|ip| Host::Ip(ip.into())),
    ]
}

fn login() -> impl Strategy<Value = Option<Login>> {
    option::of((secret(0..20), secret(0..20)))
}

fn user() -> impl Strategy<Value = UserId> {
    any::<u128>().prop_map(|id| UserId(Uuid::from_u128(id)))
}

fn sni() -> impl Strategy<Value = Sni> {
    prop_oneof![host_name().prop_map(Sni::Name), Just(Sni::Omit)]
}

fn tls() -> BoxedStrategy<Tls> {
    let pin = prop_oneof![
        any::<[u8; 32]>().prop_map(Pin::Leaf),
        any::<[u8; 32]>().prop_map(Pin::Key),
    ];
    let pins = vec(pin, 0..3).prop_map(|mut pins| {
        pins.sort_by_key(|pin| matches!(pin, Pin::Key(_)));
        pins
    });
    let ech = prop_oneof![
        Just(Ech::Off),
        Just(Ech::Discover),
        Just(Ech::Require),
        vec(any::<u8>(), 4..40).prop_map(Ech::Static),
    ];
    let version = || option::of(prop_oneof![Just(TlsVersion::V12), Just(TlsVersion::V13)]);
    (
        sni(),
        option::of(vec("[a-z0-9/.]{1,8}", 1..3)),
        any::<bool>(),
        pins,
        ech,
        option::of(prop_oneof![
            Just("chrome"),
            Just("android_11_okhttp"),
            Just("none")
        ]),
        version(),
        version(),
    )
        .prop_map(
            |(sni, alpn, insecure, pins, ech, fp, min_version, max_version)| Tls {
                alpn,
                insecure,
                pins,
                ech,
                fingerprint: fp.map(str::to_owned),
                min_version,
                max_version,
                ..Tls::new(sni)
            },
        )
        .boxed()
}

fn maybe_reality() -> BoxedStrategy<Tls> {
    let reality = (any::<[u8; 32]>(), any::<[u8; 8]>(), 0..9usize, text(1..9)).prop_map(
        |(public_key, mut short_id, used, spider)| {
            short_id[used..].fill(0);
            Reality {
                public_key,
                short_id,
                spider,
            }
        },
    );
    (tls(), option::of(reality))
        .prop_map(|(tls, reality)| Tls { reality, ..tls })
        .boxed()
}

fn transport() -> BoxedStrategy<Transport> {
    let any_path = || text(0..20).prop_map(|text| path(&text).0);
    let host = || option::of(host_name());
    let headers = || {
        prop_oneof![
            Just(Vec::new()),
            Just(vec![
                ("user-agent".to_owned(), "a \"b\" & c".to_owned()),
                ("x-y".to_owned(), String::new()),
            ]),
        ]
    };
    let early = option::of(
        (
            1..=EarlyData::MAX,
            prop_oneof![
                Just(Some(EarlyData::HEADER.to_owned())),
                Just(None),
                Just(Some("X-Early".to_owned())),
            ],
        )
            .prop_map(|(max, header)| EarlyData { max, header }),
    );
    prop_oneof![
        3 => Just(Transport::Tcp),
        1 => (any_path(), host(), headers(), early).prop_map(|(path, host, headers, early)| {
            Transport::Ws { path, host, headers, early }
        }),
        1 => (text(1..9), option::of(host_name()), any::<bool>()).prop_map(
            |(service, authority, multi)| Transport::Grpc { service, authority, multi }
        ),
        1 => (any_path(), host(), headers(), any::<bool>()).prop_map(
            |(path, host, headers, fast_open)| {
                Transport::HttpUpgrade { path, host, headers, fast_open }
            }
        ),
        1 => (any_path(), vec(host_name(), 0..3), option::of(Just("GET".to_owned()))).prop_map(
            |(path, hosts, method)| Transport::H2 { path, hosts, method }
        ),
    ]
    .boxed()
}

fn quic() -> impl Strategy<Value = Quic> {
    (
        option::of(1200..=65527u16),
        option::of(16_384..=1_073_741_824u32),
        option::of(16_384..=1_073_741_824u32),
        any::<bool>(),
    )
        .prop_map(|(mtu, stream_window, connection_window, fixed_mtu)| Quic {
            mtu,
            stream_window,
            connection_window,
            fixed_mtu,
        })
}

fn obfs() -> impl Strategy<Value = SimpleObfs> {
    (any::<bool>(), text(1..9), text(1..9)).prop_map(|(tls, host, uri)| SimpleObfs {
        tls,
        host,
        uri,
    })
}

fn shadowsocks() -> BoxedStrategy<Shadowsocks> {
    let plugin = prop_oneof![
        obfs().prop_map(Plugin::Obfs),
        (option::of(tls()), host_name(), text(0..9), any::<bool>()).prop_map(
            move |(tls, host, path_text, mux)| Plugin::V2ray {
                tls: tls.map(|tls| Box::new(Tls {
                    sni: Sni::Name(host.clone()),
                    ..tls
                })),
                host,
                path: path(&path_text).0,
                mux,
            }
        ),
        (tls(), secret(0..9)).prop_map(|(tls, password)| Plugin::ShadowTls {
            tls: Box::new(tls),
            password,
        }),
    ];
    let uot = prop_oneof![
        Just(UdpOverTcp::Off),
        Just(UdpOverTcp::V1),
        Just(UdpOverTcp::V2)
    ];
    let cipher = (0..Cipher::ALL.len(), text(0..20), any::<[u8; 32]>());
    (cipher, option::of(plugin), uot)
        .prop_map(|((at, password, key), plugin, uot)| {
            let cipher = Cipher::ALL[at];
            let password = match cipher.psk_len() {
                Some(length) => to_base64(&key[..length]),
                None => password,
            };
            Shadowsocks {
                cipher,
                password: Secret::new(password),
                plugin,
                uot,
            }
        })
        .boxed()
}

fn vless() -> BoxedStrategy<Vless> {
    let flow = prop_oneof![
        3 => Just(Flow::None),
        1 => Just(Flow::Vision),
        1 => Just(Flow::VisionUdp443)
    ];
    let key = "A".repeat(43);
    let encryption = value::encryption(&std::format!(
        "mlkem768x25519plus.xorpub.0rtt.100-111-1111.{key}"
    ));
    let encryption = encryption.expect("a complete string");
    let mode = option::of((0..VlessMode::ALL.len()).prop_map(|at| VlessMode::ALL[at]));
    (user(), flow, mode, option::weighted(0.2, Just(encryption)))
        .prop_map(|(user, flow, mode, encryption)| Vless {
            user,
            flow,
            mode,
            encryption,
        })
        .boxed()
}

fn hysteria() -> BoxedStrategy<Hysteria2> {
    let ports = vec((1..=65535u16, 0..9u16), 1..4).prop_map(|ranges| {
        let ranges: Vec<String> = ranges
            .iter()
            .map(|(from, more)| std::format!("{from}-{}", from.saturating_add(*more)))
            .collect();
        PortSet::parse(&ranges.join(","), '-').expect("legal ranges")
    });
    let obfs = prop_oneof![Just(Obfs::Salamander), Just(Obfs::Gecko)];
    let rate = || {
        option::of(prop_oneof![
            1..1_000_000_000u64,
            (1..9000u64).prop_map(|m| m * 125_000)
        ])
    };
    let basic = (
        secret(0..20),
        option::of(ports),
        option::of(1..=86_400u32),
        option::of((obfs, text(4..20).prop_map(Secret::new))),
    );
    (basic, rate(), rate(), any::<bool>(), quic())
        .prop_map(
            |((auth, ports, hop_interval, obfs), up, down, fast_open, quic)| Hysteria2 {
                auth,
                ports,
                hop_interval,
                obfs,
                up,
                down,
                fast_open,
                quic,
            },
        )
        .boxed()
}

fn congestion() -> impl Strategy<Value = Congestion> {
    prop_oneof![
        Just(Congestion::Cubic),
        Just(Congestion::NewReno),
        Just(Congestion::Bbr)
    ]
}

fn kind() -> BoxedStrategy<Kind> {
    let http_login = || {
        let user = secret(0..9).prop_map(|user| Secret::new(user.reveal().replace(':', "")));
        option::of((user, secret(0..9)))
    };
    let trojan = (
        secret(1..20),
        option::weighted(
            0.2,
            ((0..5usize).prop_map(|at| Cipher::ALL[at]), secret(0..9)),
        ),
    )
        .prop_map(|(password, inner)| Trojan { password, inner });
    let cipher = prop_oneof![
        Just(VmessCipher::Auto),
        Just(VmessCipher::Zero),
        Just(VmessCipher::Chacha20Poly1305)
    ];
    let relay = prop_oneof![Just(UdpRelay::Native), Just(UdpRelay::Quic)];
    let tuic = (
        user(),
        secret(0..9),
        congestion(),
        relay,
        any::<bool>(),
        quic(),
    );
    let heartbeat = option::of(1000..86_400_000u32);
    let seconds = || option::of(1..100_000u32);
    prop_oneof![
        login().prop_map(Kind::Socks5),
        (option::of(secret(1..9)), any::<bool>())
            .prop_map(|(user, names)| Kind::Socks4 { user, names }),
        http_login().prop_map(Kind::Http),
        http_login().prop_map(Kind::Naive),
        shadowsocks().prop_map(Kind::Shadowsocks),
        trojan.prop_map(Kind::Trojan),
        (user(), cipher).prop_map(|(user, cipher)| Kind::Vmess(Vmess { user, cipher })),
        vless().prop_map(Kind::Vless),
        hysteria().prop_map(Kind::Hysteria2),
        (tuic, heartbeat).prop_map(
            |((user, password, congestion, relay, zero_rtt, quic), heartbeat_ms)| {
                Kind::Tuic(Tuic {
                    user,
                    password,
                    congestion,
                    relay,
                    zero_rtt,
                    heartbeat_ms,
                    quic,
                })
            }
        ),
        (user(), secret(0..9), congestion(), quic()).prop_map(
            |(user, password, congestion, quic)| {
                Kind::Juicity(Juicity {
                    user,
                    password,
                    congestion,
                    quic,
                })
            }
        ),
        (
            secret(1..20),
            option::of(any::<u16>()),
            seconds(),
            seconds()
        )
            .prop_map(
                |(password, min_idle, check_interval, idle_timeout)| Kind::AnyTls(AnyTls {
                    password,
                    min_idle,
                    check_interval,
                    idle_timeout
                })
            ),
    ]
    .boxed()
}

/// What each kind may be combined with.
fn proxy() -> BoxedStrategy<Proxy> {
    let hint = prop_oneof![3 => Just(Hint::Both), 1 => Just(Hint::Tcp), 1 => Just(Hint::Udp)];
    let tuning = (any::<bool>(), any::<bool>()).prop_map(|(fast_open, multipath)| Tuning {
        fast_open,
        multipath,
    });
    (
        (host(), 1..=u16::MAX, kind()),
        transport(),
        tls(),
        maybe_reality(),
        any::<bool>(),
        (hint, tuning, any::<Option<[u8; 32]>>()),
    )
        .prop_filter_map(
            "no legal node",
            |((host, port, kind), transport, plain, reality, on, (hint, tuning, chain))| {
                let mut proxy = Proxy::new(host, port, kind);
                proxy.hint = hint;
                proxy.tuning = tuning;
                match &proxy.kind {
                    Kind::Vmess(_) | Kind::Vless(_) => {
                        proxy.transport = transport;
                        proxy.tls = on.then_some(reality);
                    }
                    Kind::Trojan(_) => {
                        proxy.transport = transport;
                        proxy.tls = Some(reality);
                    }
                    Kind::AnyTls(_) => proxy.tls = Some(reality),
                    Kind::Socks5(_) | Kind::Http(_) => proxy.tls = on.then_some(plain),
                    Kind::Juicity(_) => {
                        let chain = chain.map(Pin::Chain);
                        let pins = plain.pins.into_iter().chain(chain).collect();
                        proxy.tls = Some(Tls { pins, ..plain });
                    }
                    Kind::Naive(_) | Kind::Hysteria2(_) | Kind::Tuic(_) => proxy.tls = Some(plain),
                    Kind::Socks4 { .. }
                    | Kind::Shadowsocks(_)
                    | Kind::ShadowTls(_)
                    | Kind::SimpleObfs(_)
                    | Kind::Layer => {}
                }
                check(&proxy).is_ok().then_some(proxy)
            },
        )
        .boxed()
}

fn layer() -> BoxedStrategy<Proxy> {
    let at = || (host(), 1..=u16::MAX);
    let web =
        (at(), transport(), tls(), any::<bool>()).prop_map(|((host, port), over, tls, on)| {
            let mut proxy = Proxy::new(host, port, Kind::Layer);
            match over {
                Transport::Ws { .. } => {
                    proxy.transport = over;
                    proxy.tls = on.then_some(tls);
                }
                _ => proxy.tls = Some(tls),
            }
            proxy
        });
    let shadow = (at(), secret(0..9), tls()).prop_map(|((host, port), password, tls)| Proxy {
        tls: Some(tls),
        ..Proxy::new(host, port, Kind::ShadowTls(password))
    });
    let obfs = (at(), obfs())
        .prop_map(|((host, port), obfs)| Proxy::new(host, port, Kind::SimpleObfs(obfs)));
    prop_oneof![web, shadow, obfs].boxed()
}

fn chain() -> BoxedStrategy<Node> {
    let hop = prop_oneof![3 => (name(), proxy()), 1 => (Just("wss-h".to_owned()), layer())];
    ((name(), proxy()), vec(hop, 1..4))
        .prop_filter_map("hops do not fit", |((name, mut exit), hops)| {
            let mut names = vec![name];
            for (name, hop) in hops {
                if !hop.kind.is_layer() {
                    names.push(name.clone());
                }
                exit.via.push(Arc::new(Node::new(name, hop.into())));
            }
            for at in 0..exit.via.len() {
                let mut hop = (*exit.via[at].protocol.proxy()?).clone();
                hop.via = exit.via[at + 1..].to_vec();
                check(&hop).ok()?;
            }
            check(&exit).ok()?;
            Some(Node::new(names.join("->"), exit.into()))
        })
        .boxed()
}

fn check_written(node: &Node) -> Result<(), TestCaseError> {
    let link = format(node).expect("not a built-in");
    let read = parse(&link);
    let read = read.map_err(|error| TestCaseError::fail(std::format!("{link}: {error}")))?;
    let back = Node::from(read);
    prop_assert_eq!(
        super::describe::describe(&back),
        super::describe::describe(node),
        "{}",
        link
    );
    prop_assert_eq!(&back.protocol, &node.protocol, "{}", link);
    prop_assert_eq!(back.id, node.id, "{}", link);
    prop_assert_eq!(&back.name, &node.name, "{}", link);
    Ok(())
}

/// Texts near to links.
fn nearly() -> impl Strategy<Value = String> {
    let scheme = prop_oneof![
        4 => (0..SCHEMES.len()).prop_map(|at| SCHEMES[at].to_owned()),
        1 => prop_oneof![Just("wss".to_owned()), Just("simpleobfs".to_owned())],
    ];
    let words = vec(
        prop_oneof![
            Just("@"),
            Just(":"),
            Just("/"),
            Just("?"),
            Just("&"),
            Just("="),
            Just("#"),
            Just("->"),
            Just("vless://"),
            Just("aes-128-gcm"),
            Just("h.example"),
            Just("443"),
            Just("type"),
            Just("ws"),
            Just("plugin"),
            Just(";"),
            Just("\\"),
            Just("sni"),
            Just("[::1]"),
            Just("%4"),
            Just("AAAA"),
            Just("security"),
            Just("reality"),
            Just("pbk"),
            Just("mport"),
            Just("1-"),
            Just("é"),
            Just("\u{200b}"),
            Just("b831381d-6324-4d53-ad4f-8cda48b30811"),
            Just("path"),
            Just("ed"),
            Just(","),
        ],
        0..24,
    );
    (scheme, words).prop_map(|(scheme, words)| std::format!("{scheme}://{}", words.concat()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn a_node_survives_its_link((name, proxy) in (name(), proxy())) {
        check_written(&Node::new(name, proxy.into()))?;
    }

    #[test]
    fn a_chain_survives_its_links(node in chain()) {
        check_written(&node)?;
    }

    #[test]
    fn text_never_panics(text in "\\PC{0,80}") {
        let _ = parse(&text);
        let _ = parse(&std::format!("ss://{text}"));
        let _ = parse(&std::format!("vmess://{}", to_base64(text.as_bytes())));
    }

    /// What is read at all is read again from what is written.
    #[test]
    fn nearly_links(text in nearly()) {
        if let Ok(link) = parse(&text) {
            let node = Node::from(link);
            if node.protocol.proxy().is_some_and(|proxy| proxy.via.is_empty()) {
                check_written(&node)?;
            }
        }
    }

    /// A link with one byte changed is read or refused, and nothing of it is shown.
    #[test]
    fn damaged_links((name, proxy, at, byte) in (name(), proxy(), any::<usize>(), any::<u8>())) {
        let link = format(&Node::new(name, proxy.into())).expect("not a built-in");
        let mut bytes = link.into_bytes();
        let at = at % bytes.len();
        bytes[at] = byte;
        let _ = parse(&String::from_utf8_lossy(&bytes));
    }
}

/// A host may be longer than a name, which a layer takes from its host when it has none.
#[test]
fn names_made_from_long_hosts_survive() {
    let label = "a".repeat(60);
    let text = format!("socks5://u:p@192.0.2.1:1#n -> wss://{label}.{label}.{label}.example:443");
    let node = Node::from(parse(&text).unwrap());
    let back = Node::from(parse(&format(&node).unwrap()).unwrap());
    assert_eq!(back.protocol, node.protocol);
}
