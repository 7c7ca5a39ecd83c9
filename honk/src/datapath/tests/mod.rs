//! The datapath in a namespace of its own, with a client behind a veth link.
//!
//! Every test runs in a thread that has its own network and mount namespace; nothing outside
//! is touched. Without the right to make namespaces the tests say so and pass.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream, UdpSocket},
    os::fd::AsFd,
    path::Path,
    time::{Duration, Instant},
};

use honk_common::{
    flow::{FLOW_ACTIVE, FLOW_CLAIMED, FLOW_CLOSING, FlowWord},
    key::{PROTO_TCP, PROTO_UDP},
    outbound::USER_FIRST,
    param::{GATE_CLOSED, GATE_OPEN, OWN_MARK_DEFAULT},
};
use socket2::{Domain, Protocol, Socket, Type};

use super::*;
use crate::{
    netlink::{End, Link, Pair, Rtnl, Side},
    testkit::{PATIENCE, until},
};

mod crash;
mod follow;
mod restore;
mod tables;
mod traffic;

const ORIGIN4: &str = "198.51.100.7";
const ORIGIN6: &str = "2001:db8:80::7";

/// A gateway namespace (this thread's), a client namespace, and the link between them.
struct Lab {
    client: Netns,
    dir: PathBuf,
}

/// Runs `test` in fresh namespaces.
fn lab(name: &str, test: impl FnOnce(&Lab) + Send + 'static) {
    let dir = std::env::temp_dir().join(format!("honk-dp-{}-{name}", std::process::id()));
    let thread = std::thread::spawn({
        let dir = dir.clone();
        move || {
            if let Err(e) = isolate(&dir) {
                eprintln!("skipped: cannot make namespaces: {e}");
                return;
            }
            let client = Netns::spawn(crate::netns::current_inode().unwrap()).unwrap();
            let lab = Lab { client, dir };
            lab.settle();
            lab.link("lan", "c0");
            test(&lab);
        }
    });
    let result = thread.join();
    let _ = std::fs::remove_dir_all(&dir);
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}

/// Own network and mount namespaces, and a bpffs nobody else sees.
fn isolate(dir: &Path) -> io::Result<()> {
    // SAFETY: affects this thread only, which the test made for it.
    unsafe {
        if libc::unshare(libc::CLONE_NEWNET | libc::CLONE_NEWNS) != 0 {
            return Err(io::Error::last_os_error());
        }
        let private = libc::MS_REC | libc::MS_PRIVATE;
        let none = std::ptr::null();
        if libc::mount(none, c"/".as_ptr(), none, private, none.cast()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    std::fs::create_dir_all(dir.join("bpf"))?;
    let mounted = pins::ensure_bpffs(&dir.join("bpf")).map_err(io::Error::other)?;
    // It stays for the test, as one that the host had before.
    std::mem::forget(mounted);
    std::fs::remove_file(dir.join("bpf").join(pins::MARKER))
}

impl Lab {
    fn settle(&self) {
        let up = || {
            let mut rtnl = Rtnl::open().unwrap();
            let lo = rtnl.link("lo").unwrap().unwrap();
            rtnl.set_up(lo.index).unwrap();
            for scope in ["all", "default"] {
                for (key, value) in [("accept_dad", "0"), ("disable_ipv6", "0")] {
                    let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{scope}/{key}"), value);
                }
            }
        };
        up();
        self.client.run(up).unwrap();
    }

    /// A veth link to the client with addresses and the client's default routes.
    fn link(&self, name: &'static str, far: &'static str) -> u32 {
        let mut rtnl = Rtnl::open().unwrap();
        rtnl.create_pair(&Pair {
            host: End {
                name,
                mac: [2, 0, 0, 0, 1, 1],
            },
            peer: End {
                name: far,
                mac: [2, 0, 0, 0, 1, 2],
            },
            peer_netns: self.client.fd(),
            mtu: 1500,
            alias: "test",
        })
        .unwrap();
        let lan = rtnl.link(name).unwrap().unwrap();
        rtnl.set_up(lan.index).unwrap();
        rtnl.add_address(lan.index, ip("10.66.0.1"), 24).unwrap();
        rtnl.add_address(lan.index, ip("fd66::1"), 64).unwrap();
        self.client
            .run(move || {
                let mut rtnl = Rtnl::open().unwrap();
                let link = rtnl.link(far).unwrap().unwrap();
                rtnl.set_up(link.index).unwrap();
                rtnl.add_address(link.index, ip("10.66.0.11"), 24).unwrap();
                rtnl.add_address(link.index, ip("fd66::11"), 64).unwrap();
                for gateway in ["10.66.0.1", "fd66::1"] {
                    rtnl.set_default(link.index, ip(gateway), 1500).unwrap();
                }
            })
            .unwrap();
        // It comes with the carrier and would else differ between two snapshots.
        until("the link-local address", || {
            let addresses = rtnl.addresses().unwrap();
            let local = |ip: IpAddr| matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
            addresses.iter().any(|a| a.link == lan.index && local(a.ip))
        });
        lan.index
    }

    fn settings(&self) -> Settings {
        Settings {
            own_mark: OWN_MARK_DEFAULT,
            tproxy_port: 12345,
            flow_entries: 4096,
            lan: vec!["lan".to_owned()],
            wan: vec![],
            udp_sockets: 2,
            tcx_first: false,
            redirect_peer: RedirectPeer::Auto,
            xdp_guard: false,
            pin_root: self.dir.join("bpf"),
            runtime_dir: self.dir.join("run"),
            sysctls: false,
            on_crash_block: false,
        }
    }

    fn start(&self) -> (Datapath, Listeners) {
        Datapath::start(self.settings()).unwrap()
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn to(host: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip(host), port)
}

/// Everything to group 2.
fn all_proxied() -> RouteTables {
    RouteTables::fallback_only(USER_FIRST)
}

/// A listener that is waited for with a deadline.
fn accept(listener: &std::net::TcpListener) -> (TcpStream, SocketAddr) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match listener.accept() {
            Ok(accepted) => {
                accepted.0.set_nonblocking(false).unwrap();
                accepted.0.set_read_timeout(Some(PATIENCE)).unwrap();
                return accepted;
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                assert!(Instant::now() < deadline, "nothing was accepted");
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(e) => panic!("{e}"),
        }
    }
}

/// A connection attempt that runs on its own.
fn connect(lab: &Lab, target: SocketAddr) -> TcpStream {
    let socket = lab
        .client
        .run(move || {
            let domain = Domain::for_address(target);
            let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP)).unwrap();
            socket.set_nonblocking(true).unwrap();
            match socket.connect(&target.into()) {
                Err(e) if e.raw_os_error() == Some(libc::EINPROGRESS) => {}
                other => other.unwrap(),
            }
            socket.set_nonblocking(false).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket
        })
        .unwrap();
    socket.into()
}

/// Ids of the TCX links on an interface of this namespace.
fn links_of(interface: u32) -> Vec<u32> {
    all_links(interface).into_iter().map(|(id, _)| id).collect()
}

/// Takes all TCX programs off an interface, as an administrator might.
fn detach_links(interface: u32) -> usize {
    let links = all_links(interface);
    for (_, link) in &links {
        bpf::detach_link(link.as_fd()).unwrap();
    }
    links.len()
}

fn all_links(interface: u32) -> Vec<(u32, std::os::fd::OwnedFd)> {
    // An index means something in its namespace only; the programs tell whose they are.
    let ids: Vec<u32> = Side::BOTH
        .into_iter()
        .flat_map(|side| bpf::query_tcx(interface, side).unwrap().links)
        .collect();
    bpf::links()
        .unwrap()
        .into_iter()
        .filter(|(id, _)| ids.contains(id))
        .collect()
}

/// Everything that must be as before after a stop.
#[derive(Debug, PartialEq)]
struct Snapshot {
    links: Vec<Link>,
    addresses: Vec<crate::netlink::Address>,
    filters: Vec<crate::netlink::Filter>,
    rules: String,
    settings: Vec<Option<String>>,
}

fn snapshot() -> Snapshot {
    let mut rtnl = Rtnl::open().unwrap();
    let links = rtnl.links().unwrap();
    let filters = links
        .iter()
        .flat_map(|l| rtnl.filters(l.index).unwrap())
        .collect();
    let settings = [
        "ipv4/ip_forward",
        "ipv4/conf/lan/forwarding",
        "ipv4/conf/lan/send_redirects",
        "ipv4/conf/all/send_redirects",
        "ipv6/conf/all/forwarding",
        "ipv6/conf/lan/forwarding",
        "ipv6/conf/lan/accept_ra",
    ];
    Snapshot {
        addresses: rtnl.addresses().unwrap(),
        filters,
        rules: std::fs::read_to_string("/proc/thread-self/net/route").unwrap(),
        settings: settings
            .iter()
            .map(|k| std::fs::read_to_string(format!("/proc/sys/net/{k}")).ok())
            .collect(),
        links,
    }
}
