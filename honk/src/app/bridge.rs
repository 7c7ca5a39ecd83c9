//! The real kernel side and the real carriers, as the traits `app` works with.

use std::{net::IpAddr, sync::Arc, time::Duration};

use honk_common::{flow::FlowVal, key::FlowKey, route::DomainVal, tables::RouteTables};
use honk_policy::config::Global;

use super::{
    engine::{Carriers, Datagrams, DialRow, Dials},
    kernel::{Interface, Kernel, KernelCounters, KernelError, MapUse},
};
use crate::{
    cli::exit::Exit,
    datapath::{Applied, Blame, Datapath, Error},
    dns::{DomainMap, MapFault},
    inbound::Inbound,
    outbound::{self, Dialer, counters::BUCKETS_MS, error::DialResult},
};

/// Exit code of a start that fails in the datapath.
pub(crate) fn exit_of(blame: Blame) -> Exit {
    match blame {
        Blame::Permission => Exit::Permission,
        Blame::Unsupported => Exit::Unsupported,
        Blame::Conflict => Exit::Conflict,
        Blame::Config => Exit::Config,
        Blame::Other => Exit::Failure,
    }
}

impl From<Error> for KernelError {
    fn from(e: Error) -> Self {
        Self {
            exit: exit_of(e.blame()),
            message: e.to_string(),
        }
    }
}

impl Kernel for Datapath {
    fn stage(&self, tables: &RouteTables) -> Result<u32, KernelError> {
        Ok(Self::stage(self, tables)?)
    }

    fn activate(&self, generation: u32) -> Result<(), KernelError> {
        Ok(Self::activate(self, generation)?)
    }

    fn write_groups(&self, slots: &[(u32, u32)]) -> Result<(), KernelError> {
        Ok(Self::write_groups(self, slots)?)
    }

    fn set_gate(&self, gate: u32) -> Result<(), KernelError> {
        Ok(Self::set_gate(self, gate)?)
    }

    fn set_flags(&self, flags: u32) -> Result<(), KernelError> {
        Ok(Self::set_flags(self, flags)?)
    }

    fn watch(&self, on: bool) -> Result<(), KernelError> {
        Ok(Self::watch(self, on)?)
    }

    fn lookup(&self, key: &FlowKey) -> Option<FlowVal> {
        Self::lookup(self, key)
    }

    fn claim(&self, key: &FlowKey, seen: &FlowVal) {
        Self::claim(self, key, seen);
    }

    fn release(&self, key: &FlowKey, fin_seen: bool) {
        Self::release(self, key, fin_seen);
    }

    fn hand_back(&self, key: &FlowKey, mark: u32) -> bool {
        Self::hand_back(self, key, mark)
    }

    fn handed_back(&self, key: &FlowKey) {
        Self::handed_back(self, key);
    }

    fn is_local(&self, ip: IpAddr) -> bool {
        Self::is_local(self, ip)
    }

    fn set_interfaces(&self, lan: Vec<String>, wan: Vec<String>) -> Result<(), KernelError> {
        Ok(Self::set_interfaces(self, lan, wan)?)
    }

    fn interfaces(&self) -> Vec<Interface> {
        let interface = |i: crate::datapath::InterfaceStatus| Interface {
            name: if i.name.is_empty() { i.pattern } else { i.name },
            role: i.role.to_owned(),
            attached: i.attached,
            hooks: i.hooks.iter().map(|h| (*h).to_owned()).collect(),
            problem: i.problem,
            pending: i.pending,
        };
        Self::interfaces(self).into_iter().map(interface).collect()
    }

    fn counters(&self) -> KernelCounters {
        let counters = Self::counters(self);
        let map = |m: &crate::datapath::Fill| MapUse {
            name: m.map.to_owned(),
            entries: m.entries,
            capacity: m.capacity,
        };
        KernelCounters {
            maps: counters.maps.iter().map(map).collect(),
            features: counters
                .features
                .iter()
                .map(|(n, on)| ((*n).to_owned(), *on))
                .collect(),
            stats: counters.stats,
            outbounds: counters.outbounds,
        }
    }

    fn stop(&self) -> Result<(), KernelError> {
        Ok(Self::stop(self)?)
    }
}

impl DomainMap for Datapath {
    fn write(&self, generation: u32, set: &[(IpAddr, DomainVal)]) -> Result<(), MapFault> {
        taken(self.write_domains(generation, set))
    }

    fn delete(&self, generation: u32, gone: &[IpAddr]) -> Result<(), MapFault> {
        taken(self.delete_domains(generation, gone))
    }

    fn is_own(&self, address: IpAddr) -> bool {
        self.is_local(address)
    }
}

fn taken(applied: Result<Applied, Error>) -> Result<(), MapFault> {
    match applied {
        Ok(Applied::All) => Ok(()),
        Ok(Applied::Full(_)) => Err(MapFault("the map of names is full".to_owned())),
        Ok(Applied::Stale) => Err(MapFault("the rules have changed meanwhile".to_owned())),
        Err(e) => Err(MapFault(e.to_string())),
    }
}

/// Settings of the dialer that follow the configuration.
pub(crate) fn dialer_settings(global: &Global) -> outbound::Settings {
    outbound::Settings {
        own_mark: global.own_mark,
        bootstrap: resolvers(global),
        max_concurrent_dials: usize::try_from(global.max_concurrent_dials).unwrap_or(usize::MAX),
        connect_timeout: CONNECT_TIMEOUT,
    }
}

/// Time for one TCP connect; not configurable.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Resolvers of node names in the order they are asked.
fn resolvers(global: &Global) -> Vec<std::net::SocketAddr> {
    let all = global.bootstrap.iter().chain(&global.fallback_resolver);
    all.copied().collect()
}

/// Inbound and dialer.
#[derive(Debug)]
pub(crate) struct Rooms {
    pub(crate) inbound: Arc<Inbound>,
    pub(crate) dialer: Arc<Dialer>,
}

impl Carriers for Rooms {
    fn relay_stats(&self) -> Vec<(&'static str, u64)> {
        let counters = self.inbound.counters();
        let (tcp, udp) = (counters.tcp, counters.udp.counts);
        vec![
            ("tcp_accepted", tcp.accepted),
            ("tcp_refused", tcp.refused),
            ("tcp_capacity", tcp.capacity),
            ("tcp_accept_errors", tcp.accept_errors),
            ("tcp_shed", tcp.shed),
            ("tcp_dial_failed", tcp.dial_failed),
            ("tcp_spliced", tcp.spliced),
            ("udp_flows_held", udp.held),
            ("udp_holds_full", udp.holds_full),
            ("udp_joined", udp.joined),
            ("udp_handed_back", udp.handed_back),
            ("udp_hand_backs_failed", udp.hand_backs_failed),
            ("udp_hand_backs_full", udp.hand_backs_full),
            ("udp_tunnels_evicted", udp.tunnels_evicted),
            ("udp_tunnels_refused", udp.tunnels_refused),
            ("udp_reply_sockets_evicted", counters.udp.replies_evicted),
        ]
    }

    fn pipes(&self) -> usize {
        self.inbound.counters().pipes
    }

    fn datagrams(&self) -> Datagrams {
        let udp = self.inbound.counters().udp;
        let c = udp.counts;
        Datagrams {
            flows: udp.flows,
            tunnels: udp.tunnels,
            reply_sockets: udp.reply_sockets,
            queued_bytes: udp.queued_bytes,
            held: udp.held,
            hits: c.hits,
            misses: c.misses,
            received: c.received,
            sent: c.replied,
            drops: vec![
                ("malformed", c.drop_malformed),
                ("capacity", c.drop_capacity),
                ("client_share", c.drop_client_share),
                ("policy", c.drop_policy),
                ("flow_queue", c.drop_flow_queue),
                ("global_queue", c.drop_global_queue),
                ("closed", c.drop_closed),
                ("send", c.drop_send),
                ("hand_back", c.drop_hand_back),
                ("reply", c.drop_reply),
                ("reply_socket", c.drop_reply_socket),
                ("receive_error", c.receive_errors),
            ],
        }
    }

    fn dials(&self) -> Dials {
        let counters = self.dialer.counters();
        let row = |row: outbound::counters::DialRow| DialRow {
            network: row.network.name(),
            protocol: row.protocol,
            results: DialResult::NAMES.into_iter().zip(row.results).collect(),
            buckets: row.buckets.to_vec(),
            seconds: row.sum.as_secs_f64(),
        };
        let bound = |ms: u64| Duration::from_millis(ms).as_secs_f64();
        Dials {
            rows: counters.dials.into_iter().map(row).collect(),
            permits: counters.permits_used,
            limit: counters.permits_limit,
            waiting: counters.permits_waiting,
            bounds: BUCKETS_MS.map(bound).to_vec(),
        }
    }

    fn update(&self, global: &Global) {
        self.dialer.update(dialer_settings(global));
    }
}
