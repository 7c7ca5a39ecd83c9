//! The budget of optional trials of one scope (group, network, target family).
//!
//! Cold credit covers the start, once. Everything after is earned by original business, a
//! sixteenth or an eighth of a trial each: evidence needs a fixed number of trials, so busy groups
//! whose trials pay off fund it sooner, and quiet groups keep the smaller share. Neither time nor
//! reads nor a reload grants anything. What is spent and reserved never exceeds what was granted.

use super::{
    clock::T,
    consts::{H_RATE, H_TRIAL, TRACKED},
    decay::Decayed,
    flight::{Flight, Flights, Trial},
    outcome::Settled,
};

/// A whole earned credit, in the unit of the ledger.
const CREDIT: u64 = 16;
/// Most earned credits that wait to be spent.
const KEPT: u64 = 8;
/// Flows per second from which a group counts as busy.
const BUSY: f64 = 2.0;
/// Weight of outcomes from which a yield is believed.
const TRUSTED: f64 = 2.5;
/// Share of successes of trials that pay off.
const PAYS: f64 = 0.8;
/// Share of successes under which trials are wasted.
const WASTED: f64 = 0.2;
/// Weight of outcomes under which nothing is known about the yield.
const UNKNOWN: f64 = 0.5;
/// Weight of outcomes from which wasted trials pause altogether.
const PAUSE: f64 = 1.5;

/// Cold allowance of a group of so many leaves.
pub(super) fn allowance(leaves: usize) -> u64 {
    match leaves as u64 {
        n @ 0..=4 => n,
        n => {
            let root = n.isqrt();
            root + u64::from(root * root < n) + 1
        }
    }
}

/// Original business of a group on one network, fading.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Demand(Decayed);

impl Demand {
    /// Counts a start.
    pub(super) fn count(&mut self, now: T) {
        self.0.add(now, H_RATE, 1.0);
    }

    /// Starts within the memory.
    pub(super) fn now(self, now: T) -> f64 {
        self.0.now(now, H_RATE)
    }

    /// Starts per second.
    pub(super) fn rate(self, now: T) -> f64 {
        self.now(now) * std::f64::consts::LN_2 / H_RATE
    }
}

/// Which credit pays a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pocket {
    /// The allowance.
    Cold,
    /// Earned.
    Earned,
}

/// What recent trials say about more of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Yield {
    /// Go on.
    Open,
    /// One at a time.
    Single,
    /// None until the failures fade.
    Paused,
}

/// Why a trial was not reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Denied {
    /// No credit, or paused. Ends the search: the next member would be denied as well.
    Budget,
    /// This member is busy with trials.
    InFlight,
}

/// Whether the ordinary selection is seen to work. Without one, low yield pauses nothing: trials
/// are the way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It works.
    Usable,
    /// Not known to.
    Unproven,
}

/// Totals that only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) business_starts: u64,
    pub(super) trial_starts: u64,
    pub(super) cold: u64,
    pub(super) periodic: u64,
    pub(super) recovery: u64,
    pub(super) budget_blocked: u64,
    pub(super) in_flight_blocked: u64,
    pub(super) refunded: u64,
    pub(super) expired: u64,
    pub(super) success: u64,
    pub(super) failure: u64,
    pub(super) cancelled: u64,
    pub(super) setup_histogram: [u64; 8],
    pub(super) setup_millis: u64,
    pub(super) elapsed_millis: u64,
}

/// The ledger of one scope. Kept while the group exists, through reloads and changed members.
#[derive(Clone, Debug)]
pub(super) struct Ledger {
    allowance: u64,
    /// Sixteenths of a credit, earned and not lost.
    earned: u64,
    /// Fixed at the last original start, for reports.
    period: u64,
    spent: [u64; 2],
    reserved: [u64; 2],
    good: Decayed,
    all: Decayed,
    flights: Flights,
    totals: Totals,
}

impl Ledger {
    /// Of a group with so many leaves at this moment; later changes do not matter.
    pub(super) fn new(leaves: usize) -> Self {
        Self {
            allowance: allowance(leaves),
            earned: 0,
            period: CREDIT,
            spent: [0; 2],
            reserved: [0; 2],
            good: Decayed::default(),
            all: Decayed::default(),
            flights: Flights::default(),
            totals: Totals::default(),
        }
    }

    /// An original flow begins: it is counted and earns.
    pub(super) fn earn(&mut self, now: T, rate: f64) {
        self.totals.business_starts = self.totals.business_starts.saturating_add(1);
        self.period = self.period_at(now, rate);
        let most = self.spent[Pocket::Earned as usize]
            .saturating_add(KEPT)
            .saturating_mul(CREDIT);
        let earned = self.earned.saturating_add(CREDIT / self.period);
        self.earned = earned.min(most);
    }

    /// Original flows that a credit takes now.
    pub(super) fn period_at(&self, now: T, rate: f64) -> u64 {
        let all = self.all.now(now, H_TRIAL);
        let good = self.good.now(now, H_TRIAL);
        if rate >= BUSY && all > TRUSTED && good >= PAYS * all {
            CREDIT / 2
        } else {
            CREDIT
        }
    }

    /// What recent trials say about more of them.
    pub(super) fn yields(&self, now: T) -> Yield {
        let all = self.all.now(now, H_TRIAL);
        let wasted = self.good.now(now, H_TRIAL) < WASTED * all;
        match all {
            all if !wasted || all <= UNKNOWN => Yield::Open,
            all if all > PAUSE => Yield::Paused,
            _ => Yield::Single,
        }
    }

    /// The pocket that would pay now, if any. Reservations that have run out count as paid back.
    fn pocket(&self, now: T) -> Option<Pocket> {
        let mut stale = [0; 2];
        for flight in self.flights.iter().filter(|f| f.lapsed(now)) {
            stale[flight.pocket as usize] += u64::from(flight.begun.is_none());
        }
        let counters = [
            self.totals.business_starts,
            self.totals.trial_starts,
            self.earned,
        ];
        if counters.contains(&u64::MAX) {
            return None; // nothing is told apart any more
        }
        [Pocket::Cold, Pocket::Earned]
            .into_iter()
            .find(|&p| self.granted(p) + stale[p as usize] > self.spent_or_reserved(p))
    }

    fn granted(&self, pocket: Pocket) -> u64 {
        match pocket {
            Pocket::Cold => self.allowance,
            Pocket::Earned => self.earned / CREDIT,
        }
    }

    fn spent_or_reserved(&self, pocket: Pocket) -> u64 {
        self.spent[pocket as usize] + self.reserved[pocket as usize]
    }

    /// Whether one more trial would be paid: a read.
    pub(super) fn affords(&self, now: T, standing: Standing) -> Option<Pocket> {
        let pocket = self.pocket(now)?;
        if standing == Standing::Unproven {
            return Some(pocket);
        }
        match self.yields(now) {
            Yield::Open => Some(pocket),
            Yield::Single => (!self.flights.iter().any(|f| !f.lapsed(now))).then_some(pocket),
            Yield::Paused => None,
        }
    }

    /// Reserves a trial, unless there is no credit or the member is busy. `below` is how many
    /// completions the member still lacks to the selection's; recovery needs none.
    pub(super) fn reserve(
        &mut self,
        now: T,
        trial: Trial,
        below: f64,
        standing: Standing,
    ) -> Result<Pocket, Denied> {
        self.expire(now);
        if self.flights.is_busy(now, &trial, below) {
            self.totals.in_flight_blocked = self.totals.in_flight_blocked.saturating_add(1);
            return Err(Denied::InFlight);
        }
        let Some(pocket) = self.affords(now, standing) else {
            self.totals.budget_blocked = self.totals.budget_blocked.saturating_add(1);
            return Err(Denied::Budget);
        };
        self.reserved[pocket as usize] += 1;
        self.flights.push(Flight {
            trial,
            pocket,
            since: now,
            begun: None,
            answered: false,
        });
        Ok(pocket)
    }

    /// Work on a reserved trial begins: the credit is spent, whatever follows. Nothing when the
    /// reservation has run out.
    pub(super) fn begin(&mut self, now: T, attempt: u64) -> Option<Pocket> {
        self.expire(now);
        let flight = self.flights.find(attempt)?;
        if flight.begun.is_some() {
            return None;
        }
        flight.begun = Some(now);
        flight.since = now;
        let pocket = flight.pocket;
        self.reserved[pocket as usize] -= 1;
        self.spent[pocket as usize] = self.spent[pocket as usize].saturating_add(1);
        let totals = &mut self.totals;
        totals.trial_starts = totals.trial_starts.saturating_add(1);
        let source = match pocket {
            Pocket::Cold => &mut totals.cold,
            Pocket::Earned => &mut totals.periodic,
        };
        *source = source.saturating_add(1);
        Some(pocket)
    }

    /// A trial is given up before work on it began: its credit goes back.
    pub(super) fn release(&mut self, attempt: u64) {
        if let Some(flight) = self.flights.take(attempt, |f| f.begun.is_none()) {
            self.refund(&flight);
        }
    }

    fn refund(&mut self, flight: &Flight) {
        self.reserved[flight.pocket as usize] -= 1;
        self.totals.refunded = self.totals.refunded.saturating_add(1);
    }

    /// A retry or a reroute of business begins: it costs nothing.
    pub(super) fn recover(&mut self) {
        self.totals.recovery = self.totals.recovery.saturating_add(1);
    }

    /// Ends what has run out: reservations go back, begun work is no longer tracked.
    pub(super) fn expire(&mut self, now: T) {
        while let Some(flight) = self.flights.take_lapsed(now) {
            self.totals.expired = self.totals.expired.saturating_add(1);
            if flight.begun.is_none() {
                self.refund(&flight);
            }
        }
    }

    /// Evidence for a trial's question was published: the member may be asked again.
    pub(super) fn answer(&mut self, attempt: u64, by: super::flight::Evidence) {
        if let Some(flight) = self.flights.find(attempt)
            && flight.trial.question.is_answered_by(by)
        {
            flight.answered = true;
        }
    }

    /// A begun trial reached its node.
    pub(super) fn set_up(&mut self, millis: f64) {
        // Log2 of whole milliseconds; a negative or absurd value ends in the first or last place.
        let whole = millis as u64;
        let place = whole.max(1).ilog2().min(7);
        let slot = &mut self.totals.setup_histogram[place as usize];
        *slot = slot.saturating_add(1);
        self.totals.setup_millis = self.totals.setup_millis.saturating_add(whole);
    }

    /// A begun trial ended.
    pub(super) fn settle(&mut self, now: T, attempt: u64, settled: Settled, elapsed_millis: f64) {
        self.flights.take(attempt, |f| f.begun.is_some());
        let totals = &mut self.totals;
        totals.elapsed_millis = totals.elapsed_millis.saturating_add(elapsed_millis as u64);
        let (count, good) = match settled {
            Settled::Success => (&mut totals.success, Some(1.0)),
            Settled::Failure => (&mut totals.failure, Some(0.0)),
            Settled::Neutral => (&mut totals.cancelled, None),
        };
        *count = count.saturating_add(1);
        if let Some(good) = good {
            self.good.add(now, H_TRIAL, good);
            self.all.add(now, H_TRIAL, 1.0);
        }
    }

    /// A configuration was activated: what waits goes back, recent outcomes are forgotten, and
    /// the currency stays.
    pub(super) fn activate(&mut self) {
        while let Some(flight) = self.flights.take_first(|f| f.begun.is_none()) {
            self.refund(&flight);
        }
        self.good = Decayed::default();
        self.all = Decayed::default();
    }

    /// Trials of a member that are not over, and whether one waits for an answer.
    pub(super) fn flights(&self) -> &Flights {
        &self.flights
    }

    /// Totals so far.
    pub(super) fn totals(&self) -> &Totals {
        &self.totals
    }

    /// The cold allowance.
    pub(super) fn cold_allowance(&self) -> u64 {
        self.allowance
    }

    /// Cold and earned credit that is neither spent nor reserved.
    pub(super) fn available(&self) -> [u64; 2] {
        [Pocket::Cold, Pocket::Earned]
            .map(|p| self.granted(p).saturating_sub(self.spent_or_reserved(p)))
    }

    /// Reservations whose work has not begun.
    pub(super) fn reserved(&self) -> u64 {
        self.reserved.iter().sum()
    }

    /// Credit spent.
    pub(super) fn spent(&self) -> u64 {
        self.spent.iter().fold(0, |a, &b| a.saturating_add(b))
    }

    /// Original flows per credit, as of the last one.
    #[cfg(test)]
    pub(super) fn period(&self) -> u64 {
        self.period
    }

    /// Sixteenths of a credit earned so far.
    #[cfg(test)]
    pub(super) fn earned(&self) -> u64 {
        self.earned
    }

    /// Trials begun and not over.
    pub(super) fn in_flight(&self) -> u64 {
        let t = &self.totals;
        let over = t
            .success
            .saturating_add(t.failure)
            .saturating_add(t.cancelled);
        t.trial_starts.saturating_sub(over)
    }
}

/// Age at which a flight is no longer tracked.
pub(super) const LAPSE: u64 = TRACKED;

#[cfg(test)]
mod tests;
