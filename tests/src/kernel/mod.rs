//! Runs the kernel programs on made-up packets, without attaching them.
//!
//! A [`Rig`] is one loaded object in a network namespace of its own with one TAP device, `lan0`.
//! Programs run through `BPF_PROG_TEST_RUN`; maps are read and written as ABI structs. It needs
//! root, and leaves nothing behind: programs, maps and namespace end with the thread.

mod device;
pub mod packet;
pub mod sys;

use std::collections::HashMap;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use aya::maps::MapData;
use aya::programs::{Program, ProgramFd, SchedClassifier, SkLookup, Xdp};
use honk_common::counter::{OutStats, STATS_ENTRIES, Stat};
use honk_common::limits::{MAX_CLASSES, MAX_RULES, PORT_ELEMS, USUAL_ROWS};
use honk_common::near::near_table;
use honk_common::param::{GATE_OPEN, OFFLOAD_DIRECT, Param};
use honk_common::route::{ClassBits, DomainVal, PnameKey, PortClasses, bank, mac_key};
use honk_common::tables::RouteTables;
use honk_common::{ABI_VERSION, Pod};

pub use device::{Tap, enter_namespace};
pub use sys::Ran;

/// Names of the programs in the object.
pub const CLASSIFIERS: [&str; 10] = [
    "lan_ingress_l2",
    "lan_ingress_l3",
    "lan_egress_l2",
    "lan_egress_l3",
    "wan_egress_l2",
    "wan_egress_l3",
    "wan_ingress_l2",
    "wan_ingress_l3",
    "dev0_ingress",
    "peer_ingress",
];
/// The hooks of the root control group.
pub const PROCESS_HOOKS: [&str; 6] = [
    "cg_sock_create",
    "cg_sock_release",
    "cg_connect4",
    "cg_connect6",
    "cg_sendmsg4",
    "cg_sendmsg6",
];
/// The program of type `sk_lookup`.
pub const LOOKUP: &str = "listener_lookup";

/// The program of type XDP, for drivers.
pub const GUARD: &str = "xdp_guard";
/// The same for the generic mode.
pub const GUARD_GENERIC: &str = "xdp_guard_generic";

/// `XDP_DROP`.
pub const XDP_DROP: i32 = 1;
/// `XDP_PASS`.
pub const XDP_PASS: i32 = 2;

/// `TCX_NEXT`.
pub const NEXT: i32 = -1;
/// `TC_ACT_SHOT`.
pub const SHOT: i32 = 2;
/// `TC_ACT_REDIRECT`.
pub const REDIRECT: i32 = 7;

/// MAC of `lan0`: what clients send to.
pub const GATEWAY_MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 0x01];
/// MAC of `honk0p` in the tests.
pub const PEER_MAC: [u8; 6] = [0x02, 0, 0, 0, 0x0f, 0x02];
/// Nonce of the tests.
pub const NONCE: u8 = 0x5a;
/// Interface index that stands for `honk0`; nothing has it.
pub const HONK0: u32 = 77;

/// The object under test; `HONK_BPF_OBJECT` names another one.
pub fn object_path() -> PathBuf {
    std::env::var_os("HONK_BPF_OBJECT").map_or_else(
        || {
            PathBuf::from(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/../honk-ebpf/prebuilt/honk.bpf.o"
            ))
        },
        PathBuf::from,
    )
}

/// The bytes of an ABI struct.
pub fn bytes<T: Pod>(value: &T) -> Vec<u8> {
    // SAFETY: `Pod` promises no padding, so all bytes are initialised.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }.to_vec()
}

fn from_bytes<T: Pod>(b: &[u8]) -> T {
    assert!(b.len() >= size_of::<T>());
    // SAFETY: `Pod` promises that any bytes are a value; the length was checked.
    unsafe { b.as_ptr().cast::<T>().read_unaligned() }
}

/// `__sk_buff` fields a test may set; the kernel refuses others.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ctx {
    /// `skb->mark`, also read back.
    pub mark: u32,
    /// Interface the packet came in through, for egress programs.
    pub ingress_ifindex: u32,
}

/// One loaded object.
#[derive(Debug)]
pub struct Rig {
    ebpf: aya::Ebpf,
    programs: HashMap<&'static str, ProgramFd>,
    lan: Tap,
    cpus: usize,
    inner: Vec<OwnedFd>,
}

impl Rig {
    /// Enters a new namespace and loads everything. The gate is open, no rule installed.
    pub fn new() -> Result<Self> {
        Self::with_flow_entries(4096)
    }

    /// The same with a chosen capacity of `FLOW`.
    pub fn with_flow_entries(entries: u32) -> Result<Self> {
        enter_namespace()?;
        let lan = Tap::new("lan0", GATEWAY_MAC)?;
        let path = object_path();
        let object = std::fs::read(&path).with_context(|| path.display().to_string())?;
        let mut ebpf = aya::EbpfLoader::new()
            .map_max_entries("FLOW", entries)
            .verifier_log_level(aya::VerifierLogLevel::STATS)
            .load(&object)
            .context("cannot load the object")?;
        let mut programs = HashMap::new();
        for name in CLASSIFIERS {
            let program: &mut SchedClassifier = ebpf
                .program_mut(name)
                .with_context(|| format!("no program {name}"))?
                .try_into()?;
            program
                .load()
                .with_context(|| format!("verifier refuses {name}"))?;
            programs.insert(name, program.fd()?.try_clone()?);
        }
        let program: &mut SkLookup = ebpf.program_mut(LOOKUP).context(LOOKUP)?.try_into()?;
        program.load().context("verifier refuses listener_lookup")?;
        programs.insert(LOOKUP, program.fd()?.try_clone()?);
        for name in [GUARD, GUARD_GENERIC] {
            let program: &mut Xdp = ebpf.program_mut(name).context(name)?.try_into()?;
            program
                .load()
                .with_context(|| format!("verifier refuses {name}"))?;
            programs.insert(name, program.fd()?.try_clone()?);
        }
        for name in PROCESS_HOOKS {
            let loaded = match ebpf.program_mut(name).context(name)? {
                Program::CgroupSock(p) => p.load(),
                Program::CgroupSockAddr(p) => p.load(),
                _ => bail!("unexpected type of {name}"),
            };
            loaded.with_context(|| format!("verifier refuses {name}"))?;
        }
        let rig = Self {
            ebpf,
            programs,
            lan,
            cpus: possible_cpus()?,
            inner: Vec::new(),
        };
        rig.put("GATE", &0u32, &GATE_OPEN);
        rig.put("FLAGS", &0u32, &OFFLOAD_DIRECT);
        rig.put("PARAM", &0u32, &rig.param());
        let [a, b, c, d, e, f] = GATEWAY_MAC;
        let mac = u64::from_ne_bytes([a, b, c, d, e, f, 0, 0]);
        rig.put("XDP_MAC", &rig.lan.index(), &mac);
        Ok(rig)
    }

    /// The parameters the rig starts with.
    pub fn param(&self) -> Param {
        Param {
            own_mark: 0x100,
            honk0_ifindex: HONK0,
            peer_mac: PEER_MAC,
            nonce: NONCE,
            lan_ifindex: [self.lan.index(), 0, 0, 0, 0, 0, 0, 0],
            ..Param::default()
        }
    }

    /// The LAN device.
    pub fn lan(&self) -> &Tap {
        &self.lan
    }

    /// Instructions the verifier walked for a program.
    pub fn verified_insns(&self, program: &str) -> Result<u32> {
        let program = self.ebpf.program(program).context("no such program")?;
        let info = match program {
            Program::SchedClassifier(p) => p.info()?,
            Program::SkLookup(p) => p.info()?,
            Program::Xdp(p) => p.info()?,
            Program::CgroupSock(p) => p.info()?,
            Program::CgroupSockAddr(p) => p.info()?,
            _ => bail!("unexpected program type"),
        };
        info.verified_instruction_count()
            .context("kernel older than 5.16")
    }

    fn map(&self, name: &str) -> BorrowedFd<'_> {
        use aya::maps::Map;
        let data: &MapData = match self
            .ebpf
            .map(name)
            .unwrap_or_else(|| panic!("no map {name}"))
        {
            Map::Array(m)
            | Map::HashMap(m)
            | Map::LruHashMap(m)
            | Map::PerCpuArray(m)
            | Map::ArrayOfMaps(m)
            | Map::RingBuf(m)
            | Map::SockMap(m) => m,
            other => panic!("map {name} has an unexpected type: {other:?}"),
        };
        data.fd().as_fd()
    }

    /// Writes one entry.
    pub fn put<K: Pod, V: Pod>(&self, map: &str, key: &K, value: &V) {
        self.put_raw(map, &bytes(key), &bytes(value));
    }

    /// Writes one entry given as bytes.
    pub fn put_raw(&self, map: &str, key: &[u8], value: &[u8]) {
        sys::update(self.map(map), key, value).unwrap_or_else(|e| panic!("{map}: {e}"));
    }

    /// Writes neighbouring elements of an array.
    fn put_many<V: Pod>(&self, map: &str, first: u32, values: &[V]) {
        let keys: Vec<u8> = (first..)
            .take(values.len())
            .flat_map(u32::to_ne_bytes)
            .collect();
        let bytes: Vec<u8> = values.iter().flat_map(bytes).collect();
        sys::update_batch(self.map(map), &keys, &bytes, values.len())
            .unwrap_or_else(|e| panic!("{map}: {e}"));
    }

    /// Reads one entry.
    pub fn get<V: Pod>(&self, map: &str, key: &[u8]) -> Option<V> {
        let mut value = vec![0u8; size_of::<V>()];
        sys::lookup(self.map(map), key, &mut value)
            .unwrap_or_else(|e| panic!("{map}: {e}"))
            .then(|| from_bytes(&value))
    }

    /// Removes one entry.
    pub fn del(&self, map: &str, key: &[u8]) -> bool {
        sys::delete(self.map(map), key).unwrap_or_else(|e| panic!("{map}: {e}"))
    }

    /// Empties a hash map.
    pub fn clear(&self, map: &str, key_size: usize) {
        let fd = self.map(map);
        while let Some(key) = sys::first_key(fd, key_size).unwrap_or_else(|e| panic!("{map}: {e}"))
        {
            self.del(map, &key);
        }
    }

    /// Whether a hash map has no entry.
    pub fn is_empty(&self, map: &str, key_size: usize) -> bool {
        matches!(sys::first_key(self.map(map), key_size), Ok(None))
    }

    fn per_cpu<V: Pod>(&self, map: &str, index: u32) -> Vec<V> {
        let mut all = vec![0u8; size_of::<V>() * self.cpus];
        assert!(
            sys::lookup(self.map(map), &index.to_ne_bytes(), &mut all)
                .unwrap_or_else(|e| panic!("{map}: {e}"))
        );
        all.chunks(size_of::<V>()).map(from_bytes).collect()
    }

    /// A counter, summed over CPUs.
    pub fn stat(&self, stat: Stat) -> u64 {
        assert!((stat as u32) < STATS_ENTRIES);
        self.per_cpu::<u64>("STATS", stat as u32).iter().sum()
    }

    /// Traffic of an ordinal, summed over CPUs.
    pub fn traffic(&self, ordinal: u8) -> OutStats {
        let mut sum = OutStats::default();
        for s in self.per_cpu::<OutStats>("OUT_STATS", ordinal.into()) {
            sum.tx_packets += s.tx_packets;
            sum.tx_bytes += s.tx_bytes;
            sum.rx_packets += s.rx_packets;
            sum.rx_bytes += s.rx_bytes;
        }
        sum
    }

    /// The event ring; draining it is the caller's business.
    pub fn events(&mut self) -> Vec<honk_common::event::Event> {
        let mut ring = aya::maps::RingBuf::try_from(self.ebpf.map_mut("EVENTS").expect("EVENTS"))
            .expect("a ring buffer");
        let mut all = Vec::new();
        while let Some(item) = ring.next() {
            all.push(from_bytes(&item));
        }
        all
    }

    /// Attaches a classifier to the ingress of a device, for as long as the rig lives.
    pub fn attach(&mut self, program: &str, device: &Tap) -> Result<()> {
        let program: &mut SchedClassifier = self
            .ebpf
            .program_mut(program)
            .context("no such program")?
            .try_into()?;
        program.attach(device.name(), aya::programs::TcAttachType::Ingress)?;
        Ok(())
    }

    /// The same by the name of the device.
    pub fn attach_ingress(&mut self, program: &str, device: &str) -> Result<()> {
        let program: &mut SchedClassifier = self
            .ebpf
            .program_mut(program)
            .context("no such program")?
            .try_into()?;
        program.attach(device, aya::programs::TcAttachType::Ingress)?;
        Ok(())
    }

    /// The same for the egress.
    pub fn attach_egress(&mut self, program: &str, device: &Tap) -> Result<()> {
        let program: &mut SchedClassifier = self
            .ebpf
            .program_mut(program)
            .context("no such program")?
            .try_into()?;
        program.attach(device.name(), aya::programs::TcAttachType::Egress)?;
        Ok(())
    }

    /// Attaches the process hooks to the root control group, for as long as the rig lives.
    pub fn attach_processes(&mut self) -> Result<()> {
        let root = sys::control_group().context("no unified control groups")?;
        // A link takes no mode: any number of links share a group.
        let mode = aya::programs::CgroupAttachMode::Single;
        for name in PROCESS_HOOKS {
            match self.ebpf.program_mut(name).context(name)? {
                Program::CgroupSock(p) => p.attach(&root, mode).map(drop),
                Program::CgroupSockAddr(p) => p.attach(&root, mode).map(drop),
                _ => bail!("unexpected type of {name}"),
            }?;
        }
        Ok(())
    }

    /// Runs a classifier on a packet.
    pub fn run(&self, program: &str, data: &[u8], ctx: &mut Ctx) -> Ran {
        self.repeat(program, data, ctx, 1)
    }

    /// Runs a classifier many times; `Ran::ns` is the average.
    pub fn repeat(&self, program: &str, data: &[u8], ctx: &mut Ctx, repeat: u32) -> Ran {
        let mut skb = [0u32; 48];
        skb[2] = ctx.mark;
        skb[9] = ctx.ingress_ifindex;
        skb[10] = self.lan.index();
        let mut raw: Vec<u8> = skb.iter().flat_map(|w| w.to_ne_bytes()).collect();
        let fd = self.programs[program].as_fd();
        let ran = sys::test_run(fd, data, &mut raw, repeat)
            .unwrap_or_else(|e| panic!("{program} on {} bytes: {e}", data.len()));
        ctx.mark = u32::from_ne_bytes([raw[8], raw[9], raw[10], raw[11]]);
        ran
    }

    /// A loaded program.
    pub fn program(&self, name: &str) -> BorrowedFd<'_> {
        self.programs[name].as_fd()
    }

    /// Runs `xdp_guard` on a frame that `lan0` received.
    pub fn guard(&self, data: &[u8]) -> i32 {
        self.repeat_guard(data, 1).verdict
    }

    /// The same many times.
    pub fn repeat_guard(&self, data: &[u8], repeat: u32) -> Ran {
        // struct xdp_md: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress.
        let ctx = [0, data.len() as u32, 0, self.lan.index(), 0, 0];
        let mut raw: Vec<u8> = ctx.iter().flat_map(|w| w.to_ne_bytes()).collect();
        sys::test_run(self.programs[GUARD].as_fd(), data, &mut raw, repeat)
            .unwrap_or_else(|e| panic!("{GUARD} on {} bytes: {e}", data.len()))
    }

    /// Runs `listener_lookup`; returns its verdict and the cookie of the selected socket.
    pub fn lookup(&self, family: u32, protocol: u32) -> (i32, u64) {
        let (ran, cookie) = self.repeat_lookup(family, protocol, 1);
        (ran.verdict, cookie)
    }

    /// The same many times.
    pub fn repeat_lookup(&self, family: u32, protocol: u32, repeat: u32) -> (Ran, u64) {
        // struct bpf_sk_lookup: cookie u64, family, protocol, remote ip4, ip6[4], port, ...
        let mut ctx = [0u32; 18];
        ctx[2] = family;
        ctx[3] = protocol;
        let mut raw: Vec<u8> = ctx.iter().flat_map(|w| w.to_ne_bytes()).collect();
        let ran = sys::test_run(self.programs[LOOKUP].as_fd(), &[], &mut raw, repeat)
            .unwrap_or_else(|e| panic!("listener_lookup: {e}"));
        let cookie = from_bytes(&raw);
        (ran, cookie)
    }

    /// Puts a listening or bound socket into `SOCKS`.
    pub fn publish(&self, slot: u32, socket: BorrowedFd<'_>) {
        use std::os::fd::AsRawFd as _;
        let fd = socket.as_raw_fd() as u32;
        self.put("SOCKS", &slot, &fd);
    }

    /// Gives the bank of `generation` the names of addresses.
    pub fn install_names(
        &mut self,
        names: &[([u8; 16], DomainVal)],
        generation: u32,
    ) -> Result<()> {
        use std::os::fd::AsRawFd as _;
        let inner = sys::create_names(names.len() as u32)?;
        for (addr, value) in names {
            sys::update(inner.as_fd(), addr, &bytes(value))?;
        }
        self.put("DOMAIN", &bank(generation), &(inner.as_raw_fd() as u32));
        self.inner.push(inner);
        Ok(())
    }

    /// Writes a rule set into the bank of `generation` and makes it the one in force.
    pub fn install(&mut self, tables: &RouteTables, generation: u32) -> Result<()> {
        let b = bank(generation);
        self.put_many("RULE_ACT", b * MAX_RULES as u32, &tables.acts);
        let classes: Vec<_> = tables.classes.iter().map(|c| ClassBits(*c)).collect();
        self.put_many("CLASS_BITS", b * MAX_CLASSES as u32, &classes);
        let usual: Vec<_> = tables.usual_bits().into_iter().map(ClassBits).collect();
        self.put_many("USUAL_BITS", b * USUAL_ROWS, &usual);
        for (dir, ports) in [(0, &tables.dport), (1, &tables.sport)] {
            let fours: Vec<_> = ports
                .chunks_exact(4)
                .map(|four| PortClasses([four[0], four[1], four[2], four[3]]))
                .collect();
            self.put_many("PORT_CLASS", (b * 2 + dir) * PORT_ELEMS, &fours);
        }
        self.put("DSCP_CLASS", &b, &tables.dscp);
        self.clear("PNAME_CLASS", size_of::<PnameKey>());
        for (name, class) in &tables.pname {
            self.put(
                "PNAME_CLASS",
                &PnameKey {
                    name: *name,
                    bank: b,
                },
                class,
            );
        }
        self.clear("MAC_CLASS", 8);
        for (mac, class) in &tables.mac {
            self.put("MAC_CLASS", &mac_key(b, *mac), class);
        }
        for (map, prefixes) in [
            ("DEST_LPM", &tables.dest),
            ("SRC_LPM", &tables.src),
            ("XDP_BLOCK", &tables.guard),
        ] {
            let inner = sys::create_prefixes(prefixes.len() as u32 + 16)?;
            for (key, class) in prefixes {
                sys::update(inner.as_fd(), &bytes(key), &bytes(class))?;
            }
            use std::os::fd::AsRawFd as _;
            self.put(map, &b, &(inner.as_raw_fd() as u32));
            self.inner.push(inner);
        }
        for (map, prefixes) in [("DEST_NEAR", &tables.dest), ("SRC_NEAR", &tables.src)] {
            self.del(map, &bytes(&b));
            let Some(elements) = near_table(prefixes) else {
                continue;
            };
            let inner = sys::create_near()?;
            for (at, words) in &elements {
                sys::update(inner.as_fd(), &bytes(at), &bytes(words))?;
            }
            use std::os::fd::AsRawFd as _;
            self.put(map, &b, &(inner.as_raw_fd() as u32));
            self.inner.push(inner);
        }
        let mut meta = tables.meta;
        meta.generation = generation;
        self.put("ROUTE_META", &b, &meta);
        self.put("ROUTE_SEL", &0u32, &generation);
        let keep = self.inner.len().saturating_sub(10);
        self.inner.drain(..keep);
        Ok(())
    }
}

/// Version of the ABI the rig was built with.
pub const ABI: u32 = ABI_VERSION;

fn possible_cpus() -> Result<usize> {
    aya::util::nr_cpus().map_err(|(file, e)| anyhow::anyhow!("{file}: {e}"))
}
