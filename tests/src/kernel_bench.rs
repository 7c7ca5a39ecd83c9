//! Nanoseconds per packet of the kernel programs (figures F01-F09 of the datapath).
//!
//! Each figure is the median over rounds of `BPF_PROG_TEST_RUN` with many repetitions; all but
//! F01 have the cost of the shortest path through a program (F01) taken off.

use std::net::TcpListener;
use std::os::fd::AsFd as _;

use anyhow::{Result, anyhow};
use honk_common::flow::{DIRECT_KIND, DirectVal, FlowVal, FlowWord, ReturnVal};
use honk_common::key::{FlowKey, to_bytes};
use honk_common::outbound::{BLOCK, DIRECT};
use honk_common::param::{GATE_CLOSED, GATE_OPEN, SOCK_TCP4};
use honk_policy::id::Ordinal;
use honk_policy::routing::compile;
use honk_policy::routing::rule::{Action, Cond, Prefix, RuleLine, RuleSet, Test};

use crate::kernel::packet::{ACK, CLIENT_MAC, Packet, SYN, tcp, udp};
use crate::kernel::{Ctx, GATEWAY_MAC, NONCE, PEER_MAC, Rig, bytes};

const CLIENT: &str = "10.66.0.2:40001";
const ORIGIN: &str = "198.51.100.131:443";
pub(crate) const LAN: &str = "lan_ingress_l2";
const PROXY: u8 = 7;

/// One measurement.
#[derive(Clone, Debug)]
pub struct Figure {
    /// What was measured.
    pub name: String,
    /// Nanoseconds per packet.
    pub ns: f64,
    /// What it should stay below; 0 where there is no target.
    pub target: f64,
}

/// Measures all figures. Needs root. Runs in a thread of its own, which also gets its own
/// network namespace.
pub fn run(quick: bool) -> Result<Vec<Figure>> {
    std::thread::spawn(move || measure(quick))
        .join()
        .map_err(|_| anyhow!("the measuring thread panicked"))?
}

fn measure(quick: bool) -> Result<Vec<Figure>> {
    let (rounds, repeat) = if quick { (5, 200_000) } else { (9, 1_000_000) };
    let mut bench = Bench {
        rig: Rig::new()?,
        rounds,
        repeat,
        floor: 0.0,
        figures: Vec::new(),
    };
    bench.known_flows()?;
    bench.local_processes();
    bench.private_side();
    bench.listener()?;
    bench.new_flows()?;
    bench.early_drop()?;
    Ok(bench.figures)
}

struct Bench {
    rig: Rig,
    rounds: usize,
    repeat: u32,
    floor: f64,
    figures: Vec<Figure>,
}

impl Bench {
    fn measure(&mut self, name: &str, target: f64, program: &str, p: &Packet) {
        self.measure_in(name, target, program, p, Ctx::default());
    }

    fn measure_in(&mut self, name: &str, target: f64, program: &str, p: &Packet, ctx: Ctx) {
        let data = p.build();
        let mut ns: Vec<u32> = (0..self.rounds)
            .map(|_| {
                self.rig
                    .repeat(program, &data, &mut { ctx }, self.repeat)
                    .ns
            })
            .collect();
        ns.sort_unstable();
        self.add(name, target, &ns);
    }

    fn add(&mut self, name: &str, target: f64, sorted: &[u32]) {
        self.figures.push(Figure {
            name: name.to_owned(),
            ns: f64::from(sorted[sorted.len() / 2]) - self.floor,
            target,
        });
    }

    /// One packet of each of many flows, compared with as many single runs behind a closed
    /// gate: a single run costs more than one of many.
    fn new_entries(&mut self, name: &str, target: f64) {
        self.rig.put("GATE", &0u32, &GATE_CLOSED);
        let idle = self.singles();
        self.rig.put("GATE", &0u32, &GATE_OPEN);
        let busy = self.singles();
        self.figures.push(Figure {
            name: name.to_owned(),
            ns: busy - idle,
            target,
        });
    }

    /// The best of five medians: other work on the machine only ever adds.
    fn singles(&self) -> f64 {
        let batch = |_| {
            self.rig.clear("FLOW", size_of::<FlowKey>());
            self.batch()
        };
        (0..5).map(batch).fold(f64::INFINITY, f64::min)
    }

    fn batch(&self) -> f64 {
        let mut ns: Vec<u32> = (0..2000u16)
            .map(|i| {
                let syn = tcp(&format!("10.66.1.2:{}", 20_000 + i), ORIGIN, SYN).build();
                self.rig.repeat(LAN, &syn, &mut Ctx::default(), 1).ns
            })
            .collect();
        ns.sort_unstable();
        f64::from(ns[ns.len() / 2])
    }

    /// F01-F05: packets that need no rules.
    fn known_flows(&mut self) -> Result<()> {
        self.rig.put("GATE", &0u32, &GATE_CLOSED);
        let data = tcp(CLIENT, ORIGIN, ACK);
        self.measure("datapath.closed", 0.0, LAN, &data);
        self.floor = self.figures[0].ns;
        self.rig.put("GATE", &0u32, &GATE_OPEN);

        let set = rules(Vec::new(), DIRECT);
        self.rig.install(&compile(&set)?, 1)?;
        self.measure(
            "datapath.special",
            60.0,
            LAN,
            &udp(CLIENT, "224.0.0.251:5353"),
        );
        let own = "203.0.113.5:443";
        self.rig.put_raw(
            "LOCAL_ADDR",
            &to_bytes("203.0.113.5".parse()?),
            &1u32.to_ne_bytes(),
        );
        self.measure("datapath.local", 100.0, LAN, &tcp(CLIENT, own, ACK));
        self.measure("datapath.tcp_direct", 140.0, LAN, &data);
        let v6 = tcp("[fd66::2]:40001", "[2001:db8:200::1]:443", ACK);
        self.measure("datapath.tcp_direct6", 140.0, LAN, &v6);

        let datagram = udp(CLIENT, ORIGIN);
        let cached = DirectVal {
            created_ns: 1,
            generation: 1,
            kind: DIRECT_KIND,
            pad: [0; 3],
        };
        self.rig.put("DCACHE", &datagram.key(), &cached);
        self.measure("datapath.udp_direct", 200.0, LAN, &datagram);

        // The MACs are rewritten once; from the second repetition on all are alike.
        self.rig.put("FLOW", &data.key(), &entry());
        self.measure("datapath.proxied", 250.0, LAN, &data);
        self.rig.del("FLOW", &bytes(&data.key()));
        Ok(())
    }

    /// F08: what leaves the gateway through a WAN interface, forwarded and its own.
    fn local_processes(&mut self) {
        const WAN: &str = "wan_egress_l2";
        let data = tcp(CLIENT, ORIGIN, ACK);
        let forwarded = Ctx {
            ingress_ifindex: self.rig.lan().index(),
            ..Ctx::default()
        };
        self.measure_in("datapath.wan_forwarded", 15.0, WAN, &data, forwarded);
        let own = Ctx {
            mark: self.rig.param().own_mark,
            ..Ctx::default()
        };
        self.measure_in("datapath.wan_own", 25.0, WAN, &data, own);
        self.measure("datapath.wan_direct", 140.0, WAN, &data);
        let reply = tcp(ORIGIN, CLIENT, ACK);
        self.measure("datapath.wan_in", 60.0, "wan_ingress_l2", &reply);
    }

    /// F09: the private side.
    fn private_side(&mut self) {
        let way = ReturnVal {
            last_seen_ns: u64::MAX,
            ifindex: self.rig.lan().index(),
            smac: CLIENT_MAC,
            dmac: GATEWAY_MAC,
            vlan: 0,
            flags: 0,
            pad: [0; 5],
        };
        let reply = tcp(ORIGIN, CLIENT, ACK);
        self.rig.put_raw(
            "RETURN",
            &to_bytes(tcp(CLIENT, ORIGIN, ACK).src.ip()),
            &bytes(&way),
        );
        self.measure("datapath.reply", 150.0, "dev0_ingress", &reply);
        let handed = tcp(CLIENT, ORIGIN, ACK)
            .dmac(PEER_MAC)
            .smac([0x02, 0x68, 0x6e, 1, 6, NONCE]);
        self.measure("datapath.enter", 30.0, "peer_ingress", &handed);
    }

    /// F09: a lookup that finds its listener.
    fn listener(&mut self) -> Result<()> {
        let listener = TcpListener::bind("0.0.0.0:0")?;
        self.rig.publish(SOCK_TCP4, listener.as_fd());
        let family = libc::AF_INET as u32;
        let mut ns: Vec<u32> = (0..self.rounds)
            .map(|_| self.rig.repeat_lookup(family, 6, self.repeat).0.ns)
            .collect();
        ns.sort_unstable();
        self.add("datapath.listener", 80.0, &ns);
        Ok(())
    }

    /// F06, F07: evaluation of five dimensions. A blocked flow leaves no entry, so every
    /// repetition evaluates; entries are measured on flows of their own.
    fn new_flows(&mut self) -> Result<()> {
        // A blocked SYN becomes the reset that answers it: the second repetition would be another
        // packet.
        let first = udp(CLIENT, ORIGIN);
        self.rule_counts(&first)?;
        self.rig.install(&compile(&rules(Vec::new(), PROXY))?, 4)?;
        self.new_entries("datapath.new_flow", 600.0);
        self.prefix_counts()
    }

    /// F06: lines over five dimensions, and packets that stand in some list without a line that
    /// matches. Rounds change places, so that ratios hold on a busy machine.
    fn rule_counts(&mut self, first: &Packet) -> Result<()> {
        let mut cases = Vec::new();
        for unusual in 0..=3 {
            for lines in [10, 128, 1024] {
                let name = match unusual {
                    0 => format!("datapath.rules_{lines}"),
                    n => format!("datapath.rules_{lines}_in_{n}_lists"),
                };
                cases.push((name, compile(&five_dimensions(lines, unusual))?));
            }
        }
        let data = first.build();
        let mut ns: Vec<Vec<u32>> = vec![Vec::new(); cases.len()];
        for _ in 0..self.rounds {
            for ((_, tables), ns) in cases.iter().zip(&mut ns) {
                self.rig.install(tables, 2)?;
                let mut ctx = Ctx::default();
                ns.push(self.rig.repeat(LAN, &data, &mut ctx, self.repeat).ns);
            }
        }
        for ((name, _), mut ns) in cases.into_iter().zip(ns) {
            ns.sort_unstable();
            self.add(&name, 450.0, &ns);
        }
        Ok(())
    }

    /// What the early drop program costs packets it drops, and packets it passes.
    fn early_drop(&mut self) -> Result<()> {
        let set = rules(
            vec![line(
                vec![Test::Dest(vec![net([203, 0, 113, 0], 24)])],
                BLOCK,
            )],
            DIRECT,
        );
        self.rig.install(&compile(&set)?, 5)?;
        self.rig.put("GATE", &0u32, &GATE_CLOSED);
        let idle = self.guard_ns(&tcp(CLIENT, ORIGIN, ACK));
        self.rig.put("GATE", &0u32, &GATE_OPEN);
        for (name, p) in [
            ("datapath.xdp_drop", udp(CLIENT, "203.0.113.9:9")),
            ("datapath.xdp_pass", udp(CLIENT, ORIGIN)),
            ("datapath.xdp_other", tcp(CLIENT, ORIGIN, ACK)),
        ] {
            self.figures.push(Figure {
                name: name.to_owned(),
                ns: self.guard_ns(&p) - idle,
                target: 150.0,
            });
        }
        Ok(())
    }

    fn guard_ns(&self, p: &Packet) -> f64 {
        let data = p.build();
        let run = |_| self.rig.repeat_guard(&data, self.repeat).ns;
        let mut ns: Vec<u32> = (0..self.rounds).map(run).collect();
        ns.sort_unstable();
        f64::from(ns[ns.len() / 2])
    }

    /// F07: a destination outside of all networks, and one in the midst of them.
    fn prefix_counts(&mut self) -> Result<()> {
        for prefixes in [10u32, 20_000, 100_000, 1_000_000] {
            let nets: Vec<Prefix> = (0..prefixes).map(spread).collect();
            let [.., a, b, c, _] = nets[nets.len() / 2].addr;
            let inside = format!("{a}.{b}.{c}.9:443");
            let lines = vec![line(vec![Test::Dest(nets)], BLOCK)];
            self.rig.install(&compile(&rules(lines, BLOCK))?, 3)?;
            let name = format!("datapath.nets_{prefixes}");
            self.measure(&name, 450.0, LAN, &udp(CLIENT, ORIGIN));
            let name = format!("{name}_inside");
            self.measure(&name, 450.0, LAN, &udp(CLIENT, &inside));
        }
        Ok(())
    }
}

fn entry() -> FlowVal {
    FlowVal {
        last_seen_ns: u64::MAX,
        word: FlowWord {
            ordinal: PROXY,
            flags: 0,
            dscp: 0,
            state: 0,
            mark: 0,
        }
        .pack(),
        isn: 0,
        generation: 1,
        rule: 0,
        vlan: 0,
        pid: 0,
        pname: [0; 16],
        mac: CLIENT_MAC,
        gw_mac: GATEWAY_MAC,
        ifindex: 0,
    }
}

/// Lines over destination, source, ports and DSCP, none of which matches; the first `unusual`
/// hold in one dimension and fail in another. The networks are the same for any number of lines:
/// what they cost is measured on its own.
fn five_dimensions(lines: usize, unusual: usize) -> RuleSet {
    let address = |text: &str| Prefix {
        addr: to_bytes(text.parse().expect("an address")),
        len: 128,
    };
    let never = || Test::Dscp(vec![63]);
    let mut all = vec![
        line(
            vec![Test::Dest(vec![address("198.51.100.131")]), never()],
            PROXY,
        ),
        line(vec![Test::DestPort(vec![(443, 443)]), never()], PROXY),
        line(
            vec![Test::Source(vec![address("10.66.0.2")]), never()],
            PROXY,
        ),
    ];
    all.truncate(unusual);
    for i in all.len() as u32..lines as u32 - 1 {
        let test = match i % 5 {
            0 => Test::Dest(vec![spread(i % 10)]),
            1 => Test::Source(vec![spread(i % 10)]),
            2 => Test::DestPort(vec![(1000 + i as u16, 1000 + i as u16)]),
            3 => Test::SourcePort(vec![(1000 + i as u16, 1000 + i as u16)]),
            _ => Test::Dscp(vec![1 + (i % 40) as u8]),
        };
        all.push(line(vec![test], PROXY));
    }
    rules(all, BLOCK)
}

/// The `i`-th /24 of a sequence without repetition that avoids the test addresses.
pub(crate) fn spread(i: u32) -> Prefix {
    let net = (i.wrapping_mul(2_654_435_761) >> 12) % (1 << 20) + (11 << 16);
    let [_, a, b, c] = net.to_be_bytes();
    Prefix {
        addr: to_bytes([a, b, c, 0].into()),
        len: 96 + 24,
    }
}

pub(crate) fn line(tests: Vec<Test>, ordinal: u8) -> RuleLine {
    RuleLine {
        conds: tests
            .into_iter()
            .map(|test| Cond { not: false, test })
            .collect(),
        action: Action {
            ordinal: Ordinal(ordinal),
            must: false,
            mark: 0,
        },
        text: String::new(),
        file: String::new(),
        line: 0,
    }
}

pub(crate) fn rules(mut lines: Vec<RuleLine>, fallback: u8) -> RuleSet {
    lines.push(line(Vec::new(), fallback));
    RuleSet { lines }
}

/// An IPv4 network.
pub(crate) fn net(addr: [u8; 4], len: u8) -> Prefix {
    Prefix {
        addr: to_bytes(addr.into()),
        len: 96 + len,
    }
}
