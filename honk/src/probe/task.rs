//! The task: waits for whatever comes first, feeds the engine, starts probes, publishes.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use honk_policy::{
    health::{Effects, Event, Monitor, Outcome, Probe, Shift, Subject, Urgency, View},
    id::Domain,
    node::Node,
};
use tokio::{
    sync::watch,
    task::{Id, JoinError, JoinSet},
    time::{sleep, sleep_until},
};

use super::{
    Command, Groups, Orders, PROBE_TIMEOUT, Plan, Report,
    counts::Kind,
    measure::{self, Failure, Fault, Request, Statuses},
};
use crate::outbound::{Dialer, tls};

/// Latencies are published this often.
const PUBLISH: Duration = Duration::from_secs(1);
/// What flows tell is gathered this long.
const GATHER: Duration = Duration::from_millis(50);
/// What groups select is looked up this often, unless it was just changed from here.
const LEARN: Duration = Duration::from_millis(250);
/// Longest sleep: the report stays fresh, and a jump of the clock is noticed.
pub(super) const NAP: Duration = Duration::from_secs(5);
/// The network may be another one after the machine slept this long.
const SLEPT: Duration = Duration::from_secs(5);

/// Runs until told to stop. Probes under way end with it.
pub(crate) async fn run<G: Groups>(
    orders: Orders,
    groups: Arc<G>,
    dialer: Arc<Dialer>,
    seed: u64,
    mut stop: watch::Receiver<bool>,
) {
    let mut task = Task {
        monitor: Monitor::new(seed),
        view: Arc::default(),
        plan: groups.plan(),
        slept: Slept(groups.slept()),
        learned: None,
        probes: JoinSet::new(),
        numbers: HashMap::new(),
        due: None,
        published: Instant::now(),
        orders,
        groups,
        dialer,
    };
    task.configure().await;
    loop {
        let wake = task.wake();
        let stopped = async { stop.wait_for(|stop| *stop).await.map(|_| ()) };
        let cause = tokio::select! {
            _ = stopped => break,
            order = task.orders.orders.recv() => order.map_or(Cause::Orphaned, Cause::Order),
            Some(ended) = task.probes.join_next_with_id() => Cause::Ended(ended),
            () = task.dialer.feed.changed() => Cause::News,
            () = task.groups.woken() => Cause::Used,
            () = sleep_until(wake.into()) => Cause::Time,
        };
        match cause {
            Cause::Order(order) => task.obey(order).await,
            Cause::Ended(ended) => task.ended(ended),
            Cause::News => {
                // Flows come in crowds; one look serves them all.
                sleep(GATHER).await;
                task.listen();
            }
            // Its probes may have slept: the flow that came must not wait for the next round.
            Cause::Used => task.learned = None,
            Cause::Time => {}
            Cause::Orphaned => break,
        }
        // Not only after an order: this one may have come when the line was empty again.
        while let Some(order) = task.orders.shared.missed.take() {
            task.obey(order).await;
        }
        if task.slept.has_grown(task.groups.slept()) {
            tracing::info!(target: "honk::health", "the machine slept: nodes are asked again");
            task.obey(Command::Network).await;
        }
        task.turn().await;
    }
    task.probes.shutdown().await;
}

/// What ended a wait.
enum Cause {
    Order(Command),
    Ended(Result<(Id, Outcome), JoinError>),
    News,
    /// A group is in use again.
    Used,
    Time,
    /// Nobody is left who could give orders.
    Orphaned,
}

struct Task<G> {
    monitor: Monitor,
    /// As last published.
    view: Arc<View>,
    plan: Plan,
    slept: Slept,
    /// When the engine last heard what groups select.
    learned: Option<Instant>,
    probes: JoinSet<Outcome>,
    /// The probes under way.
    numbers: HashMap<Id, Probe>,
    /// Something to publish.
    due: Option<Urgency>,
    published: Instant,
    orders: Orders,
    groups: Arc<G>,
    dialer: Arc<Dialer>,
}

impl<G: Groups> Task<G> {
    async fn configure(&mut self) {
        // Probes of the generation before say nothing about this one.
        self.probes.shutdown().await;
        self.numbers.clear();
        self.plan = self.groups.plan();
        if self.plan.speaks_tls() {
            // Reads the certificates of the system, the first time.
            let _ = tokio::task::spawn_blocking(tls::web).await;
        }
        let mut out = Effects::default();
        let now = self.orders.shared.now();
        self.monitor.disable(self.plan.off.clone());
        self.monitor
            .configure(self.plan.setup.clone(), now, &mut out);
        self.learned = None;
        self.due = Some(Urgency::Now);
        self.act(out);
    }

    async fn obey(&mut self, command: Command) {
        let now = self.orders.shared.now();
        let mut out = Effects::default();
        match command {
            Command::Configure => return self.configure().await,
            Command::Network => self.monitor.handle(Event::NetworkChanged, now, &mut out),
            Command::Test(group, tell) => {
                // Whoever asked may be gone.
                let _ = tell.send(self.monitor.test_group(group, now, &mut out));
            }
        }
        self.act(out);
    }

    fn ended(&mut self, ended: Result<(Id, Outcome), JoinError>) {
        let mut next = Some(ended);
        // Take along those that have ended, too.
        while let Some(ended) = next {
            let (id, outcome) = ended.unwrap_or_else(|error| {
                tracing::error!(target: "honk::health", %error, "a probe broke");
                (error.id(), Outcome::Neutral)
            });
            if let Some(Probe { id: probe, subject }) = self.numbers.remove(&id) {
                self.groups.probed(self.plan.generation, subject, outcome);
                self.hear(Event::Probed { probe, outcome });
            }
            next = self.probes.try_join_next_with_id();
        }
    }

    fn listen(&mut self) {
        self.learn();
        for event in self.dialer.feed.drain() {
            self.hear(event);
        }
    }

    fn hear(&mut self, event: Event) {
        let mut out = Effects::default();
        let now = self.orders.shared.now();
        self.monitor.handle(event, now, &mut out);
        self.act(out);
    }

    /// When to look again, whatever happens.
    fn wake(&self) -> Instant {
        let now = self.orders.shared.now();
        let next = self.monitor.next_deadline();
        let mut wait = next.map_or(NAP, |at| at.since(now)).min(NAP);
        if self.due.is_some() {
            let left = PUBLISH.saturating_sub(self.published.elapsed());
            wait = wait.min(left);
        }
        Instant::now() + wait
    }

    async fn turn(&mut self) {
        self.learn();
        let mut out = Effects::default();
        let now = self.orders.shared.now();
        self.monitor.tick(now, &mut out);
        self.act(out);
        let ripe = match self.due {
            Some(Urgency::Now) => true,
            Some(Urgency::Soon | Urgency::None) => self.published.elapsed() >= PUBLISH,
            None => false,
        };
        if ripe {
            self.publish().await;
        }
        if ripe || self.published.elapsed() >= NAP {
            self.report();
        }
    }

    /// Tells the engine what groups select, and which are in use.
    fn learn(&mut self) {
        if self.learned.is_some_and(|at| at.elapsed() < LEARN) {
            return;
        }
        self.learned = Some(Instant::now());
        self.monitor.selected(&self.groups.selections());
        let now = self.orders.shared.now();
        for group in self.groups.used() {
            self.monitor.used(group, now);
        }
    }

    async fn publish(&mut self) {
        self.due = None;
        self.published = Instant::now();
        let (view, touched) = self.monitor.publish();
        self.view = Arc::new(view);
        self.groups.judge(Arc::clone(&self.view), touched).await;
        self.learned = None;
        self.learn();
    }

    fn report(&self) {
        let nodes = self.plan.setup.nodes.iter();
        let lost = self.dialer.feed.lost();
        self.orders.shared.events_lost.store(lost, Relaxed);
        self.orders.shared.publish(Report {
            view: Arc::clone(&self.view),
            counts: self.monitor.counts(),
            skips: self.monitor.skips().collect(),
            history: nodes
                .map(|n| (n.id, self.monitor.history(n.id)))
                .filter(|(_, samples)| !samples.is_empty())
                .collect(),
        });
    }

    fn act(&mut self, out: Effects) {
        for probe in out.start {
            self.start(probe);
        }
        for transition in &out.transitions {
            self.orders.shared.transitions.fetch_add(1, Relaxed);
            self.tell(transition.subject, transition.shift);
        }
        if out.urgency > Urgency::None {
            self.due = self.due.max(Some(out.urgency));
        }
    }

    fn tell(&self, subject: Subject, shift: Shift) {
        let (node, what) = match subject {
            Subject::Node { node, domain, .. } => (self.groups.node(node), domain_name(domain)),
            Subject::Member { group, member, .. } => (self.groups.leaf(group, member), "check_url"),
        };
        if let Some(node) = &node {
            let alive = shift == Shift::Revived;
            self.groups.shifted(node, what, subject.family(), alive);
        }
        let name = node.as_ref().map_or("-", |node| node.name.as_str());
        let family = subject.family().name();
        match shift {
            Shift::Died => {
                tracing::warn!(target: "honk::health", node = name, domain = what, family, "node_dead");
            }
            Shift::Revived => {
                tracing::info!(target: "honk::health", node = name, domain = what, family, "node_alive");
            }
        }
    }

    fn start(&mut self, probe: Probe) {
        let (leaf, url, kind) = match probe.subject {
            Subject::Node { node, domain, .. } => {
                let kind = match domain {
                    Domain::Tcp => Kind::Http,
                    Domain::DnsUdp | Domain::DataUdp => Kind::Dns,
                };
                (self.groups.node(node), &self.plan.url, kind)
            }
            Subject::Member { group, member, .. } => {
                let url = self.plan.group_urls.get(&group);
                let url = url.unwrap_or(&self.plan.url);
                (self.groups.leaf(group, member), url, Kind::Http)
            }
        };
        let request = Request {
            url: Arc::clone(url),
            method: Arc::clone(&self.plan.method),
            timeout: PROBE_TIMEOUT,
            family: None,
            expected: Statuses::default(),
        };
        let dns = Arc::clone(&self.plan.dns);
        let (dialer, shared) = (Arc::clone(&self.dialer), Arc::clone(&self.orders.shared));
        let family = Some(probe.subject.family());
        let Some(leaf) = leaf else {
            // A member that leads nowhere, or a node of a generation that just ended.
            let ended = self.probes.spawn(async { Outcome::Neutral });
            self.numbers.insert(ended.id(), probe);
            return;
        };
        let started = self.probes.spawn(async move {
            let result = match kind {
                Kind::Http => measure::url_test(&dialer, &leaf, family, &request).await,
                Kind::Dns => measure::dns_test(&dialer, &leaf, family, &dns, PROBE_TIMEOUT).await,
            };
            let outcome = outcome(&leaf, &result);
            if outcome != Outcome::Absent {
                shared.counts.add(kind, &result);
            }
            outcome
        });
        self.numbers.insert(started.id(), probe);
    }
}

/// How long the machine has slept, as far as that was acted upon.
struct Slept(Duration);

impl Slept {
    /// Whether enough has come to it for the network to be another one.
    fn has_grown(&mut self, now: Duration) -> bool {
        let grown = now.saturating_sub(self.0) > SLEPT;
        if grown {
            self.0 = now;
        }
        grown
    }
}

fn outcome(leaf: &Node, result: &Result<Duration, Failure>) -> Outcome {
    match result {
        Ok(latency) => Outcome::Answer(*latency),
        Err(failure) => {
            tracing::debug!(target: "honk::health", node = %leaf.name, %failure, "probe_failed");
            match failure.fault {
                Fault::Node => Outcome::Failure,
                Fault::Local => Outcome::Neutral,
                Fault::NoFamily => Outcome::Absent,
            }
        }
    }
}

/// Name of a domain in logs.
fn domain_name(domain: Domain) -> &'static str {
    match domain {
        Domain::Tcp => "tcp",
        Domain::DnsUdp => "dns_udp",
        Domain::DataUdp => "data_udp",
    }
}

#[cfg(test)]
mod tests {
    use honk_policy::node::Protocol;

    use super::{super::measure::Stage, *};

    #[test]
    fn short_sleeps_add_up_and_long_ones_count_once() {
        let at = Duration::from_secs;
        let mut slept = Slept(at(100));
        assert!(!slept.has_grown(at(103)));
        assert!(slept.has_grown(at(106)));
        assert!(!slept.has_grown(at(106)));
        assert!(!slept.has_grown(at(0)));
        assert!(slept.has_grown(at(3600)));
    }

    #[test]
    fn only_what_the_node_is_to_blame_for_counts_against_it() {
        let leaf = Node::new("a".to_owned(), Protocol::Direct);
        for (fault, want) in [
            (Fault::Node, Outcome::Failure),
            (Fault::Local, Outcome::Neutral),
            (Fault::NoFamily, Outcome::Absent),
        ] {
            let failure = Failure {
                stage: Stage::Dial,
                reason: String::new(),
                fault,
            };
            assert_eq!(outcome(&leaf, &Err(failure)), want);
        }
        let took = Duration::from_millis(7);
        assert_eq!(outcome(&leaf, &Ok(took)), Outcome::Answer(took));
    }
}
