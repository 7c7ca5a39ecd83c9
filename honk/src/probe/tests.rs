//! The task and the measurements against SOCKS5 servers on loopback.

use std::{
    net::Ipv4Addr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use honk_policy::{
    config::{CheckDns, CheckUrl},
    health::{
        GroupFacts, NodeFacts, Selection, Setup, TestStart, Touched, View,
        measure::{Map, Measurements, RunId},
    },
    id::{Domain, Family, GroupId, MemberId, NodeId, Uuid},
    node::{Host, Node, Protocol, Server},
};
use tokio::{
    net::TcpListener,
    sync::{Notify, watch},
    task::JoinSet,
    time::timeout,
};

use super::{
    Groups, Plan, Prober,
    measure::{self, Fault, Request, Stage, Statuses},
    runs::{Busy, MAX_RUNS, Member, Order, Runs, Shared, State},
    testkit::{Does, Upstream},
};
use crate::{
    outbound::{Dialer, Settings},
    testkit::{PATIENCE, soon},
};

fn dialer() -> Arc<Dialer> {
    Dialer::new(Settings {
        own_mark: 0,
        bootstrap: Vec::new(),
        max_concurrent_dials: 4,
        connect_timeout: Duration::from_secs(3),
    })
}

fn request(url: &str, timeout: Duration) -> Request {
    Request {
        url: Arc::new(CheckUrl::parse(url).unwrap()),
        method: "HEAD".into(),
        timeout,
        family: None,
        expected: Statuses::default(),
    }
}

async fn test(node: &Arc<Node>, url: &str) -> Result<Duration, measure::Failure> {
    let request = request(url, Duration::from_secs(20));
    measure::url_test(&dialer(), node, None, &request).await
}

#[tokio::test]
async fn any_status_is_an_answer() {
    let upstream = Upstream::start("a").await;
    test(&upstream.node, "http://check.test/").await.unwrap();
}

#[tokio::test]
async fn failures_name_their_stage() {
    let upstream = Upstream::start("a").await;
    for (does, url, stage) in [
        (Does::Silence, "http://check.test/", Stage::Timeout),
        (Does::Refuse, "http://check.test/", Stage::Handshake),
        (Does::Garbage, "http://check.test/", Stage::Request),
        (Does::HangUp, "http://check.test/", Stage::Request),
        (Does::Garbage, "https://check.test/", Stage::Tls),
    ] {
        upstream.does(does);
        let limit = Duration::from_secs(if does == Does::Silence { 1 } else { 30 });
        let request = request(url, limit);
        let failed = measure::url_test(&dialer(), &upstream.node, None, &request).await;
        let failed = failed.unwrap_err();
        assert_eq!(
            (failed.stage, failed.fault),
            (stage, Fault::Node),
            "{failed}"
        );
    }
    let server = Server {
        host: Host::Ip(Ipv4Addr::LOCALHOST.into()),
        port: closed_port().await,
        auth: None,
    };
    let gone = Arc::new(Node::new("gone".into(), Protocol::Socks5(server)));
    let failed = test(&gone, "http://check.test/").await.unwrap_err();
    assert_eq!(failed.stage, Stage::Dial, "{failed}");
}

/// A port that nobody listens on.
async fn closed_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    listener.local_addr().unwrap().port()
}

#[tokio::test]
async fn a_server_without_address_in_the_family_is_no_failure() {
    let upstream = Upstream::start("a").await;
    let request = request("http://check.test/", Duration::from_secs(5));
    let v6 = Some(Family::V6);
    let failed = measure::url_test(&dialer(), &upstream.node, v6, &request).await;
    assert_eq!(failed.unwrap_err().fault, Fault::NoFamily);
    assert_eq!(upstream.accepted.load(SeqCst), 0);
}

#[tokio::test]
async fn a_query_goes_through_the_relay_and_any_answer_counts() {
    let upstream = Upstream::start("a").await;
    let server = CheckDns {
        host: "192.0.2.53".into(),
        port: 53,
        addresses: Vec::new(),
    };
    let limit = Duration::from_secs(30);
    let result = measure::dns_test(&dialer(), &upstream.node, None, &server, limit).await;
    result.unwrap();
    upstream.does(Does::Refuse);
    let result = measure::dns_test(&dialer(), &upstream.node, None, &server, limit).await;
    assert_eq!(result.unwrap_err().stage, Stage::Handshake);
}

#[tokio::test]
async fn giving_up_closes_the_connection() {
    let upstream = Upstream::start("a").await;
    upstream.does(Does::Silence);
    let node = Arc::clone(&upstream.node);
    let running = tokio::spawn(async move { test(&node, "http://check.test/").await });
    soon("the request is open", async || {
        upstream.open.load(SeqCst) == 1
    })
    .await;
    running.abort();
    soon("the request is closed", async || {
        upstream.open.load(SeqCst) == 0
    })
    .await;
}

/// One automatic group over all nodes, which selects the first that lives.
#[derive(Debug)]
struct World {
    nodes: Vec<Arc<Node>>,
    view: Mutex<Arc<View>>,
    judged: Notify,
    woken: Notify,
    shifts: Mutex<Vec<(String, &'static str, bool)>>,
    /// How often the plan was asked for.
    planned: AtomicUsize,
    interval: Duration,
    /// In seconds.
    slept: AtomicU64,
}

const GROUP: GroupId = GroupId(Uuid::from_u128(1));

impl World {
    fn alive(&self, node: NodeId) -> Option<bool> {
        let view = self.view.lock().unwrap();
        let state = view.node(node, Domain::Tcp, Family::V4);
        state.map(|s| s.alive)
    }
}

impl Groups for World {
    fn plan(&self) -> Plan {
        self.planned.fetch_add(1, SeqCst);
        let ids: Vec<NodeId> = self.nodes.iter().map(|n| n.id).collect();
        Plan {
            generation: 1,
            off: std::collections::BTreeSet::new(),
            setup: Setup {
                nodes: ids
                    .iter()
                    .map(|id| NodeFacts {
                        id: *id,
                        families: vec![Family::V4],
                    })
                    .collect(),
                groups: vec![GroupFacts {
                    id: GROUP,
                    tcp: ids.clone(),
                    udp: ids,
                    members: Vec::new(),
                    check_url: None,
                    automatic: true,
                    interval: self.interval,
                    idle: None,
                    passive: false,
                }],
                parallel: 4,
            },
            url: Arc::new(CheckUrl::parse("http://check.test/").unwrap()),
            method: "HEAD".into(),
            dns: Arc::new(CheckDns {
                host: "192.0.2.53".into(),
                port: 53,
                addresses: Vec::new(),
            }),
            group_urls: Default::default(),
        }
    }

    fn selections(&self) -> Vec<Selection> {
        let first = self.nodes.iter().find(|n| self.alive(n.id) != Some(false));
        vec![Selection {
            group: GROUP,
            tcp: first.map(|n| n.id),
            udp: None,
            unseen: false,
        }]
    }

    fn used(&self) -> Vec<GroupId> {
        Vec::new()
    }

    async fn woken(&self) {
        self.woken.notified().await;
    }

    fn slept(&self) -> Duration {
        Duration::from_secs(self.slept.load(SeqCst))
    }

    fn node(&self, id: NodeId) -> Option<Arc<Node>> {
        self.nodes.iter().find(|n| n.id == id).cloned()
    }

    fn leaf(&self, _: GroupId, _: MemberId) -> Option<Arc<Node>> {
        None
    }

    fn shifted(&self, node: &Node, what: &'static str, _: Family, alive: bool) {
        let mut shifts = self.shifts.lock().unwrap();
        shifts.push((node.name.clone(), what, alive));
    }

    async fn judge(&self, view: Arc<View>, _: Touched) {
        *self.view.lock().unwrap() = view;
        self.judged.notify_one();
    }
}

/// A running task; it ends with this value.
struct Running {
    world: Arc<World>,
    prober: Prober,
    dialer: Arc<Dialer>,
    stop: watch::Sender<bool>,
    task: JoinSet<()>,
}

impl Running {
    fn start(upstreams: &[&Upstream]) -> Self {
        Self::start_after(upstreams, Duration::from_secs(2), |_| {})
    }

    /// Asks nobody for a second time by itself.
    fn start_calm(upstreams: &[&Upstream]) -> Self {
        Self::start_after(upstreams, Duration::from_secs(86_400), |_| {})
    }

    /// Orders may be given before the task begins.
    fn start_after(
        upstreams: &[&Upstream],
        interval: Duration,
        order: impl FnOnce(&Prober),
    ) -> Self {
        let world = Arc::new(World {
            nodes: upstreams.iter().map(|u| Arc::clone(&u.node)).collect(),
            view: Mutex::default(),
            judged: Notify::new(),
            woken: Notify::new(),
            shifts: Mutex::default(),
            planned: AtomicUsize::new(0),
            interval,
            slept: AtomicU64::new(100),
        });
        let (prober, orders) = Prober::new();
        order(&prober);
        let (stop, stopped) = watch::channel(false);
        let dialer = dialer();
        let mut task = JoinSet::new();
        let groups = Arc::clone(&world);
        task.spawn(super::run(orders, groups, Arc::clone(&dialer), 7, stopped));
        Self {
            world,
            prober,
            dialer,
            stop,
            task,
        }
    }

    async fn until(&self, done: impl Fn(&World) -> bool) {
        let wait = async {
            while !done(&self.world) {
                self.world.judged.notified().await;
            }
        };
        timeout(PATIENCE, wait).await.expect("it never happened");
    }
}

#[tokio::test]
async fn the_task_finds_out_who_lives_and_who_does_not() {
    let (a, b) = (Upstream::start("a").await, Upstream::start("b").await);
    a.does(Does::Refuse);
    let running = Running::start(&[&a, &b]);
    let (dead, alive) = (a.id(), b.id());
    running
        .until(|w| w.alive(dead) == Some(false) && w.alive(alive) == Some(true))
        .await;
    let datagrams = |w: &World| {
        let view = w.view.lock().unwrap();
        let state = view.node(alive, Domain::DnsUdp, Family::V4);
        state.is_some_and(|s| s.alive && s.latency_ms.is_some())
    };
    running.until(datagrams).await;
    a.does(Does::Serve);
    running.until(|w| w.alive(dead) == Some(true)).await;
    assert!(running.prober.transitions() >= 2);
    let shifts = running.world.shifts.lock().unwrap().clone();
    let of_a = |alive: bool| {
        shifts
            .iter()
            .position(|(n, _, now)| n == "a" && *now == alive)
    };
    assert!(of_a(false).unwrap() < of_a(true).unwrap(), "{shifts:?}");
    soon("a line of history", async || {
        !running.prober.report().history.is_empty()
    })
    .await;
    let rows = running.prober.counts().rows();
    assert!(rows.iter().all(|row| row.results[0] > 0), "{rows:?}");
}

#[tokio::test]
async fn a_new_configuration_is_heard_of_though_the_line_is_full() {
    let a = Upstream::start("a").await;
    let running = Running::start_after(&[&a], Duration::from_secs(2), |prober| {
        for _ in 0..super::COMMANDS {
            prober.network_changed();
        }
        prober.configure();
    });
    assert_eq!(running.prober.orders_lost(), 1);
    // At the start, when it begins to work, and for the order.
    soon("three plans", async || {
        running.world.planned.load(SeqCst) >= 3
    })
    .await;
}

#[tokio::test]
async fn what_was_missed_is_heard_of_without_another_order() {
    let a = Upstream::start("a").await;
    let running = Running::start(&[&a]);
    let id = a.id();
    running.until(|w| w.alive(id) == Some(true)).await;
    let planned = || running.world.planned.load(SeqCst);
    let before = planned();
    // As if the line had been emptied since it was found full.
    let missed = &running.prober.shared.missed;
    missed.configure.store(true, SeqCst);
    soon("another plan", async || planned() > before).await;
}

#[tokio::test]
async fn all_are_asked_again_after_the_machine_slept() {
    let a = Upstream::start("a").await;
    let running = Running::start_calm(&[&a]);
    let id = a.id();
    let known = |w: &World, domain| {
        let view = w.view.lock().unwrap();
        view.node(id, domain, Family::V4).is_some()
    };
    running
        .until(|w| known(w, Domain::Tcp) && known(w, Domain::DnsUdp))
        .await;
    let asked = || a.accepted.load(SeqCst);
    let before = asked();
    running.world.slept.store(160, SeqCst);
    running.world.woken.notify_one();
    soon("a question", async || asked() > before).await;
}

#[tokio::test]
async fn failing_flows_are_heard_of() {
    let (a, b) = (Upstream::start("a").await, Upstream::start("b").await);
    let running = Running::start(&[&a, &b]);
    let id = a.id();
    running.until(|w| w.alive(id) == Some(true)).await;
    let server = running.dialer.server(&a.node);
    let error = crate::outbound::error::DialError::timeout(crate::outbound::error::Stage::Connect);
    for _ in 0..2 {
        running.dialer.feed.failed(&server, Family::V4, &error);
    }
    let strikes = |w: &World| {
        let view = w.view.lock().unwrap();
        view.node(id, Domain::Tcp, Family::V4)
            .map_or(0, |s| s.strikes)
    };
    running.until(|w| strikes(w) == 1).await;
}

#[tokio::test]
async fn the_end_of_the_task_closes_what_it_opened() {
    let a = Upstream::start("a").await;
    a.does(Does::Silence);
    let mut running = Running::start(&[&a]);
    soon("a check is open", async || a.open.load(SeqCst) > 0).await;
    running.stop.send_replace(true);
    let ended = timeout(PATIENCE, running.task.join_next()).await;
    assert!(ended.expect("it goes on").is_some());
    soon("the checks are closed", async || a.open.load(SeqCst) == 0).await;
}

#[tokio::test]
async fn a_group_test_is_absorbed_by_one_that_runs() {
    let a = Upstream::start("a").await;
    let running = Running::start(&[&a]);
    let id = a.id();
    running.until(|w| w.alive(id) == Some(true)).await;
    a.does(Does::Silence);
    // The first test may still be under way for datagrams.
    soon("a test of the group", async || {
        running.prober.test_group(GROUP).await == TestStart::Started
    })
    .await;
    assert_eq!(running.prober.test_group(GROUP).await, TestStart::Absorbed);
    let other = GroupId(Uuid::from_u128(2));
    assert_eq!(running.prober.test_group(other).await, TestStart::Nothing);
}

/// A run over some upstreams.
fn order(upstreams: &[&Upstream], concurrency: usize) -> Order {
    let member = |u: &&Upstream| Member {
        id: MemberId::Node(u.id()),
        leaf: Some(Arc::clone(&u.node)),
    };
    Order {
        map: Map::Group(GROUP),
        members: upstreams.iter().map(member).collect(),
        request: request("http://check.test/", Duration::from_secs(300)),
        concurrency,
        shared: None,
    }
}

// H-060: what was asked of a node is not asked again for another group.
#[tokio::test]
async fn runs_that_belong_together_measure_equal_things_once() {
    let (a, b) = (Upstream::start("a").await, Upstream::start("b").await);
    let runs = Arc::new(Runs::default());
    let shared = Arc::new(Shared::default());
    let of_group = |n: u128, upstreams: &[&Upstream]| Order {
        map: Map::Group(GroupId(Uuid::from_u128(n))),
        shared: Some(Arc::clone(&shared)),
        ..order(upstreams, 1)
    };
    let orders = [
        of_group(1, &[&a]),
        of_group(2, &[&a, &b]),
        Order {
            request: request("http://other.test/", Duration::from_secs(30)),
            ..of_group(3, &[&a])
        },
    ];
    for order in orders {
        let id = runs.begin(order, dialer(), |_| {}).unwrap();
        assert!(runs.ended(id).await.is_some());
    }
    let asked = |u: &Upstream| u.accepted.load(SeqCst);
    assert_eq!((asked(&a), asked(&b)), (2, 1), "a: once for each URL");
    for n in 1..4 {
        let map = Map::Group(GroupId(Uuid::from_u128(n)));
        let shown = |maps: &mut Measurements| {
            let shown = maps.shown(map, MemberId::Node(a.id()));
            shown.is_some_and(|s| s.foreign.is_none())
        };
        assert!(runs.maps(shown), "each map has its own");
    }
}

#[tokio::test]
async fn a_run_ends_with_its_guard() {
    let upstream = Upstream::start("s").await;
    upstream.does(Does::Silence);
    let runs = Arc::new(Runs::default());
    let id = runs
        .begin(order(&[&upstream], 1), dialer(), |_| {})
        .unwrap();
    let guard = runs.guard(id);
    soon("the run is under way", async || {
        upstream.open.load(SeqCst) == 1
    })
    .await;
    drop(guard);
    assert_eq!(runs.ended(id).await.map(|run| run.state), None);
    assert_eq!(runs.run(id).unwrap().state, State::Cancelled);
    soon("the run is closed", async || {
        upstream.open.load(SeqCst) == 0
    })
    .await;
}

#[tokio::test]
async fn a_run_measures_all_in_order_and_tells_failures_and_its_end() {
    let (a, b) = (Upstream::start("a").await, Upstream::start("b").await);
    b.does(Does::Refuse);
    let runs = Arc::new(Runs::default());
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = Arc::clone(&told);
    let follow = move |failed: Option<&Arc<Node>>| {
        let name = failed.map_or("end", |n| n.name.as_str()).to_owned();
        tell.lock().unwrap().push(name);
    };
    let mut asked = order(&[&a, &b], 1);
    // What is not dialed is no part of the run.
    asked.members.push(Member {
        id: MemberId::Group(GROUP),
        leaf: None,
    });
    let id = runs.begin(asked, dialer(), follow).unwrap();
    soon("the run is done", async || {
        runs.run(id).unwrap().state == State::Done
    })
    .await;
    soon("the end is told", async || told.lock().unwrap().len() == 2).await;
    assert_eq!(*told.lock().unwrap(), ["b", "end"]);
    let run = runs.run(id).unwrap();
    let order: Vec<_> = run.results.iter().map(|(m, r)| (*m, r.is_ok())).collect();
    let (first, second) = (MemberId::Node(a.id()), MemberId::Node(b.id()));
    assert_eq!(
        (run.total, order),
        (2, vec![(first, true), (second, false)])
    );
    let shown = |m| {
        runs.maps(|maps| {
            maps.shown(Map::Group(GROUP), m)
                .map(|s| s.sample.result.is_ok())
        })
    };
    assert_eq!((shown(first), shown(second)), (Some(true), Some(false)));
    assert_eq!(shown(MemberId::Group(GROUP)), None);
}

#[tokio::test]
async fn calling_a_run_off_closes_its_sockets_and_starts_nobody_else() {
    let mut upstreams = Vec::new();
    for _ in 0..3 {
        let upstream = Upstream::start("s").await;
        upstream.does(Does::Silence);
        upstreams.push(upstream);
    }
    let all: Vec<&Upstream> = upstreams.iter().collect();
    let runs = Arc::new(Runs::default());
    let id = runs.begin(order(&all, 2), dialer(), |_| {}).unwrap();
    let open = |n: usize| upstreams[n].open.load(SeqCst);
    soon("two are measured", async || open(0) == 1 && open(1) == 1).await;
    let again = runs.begin(order(&all, 2), dialer(), |_| {});
    assert_eq!(again, Err(Busy::Same(id)));
    let run = runs.cancel(id).await.unwrap();
    assert_eq!((run.state, run.results.len()), (State::Cancelled, 0));
    let pending = |u: &Upstream| {
        let member = MemberId::Node(u.id());
        runs.maps(|maps| maps.is_pending(Map::Group(GROUP), member))
    };
    assert!(!upstreams.iter().any(pending));
    soon("both are closed", async || open(0) == 0 && open(1) == 0).await;
    assert_eq!(upstreams[2].accepted.load(SeqCst), 0);
    let again = runs.begin(order(&all, 2), dialer(), |_| {}).unwrap();
    assert!(runs.cancel(again).await.is_some());
    assert!(runs.cancel(RunId(77)).await.is_none());
}

#[tokio::test]
async fn there_is_a_cap_on_runs_and_a_stop_ends_them() {
    let upstream = Upstream::start("s").await;
    upstream.does(Does::Silence);
    let runs = Arc::new(Runs::default());
    let of_group = |n: u128| Order {
        map: Map::Group(GroupId(Uuid::from_u128(n))),
        ..order(&[&upstream], 1)
    };
    for n in 0..MAX_RUNS as u128 {
        runs.begin(of_group(n), dialer(), |_| {}).unwrap();
    }
    let more = runs.begin(of_group(99), dialer(), |_| {});
    assert!(matches!(more, Err(Busy::Full(_))));
    soon("all runs are under way", async || {
        upstream.open.load(SeqCst) == MAX_RUNS
    })
    .await;
    runs.stop().await;
    soon("all runs are closed", async || {
        upstream.open.load(SeqCst) == 0
    })
    .await;
    assert!(runs.list().iter().all(|r| r.state == State::Cancelled));
}
