//! Several leaves for one flow: dialed one after the other without waiting for the end of each,
//! and the first that answers serves. Nothing of the flow itself is sent before that.
//!
//! Those that lose are given up without a word about them; only where nobody wins do failures
//! count.

use std::{
    future::pending,
    os::fd::OwnedFd,
    sync::Arc,
    time::{Duration, Instant},
};

use honk_policy::{group::Rival, id::Family, node::Protocol};
use honk_wire::Target;
use tokio::{
    task::{AbortHandle, JoinSet},
    time::{self, sleep_until, timeout},
};

use super::{
    Dialer, GREETING, REPLY,
    error::{Class, DialError},
    open::{converse, family_of, reach},
    server::{Candidates, ServerState},
    stream,
};
use crate::{
    flow::{FlowEntry, OrigDst, RACERS},
    socket::Mark,
};

/// When the second and the third leaf are begun, and each further one (G-138).
const BEGINS: [Duration; 3] = [
    Duration::ZERO,
    Duration::from_millis(30),
    Duration::from_millis(80),
];
const EACH: Duration = Duration::from_millis(80);
/// A race lasts this long at least...
const LEAST: Duration = Duration::from_secs(10);
/// ...and this many times the time for one connect.
const CONNECTS: u32 = 4;

/// The end of a race that begins now.
pub(crate) fn deadline(dialer: &Dialer, now: Instant) -> Instant {
    now + LEAST.max(dialer.connect_timeout() * CONNECTS)
}

/// A race under way; dropping it calls it off.
#[derive(Debug)]
pub(crate) struct Running(AbortHandle);

impl From<AbortHandle> for Running {
    fn from(task: AbortHandle) -> Self {
        Self(task)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// How a race ended: with the winner, or with the failures of those that were tried.
pub(crate) type Finish<T> = Result<(Rival, T), Vec<(Rival, DialError)>>;

fn begin_of(place: usize) -> Duration {
    match BEGINS.get(place) {
        Some(pause) => *pause,
        None => EACH * u32::try_from(place - 1).unwrap_or(u32::MAX),
    }
}

/// Runs a race. `still` is asked about a leaf that has answered.
pub(crate) async fn race<T, F>(
    rivals: Vec<Rival>,
    deadline: Instant,
    dial: impl Fn(&Rival) -> F,
    still: impl Fn(&Rival) -> bool,
) -> Finish<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T, DialError>> + Send + 'static,
{
    let begun = time::Instant::now();
    let mut waiting = rivals.into_iter().enumerate().peekable();
    let mut dials: JoinSet<(Rival, Result<T, DialError>)> = JoinSet::new();
    let mut failures = Vec::new();
    loop {
        let due = waiting.peek().map(|(place, _)| begun + begin_of(*place));
        // Where nobody is on the way there is nothing to wait for.
        let ready = due.is_some_and(|due| dials.is_empty() || due <= time::Instant::now());
        if ready
            && dials.len() < RACERS
            && let Some((_, rival)) = waiting.next()
        {
            let dial = dial(&rival);
            dials.spawn(async move { (rival, dial.await) });
            continue;
        }
        let due = due.filter(|_| dials.len() < RACERS);
        let next = async {
            match due {
                Some(due) => sleep_until(due).await,
                None => pending().await,
            }
        };
        let ended = tokio::select! {
            () = sleep_until(deadline.into()) => return Err(failures),
            () = next => continue,
            ended = dials.join_next() => ended,
        };
        match ended {
            // All have been tried.
            None => return Err(failures),
            Some(Ok((rival, Ok(won)))) if still(&rival) => return Ok((rival, won)),
            // It may not serve any more, which is no failure of the dial.
            Some(Ok((_, Ok(_)))) => {}
            Some(Ok((rival, Err(error)))) => failures.push((rival, error)),
            Some(Err(error)) => tracing::error!(%error, "a dial broke"),
        }
    }
}

/// A stream that has reached its target.
#[derive(Debug)]
pub(crate) struct Reached {
    pub(crate) socket: OwnedFd,
    /// `None` where the target itself was dialed.
    pub(crate) server: Option<(Arc<ServerState>, Candidates)>,
    /// What the target has said already.
    pub(crate) early: Vec<u8>,
    /// When the connect began.
    pub(crate) began: Instant,
}

/// What a flow asks of any leaf.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) target: OrigDst,
    /// What a proxy is asked for instead of the address.
    pub(crate) name: Option<Arc<str>>,
    pub(crate) mark: Mark,
    /// Told when its turn has come.
    pub(crate) flow: Arc<FlowEntry>,
}

/// Dials a target through a leaf.
pub(crate) async fn dial(
    dialer: Arc<Dialer>,
    rival: Rival,
    ask: Ask,
) -> Result<Reached, DialError> {
    let OrigDst(target) = ask.target;
    if rival.leaf.protocol == Protocol::Direct {
        ask.flow.started();
        let began = Instant::now();
        let connect = timeout(dialer.connect_timeout(), stream::connect(target, ask.mark));
        let stream = match connect.await {
            Ok(stream) => stream.map_err(|e| DialError::direct(&e))?,
            Err(_) => return Err(DialError::new(Class::TargetTimeout, "no answer in time")),
        };
        return Ok(Reached {
            socket: stream.into_std().map_err(|e| DialError::direct(&e))?.into(),
            server: None,
            early: Vec::new(),
            began,
        });
    }
    let _permit = dialer.permits.take().await;
    ask.flow.started();
    let began = Instant::now();
    let server = dialer.server(&rival.leaf);
    let (mut stream, _, candidates) = reach(&dialer, &server, None, ask.mark).await?;
    let target = match &ask.name {
        Some(name) => Target::Name(name, target.port()),
        None => Target::Ip(target),
    };
    let talk = converse(&mut stream, &server, target);
    let late = |stage| DialError::timeout(stage);
    let early = match timeout(GREETING + REPLY, talk).await {
        Ok(early) => early?,
        Err(_) => return Err(late(super::error::Stage::Reply)),
    };
    let socket = stream.into_std();
    let socket = socket.map_err(|e| DialError::carrier(super::error::Stage::Reply, &e))?;
    Ok(Reached {
        socket: socket.into(),
        server: Some((server, candidates)),
        early,
        began,
    })
}

/// The family over which a leaf is told to have failed.
pub(crate) fn family(server: &ServerState) -> Family {
    use honk_policy::node::Host;
    match super::server::server(&server.node.protocol).map(|s| &s.host) {
        Some(Host::Ip(ip)) => family_of(ip.to_canonical()),
        Some(Host::Name(_)) | None => Family::V4,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use honk_policy::node::Node;

    use super::*;
    use crate::outbound::error::Stage;

    fn rivals(count: usize) -> Vec<Rival> {
        let rival = |n: usize| Rival {
            leaf: Arc::new(Node {
                name: n.to_string(),
                ..Node::new(String::new(), Protocol::Direct)
            }),
            path: Arc::new([]),
            groups: Arc::new([]),
        };
        (0..count).map(rival).collect()
    }

    fn far() -> Instant {
        // The clock of the runtime, which tests hold.
        time::Instant::now().into_std() + Duration::from_secs(3600)
    }

    /// What each of the leaves does: its dial takes so long and succeeds or not.
    type Plan = &'static [(u64, bool)];

    /// The winner, and who was begun when.
    async fn run(plan: Plan, deadline: Instant) -> (Finish<()>, Vec<(usize, u128)>) {
        let begun = time::Instant::now();
        let log = Arc::new(Mutex::new(Vec::new()));
        let dial = |rival: &Rival| {
            let at: usize = rival.leaf.name.parse().unwrap();
            log.lock().unwrap().push((at, begun.elapsed().as_millis()));
            let (ms, works) = plan[at];
            async move {
                time::sleep(Duration::from_millis(ms)).await;
                works
                    .then_some(())
                    .ok_or_else(|| DialError::timeout(Stage::Connect))
            }
        };
        let finish = race(rivals(plan.len()), deadline, dial, |_| true).await;
        let log = log.lock().unwrap().clone();
        (finish, log)
    }

    #[test]
    fn the_first_three_begin_at_0_30_and_80_ms_and_then_one_every_80() {
        let begins: Vec<_> = (0..6).map(|n| begin_of(n).as_millis()).collect();
        assert_eq!(begins, [0, 30, 80, 160, 240, 320]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_to_answer_wins_and_not_the_first_to_begin() {
        let (finish, log) = run(&[(500, true), (500, true), (10, true)], far()).await;
        assert_eq!(finish.unwrap().0.leaf.name, "2");
        let begun: Vec<usize> = log.iter().map(|(at, _)| *at).collect();
        assert_eq!(begun, [0, 1, 2]);
        // The clock moves in whole milliseconds.
        for ((_, at), wanted) in log.iter().zip([0, 30, 80]) {
            assert!((wanted..wanted + 3).contains(at), "{log:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn three_are_on_the_way_at_a_time_and_one_deadline_ends_all() {
        let begun = time::Instant::now();
        let deadline = begun.into_std() + Duration::from_secs(10);
        const NEVER: (u64, bool) = (1 << 32, true);
        let (finish, log) = run(&[NEVER, NEVER, NEVER, (0, true)], deadline).await;
        assert_eq!(finish.unwrap_err(), []);
        assert_eq!(log.len(), RACERS);
        assert!(begun.elapsed() < Duration::from_secs(11));
    }

    #[tokio::test(start_paused = true)]
    async fn where_all_on_the_way_have_failed_the_next_begins_at_once() {
        let (finish, log) = run(&[(1, false), (1, false), (1, true)], far()).await;
        assert_eq!(finish.unwrap().0.leaf.name, "2");
        assert!(log.iter().all(|(_, at)| *at < 20), "{log:?}");
        let (finish, _) = run(&[(1, false), (1, false)], far()).await;
        let names: Vec<_> = finish
            .unwrap_err()
            .into_iter()
            .map(|(r, _)| r.leaf.name.clone())
            .collect();
        assert_eq!(names, ["0", "1"]);
    }
}
