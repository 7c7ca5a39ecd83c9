use std::{
    net::IpAddr,
    sync::{Mutex, mpsc},
};

use honk_common::flow::{FLAG_AMBIGUOUS, FLAG_MUST, FLAG_PRELIM};
use honk_policy::id::Network::{Tcp, Udp};
use honk_wire::sniff::{Hello, HostName};

use super::*;
use crate::{
    app::{
        registry::key_of,
        testkit::{Asked, World, flow},
    },
    flow::{Admission as _, Answer, ClientAddr, Existence},
};

const TARGET: &str = "203.0.113.1:443";

/// Rules by name before rules by address.
fn world(mode: &str) -> World {
    World::checked(&format!(
        "
global {{ lan_interface: lan0 dial_mode: '{mode}' sniffing_timeout: 40ms }}
node {{ a: 'socks5://192.0.2.1:1080'
       b: 'socks5://192.0.2.2:1080' }}
group {{ proxy {{ policy: select filter: name(a) }}
        other {{ policy: select filter: name(b) }} }}
routing {{ domain(suffix: direct.example) -> direct
          domain(suffix: block.example) -> block
          domain(suffix: must.example) -> other(must)
          domain(suffix: other.example) -> other
          dip(10.0.0.0/8) -> direct
          fallback: proxy }}
"
    ))
}

/// Names that a fake DNS has seen.
#[derive(Debug, Default)]
struct Fake {
    leased: Vec<&'static str>,
    cached: Vec<&'static str>,
    meant: Option<&'static str>,
    exists: Option<bool>,
    /// Lookups answer only once this is released.
    hold: Mutex<Option<tokio::sync::oneshot::Receiver<()>>>,
    asked: Mutex<Vec<String>>,
}

impl Names for Fake {
    fn meant(&self, _: IpAddr, _: IpAddr) -> Option<Arc<str>> {
        self.meant.map(Into::into)
    }

    fn leased(&self, name: &str, _: IpAddr) -> bool {
        self.leased.contains(&name)
    }

    fn cached(&self, name: &str) -> bool {
        self.cached.contains(&name)
    }

    fn fronts(&self, name: &str) -> bool {
        name == "front.example"
    }

    fn exists(&self, name: Arc<str>, _: ClientAddr) -> Option<Existence> {
        self.asked.lock().unwrap().push(name.to_string());
        let (answer, hold) = (self.exists, self.hold.lock().unwrap().take());
        Some(Box::pin(async move {
            if let Some(hold) = hold {
                let _ = hold.await;
            }
            answer
        }))
    }
}

fn know(world: &World, names: Fake) -> (Arc<Fake>, tokio::runtime::Runtime) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let names = Arc::new(names);
    let handle = runtime.handle().clone();
    world.engine.gatekeeper.know(names.clone(), handle);
    (names, runtime)
}

fn hello(name: &str, ech: bool) -> Finding {
    let name = HostName::parse(name.as_bytes());
    Finding::Hello(Kind::Tls, Hello { name, ech })
}

fn ask(world: &World, flow: &NewFlow) -> Result<Answer, Refusal> {
    world.engine.gatekeeper.ask(flow)
}

/// The flow must be one that is sniffed.
fn sniffed(world: &World, flow: &NewFlow) -> Box<dyn Undecided> {
    match ask(world, flow) {
        Ok(Answer::Sniff(flow)) => flow,
        other => panic!("not sniffed: {other:?}"),
    }
}

/// Outbound, name given to the proxy, name of the flow.
type Outcome = (String, Option<String>, Option<(String, &'static str)>);

fn outcome(route: Result<Route, Refusal>) -> Result<Outcome, Refusal> {
    route.map(|route| {
        let entry = &route.guard.entry;
        let host = entry.host.as_ref();
        (
            entry.outbound.to_string(),
            route.name.as_deref().map(str::to_owned),
            host.map(|(name, source)| (name.to_string(), source.name())),
        )
    })
}

fn through(outbound: &str, name: Option<&str>, host: Option<(&str, &'static str)>) -> Outcome {
    (
        outbound.to_owned(),
        name.map(str::to_owned),
        host.map(|(name, source)| (name.to_owned(), source)),
    )
}

/// Decides a flow to [`TARGET`] that shows a name; it must not need a check.
fn decided(world: &World, finding: Finding) -> Result<Outcome, Refusal> {
    let flow = flow(Tcp, TARGET);
    let mut waiting = sniffed(world, &flow);
    assert_eq!(waiting.found(finding, Box::new(|| {})), None);
    outcome(waiting.decide())
}

fn sum(counters: &[AtomicU64]) -> Vec<u64> {
    counters.iter().map(|c| c.load(Relaxed)).collect()
}

#[test]
fn final_verdicts_and_silent_protocols_are_not_sniffed() {
    let world = world("domain++");
    let kernel = &world.kernel;
    let passes = |flow: &NewFlow| matches!(ask(&world, flow), Ok(Answer::Go(_)));
    let (slot, proxied) = (world.slot("proxy"), flow(Tcp, TARGET));
    kernel.decide(&proxied, slot, 5);
    assert!(!passes(&proxied));
    kernel.decide_with(&proxied, slot, 5, FLAG_MUST);
    assert!(passes(&proxied), "must");
    kernel.decide(&proxied, outbound::DIRECT, 4);
    assert!(passes(&proxied), "direct");
    kernel.decide(&proxied, outbound::CONTROL, 4);
    assert!(!passes(&proxied), "the rules say proxy");
    let local = flow(Tcp, "10.1.1.1:443");
    kernel.decide(&local, outbound::CONTROL, 4);
    assert!(passes(&local), "the rules say direct");
    for port in SILENT_PORTS {
        let flow = flow(Tcp, &format!("203.0.113.1:{port}"));
        kernel.decide(&flow, slot, 5);
        assert!(passes(&flow), "{port}");
    }
    let udp = flow(Udp, "203.0.113.1:123");
    kernel.decide(&udp, slot, 5);
    assert!(!passes(&udp), "the list is one of TCP ports");
    let counters = world.engine.gatekeeper.sniffing();
    assert_eq!(sum(&counters.skipped), [14, 0]);
}

#[test]
fn in_mode_ip_nothing_is_sniffed() {
    let (world, flow) = (world("ip"), flow(Tcp, TARGET));
    world.kernel.decide(&flow, world.slot("proxy"), 5);
    assert!(matches!(ask(&world, &flow), Ok(Answer::Go(_))));
}

#[test]
fn a_name_routes_again_and_is_given_to_the_proxy() {
    let world = world("domain++");
    let flow = flow(Tcp, TARGET);
    world.kernel.decide(&flow, world.slot("proxy"), 5);
    for (name, want) in [
        (
            "x.other.example",
            through(
                "other",
                Some("x.other.example"),
                Some(("x.other.example", "sni")),
            ),
        ),
        (
            "x.example",
            through("proxy", Some("x.example"), Some(("x.example", "sni"))),
        ),
        // `direct` dials the address, and so does `must`.
        (
            "direct.example",
            through("direct", None, Some(("direct.example", "sni"))),
        ),
        (
            "must.example",
            through("other", None, Some(("must.example", "sni"))),
        ),
    ] {
        assert_eq!(decided(&world, hello(name, false)), Ok(want), "{name}");
    }
    assert_eq!(
        decided(&world, hello("block.example", false)),
        Err(Refusal::Blocked)
    );
    for finding in [hello("", false), Finding::Foreign, Finding::Timeout(None)] {
        assert_eq!(decided(&world, finding), Ok(through("proxy", None, None)));
    }
    let counters = world.engine.gatekeeper.sniffing();
    assert_eq!(sum(&counters.sniffed[0]), [5, 1, 0]);
    assert_eq!(sum(&counters.sniffed[3]), [0, 1, 1]);
}

#[test]
fn domain_plus_routes_only_what_is_provisional() {
    let world = world("domain+");
    let flow = flow(Tcp, TARGET);
    let name = hello("other.example", false);
    let host = Some(("other.example", "sni"));
    world.kernel.decide(&flow, world.slot("proxy"), 5);
    let want = through("proxy", Some("other.example"), host);
    assert_eq!(decided(&world, name.clone()), Ok(want));
    world
        .kernel
        .decide_with(&flow, outbound::CONTROL, 5, FLAG_PRELIM);
    let want = through("other", Some("other.example"), host);
    assert_eq!(decided(&world, name), Ok(want));
}

#[test]
fn a_provisional_direct_is_sniffed_and_may_stay_direct() {
    let world = world("domain+");
    let local = flow(Tcp, "10.1.1.1:443");
    world
        .kernel
        .decide_with(&local, outbound::CONTROL, 4, FLAG_PRELIM);
    for (finding, want) in [
        (Finding::Timeout(None), through("direct", None, None)),
        (
            hello("other.example", false),
            through(
                "other",
                Some("other.example"),
                Some(("other.example", "sni")),
            ),
        ),
    ] {
        let mut waiting = sniffed(&world, &local);
        assert_eq!(waiting.patience(), Duration::from_millis(40));
        assert_eq!(waiting.found(finding, Box::new(|| {})), None);
        assert_eq!(outcome(waiting.decide()), Ok(want));
    }
}

#[test]
fn the_entry_is_claimed_while_a_flow_waits_and_released_when_it_is_given_up() {
    let world = world("domain++");
    let flow = flow(Tcp, TARGET);
    let key = key_of(&flow);
    world.kernel.decide(&flow, world.slot("proxy"), 5);
    drop(sniffed(&world, &flow));
    assert_eq!(
        world.kernel.take(),
        [Asked::Claim(key), Asked::Release(key)]
    );
    let mut waiting = sniffed(&world, &flow);
    waiting.found(hello("block.example", false), Box::new(|| {}));
    assert!(waiting.decide().is_err());
    assert_eq!(
        world.kernel.take(),
        [Asked::Claim(key), Asked::Release(key)]
    );
    let route = sniffed(&world, &flow).decide().unwrap();
    assert_eq!(world.kernel.take(), [Asked::Claim(key)]);
    drop(route);
    assert_eq!(world.kernel.take(), [Asked::Release(key)]);
    let waiting = sniffed(&world, &flow);
    world.engine.begin_stop().unwrap();
    assert_eq!(waiting.decide().unwrap_err(), Refusal::Stopping);
    assert_eq!(world.engine.registry.open(), 0);
}

#[test]
fn three_misses_let_the_next_flows_pass() {
    let world = world("domain++");
    let flow = flow(Tcp, TARGET);
    world.kernel.decide(&flow, world.slot("proxy"), 5);
    for _ in 0..3 {
        decided(&world, Finding::Timeout(None)).unwrap();
    }
    assert!(matches!(ask(&world, &flow), Ok(Answer::Go(_))));
    let counters = world.engine.gatekeeper.sniffing();
    assert_eq!(sum(&counters.skipped), [0, 1]);
    assert_eq!(world.engine.gatekeeper.silent_places(), (1, 0));
}

#[test]
fn the_outer_name_of_ech_gives_way_to_what_the_client_heard() {
    let world = world("domain++");
    let flow = flow(Tcp, TARGET);
    world.kernel.decide(&flow, world.slot("proxy"), 5);
    let outer = hello("front.example", true);
    let fake = Fake {
        meant: Some("other.example"),
        ..Fake::default()
    };
    let (_names, _runtime) = know(&world, fake);
    let want = through(
        "other",
        Some("other.example"),
        Some(("other.example", "dns")),
    );
    assert_eq!(decided(&world, outer), Ok(want));
    // Without the extension it is the name of the server itself; GREASE changes nothing.
    for (name, ech) in [("front.example", false), ("x.example", true)] {
        let want = through("proxy", Some(name), Some((name, "sni")));
        assert_eq!(decided(&world, hello(name, ech)), Ok(want));
    }
}

#[test]
fn an_ambiguous_flow_is_decided_by_name_client_or_kernel() {
    let (shared, ambiguous) = (flow(Tcp, TARGET), FLAG_PRELIM | FLAG_AMBIGUOUS);
    for (meant, finding, want, resolved) in [
        (None, hello("other.example", false), "other", [1, 0, 0]),
        (
            Some("other.example"),
            Finding::Timeout(None),
            "other",
            [0, 1, 0],
        ),
        (None, Finding::Timeout(None), "direct", [0, 0, 1]),
    ] {
        let world = world("domain+");
        world
            .kernel
            .decide_with(&shared, outbound::CONTROL, 0, ambiguous);
        let fake = Fake {
            meant,
            ..Fake::default()
        };
        let (_names, _runtime) = know(&world, fake);
        let (outbound, ..) = decided(&world, finding).unwrap();
        assert_eq!(outbound, want);
        assert_eq!(sum(&world.engine.gatekeeper.sniffing().ambiguous), resolved);
    }
    // In `ip` nothing is sniffed, and the client's memory decides at once.
    let world = world("ip");
    world
        .kernel
        .decide_with(&shared, outbound::CONTROL, 0, ambiguous);
    let fake = Fake {
        meant: Some("other.example"),
        ..Fake::default()
    };
    let (_names, _runtime) = know(&world, fake);
    let route = world.engine.gatekeeper.admit(&shared);
    let want = through("other", None, Some(("other.example", "dns")));
    assert_eq!(outcome(route), Ok(want));
}

#[test]
fn the_line_of_another_generation_is_not_believed() {
    let world = world("ip");
    let shared = flow(Tcp, TARGET);
    let ambiguous = FLAG_PRELIM | FLAG_AMBIGUOUS;
    world
        .kernel
        .decide_with(&shared, outbound::CONTROL, 0, ambiguous);
    world.engine.gatekeeper.committed(2, 1);
    let route = world.engine.gatekeeper.admit(&shared).unwrap();
    assert_eq!(
        &*route.guard.entry.outbound, "proxy",
        "the rules without a name"
    );
}

mod reality {
    use super::*;

    /// A flow in mode `domain`; the answer of the check, if there is one to wait for.
    fn checked(fake: Fake) -> (Outcome, Vec<String>, Vec<u64>) {
        let world = domain();
        let flow = flow(Tcp, TARGET);
        world.kernel.decide(&flow, world.slot("proxy"), 5);
        let (names, _runtime) = know(&world, fake);
        let mut waiting = sniffed(&world, &flow);
        let (woken, wait) = mpsc::sync_channel(1);
        let wake = Box::new(move || woken.send(()).unwrap());
        if let Some(longest) = waiting.found(hello("other.example", false), wake) {
            assert_eq!(longest, Duration::from_millis(80));
            wait.recv_timeout(Duration::from_secs(10)).unwrap();
        }
        let outcome = outcome(waiting.decide()).unwrap();
        let asked = names.asked.lock().unwrap().clone();
        (
            outcome,
            asked,
            sum(&world.engine.gatekeeper.sniffing().checks),
        )
    }

    fn domain() -> World {
        world("domain")
    }

    fn verified() -> Outcome {
        through(
            "other",
            Some("other.example"),
            Some(("other.example", "sni")),
        )
    }

    fn unverified() -> Outcome {
        through("proxy", None, None)
    }

    #[test]
    fn a_lease_or_a_cached_answer_is_proof_without_a_lookup() {
        let leased = Fake {
            leased: vec!["other.example"],
            ..Fake::default()
        };
        let cached = Fake {
            cached: vec!["other.example"],
            ..Fake::default()
        };
        for fake in [leased, cached] {
            assert_eq!(checked(fake), (verified(), vec![], vec![1, 0, 0]));
        }
    }

    #[test]
    fn an_unknown_name_is_looked_up() {
        let asked = vec!["other.example".to_owned()];
        for (exists, want, count) in [
            (Some(true), verified(), vec![1, 0, 0]),
            (Some(false), unverified(), vec![0, 1, 0]),
            (None, unverified(), vec![0, 1, 0]),
        ] {
            let fake = Fake {
                exists,
                ..Fake::default()
            };
            assert_eq!(checked(fake), (want, asked.clone(), count));
        }
    }

    #[test]
    fn a_name_that_does_not_exist_is_not_asked_for_again() {
        let world = domain();
        let flow = flow(Tcp, TARGET);
        world.kernel.decide(&flow, world.slot("proxy"), 5);
        let fake = Fake {
            exists: Some(false),
            ..Fake::default()
        };
        let (names, _runtime) = know(&world, fake);
        let (woken, wait) = mpsc::sync_channel(1);
        let mut first = sniffed(&world, &flow);
        let wake = Box::new(move || woken.send(()).unwrap());
        assert!(first.found(hello("other.example", false), wake).is_some());
        wait.recv_timeout(Duration::from_secs(10)).unwrap();
        assert_eq!(
            decided(&world, hello("other.example", false)),
            Ok(unverified())
        );
        assert_eq!(names.asked.lock().unwrap().len(), 1);
    }

    #[test]
    fn a_late_answer_lets_the_flow_go_by_address() {
        let world = domain();
        let flow = flow(Tcp, TARGET);
        world.kernel.decide(&flow, world.slot("proxy"), 5);
        let (release, hold) = tokio::sync::oneshot::channel();
        let fake = Fake {
            exists: Some(true),
            hold: Mutex::new(Some(hold)),
            ..Fake::default()
        };
        let (_names, _runtime) = know(&world, fake);
        let (woken, wait) = mpsc::sync_channel(1);
        let mut waiting = sniffed(&world, &flow);
        let wake = Box::new(move || woken.send(()).unwrap());
        assert!(waiting.found(hello("other.example", false), wake).is_some());
        assert_eq!(outcome(waiting.decide()), Ok(unverified()));
        assert_eq!(sum(&world.engine.gatekeeper.sniffing().checks), [0, 0, 1]);
        release.send(()).unwrap();
        wait.recv_timeout(Duration::from_secs(10))
            .expect("the lookup goes on");
    }
}
