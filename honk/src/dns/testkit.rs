//! A kernel map for tests.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use honk_common::route::DomainVal;
use honk_policy::{
    id::Ordinal,
    routing::{
        oracle::Oracle,
        rule::{Action, Cond, DomainTest, RuleLine, RuleSet, Test},
    },
};

use tokio::runtime::{Builder, Handle, Runtime};

use super::{Dns, DomainMap, MapFault, Reply, lock};

/// What was written, by generation and address.
pub(crate) type Written = BTreeMap<(u32, IpAddr), (u64, u64)>;

/// Remembers the first words of what is written.
#[derive(Debug, Default)]
pub(crate) struct Map {
    pub(crate) entries: Mutex<Written>,
    pub(crate) own: Mutex<Vec<IpAddr>>,
    pub(crate) broken: AtomicBool,
    /// Held by a test, it holds up every write.
    pub(crate) pause: Mutex<()>,
}

impl Map {
    pub(crate) fn get(&self, generation: u32, address: &str) -> Option<(u64, u64)> {
        let key = (generation, address.parse().unwrap());
        lock(&self.entries).get(&key).copied()
    }

    fn works(&self) -> Result<(), MapFault> {
        if self.broken.load(Ordering::SeqCst) {
            return Err(MapFault("the map is full".to_owned()));
        }
        Ok(())
    }
}

impl DomainMap for Map {
    fn write(&self, generation: u32, set: &[(IpAddr, DomainVal)]) -> Result<(), MapFault> {
        self.works()?;
        drop(lock(&self.pause));
        let mut entries = lock(&self.entries);
        for (address, value) in set {
            entries.insert((generation, *address), (value.bits[0], value.amb[0]));
        }
        Ok(())
    }

    fn delete(&self, generation: u32, gone: &[IpAddr]) -> Result<(), MapFault> {
        self.works()?;
        let mut entries = lock(&self.entries);
        for address in gone {
            entries.remove(&(generation, *address));
        }
        Ok(())
    }

    fn is_own(&self, address: IpAddr) -> bool {
        lock(&self.own).contains(&address)
    }
}

/// DNS with a map that takes everything, wherever the test runs.
pub(crate) fn dns() -> Arc<Dns> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    let _guard = Handle::try_current().is_err().then(|| {
        let make = || {
            Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()
        };
        RUNTIME.get_or_init(|| make().expect("a runtime")).enter()
    });
    Dns::new(Arc::new(Map::default()))
}

/// A query with RD.
pub(crate) fn query(id: u16, name: &str, kind: u16) -> Vec<u8> {
    let mut out = Vec::new();
    for word in [id, 0x0100, 1, 0, 0, 0] {
        out.extend(word.to_be_bytes());
    }
    for label in name.split('.') {
        out.push(label.len() as u8);
        out.extend(label.as_bytes());
    }
    out.push(0);
    out.extend([kind.to_be_bytes(), 1_u16.to_be_bytes()].concat());
    out
}

/// An answer with A records.
pub(crate) fn answer(query: &[u8], addresses: &[[u8; 4]]) -> Vec<u8> {
    let mut out = query.to_vec();
    out[2] |= 0x80;
    out[7] = addresses.len() as u8;
    for address in addresses {
        out.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        out.extend(address);
    }
    out
}

/// One line for each name, then the fallback.
pub(crate) fn oracle(names: &[&str]) -> Arc<Oracle> {
    let line = |name: Option<&&str>| RuleLine {
        conds: name
            .map(|n| Cond {
                not: false,
                test: Test::Domain(vec![DomainTest::Suffix((*n).to_owned())]),
            })
            .into_iter()
            .collect(),
        action: Action {
            ordinal: Ordinal(0),
            must: false,
            mark: 0,
        },
        text: String::new(),
        file: String::new(),
        line: 0,
    };
    let lines = names.iter().map(Some).chain([None]).map(line).collect();
    Arc::new(Oracle::new(&RuleSet { lines }))
}

/// Lets a client ask a name and a server answer.
pub(crate) fn teach(dns: &Dns, client: &str, name: &str, addresses: &[[u8; 4]]) {
    let (client, server) = (client.parse().unwrap(), "198.51.100.53:53".parse().unwrap());
    let asked = query(7, name, honk_wire::dns::kind::A);
    dns.ask(client, server, &asked, Instant::now());
    let reply = dns.reply(client, server, &answer(&asked, addresses), false);
    assert!(matches!(reply, Reply::Pass), "{reply:?}");
}
