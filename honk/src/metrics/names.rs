//! The one list of metrics. Names, types, labels and meaning stand here and nowhere else:
//! the exposition, the documentation table and its test are made from it.

/// Type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    #[cfg(test)]
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// One metric family.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Family {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) labels: &'static [&'static str],
    pub(crate) help: &'static str,
}

macro_rules! families {
    ($($id:ident $kind:ident $name:literal [$($label:literal),*] $help:literal;)*) => {
        $(pub(crate) const $id: Family = Family {
            name: $name,
            kind: Kind::$kind,
            labels: &[$($label),*],
            help: $help,
        };)*

        /// All families in the order of the documentation.
        #[cfg(test)]
        pub(crate) const ALL: &[&Family] = &[$(&$id),*];
    };
}

families! {
    BUILD_INFO Gauge "honk_build_info" ["version", "revision", "target", "bpf_abi"]
        "Always 1; the labels say what was built.";
    UP_STATE Gauge "honk_up_state" ["state"]
        "1 for the current state of the daemon, 0 for the others.";
    CONFIG_GENERATION Gauge "honk_config_generation" []
        "Number of the active configuration; rises by 1 with every activation.";
    CONFIG_RELOAD_SUCCESS Gauge "honk_config_last_reload_success" []
        "Whether the last start or reload was accepted.";
    CONFIG_RELOAD_TIME Gauge "honk_config_last_reload_timestamp_seconds" []
        "Unix time at which the last start or reload ended.";
    CONFIG_RELOADS Counter "honk_config_reloads_total" ["result", "trigger"]
        "Reloads by outcome and origin.";
    CONFIG_RELOAD_DURATION Histogram "honk_config_reload_duration_seconds" ["phase"]
        "Duration of the phases of applied reloads.";
    CONFIG_DIAGNOSTICS Gauge "honk_config_diagnostics" ["severity"]
        "Diagnostics of the active configuration.";
    DATAPATH_ATTACHED Gauge "honk_datapath_attached" ["interface", "role", "hook"]
        "Whether a hook of an interface is attached; the hook is empty while there is none.";
    DATAPATH_EVENTS Counter "honk_datapath_events_total" ["event"]
        "Events that the kernel programs reported, by kind.";
    DATAPATH_EVENTS_LOST Counter "honk_datapath_events_lost_total" []
        "Events that found the ring full or came too often.";
    DATAPATH_STATS Counter "honk_datapath_stat_total" ["stat"]
        "Counters of the kernel programs, summed over CPUs.";
    DATAPATH_PACKETS Counter "honk_datapath_outbound_packets_total" ["outbound", "direction"]
        "Packets of an outbound as the kernel programs saw them.";
    DATAPATH_BYTES Counter "honk_datapath_outbound_bytes_total" ["outbound", "direction"]
        "Bytes of an outbound as the kernel programs saw them.";
    DATAPATH_FEATURE Gauge "honk_datapath_feature" ["name"]
        "Whether a probed kernel feature is in use.";
    MAP_ENTRIES Gauge "honk_bpf_map_entries" ["map"]
        "Entries of a BPF map.";
    MAP_CAPACITY Gauge "honk_bpf_map_capacity" ["map"]
        "Capacity of a BPF map.";
    MAP_ERRORS Counter "honk_bpf_map_errors_total" ["map", "op"]
        "Entries that found a BPF map full.";
    ROUTE_DECISIONS Counter "honk_route_decisions_total" ["stage", "kind"]
        "New flows by the place that decided them and by kind of verdict.";
    TRACE_WATCHERS Gauge "honk_trace_watchers" []
        "Those who watch decisions now.";
    TRACE_LOST Counter "honk_trace_lost_total" ["place"]
        "Decisions that those who watch were not told: too many for the kernel's ring, or for their queue.";
    HANDOFF_MISS Counter "honk_handoff_miss_total" []
        "Flows that reached userspace without a kernel entry; rules were evaluated again.";
    SNIFF Counter "honk_sniff_total" ["kind", "result"]
        "Flows whose first bytes were searched for a name, by what they are and what was found.";
    SNIFF_SKIPPED Counter "honk_sniff_skipped_total" ["reason"]
        "Flows that were not sniffed: port of a silent protocol, or place without names.";
    SNIFF_CHECKS Counter "honk_sniff_checks_total" ["result"]
        "Names whose existence was checked (dial_mode: domain).";
    SNIFF_PLACES Gauge "honk_sniff_places" []
        "Targets remembered for flows that showed no name.";
    SNIFF_DISPLACED Counter "honk_sniff_places_displaced_total" []
        "Times the older half of those targets had to go.";
    AMBIGUOUS Counter "honk_dns_flow_ambiguous_total" ["resolved"]
        "Flows to an address whose names disagree, by what decided them.";
    CONNECTIONS Gauge "honk_connections" ["network", "outbound"]
        "Flows that userspace carries now.";
    CONNECTIONS_OPENED Counter "honk_connections_opened_total" ["network", "outbound"]
        "Flows that userspace took on.";
    CONNECTIONS_CLOSED Counter "honk_connections_closed_total" ["network", "outbound", "reason"]
        "Flows that ended, by reason.";
    CONNECTIONS_REFUSED Counter "honk_connections_refused_total" ["reason"]
        "Flows that were refused on arrival.";
    CONNECTION_DURATION Histogram "honk_connection_duration_seconds" ["network"]
        "Life of ended flows.";
    CONNECTION_TRANSFER Histogram "honk_connection_transfer_bytes" ["network", "direction"]
        "Bytes of ended flows.";
    TRANSFER_BYTES Counter "honk_transfer_bytes_total" ["outbound", "network", "direction"]
        "Bytes that userspace carried.";
    RELAY_STATS Counter "honk_relay_stat_total" ["stat"]
        "Counters of the TCP listeners, relays and UDP tunnels.";
    RELAY_PIPES Gauge "honk_relay_pipes" []
        "Pipes that splice proxied TCP flows now.";
    UDP_TUNNELS Gauge "honk_udp_tunnels" []
        "UDP tunnels through nodes that are open now.";
    UDP_REPLY_SOCKETS Gauge "honk_udp_reply_sockets" []
        "Sockets open for replies with a foreign source address.";
    UDP_ENDPOINTS Gauge "honk_udp_endpoints" []
        "UDP flows that userspace carries now.";
    UDP_HELD Gauge "honk_udp_held" []
        "UDP flows whose first datagrams are held to find a name.";
    UDP_LOOKUPS Counter "honk_udp_endpoint_lookups_total" ["result"]
        "Datagrams from clients that found a flow, or began one.";
    UDP_DATAGRAMS Counter "honk_udp_datagrams_total" ["direction"]
        "Datagrams received from clients and sent to them.";
    UDP_DROPS Counter "honk_udp_drops_total" ["cause"]
        "Datagrams that were dropped, by cause.";
    DIALS Counter "honk_dials_total" ["network", "protocol", "result"]
        "Dials by outcome.";
    DIAL_DURATION Histogram "honk_dial_duration_seconds" ["network", "protocol"]
        "Duration of successful dials, handshake included.";
    DIAL_PERMITS Gauge "honk_dial_permits" []
        "Dials that run now.";
    DIAL_LIMIT Gauge "honk_dial_permits_limit" []
        "Most dials at a time.";
    GROUPS Gauge "honk_groups" ["policy"]
        "Declared groups.";
    GROUP_MEMBERS Gauge "honk_group_members" ["group", "network", "state"]
        "Direct members of a group by what they can carry.";
    GROUP_SELECTED Gauge "honk_group_selected_info" ["group", "network", "node_id", "node", "source"]
        "Always 1; the labels name the leaf that new flows of the group take.";
    GROUP_CHANGES Counter "honk_group_selection_changes_total" ["group", "network", "cause"]
        "Published selection changes.";
    GROUP_NO_SELECTION Counter "honk_group_no_selection_total" ["group", "network", "outcome"]
        "Flows whose group had no eligible selection: served by final, or refused and why.";
    GROUP_RACES Counter "honk_group_races_total" ["group", "network", "reason", "outcome"]
        "Flows for which several leaves of an urltest group were tried, by why and with what success.";
    GROUP_LAST_RESORT Counter "honk_group_last_resort_total" ["group"]
        "TCP flows sent to a group's only node though it is dead.";
    SCORE_SELECTIONS Counter "honk_score_selections_total" ["group", "network", "reason"]
        "Choices of a Score group among several nodes, by their one reason.";
    SCORE_SWITCHES Counter "honk_score_switches_total" ["group", "network", "kind"]
        "Moves of a target or family to another node, trials not among them; one that goes back soon counts as a flap too.";
    SCORE_FILTERED Counter "honk_score_filtered_total" ["group", "network", "cause"]
        "Candidates that choices did not have, by cause.";
    SCORE_STARTS Counter "honk_score_business_starts_total" ["group", "network"]
        "Flows of clients that began through a Score group.";
    SCORE_TRIALS Counter "honk_score_trials_total" ["group", "network", "result"]
        "Trials that ended.";
    SCORE_IN_FLIGHT Gauge "honk_score_trials_in_flight" ["group", "network"]
        "Trials under way.";
    SCORE_CREDIT Gauge "honk_score_budget_credit" ["group", "network", "kind"]
        "Trials that could begin now, and those that are about to.";
    SCORE_SPENT Counter "honk_score_budget_spent_total" ["group", "network", "source"]
        "Trials that began, by what paid for them.";
    SCORE_REFUSED Counter "honk_score_budget_refused_total" ["group", "network", "cause"]
        "Trials that were wanted and not made: no credit or paused, or the node was busy with one.";
    SCORE_PRESSURE Counter "honk_score_carrier_pressure_total" ["group", "network", "cause"]
        "Hints about strained carriers that were taken; one hint may count for both causes.";
    SCORE_STATE Gauge "honk_score_verification_state" ["group", "network", "state"]
        "1 for what is known of the current selection, 0 for the other.";
    SCORE_CHALLENGERS Gauge "honk_score_challengers" ["group", "network", "relation"]
        "Members of the serving pool by how fast they answer next to the selection.";
    SCORE_CELLS Gauge "honk_score_cache_cells" ["store"]
        "Cells of evidence in use.";
    SCORE_CELLS_LIMIT Gauge "honk_score_cache_limit" ["store"]
        "Cells there can be.";
    SCORE_EVICTIONS Counter "honk_score_cache_evictions_total" ["store"]
        "Cells that made room for others.";
    SCORE_BYTES Gauge "honk_score_comparison_logical_bytes" []
        "Bytes of the comparison store; never more than 1 MiB.";
    SCORE_ENTRIES Gauge "honk_score_entries" ["table"]
        "Attempts under way and targets remembered.";
    SCORE_DROPPED Counter "honk_score_dropped_total" ["what"]
        "What Score had no room or use for: flows served unscored, histories of choices, checks, values, groups, and moves whose flows were not closed.";
    NODE_DISABLED Gauge "honk_node_disabled" ["node_id", "node", "by"]
        "Always 1; a node that is off: it cannot be built (`auto`), or somebody switched it off (`user`).";
    NODE_REJECTIONS Counter "honk_node_rejections_total" []
        "Times that the builder rejected a node.";
    NODES Gauge "honk_nodes" ["state"]
        "Configured nodes: alive, dead, disabled, or unknown as long as nothing was observed.";
    SUB_NODES Gauge "honk_subscription_nodes" ["subscription"]
        "Nodes of a subscription that can be used.";
    SUB_FETCHES Counter "honk_subscription_fetches_total" ["subscription", "result"]
        "Ended fetches of a subscription, by outcome.";
    SUB_SUCCESS Gauge "honk_subscription_last_success_timestamp_seconds" ["subscription"]
        "Unix time at which the nodes in use were fetched or found unchanged.";
    SUB_QUOTA Gauge "honk_subscription_quota_bytes" ["subscription", "kind"]
        "Traffic that the provider announced: used up, used down, allowed.";
    SUB_EXPIRE Gauge "honk_subscription_expire_timestamp_seconds" ["subscription"]
        "Unix time at which the account ends, if the provider announced it.";
    NODE_UP Gauge "honk_node_up" ["node_id", "node", "subscription", "path"]
        "1 while a node is alive on a path, 0 while it is dead; absent while unknown.";
    NODE_DELAY Gauge "honk_node_delay_seconds" ["node_id", "node", "path"]
        "Halving moving average of the answers to probes.";
    NODE_TRANSITIONS Counter "honk_node_transitions_total" []
        "Times that a node died or came back, over all paths and check URLs.";
    PROBES Counter "honk_probes_total" ["kind", "result"]
        "Probes of nodes that ended.";
    PROBE_DURATION Histogram "honk_probe_duration_seconds" ["kind"]
        "Duration of probes that got an answer.";
    PROBES_RUNNING Gauge "honk_probes_running" []
        "Probes under way; never more than 64.";
    PROBE_TARGETS Gauge "honk_probe_targets" []
        "Things that are judged: nodes by path, and members under the check URL of their group.";
    PASSIVE_SKIPS Counter "honk_passive_skips_total" ["group"]
        "Probes that flows through the selected member made unnecessary.";
    IDLE_RAISED Gauge "honk_idle_timeout_raised" ["group"]
        "Whether the idle timeout of a group was raised to the period of its probes.";
    HEALTH_DROPPED Counter "honk_health_dropped_total" ["what"]
        "What the health engine had no room for: targets, events, orders; and outcomes that came too late.";
    API_REQUESTS Counter "honk_api_requests_total" ["surface", "method", "code_class"]
        "API requests answered.";
    API_REFUSED Counter "honk_api_auth_failures_total" ["reason"]
        "Connections and requests to the API that were refused before any route, by reason.";
    API_EVICTED Counter "honk_api_connections_evicted_total" []
        "API connections without a request that were closed to make room for another one.";
    API_STREAMS Gauge "honk_api_streams" ["kind"]
        "Open streams of the API.";
    API_STREAM_DROPS Counter "honk_api_stream_drops_total" ["kind"]
        "Events that went past streams that were too slow.";
    LOG_EVENTS Counter "honk_log_events_total" ["level"]
        "Log lines written.";
    HEARTBEAT_AGE Gauge "honk_task_heartbeat_age_seconds" ["task"]
        "Seconds since a supervised task last showed progress.";
    DNS_QUERIES Counter "honk_dns_queries_total" ["ingress", "qtype"]
        "Queries of clients.";
    DNS_RESPONSES Counter "honk_dns_responses_total" ["rcode", "source"]
        "Answers to clients: those of servers, and errors that honk itself reports.";
    DNS_REFUSED Counter "honk_dns_refused_total" ["reason"]
        "Queries refused for lack of room, or by a rule.";
    DNS_INFLIGHT Gauge "honk_dns_inflight_queries" []
        "Queries that wait for their answer.";
    DNS_STREAMS Gauge "honk_dns_tcp_connections" []
        "TCP connections to port 53.";
    DNS_OPAQUE Counter "honk_dns_opaque_total" []
        "Messages to port 53 that are no queries and passed as they are.";
    DNS_TIMEOUTS Counter "honk_dns_timeouts_total" []
        "Queries that no server answered in time.";
    DNS_MISMATCH Counter "honk_dns_spoof_mismatch_total" []
        "Messages dropped because they answer nothing that was asked.";
    DNS_MALFORMED Counter "honk_dns_malformed_total" []
        "Answers dropped because they cannot be read.";
    DNS_LOST Counter "honk_dns_lost_total" ["cause"]
        "Answers dropped because too many came at once, replies of honk without room, addresses of big answers not learned.";
    DNS_MAP_LEASES Gauge "honk_dns_map_leases" []
        "Pairs of name and address that are remembered.";
    DNS_MAP_ADDRESSES Gauge "honk_dns_map_addresses" []
        "Addresses of which names are remembered.";
    DNS_MAP_NAMES Gauge "honk_dns_map_names" []
        "Names that are remembered.";
    DNS_MAP_ENTRIES Gauge "honk_dns_map_entries" []
        "Addresses of whose names the kernel knows.";
    DNS_MAP_UNWRITTEN Gauge "honk_dns_map_unwritten" []
        "Addresses of which the kernel knows something else than it should.";
    DNS_MAP_AMBIGUOUS Gauge "honk_dns_map_ambiguous_ips" []
        "Addresses whose names mean different things for the rules.";
    DNS_MAP_EVICTED Counter "honk_dns_map_evicted_total" []
        "Leases that ended early for lack of room.";
    DNS_MAP_FAILURES Counter "honk_dns_map_write_failures_total" []
        "Writes that the kernel map did not take.";
    DNS_MAP_LATE Counter "honk_dns_map_late_total" []
        "Answers sent before the kernel knew what they mean.";
    PROCESS_CPU Counter "process_cpu_seconds_total" []
        "User and system CPU time of the daemon.";
    PROCESS_RSS Gauge "process_resident_memory_bytes" []
        "Resident memory.";
    PROCESS_VIRTUAL Gauge "process_virtual_memory_bytes" []
        "Virtual memory.";
    PROCESS_FDS Gauge "process_open_fds" []
        "Open file descriptors.";
    PROCESS_MAX_FDS Gauge "process_max_fds" []
        "Limit of file descriptors.";
    PROCESS_THREADS Gauge "process_threads" []
        "Threads.";
    PROCESS_START Gauge "process_start_time_seconds" []
        "Unix time at which the process started.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_conventions() {
        for family in ALL {
            let known = ["honk_", "process_"]
                .iter()
                .any(|p| family.name.starts_with(p));
            assert!(known, "{}: prefix", family.name);
            let total = family.name.ends_with("_total");
            assert_eq!(
                total,
                family.kind == Kind::Counter,
                "{}: _total",
                family.name
            );
            assert!(family.help.ends_with('.'), "{}: help", family.name);
        }
        let mut names: Vec<_> = ALL.iter().map(|f| f.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
    }

    /// `HONK_BLESS=1` rewrites the table.
    #[test]
    fn the_documentation_lists_exactly_these() {
        const BEGIN: &str = "<!-- metrics:begin -->\n";
        const END: &str = "<!-- metrics:end -->";
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/METRICS.md");
        let text = std::fs::read_to_string(path).unwrap();
        let start = text.find(BEGIN).unwrap() + BEGIN.len();
        let end = text.find(END).unwrap();
        let mut table = "| name | type | labels | meaning |\n|---|---|---|---|\n".to_owned();
        for f in ALL {
            let (kind, labels) = (f.kind.name(), f.labels.join(", "));
            table.push_str(&format!(
                "| `{}` | {kind} | {labels} | {} |\n",
                f.name, f.help
            ));
        }
        if text[start..end] != table && std::env::var_os("HONK_BLESS").is_some() {
            std::fs::write(path, [&text[..start], &table, &text[end..]].concat()).unwrap();
            return;
        }
        assert_eq!(&text[start..end], table, "run the test with HONK_BLESS=1");
    }
}
