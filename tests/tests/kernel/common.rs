//! Rules in short form, and what every test does first.

use std::net::IpAddr;

use honk_common::flow::{FlowVal, FlowWord, ReturnVal};
use honk_common::key::{FlowKey, to_bytes};
use honk_policy::id::Ordinal;
use honk_policy::routing::compile;
use honk_policy::routing::rule::{Action, Cond, Prefix, RuleLine, RuleSet, Test};
use honk_tests::kernel::packet::Packet;
use honk_tests::kernel::{Ctx, Ran, Rig, bytes};

pub(crate) const LAN: &str = "lan_ingress_l2";
/// A client, and an origin no rule of the tests names.
pub(crate) const CLIENT: &str = "10.66.0.2:40001";
pub(crate) const ORIGIN: &str = "198.51.100.131:443";
pub(crate) const CLIENT6: &str = "[fd66::2]:40001";
pub(crate) const ORIGIN6: &str = "[2001:db8:200::1]:443";
/// The group of most tests.
pub(crate) const PROXY: u8 = 7;

/// Loads the object; `None` when this machine may not.
#[macro_export]
macro_rules! rig {
    () => {{
        let name = std::thread::current().name().unwrap_or("kernel").to_owned();
        if honk_tests::skip::without_root(&name) {
            return;
        }
        honk_tests::kernel::Rig::new().unwrap_or_else(|e| panic!("{e:?}"))
    }};
}

pub(crate) fn is(test: Test) -> Cond {
    Cond { not: false, test }
}

pub(crate) fn isnt(test: Test) -> Cond {
    Cond { not: true, test }
}

pub(crate) fn line(conds: impl Into<Vec<Cond>>, ordinal: u8) -> RuleLine {
    RuleLine {
        conds: conds.into(),
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

pub(crate) fn must(mut line: RuleLine) -> RuleLine {
    line.action.must = true;
    line
}

pub(crate) fn marked(mut line: RuleLine, mark: u32) -> RuleLine {
    line.action.mark = mark;
    line
}

/// `10.0.0.0/8`; IPv4 lengths as written.
pub(crate) fn net(text: &str) -> Prefix {
    let (addr, len) = text.split_once('/').expect("a slash");
    let ip: IpAddr = addr.parse().expect("an address");
    let len: u8 = len.parse().expect("a length");
    Prefix {
        addr: to_bytes(ip),
        len: if ip.is_ipv4() { len + 96 } else { len },
    }
}

pub(crate) fn dip(nets: &[&str]) -> Cond {
    is(Test::Dest(nets.iter().map(|n| net(n)).collect()))
}

pub(crate) fn dport(port: u16) -> Cond {
    is(Test::DestPort(vec![(port, port)]))
}

/// The lines, then a fallback.
pub(crate) fn rules(lines: impl Into<Vec<RuleLine>>, fallback: u8) -> RuleSet {
    let mut lines = lines.into();
    lines.push(line([], fallback));
    RuleSet { lines }
}

pub(crate) fn install(rig: &mut Rig, set: &RuleSet, generation: u32) {
    let tables = compile(set).expect("rules within the limits");
    rig.install(&tables, generation).expect("tables fit");
}

/// Everything goes to `ordinal`.
pub(crate) fn install_all(rig: &mut Rig, ordinal: u8) {
    install(rig, &rules([], ordinal), 1);
}

/// Runs `lan_ingress_l2`.
pub(crate) fn lan(rig: &Rig, p: &Packet) -> i32 {
    rig.run(LAN, &p.build(), &mut Ctx::default()).outcome()
}

/// The same with the mark before, and the mark after.
pub(crate) fn lan_marked(rig: &Rig, p: &Packet, mark: u32) -> (i32, u32) {
    let mut ctx = Ctx {
        mark,
        ..Ctx::default()
    };
    let ran: Ran = rig.run(LAN, &p.build(), &mut ctx);
    (ran.outcome(), ctx.mark)
}

pub(crate) fn flow(rig: &Rig, p: &Packet) -> Option<FlowVal> {
    rig.get("FLOW", &bytes(&p.key()))
}

pub(crate) fn word(rig: &Rig, p: &Packet) -> FlowWord {
    FlowWord::unpack(flow(rig, p).expect("a flow entry").word)
}

pub(crate) fn put_flow(rig: &Rig, p: &Packet, value: &FlowVal) {
    rig.put("FLOW", &p.key(), value);
}

/// An entry as the kernel makes it, for `ordinal`.
pub(crate) fn entry(ordinal: u8) -> FlowVal {
    FlowVal {
        last_seen_ns: now(),
        word: FlowWord {
            ordinal,
            flags: 0,
            dscp: 0,
            state: 0,
            mark: 0,
        }
        .pack(),
        isn: 1000,
        generation: 1,
        rule: 0,
        vlan: 0,
        pid: 0,
        pname: [0; 16],
        mac: [2, 0, 0, 0, 0, 0x22],
        gw_mac: [2, 0, 0, 0, 0, 1],
        ifindex: 2,
    }
}

pub(crate) fn way(rig: &Rig, addr: IpAddr) -> Option<ReturnVal> {
    rig.get("RETURN", &to_bytes(addr))
}

pub(crate) fn no_flows(rig: &Rig) -> bool {
    rig.is_empty("FLOW", size_of::<FlowKey>()) && rig.is_empty("DCACHE", size_of::<FlowKey>())
}

/// `CLOCK_MONOTONIC` in nanoseconds.
pub(crate) fn now() -> u64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}
