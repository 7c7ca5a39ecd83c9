//! Port 53 (T18): rules always run, a `must` result is obeyed, the rest goes to userspace.

use honk_common::counter::Stat;
use honk_common::key::to_bytes;
use honk_common::outbound::{BLOCK, CONTROL, DIRECT};
use honk_common::param::{DNS_LOCAL, OFFLOAD_ALL, OFFLOAD_DIRECT};
use honk_tests::kernel::packet::{ACK, SYN, tcp, udp};
use honk_tests::kernel::{NEXT, REDIRECT, SHOT};

use crate::common::*;
use crate::rig;

const SERVER: &str = "198.51.100.53:53";

#[test]
fn t18_must_rules_decide_queries_and_others_are_intercepted() {
    let mut rig = rig!();
    let set = rules(
        [
            must(line([dip(&["198.51.100.131/32"]), dport(53)], DIRECT)),
            must(line([dip(&["198.51.100.132/32"]), dport(53)], PROXY)),
            must(line([dip(&["198.51.100.133/32"]), dport(53)], BLOCK)),
            line([dip(&["198.51.100.134/32"])], BLOCK),
        ],
        DIRECT,
    );
    install(&mut rig, &set, 1);
    assert_eq!(lan(&rig, &udp(CLIENT, "198.51.100.131:53")), NEXT);
    assert_eq!(lan(&rig, &udp(CLIENT, "198.51.100.132:53")), REDIRECT);
    assert_eq!(rig.traffic(PROXY).tx_packets, 1);
    assert_eq!(lan(&rig, &udp(CLIENT, "198.51.100.133:53")), SHOT);
    assert_eq!(lan(&rig, &udp(CLIENT, "198.51.100.134:53")), REDIRECT);
    assert_eq!(lan(&rig, &udp(CLIENT, SERVER)), REDIRECT);
    assert_eq!(rig.traffic(CONTROL).tx_packets, 2);
    assert_eq!(rig.stat(Stat::DnsRedirect), 2);
}

#[test]
fn udp_queries_leave_a_return_entry_only() {
    let mut rig = rig!();
    install_all(&mut rig, DIRECT);
    let q = udp(CLIENT6, "[2001:db8::53]:53");
    assert_eq!(lan(&rig, &q), REDIRECT);
    assert!(no_flows(&rig));
    assert!(way(&rig, q.src.ip()).is_some());
}

#[test]
fn udp_queries_ignore_old_entries() {
    let mut rig = rig!();
    install_all(&mut rig, DIRECT);
    let q = udp(CLIENT, SERVER);
    put_flow(&rig, &q, &entry(BLOCK));
    assert_eq!(lan(&rig, &q), REDIRECT);
}

#[test]
fn tcp_queries_have_an_entry_for_userspace() {
    let mut rig = rig!();
    install_all(&mut rig, DIRECT);
    let syn = tcp(CLIENT, SERVER, SYN);
    assert_eq!(lan(&rig, &syn), REDIRECT);
    assert_eq!(word(&rig, &syn).ordinal, CONTROL);
    assert_eq!(lan(&rig, &tcp(CLIENT, SERVER, ACK)), REDIRECT);
}

#[test]
fn queries_to_the_gateway_and_to_link_local_are_taken_but_not_multicast() {
    let mut rig = rig!();
    install_all(&mut rig, DIRECT);
    let gateway = "10.66.0.1:53";
    rig.put_raw(
        "LOCAL_ADDR",
        &to_bytes("10.66.0.1".parse().unwrap()),
        &[1, 0, 0, 0],
    );
    assert_eq!(lan(&rig, &udp(CLIENT, gateway)), REDIRECT);
    assert_eq!(lan(&rig, &udp("[fe80::2]:4000", "[fe80::1]:53")), REDIRECT);
    assert_eq!(lan(&rig, &udp(CLIENT, "224.0.0.1:53")), NEXT);
    assert_eq!(lan(&rig, &udp(CLIENT6, "[ff02::1]:53")), NEXT);
}

#[test]
fn without_a_dns_module_queries_to_the_gateway_are_its_own() {
    let mut rig = rig!();
    install_all(&mut rig, BLOCK);
    rig.put("FLAGS", &0u32, &(OFFLOAD_DIRECT | DNS_LOCAL));
    rig.put_raw(
        "LOCAL_ADDR",
        &to_bytes("10.66.0.1".parse().unwrap()),
        &[1, 0, 0, 0],
    );
    assert_eq!(lan(&rig, &udp(CLIENT, "10.66.0.1:53")), NEXT);
    assert_eq!(lan(&rig, &tcp(CLIENT, "10.66.0.1:53", SYN)), NEXT);
    assert_eq!(lan(&rig, &udp(CLIENT, SERVER)), REDIRECT);
    assert_eq!(rig.stat(Stat::LocalPass), 2);
}

#[test]
fn direct_mode_leaves_queries_with_the_controller() {
    let mut rig = rig!();
    install_all(&mut rig, PROXY);
    rig.put("FLAGS", &0u32, &OFFLOAD_ALL);
    assert_eq!(lan(&rig, &udp(CLIENT, SERVER)), REDIRECT);
    assert_eq!(rig.traffic(CONTROL).tx_packets, 1);
}

#[test]
fn a_marked_must_direct_query_is_marked_without_an_entry() {
    let mut rig = rig!();
    install(
        &mut rig,
        &rules([must(marked(line([], DIRECT), 5))], BLOCK),
        1,
    );
    assert_eq!(lan_marked(&rig, &udp(CLIENT, SERVER), 0), (NEXT, 5));
    assert!(no_flows(&rig));
}
