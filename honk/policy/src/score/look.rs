//! Looking: the ordinary choice as of now, without any effect. Ranking and reading share it.

use super::{
    Engine,
    call::{Cand, Ctx, PickView},
    cell::{Scope, TargetScope},
    clock::T,
    compare::{Reading, gain},
    consts::STREAK_OUT,
    eligible,
    ids::{GroupKey, Target, family_of},
    ordinary,
    pool::{Pool, Standing},
    reasons::Reason,
    record::Evidence,
    snapshot::Row,
    utility,
};
use crate::id::Family;

/// What an ordinary look at the pool says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    /// Index of the row.
    pub(super) row: usize,
    pub(super) reason: Reason,
    /// Whether another leaf served this scope last.
    pub(super) moves: bool,
}

impl Engine {
    /// What [`rank`](Self::rank) would answer now to an ordinary flow. Changes nothing.
    pub fn peek(&self, now: T, group: GroupKey, ctx: &Ctx<'_>, view: &[Cand]) -> Option<PickView> {
        let at = self.find(group)?;
        let (family, target) = scope_of(ctx);
        let target = match target {
            None => TargetScope::Any,
            Some(target) => match self.evidence.targets.find(target) {
                Some(id) => TargetScope::One(id),
                None => TargetScope::New,
            },
        };
        let scope = Scope {
            group,
            network: ctx.network,
            family,
            target,
        };
        let mut rows = Vec::new();
        let choice = self.look(now, at, &scope, view, &mut rows)?;
        let row = &rows[choice.row];
        Some(PickView {
            node: row.node,
            index: row.index,
            reason: (view.len() > 1).then_some(choice.reason),
        })
    }

    /// The ordinary choice among the pool, without any effect; leaves the rows it was made from.
    pub(super) fn look(
        &self,
        now: T,
        at: usize,
        scope: &Scope,
        view: &[Cand],
        rows: &mut Vec<Row>,
    ) -> Option<Choice> {
        view.first()?;
        let net = self.groups[at].net(scope.network);
        let stands_in;
        let pool = if !net.pool.located(view).indices().is_empty() {
            &net.pool
        } else {
            let mut standings = Vec::new();
            let first = standings_of(&self.evidence, now, scope, view, rows, &mut standings);
            stands_in = net
                .pool
                .project(now, &standings, first, net.demand.now(now));
            &stands_in
        };
        self.choose(now, pool, scope, view, rows)
    }

    /// The ordinary choice among the members of a pool that a view holds.
    pub(super) fn choose(
        &self,
        now: T,
        pool: &Pool,
        scope: &Scope,
        view: &[Cand],
        rows: &mut Vec<Row>,
    ) -> Option<Choice> {
        let located = pool.located(view);
        let cands = located.indices().iter().map(|&index| (index, view[index]));
        read(&self.evidence, now, scope, cands, rows);
        let current = self.history.current(scope);
        let incumbent = rows.iter().position(|row| Some(row.node) == current);
        let reading = reading(&self.evidence, now, scope);
        let beside = incumbent.map(|held| (&rows[held].known, reading.beside(rows[held].node)));
        let (row, reason) = ordinary::choose(rows, incumbent, |challenger| {
            let (held, beside) = beside.as_ref()?;
            let challenger = &rows[challenger];
            let pair = beside.pair(challenger.node)?;
            Some(gain(&pair, held, &challenger.known))
        });
        let chosen = rows.get(row)?.node;
        Some(Choice {
            row,
            reason,
            moves: current.is_some_and(|current| current != chosen),
        })
    }
}

/// Family and normal target of a flow. A target without a family is none.
pub(super) fn scope_of<'a>(ctx: &Ctx<'a>) -> (Option<Family>, Option<Target<'a>>) {
    let of_address = || match ctx.target {
        Some(Target::Address(at)) => Some(family_of(at)),
        Some(Target::Name(..)) | None => None,
    };
    let family = ctx.family.or_else(of_address);
    let target = ctx.target.filter(|_| family.is_some());
    (family, target.and_then(Target::normal))
}

/// The scope of the pool: all flows of the network.
pub(super) fn wide(scope: &Scope) -> Scope {
    Scope {
        family: None,
        target: TargetScope::Any,
        ..*scope
    }
}

/// Comparisons as of now.
pub(super) fn reading<'a>(evidence: &'a Evidence, now: T, scope: &'a Scope) -> Reading<'a> {
    Reading {
        store: &evidence.store,
        now,
        scope,
    }
}

/// Reads candidates into rows, those that are there used again.
fn read(
    evidence: &Evidence,
    now: T,
    scope: &Scope,
    cands: impl ExactSizeIterator<Item = (usize, Cand)>,
    rows: &mut Vec<Row>,
) {
    rows.resize_with(cands.len(), Row::default);
    for (row, (index, cand)) in rows.iter_mut().zip(cands) {
        row.node = cand.node;
        row.index = index;
        row.member = cand.member;
        let layers = evidence.cells.layers(scope, cand.node);
        row.known.refresh(now, scope, layers);
    }
    eligible::mark(rows);
    utility::mark(rows);
}

/// Ranks a whole view for the pool, whatever the flow's target. Tells which one an ordinary first
/// choice would take.
pub(super) fn standings_of(
    evidence: &Evidence,
    now: T,
    scope: &Scope,
    view: &[Cand],
    rows: &mut Vec<Row>,
    standings: &mut Vec<Standing>,
) -> usize {
    let scope = wide(scope);
    let all = view.iter().copied().enumerate();
    read(evidence, now, &scope, all, rows);
    let check = utility::shared_check(rows);
    standings.clear();
    standings.extend(rows.iter().map(|row| Standing {
        node: row.node,
        member: row.member,
        index: row.index,
        eligible: row.eligible,
        failed: row.known.node_streak >= STREAK_OUT,
        utility: row.utility,
        probe: utility::checked(row, check).map(|perf| perf.value),
    }));
    ordinary::best(rows).0
}
