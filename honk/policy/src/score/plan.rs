//! Ranking: which leaf a flow gets, and what that leaves behind.
//!
//! The choice itself is made by `look`; here it is acted on: the pool, history, counters, and an
//! attempt to be begun.

use super::{
    Engine,
    budget::Pocket,
    call::{Cand, Ctx, Mode, Pick, Trials},
    cell::{Scope, TargetScope},
    clock::T,
    consts::STREAK_OUT,
    dispatch::{self, Walk},
    eligible,
    history::Move,
    ids::{AttemptId, GroupKey, NodeKey, TargetId},
    look::{Choice, reading, scope_of, standings_of, wide},
    reasons::Reason,
    record::target_scope,
    snapshot::Row,
    work::{Attribution, Kind, Stage, Work},
};

/// What to plan an attempt with.
struct Plan {
    node: NodeKey,
    kind: Kind,
    pooled: bool,
    trial: bool,
}

impl Engine {
    /// The leaf for a flow. `None` for an empty view and for a group without Score.
    pub fn rank(
        &mut self,
        now: T,
        group: GroupKey,
        ctx: &Ctx<'_>,
        view: &[Cand],
        mode: Mode,
    ) -> Option<Pick> {
        let at = self.find(group)?;
        if let Mode::Retry { failed } = mode
            && view.iter().any(|cand| cand.node == failed)
        {
            return self.rank_without(now, group, ctx, view, failed);
        }
        view.first()?;
        let (family, target) = scope_of(ctx);
        let id = target.map(|target| self.evidence.targets.intern(target));
        let scope = Scope {
            group,
            network: ctx.network,
            family,
            target: target_scope(id),
        };
        let serial = self.room(now, group, ctx.joins);
        let (mut pick, kind) = match mode {
            Mode::Apply(trials) => (
                self.apply(
                    now,
                    at,
                    ctx,
                    &scope,
                    view,
                    serial.filter(|_| trials == Trials::Allowed),
                ),
                Kind::Original,
            ),
            Mode::Retry { .. } => (self.again(now, at, &scope, view), Kind::Continuation),
            Mode::Fixed => (fixed(view), Kind::Original),
            Mode::Prepare => (fixed(view), Kind::Preparation),
        };
        let plan = Plan {
            node: pick.node,
            kind,
            pooled: matches!(mode, Mode::Apply(_) | Mode::Retry { .. }),
            trial: pick.trial,
        };
        pick.attempt = self.plan(now, &scope, id, ctx.joins, serial, &plan);
        if let Some(id) = id {
            self.evidence.targets.release(id);
        }
        Some(pick)
    }

    fn rank_without(
        &mut self,
        now: T,
        group: GroupKey,
        ctx: &Ctx<'_>,
        view: &[Cand],
        failed: NodeKey,
    ) -> Option<Pick> {
        let left: Vec<Cand> = view.iter().copied().filter(|c| c.node != failed).collect();
        let mut pick = self.rank(now, group, ctx, &left, Mode::Retry { failed })?;
        pick.index = view.iter().position(|cand| cand.node == pick.node)?;
        Some(pick)
    }

    fn apply(
        &mut self,
        now: T,
        at: usize,
        ctx: &Ctx<'_>,
        scope: &Scope,
        view: &[Cand],
        trial_serial: Option<u64>,
    ) -> Pick {
        let mut rows = std::mem::take(&mut self.rows);
        let pick = match self.settle_pool(now, at, scope, view, &mut rows) {
            Some(choice) => self.commit(now, at, ctx, scope, view, &rows, choice, trial_serial),
            None => fixed(view),
        };
        self.rows = rows;
        pick
    }

    /// A choice for the same flow again: nothing is counted and no history written.
    fn again(&mut self, now: T, at: usize, scope: &Scope, view: &[Cand]) -> Pick {
        let mut rows = std::mem::take(&mut self.rows);
        let choice = self.settle_pool(now, at, scope, view, &mut rows);
        let pick = choice.map_or_else(|| fixed(view), |choice| pick_of(&rows[choice.row]));
        self.rows = rows;
        pick
    }

    /// Brings the pool up to date and chooses among it.
    fn settle_pool(
        &mut self,
        now: T,
        at: usize,
        scope: &Scope,
        view: &[Cand],
        rows: &mut Vec<Row>,
    ) -> Option<Choice> {
        let pool = &mut self.groups[at].net_mut(scope.network).pool;
        pool.adopt(now, view);
        let pool = &self.groups[at].net(scope.network).pool;
        let choice = self.choose(now, pool, scope, view, rows);
        let group_scope = wide(scope);
        let failing = |node| {
            let streak = match rows.iter().find(|row| row.node == node) {
                Some(row) => row.known.node_streak,
                None => {
                    let cells = &self.evidence.cells.aggregate;
                    let cell = cells.get(&group_scope.group_key(node));
                    cell.map_or(0, |cell| cell.streak)
                }
            };
            streak >= STREAK_OUT
        };
        let sound =
            rows.len() == pool.len() && rows.iter().all(|row| row.known.node_streak < STREAK_OUT);
        if !pool.due(now, view, rows.len(), sound, failing) {
            return choice;
        }
        let net = self.groups[at].net_mut(scope.network);
        let standings = &mut self.standings;
        let first = standings_of(&self.evidence, now, scope, view, rows, standings);
        net.pool.commit(now, standings, first, net.demand.now(now));
        let pool = &self.groups[at].net(scope.network).pool;
        self.choose(now, pool, scope, view, rows)
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "one call, all of it about one choice"
    )]
    fn commit(
        &mut self,
        now: T,
        at: usize,
        ctx: &Ctx<'_>,
        scope: &Scope,
        view: &[Cand],
        rows: &[Row],
        choice: Choice,
        trial_serial: Option<u64>,
    ) -> Pick {
        let selected = &rows[choice.row];
        let several = view.len() > 1;
        self.count_filtered(at, ctx, rows, now);
        let serial = trial_serial.filter(|_| several && !choice.moves);
        if let Some(serial) = serial
            && let Some(pick) = self.trial(now, at, scope, rows, choice, serial)
        {
            return pick;
        }
        let moved = self
            .history
            .commit(&mut self.evidence.targets, scope, selected.node);
        let net = self.groups[at].net_mut(scope.network);
        net.pool.served(now, selected.node);
        let mut pick = pick_of(selected);
        pick.switched = matches!(moved, Move::Switch | Move::Flap);
        if several {
            net.counters.chosen(choice.reason);
            net.counters.selected(selected.known.usable_until.is_some());
            pick.reason = Some(choice.reason);
        }
        match moved {
            Move::Switch => net.counters.switched(false),
            Move::Flap => net.counters.switched(true),
            Move::First | Move::Stay => {}
        }
        pick
    }

    fn count_filtered(&mut self, at: usize, ctx: &Ctx<'_>, rows: &[Row], now: T) {
        let any_healthy = eligible::any_healthy(rows);
        let excluded = rows
            .iter()
            .filter(|row| eligible::is_excluded(row, any_healthy));
        let waits = |row: &&Row| {
            row.known
                .explore_not_before
                .is_some_and(|until| until > now)
        };
        let backed_off = rows.iter().filter(waits).count();
        let counters = &mut self.groups[at].net_mut(ctx.network).counters;
        counters.filtered(
            u64::from(ctx.dead_filtered),
            excluded.count() as u64,
            backed_off as u64,
        );
    }

    /// A trial instead of the selection, if a member has an open question and the budget a credit.
    fn trial(
        &mut self,
        now: T,
        at: usize,
        scope: &Scope,
        rows: &[Row],
        choice: Choice,
        serial: u64,
    ) -> Option<Pick> {
        let (Some(family), TargetScope::One(target)) = (scope.family, scope.target) else {
            return None;
        };
        let selected = &rows[choice.row];
        let walk = Walk {
            beside: reading(&self.evidence, now, scope).beside(selected.node),
            rows,
            selection: choice.row,
        };
        let group = &mut self.groups[at];
        let leaves = group.leaves;
        let net = group.net_mut(scope.network);
        let chosen = dispatch::reserve(&walk, net.open(family, leaves), serial, target)?;
        let reason = match chosen.pocket {
            Pocket::Cold => Reason::ColdExplore,
            Pocket::Earned => Reason::PeriodicExplore,
        };
        net.counters.chosen(reason);
        if reason == Reason::PeriodicExplore && self.validates(now, scope, selected) {
            let net = self.groups[at].net_mut(scope.network);
            net.counters.validated_carrier();
        }
        Some(Pick {
            trial: true,
            reason: Some(reason),
            ..pick_of(&rows[chosen.index])
        })
    }

    /// Keeps the attempt, or makes this group part of the one it joins.
    fn plan(
        &mut self,
        now: T,
        scope: &Scope,
        target: Option<TargetId>,
        joins: Option<AttemptId>,
        serial: Option<u64>,
        plan: &Plan,
    ) -> Option<AttemptId> {
        let attribution = Attribution {
            group: scope.group,
            picked: plan.node,
            pooled: plan.pooled,
            trial: plan.trial,
            cells: [None; 3],
            next: None,
        };
        if let Some(AttemptId(handle)) = joins {
            let work = self.works.get_mut(handle)?;
            if !matches!(work.stage, Stage::Planned) {
                return None;
            }
            work.node = plan.node;
            self.works.attribute(handle, attribution);
            return joins;
        }
        let serial = serial?;
        if let Some(id) = target {
            self.evidence.targets.retain(id);
        }
        let handle = self.works.insert(Work {
            serial,
            stage: Stage::Planned,
            kind: plan.kind,
            since: now,
            generation: self.generation,
            network: scope.network,
            family: scope.family,
            target,
            node: plan.node,
            last: None,
        });
        self.works.attribute(handle, attribution);
        Some(AttemptId(handle))
    }

    /// The number of the attempt a rank belongs to: a new one, or the one that is joined. `None`
    /// when there is no room for another, and for one that this group must not make a trial: it is
    /// one already, or cannot be attributed to the group once more.
    fn room(&mut self, now: T, group: GroupKey, joins: Option<AttemptId>) -> Option<u64> {
        if let Some(AttemptId(handle)) = joins {
            let planned = |work: &&Work| matches!(work.stage, Stage::Planned);
            let work = self.works.get(handle).filter(planned)?;
            let mut groups = self.works.chain(work.last);
            let closed = groups.any(|(_, held)| held.trial || held.group == group);
            let free = !closed && self.works.can_attribute(work);
            return free.then_some(handle.serial);
        }
        while let Some(old) = self.works.forgotten(now) {
            self.release(now, AttemptId(old));
        }
        self.works.next_serial()
    }
}

fn pick_of(row: &Row) -> Pick {
    Pick {
        node: row.node,
        index: row.index,
        attempt: None,
        trial: false,
        reason: None,
        switched: false,
    }
}

/// The first of the view, decided elsewhere.
fn fixed(view: &[Cand]) -> Pick {
    Pick {
        node: view[0].node,
        index: 0,
        attempt: None,
        trial: false,
        reason: None,
        switched: false,
    }
}
