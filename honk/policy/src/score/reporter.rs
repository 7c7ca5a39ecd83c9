//! The observer of one attempt: events in, findings out (section 4 of the design).
//!
//! Setup and first response are told once, when they happen. Transfer is told in windows that do
//! not overlap; received data at most once a second. Silence is never turned into a finding.

use super::{
    call::Obs,
    clock::T,
    consts::{RX_EVERY, WINDOW_BYTES, WINDOW_MAX, WINDOW_MIN},
    outcome::Seen,
};

/// What a started attempt has shown so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reporter {
    started: T,
    /// Whether its received data proves availability: only that of a known target does.
    targeted: bool,
    setup: Option<T>,
    responded: bool,
    first_tx: Option<T>,
    received: bool,
    window: Window,
    /// When received data was last told of.
    told: Option<T>,
    /// Received since, and not told of.
    held: Option<T>,
    /// Received after setup while no send was confirmed.
    early: Option<T>,
}

#[derive(Clone, Copy, Debug)]
struct Window {
    open: T,
    tx: u64,
    rx: u64,
}

/// What an event proves.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Findings {
    /// Milliseconds to setup.
    pub(super) setup: Option<f64>,
    /// Milliseconds to the first byte of an answer.
    pub(super) response: Option<f64>,
    /// Bytes per second sent.
    pub(super) up: Option<f64>,
    /// Bytes per second received.
    pub(super) down: Option<f64>,
    /// Data was received at this time.
    pub(super) rx: Option<T>,
}

impl Reporter {
    pub(super) fn new(now: T, targeted: bool) -> Self {
        Self {
            started: now,
            targeted,
            setup: None,
            responded: false,
            first_tx: None,
            received: false,
            window: Window {
                open: now,
                tx: 0,
                rx: 0,
            },
            told: None,
            held: None,
            early: None,
        }
    }

    /// Takes an event.
    pub(super) fn see(&mut self, now: T, event: Obs) -> Findings {
        let mut found = Findings::default();
        match event {
            Obs::Setup if self.setup.is_none() => {
                self.setup = Some(now);
                self.window.open = now;
                found.setup = Some(now.millis_since(self.started));
            }
            Obs::FirstResponse if !self.responded => {
                self.responded = true;
                found.response = Some(now.millis_since(self.started));
            }
            Obs::Setup | Obs::FirstResponse => {}
            Obs::Tx { bytes, at } if bytes > 0 => {
                if self.first_tx.is_none() {
                    self.first_tx = Some(at);
                    // The answer was delivered before its send was confirmed: it counts when it
                    // came after the send began.
                    found.rx = self.early.take().filter(|rx| *rx >= at);
                    self.told = found.rx.map(|_| now).or(self.told);
                }
                self.moved(now, bytes, 0, &mut found);
            }
            Obs::Rx { bytes, at } if bytes > 0 => {
                self.received = true;
                found.rx = self.receive(now, at.min(now));
                self.moved(now, 0, bytes, &mut found);
            }
            Obs::Tx { .. } | Obs::Rx { .. } => {}
        }
        found
    }

    /// The end: a last window, and received data that was held back, at its real time.
    pub(super) fn end(&mut self, now: T) -> Findings {
        let mut found = Findings {
            rx: self.held.take(),
            ..Findings::default()
        };
        self.publish(now, &mut found);
        found
    }

    /// What an outcome is judged by.
    pub(super) fn seen(&self) -> Seen {
        Seen {
            setup: self.setup.is_some(),
            tx: self.first_tx.is_some(),
            rx: self.received,
            targeted: self.targeted,
        }
    }

    fn receive(&mut self, now: T, at: T) -> Option<T> {
        if !self.targeted || self.setup.is_none_or(|setup| at < setup) {
            return None;
        }
        match self.first_tx {
            None => {
                self.early = Some(at);
                None
            }
            Some(sent) if at < sent => None,
            Some(_) if self.told.is_some_and(|told| !now.is_after(told, RX_EVERY)) => {
                self.held = Some(at);
                None
            }
            Some(_) => {
                self.told = Some(now);
                self.held = None;
                Some(at)
            }
        }
    }

    fn moved(&mut self, now: T, tx: u64, rx: u64, found: &mut Findings) {
        if self.setup.is_none() {
            return;
        }
        if now.since(self.window.open) > WINDOW_MAX * 1_000_000_000 {
            self.reopen(now);
        }
        self.window.tx = self.window.tx.saturating_add(tx);
        self.window.rx = self.window.rx.saturating_add(rx);
        self.publish(now, found);
    }

    fn publish(&mut self, now: T, found: &mut Findings) {
        let Window { open, tx, rx } = self.window;
        let both_ways = self.first_tx.is_some() && self.received;
        if self.setup.is_none()
            || !self.responded
            || !both_ways
            || !now.is_after(open, WINDOW_MIN)
            || now.since(open) > WINDOW_MAX * 1_000_000_000
            || tx.max(rx) < WINDOW_BYTES
        {
            return;
        }
        let rate =
            |bytes: u64| (bytes >= WINDOW_BYTES).then(|| bytes as f64 / now.secs_since(open));
        found.up = rate(tx);
        found.down = rate(rx);
        self.reopen(now);
    }

    fn reopen(&mut self, now: T) {
        self.window = Window {
            open: now,
            tx: 0,
            rx: 0,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> T {
        T::from_nanos(millis * 1_000_000)
    }

    fn rx(millis: u64) -> Obs {
        rx_of(100, millis)
    }

    fn rx_of(bytes: u64, millis: u64) -> Obs {
        let at = at(millis);
        Obs::Rx { bytes, at }
    }

    fn tx(millis: u64) -> Obs {
        let at = at(millis);
        Obs::Tx { bytes: 100, at }
    }

    /// Set up at 50, asked at 60, answered at 90.
    fn running() -> Reporter {
        let mut reporter = Reporter::new(at(0), true);
        assert_eq!(reporter.see(at(50), Obs::Setup).setup, Some(50.0));
        assert_eq!(reporter.see(at(60), tx(60)), Findings::default());
        let response = reporter.see(at(90), Obs::FirstResponse);
        assert_eq!(response.response, Some(90.0));
        assert_eq!(reporter.see(at(90), rx(90)).rx, Some(at(90)));
        reporter
    }

    #[test]
    fn setup_and_response_are_told_once() {
        let mut reporter = running();
        assert_eq!(reporter.see(at(95), Obs::Setup), Findings::default());
        let again = reporter.see(at(95), Obs::FirstResponse);
        assert_eq!(again, Findings::default());
    }

    #[test]
    fn received_data_is_told_once_a_second() {
        let mut reporter = running();
        assert_eq!(reporter.see(at(1089), rx(1089)).rx, None);
        // Sending does not flush what was held back.
        assert_eq!(reporter.see(at(2000), tx(2000)).rx, None);
        assert_eq!(reporter.see(at(2100), rx(2100)).rx, Some(at(2100)));
        assert_eq!(reporter.see(at(2200), rx(2200)).rx, None);
        // The end tells it with the time it really came.
        assert_eq!(reporter.end(at(9000)).rx, Some(at(2200)));
        assert_eq!(reporter.end(at(9001)).rx, None);
    }

    #[test]
    fn an_answer_counts_only_after_setup_and_send() {
        let mut reporter = Reporter::new(at(0), true);
        assert_eq!(reporter.see(at(10), rx(10)).rx, None);
        reporter.see(at(20), Obs::Setup);
        reporter.see(at(30), tx(30));
        assert_eq!(reporter.see(at(31), rx(25)).rx, None);
        assert_eq!(reporter.see(at(32), rx(32)).rx, Some(at(32)));
        let mut untargeted = Reporter::new(at(0), false);
        untargeted.see(at(20), Obs::Setup);
        untargeted.see(at(30), tx(30));
        assert_eq!(untargeted.see(at(40), rx(40)).rx, None);
    }

    #[test]
    fn an_answer_before_its_send_was_confirmed_keeps_its_time() {
        let begun = |sent: u64| {
            let mut reporter = Reporter::new(at(0), true);
            reporter.see(at(20), Obs::Setup);
            assert_eq!(reporter.see(at(40), rx(40)).rx, None);
            reporter.see(at(45), tx(sent)).rx
        };
        assert_eq!(begun(30), Some(at(40)));
        assert_eq!(begun(41), None);
    }

    #[test]
    fn data_from_before_the_setup_proves_nothing() {
        let mut reporter = Reporter::new(at(0), true);
        reporter.see(at(10), tx(10));
        reporter.see(at(20), Obs::Setup);
        assert_eq!(reporter.see(at(25), rx(15)).rx, None);
        assert_eq!(reporter.see(at(26), rx(20)).rx, Some(at(20)));
    }

    #[test]
    fn an_answer_told_with_its_send_begins_the_second_of_silence() {
        let mut reporter = Reporter::new(at(0), true);
        reporter.see(at(20), Obs::Setup);
        reporter.see(at(40), rx(40));
        assert_eq!(reporter.see(at(45), tx(30)).rx, Some(at(40)));
        assert_eq!(reporter.see(at(1044), rx(1044)).rx, None);
        assert_eq!(reporter.see(at(1045), rx(1045)).rx, Some(at(1045)));
    }

    #[test]
    fn directions_are_not_added_up_and_a_window_needs_a_response() {
        let mut reporter = running();
        let tx_of = |bytes: u64, millis: u64| Obs::Tx {
            bytes,
            at: at(millis),
        };
        reporter.see(at(1050), rx_of(40_000, 1050));
        let both = reporter.see(at(1100), tx_of(40_000, 1100));
        assert_eq!((both.up, both.down), (None, None));
        let told = reporter.see(at(2050), rx_of(39_900, 2050));
        assert_eq!((told.up, told.down), (None, Some(40_000.0)));
        let mut unanswered = Reporter::new(at(0), true);
        unanswered.see(at(0), Obs::Setup);
        unanswered.see(at(10), tx(10));
        assert_eq!(unanswered.see(at(2000), rx_of(90_000, 2000)).down, None);
    }

    #[test]
    fn a_window_needs_bytes_a_second_and_both_directions() {
        let mut reporter = running();
        let early = reporter.see(at(800), rx_of(200_000, 800));
        assert_eq!((early.up, early.down), (None, None));
        let told = reporter.see(at(1050), rx_of(1000, 1050));
        assert_eq!((told.up, told.down), (None, Some(201_100.0)));
        // The next one starts empty.
        let next = reporter.see(at(2100), rx_of(65_000, 2100));
        assert_eq!(next.down, None);
        let filled = reporter.see(at(2150), rx_of(536, 2150));
        assert_eq!(filled.down, Some(65_536.0 / 1.1));
        let mut silent = Reporter::new(at(0), true);
        silent.see(at(0), Obs::Setup);
        silent.see(at(1), Obs::FirstResponse);
        assert_eq!(silent.see(at(3000), rx_of(900_000, 3000)).down, None);
    }

    #[test]
    fn a_window_that_lasted_too_long_is_thrown_away() {
        let mut reporter = running();
        reporter.see(at(900), rx_of(200_000, 900));
        let late = reporter.see(at(10_051), rx_of(70_000, 10_051));
        assert_eq!(late.down, None);
        let told = reporter.end(at(12_051));
        assert_eq!(told.down, Some(35_000.0));
        assert_eq!(reporter.end(at(13_051)).down, None);
    }
}
