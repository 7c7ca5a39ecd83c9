//! The kernel against the reference evaluator, on random rules and packets, of clients and of
//! the gateway itself.
//!
//! Values come from small pools, so that prefixes nest, ranges overlap and packets hit rules.
//! `HONK_KERNEL_PACKETS` changes how many packets are tried, a hundred for each rule set.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use honk_common::flow::FLAG_MUST;
use honk_common::key::{FlowKey, from_bytes, is_v4_mapped, to_bytes};
use honk_common::near::near_table;
use honk_common::outbound::{BLOCK, CONTROL, DIRECT, MUST_RULES};
use honk_common::param::{AMBIG_USER, OFFLOAD_DIRECT, SNI_STRICT};
use honk_common::route::DomainVal;
use honk_policy::routing::oracle::Oracle;
use honk_policy::routing::rule::{
    Cond, DomainTest, FlowFacts, Prefix, RuleLine, RuleSet, Test, Verdict,
};
use honk_policy::routing::{compile, eval_tables, is_sensitive};
use honk_tests::kernel::packet::{HOP_BY_HOP, Packet, SYN, tcp, udp};
use honk_tests::kernel::{Ctx, NEXT, REDIRECT, Rig, SHOT, XDP_DROP, bytes};

use crate::common::*;
use crate::rig;

const PACKETS_PER_SET: usize = 100;

/// A small generator: the seed is printed with every failure.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn flip(&mut self) -> bool {
        self.next() & 1 == 1
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

const V4: [&str; 6] = [
    "10.1.2.3",
    "10.1.129.1",
    "10.200.0.1",
    "203.0.113.9",
    "198.51.100.131",
    "192.0.2.1",
];
const V6: [&str; 4] = ["2001:db8::1", "2001:db8:0:1::77", "2001:db9::1", "fd66::2"];
const PORTS: [u16; 9] = [1, 52, 53, 54, 80, 443, 444, 1000, 65_535];

/// Suffixes of rules, and names of addresses.
const NAMES: [&str; 5] = ["a.b", "x.a.b", "d.c", "c", "elsewhere.org"];

fn address(r: &mut Rng, v6: bool) -> [u8; 16] {
    let seed = if v6 { r.pick(&V6) } else { r.pick(&V4) };
    let bits = u128::from_be_bytes(to_bytes(seed.parse().expect("an address")));
    // A flipped bit leaves some of the prefixes around the address.
    let flip = if r.flip() {
        1u128 << r.below(if v6 { 120 } else { 24 })
    } else {
        0
    };
    (bits ^ flip).to_be_bytes()
}

fn prefix(r: &mut Rng) -> Prefix {
    let v6 = r.below(3) == 0;
    let bits = u128::from_be_bytes(address(r, v6));
    let len = if v6 { r.below(129) } else { 96 + r.below(33) } as u8;
    let mask = if len == 0 {
        0
    } else {
        u128::MAX << (128 - len)
    };
    Prefix {
        addr: (bits & mask).to_be_bytes(),
        len,
    }
}

/// One of many around the IPv4 addresses, few of which hold others.
fn small_prefix(r: &mut Rng) -> Prefix {
    let seed = to_bytes(r.pick(&V4).parse().expect("an address"));
    let len = r.pick(&[23, 24, 24, 25, 26, 28, 32]);
    let bits = u128::from_be_bytes(seed) ^ r.below(1 << 16) as u128;
    Prefix {
        addr: (bits >> (32 - len) << (32 - len)).to_be_bytes(),
        len: 96 + len as u8,
    }
}

fn range(r: &mut Rng) -> (u16, u16) {
    let (a, b) = (r.pick(&PORTS), r.pick(&PORTS));
    (a.min(b), a.max(b))
}

fn mac(r: &mut Rng) -> [u8; 6] {
    [2, 0, 0, 0, 0, r.below(4) as u8]
}

fn some<T>(r: &mut Rng, most: usize, mut one: impl FnMut(&mut Rng) -> T) -> Vec<T> {
    (0..=r.below(most)).map(|_| one(r)).collect()
}

fn condition(r: &mut Rng) -> Cond {
    let test = match r.below(14) {
        12 | 13 => Test::Domain(some(r, 2, |r| {
            DomainTest::Suffix(r.pick(&NAMES).to_owned())
        })),
        0..=3 => Test::Dest(some(r, 6, prefix)),
        4 | 5 => Test::Source(some(r, 4, prefix)),
        6 | 7 => Test::DestPort(some(r, 3, range)),
        8 => Test::SourcePort(some(r, 3, range)),
        9 => Test::Mac(some(r, 3, mac)),
        10 => Test::Dscp(some(r, 3, |r| r.pick(&[0, 1, 46, 63]))),
        _ => {
            let (a, b) = r.pick(&[(true, false), (false, true), (true, true)]);
            if r.flip() {
                Test::L4Proto { tcp: a, udp: b }
            } else {
                Test::IpVersion { v4: a, v6: b }
            }
        }
    };
    Cond {
        not: r.below(4) == 0,
        test,
    }
}

fn rule(r: &mut Rng) -> RuleLine {
    let conds: Vec<Cond> = (0..r.below(4)).map(|_| condition(r)).collect();
    let ordinal = r.pick(&[DIRECT, BLOCK, 2, 3, 4, 251, MUST_RULES, MUST_RULES]);
    let mut line = line(conds, ordinal);
    line.action.must = r.below(4) == 0;
    line.action.mark = r.pick(&[0, 0, 0x17]);
    line
}

fn rule_set(r: &mut Rng) -> RuleSet {
    // Some sets are long, so that the deciding line lies behind the first word.
    let lines = if r.below(8) == 0 {
        60 + r.below(140)
    } else {
        r.below(10)
    };
    let mut lines: Vec<_> = (0..lines).map(|_| rule(r)).collect();
    // Long lists have a table in front of their tree.
    if r.below(8) == 0 {
        let nets: Vec<Prefix> = (0..2000).map(|_| small_prefix(r)).collect();
        let long = r.pick(&[Test::Dest as fn(_) -> _, Test::Source]);
        let at = r.below(lines.len() + 1);
        lines.insert(at, line([is(long(nets))], r.pick(&[DIRECT, BLOCK, 4])));
    }
    rules(lines, r.pick(&[DIRECT, BLOCK, PROXY]))
}

fn packet(r: &mut Rng) -> Packet {
    let v6 = r.flip();
    let socket = |r: &mut Rng| SocketAddr::new(ip(address(r, v6)), r.pick(&PORTS));
    let (src, dst) = (socket(r), socket(r));
    let mut p = if r.flip() {
        tcp(CLIENT, ORIGIN, SYN)
    } else {
        udp(CLIENT, ORIGIN)
    };
    (p.src, p.dst) = (src, dst);
    p.smac = mac(r);
    p.dscp = r.pick(&[0, 1, 2, 46, 63]);
    if r.below(8) == 0 {
        p.options = 8;
        p.extensions = vec![HOP_BY_HOP];
    }
    p
}

fn ip(a: [u8; 16]) -> IpAddr {
    if is_v4_mapped(&a) {
        from_bytes(&a)
    } else {
        IpAddr::V6(Ipv6Addr::from(a))
    }
}

/// What is known of a packet; local processes have no MAC, and `name` is the only one.
fn facts(p: &Packet, local: bool, name: Option<&str>) -> FlowFacts {
    let k = p.key();
    FlowFacts {
        src: k.src,
        dst: k.dst,
        sport: k.sport,
        dport: k.dport,
        tcp: p.proto == 6,
        mac: if local { [0; 6] } else { p.smac },
        dscp: p.dscp,
        pname: [0; 16],
        domain: name.map(str::to_owned),
    }
}

/// Verdict, mark after, and of the entry: ordinal, must, mark, rule.
type Outcome = (i32, u32, Option<(u8, bool, u32, u16)>);

/// Whether userspace wants to see the flow's name first: its address has names that disagree, or
/// none is known.
fn is_named_first(mode: u32, v: &Verdict, sensitive: bool, known: bool) -> bool {
    let strict = mode & SNI_STRICT != 0 && !known && v.ordinal.0 == DIRECT;
    sensitive && !v.must && (strict || mode & AMBIG_USER != 0 && known)
}

/// What L8-L11 make of the rules' verdict with living groups.
fn expected(v: &Verdict, p: &Packet, local: bool, named_first: bool) -> Outcome {
    let dns = p.dst.port() == 53;
    let to_daemon = dns && !v.must || named_first;
    let mut ordinal = if to_daemon { CONTROL } else { v.ordinal.0 };
    if local && ordinal == DIRECT && v.mark != 0 {
        // The route of a local packet does not follow the mark.
        ordinal = CONTROL;
    }
    let kept = Some((ordinal, v.must, v.mark, v.rule));
    let entry = if p.proto == 17 && dns { None } else { kept };
    match ordinal {
        BLOCK => (SHOT, 0, None),
        DIRECT if v.mark == 0 => (NEXT, 0, None),
        DIRECT => (NEXT, v.mark, entry),
        _ => (REDIRECT, 0, entry),
    }
}

fn observed(rig: &Rig, p: &Packet, local: bool) -> Outcome {
    let mut ctx = Ctx::default();
    let program = if local { "wan_egress_l2" } else { LAN };
    let verdict = rig.run(program, &p.build(), &mut ctx).outcome();
    let entry = flow(rig, p).map(|f| {
        let w = word(rig, p);
        (w.ordinal, w.flags & FLAG_MUST != 0, w.mark, f.rule)
    });
    // A refused SYN goes back marked as a reply; what is dropped has no mark.
    let mark = if verdict == SHOT { 0 } else { ctx.mark };
    (verdict, mark, entry)
}

#[test]
fn the_kernel_decides_like_the_reference() {
    let mut rig = rig!();
    let packets: usize = std::env::var("HONK_KERNEL_PACKETS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(20_000);
    let mut outcomes = [0usize; 3];
    let mut guarded = 0;
    let mut long = 0;
    for round in 0..packets.div_ceil(PACKETS_PER_SET) {
        let mut r = Rng(round as u64);
        let set = rule_set(&mut r);
        let oracle = Oracle::new(&set);
        let tables = compile(&set).expect("rules within the limits");
        long += [&tables.dest, &tables.src]
            .map(|list| usize::from(near_table(list).is_some()))
            .iter()
            .sum::<usize>();
        let packets: Vec<Packet> = (0..PACKETS_PER_SET).map(|_| packet(&mut r)).collect();
        let mut names: BTreeMap<[u8; 16], Vec<&str>> = BTreeMap::new();
        for p in &packets {
            let owners = r.below(4).saturating_sub(1);
            let owners = (0..owners).map(|_| r.pick(&NAMES)).collect();
            names.insert(p.key().dst, owners);
        }
        let known: BTreeMap<[u8; 16], DomainVal> = names
            .iter()
            .filter_map(|(addr, owners)| {
                let calls: Vec<_> = owners.iter().map(|n| oracle.domain_calls(n)).collect();
                Some((*addr, oracle.domain_value(&calls)?))
            })
            .collect();
        let entries: Vec<_> = known.iter().map(|(addr, value)| (*addr, *value)).collect();
        let flags = [0, SNI_STRICT, AMBIG_USER, SNI_STRICT | AMBIG_USER];
        let mode = OFFLOAD_DIRECT | r.pick(&flags);
        rig.put("FLAGS", &0u32, &mode);
        let generation = round as u32 + 1;
        rig.install_names(&entries, generation).expect("names fit");
        rig.install(&tables, generation).expect("tables fit");
        rig.clear("FLOW", size_of::<FlowKey>());
        for (i, p) in packets.iter().enumerate() {
            let local = i % 2 == 1;
            let dst = p.key().dst;
            let owners = &names[&dst];
            let facts = facts(p, local, owners.first().copied());
            let verdict = if owners.len() > 1 {
                // Any owner counts; there is no single name the reference could take.
                eval_tables(&tables, &facts, known.get(&dst))
            } else {
                oracle.eval(&facts)
            };
            let value = known.get(&dst);
            let sensitive = is_sensitive(&tables, &facts, value);
            let named_first = is_named_first(mode, &verdict, sensitive, value.is_some());
            let want = expected(&verdict, p, local, named_first);
            rig.del("FLOW", &bytes(&p.key()));
            rig.del("DCACHE", &bytes(&p.key()));
            // What is dropped early is what would be dropped, and leaves as little behind.
            let early = !local && rig.guard(&p.build()) == XDP_DROP;
            guarded += usize::from(early);
            let got = observed(&rig, p, local);
            assert!(
                !early || got == (SHOT, 0, None) && p.proto == 17,
                "seed {round}, packet {i}: dropped early, but {got:?}: {p:?}\n{set:#?}"
            );
            assert_eq!(
                got, want,
                "seed {round}, packet {i}, names {owners:?}: {p:?}\n{verdict:?}\n{set:#?}"
            );
            outcomes[[NEXT, SHOT, REDIRECT]
                .iter()
                .position(|v| *v == got.0)
                .unwrap_or(0)] += 1;
        }
    }
    println!("{packets} packets: {outcomes:?} passed, dropped, handed over; {guarded} early");
    assert!(
        guarded > packets / 2000,
        "only {guarded} were dropped early"
    );
    assert!(long > packets / 10_000, "only {long} long lists");
    assert!(
        outcomes.iter().all(|n| *n > packets / 20),
        "one-sided: {outcomes:?}"
    );
}
