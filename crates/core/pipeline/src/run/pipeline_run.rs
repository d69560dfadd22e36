//! The run of one request: which stages to ask, by when, and when it is over.

use std::collections::BTreeMap;
use std::sync::Arc;

use symphony_types::{DropReason, Outcome, Time};

use super::action::{Action, Ask, AskId, Event, Lost};
use super::run_plan::RunPlan;
use crate::limits::ASKS_MAX;

/// A stage request.
#[derive(Clone, Copy, Debug)]
struct Asked {
    stage: usize,
    /// The stage request whose result it is for; of a join, the one where the branches began.
    parent: Option<u32>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Its result is awaited.
    Open,
    /// Its result is here.
    Done,
    /// It has none.
    Lost,
}

/// What a join has of one result of its fork.
#[derive(Clone, Debug)]
struct Gathered {
    /// Open stage requests from which more rows may come.
    awaited: u32,
    /// Rows so far, by edge into the join.
    rows: Vec<u32>,
}

/// The run cannot meet its deadline any more.
struct Hopeless;

/// One request on its way through a pipeline. The host asks stages, holds inputs and results, and has the one ledger
/// entry.
///
/// No wake-up is needed: every stage request ends by its own deadline, dropped if need be.
#[derive(Clone, Debug)]
pub struct PipelineRun {
    plan: Arc<RunPlan>,
    deadline: Time,
    asks: Vec<Asked>,
    open: usize,
    /// By the stage request at the fork, and the join.
    gathered: BTreeMap<(u32, usize), Gathered>,
    is_complete: bool,
    has_ended: bool,
}

impl PipelineRun {
    /// Begins a request that must be answered by `deadline`: asks the source, or ends at once if there is no time for
    /// the longest path.
    #[must_use]
    pub fn begin(plan: Arc<RunPlan>, now: Time, deadline: Time, actions: &mut Vec<Action>) -> Self {
        let source = plan.source;
        let mut run = Self {
            plan,
            deadline,
            asks: Vec::new(),
            open: 0,
            gathered: BTreeMap::new(),
            is_complete: true,
            has_ended: false,
        };
        if run.ask(now, source, None, 1, actions).is_err() {
            run.end(Outcome::Dropped(DropReason::SloUnreachable), 0, actions);
        }
        run
    }

    /// By when the request must be answered.
    #[must_use]
    pub const fn deadline(&self) -> Time {
        self.deadline
    }

    /// Whether the request has its outcome.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// The stage of a stage request.
    #[must_use]
    pub fn stage(&self, ask: AskId) -> Option<usize> {
        self.asks.get(ask.0 as usize).map(|entry| entry.stage)
    }

    /// The stage requests whose results are the input of this one: one, or for a join all that ended in the stages
    /// before it since the fork, in the order in which they were asked.
    #[must_use]
    pub fn inputs(&self, ask: AskId) -> Vec<AskId> {
        let Some(entry) = self.asks.get(ask.0 as usize) else { return Vec::new() };
        let Some(parent) = entry.parent else { return Vec::new() };
        let Some(fork) = self.plan.stages[entry.stage].forks_and_joins.fork else { return vec![AskId(parent)] };
        let leads_here = |stage: usize| self.plan.stages[stage].edges.iter().any(|edge| edge.to == entry.stage);
        let is_input = |other: &u32| {
            let one = &self.asks[*other as usize];
            one.state == State::Done && leads_here(one.stage) && self.ancestor(*other, fork) == Some(parent)
        };
        (0..self.asks.len() as u32).filter(is_input).map(AskId).collect()
    }

    /// Takes an event; returns whether it was news: a result that comes twice, or after it was withdrawn, is not, and
    /// must not be used.
    #[must_use]
    pub fn step(&mut self, now: Time, event: Event<'_>, actions: &mut Vec<Action>) -> bool {
        let before = self.asks.len();
        match event {
            _ if self.has_ended => return false,
            Event::Cancel => self.end(Outcome::Cancelled, before, actions),
            Event::StageDone { ask, rows } => {
                if !self.close(ask, State::Done) {
                    return false;
                }
                let untouched = actions.len();
                if self.lead_on(now, ask.0, rows, actions).is_err() {
                    // Requests of this very step have not been sent.
                    actions.truncate(untouched);
                    self.end(Outcome::Dropped(DropReason::SloUnreachable), before, actions);
                }
            }
            Event::StageEnded { ask, lost } => {
                if !self.close(ask, State::Lost) {
                    return false;
                }
                self.lose(now, ask.0, lost, before, actions);
            }
        }
        if !self.has_ended && self.open == 0 {
            let outcome = if now <= self.deadline { Outcome::InTime } else { Outcome::Late };
            self.end(outcome, self.asks.len(), actions);
        }
        true
    }

    /// Marks an open stage request; false if it is not open.
    fn close(&mut self, ask: AskId, state: State) -> bool {
        match self.asks.get_mut(ask.0 as usize) {
            Some(entry) if entry.state == State::Open => {
                entry.state = state;
                self.open -= 1;
                true
            }
            _ => false,
        }
    }

    /// A stage request has no result. Without the source's there is no answer, not even a partial one.
    fn lose(&mut self, now: Time, ask: u32, lost: Lost, before: usize, actions: &mut Vec<Action>) {
        let is_source = self.asks[ask as usize].parent.is_none();
        if is_source || !self.plan.is_partial {
            self.end(lost.into(), before, actions);
            return;
        }
        self.is_complete = false;
        let untouched = actions.len();
        if self.settle(now, ask, actions).is_err() {
            actions.truncate(untouched);
            self.end(Outcome::Dropped(DropReason::SloUnreachable), before, actions);
        }
    }

    /// Asks the stages that a result leads to.
    fn lead_on(&mut self, now: Time, ask: u32, rows: &[u32], actions: &mut Vec<Action>) -> Result<(), Hopeless> {
        let plan = Arc::clone(&self.plan);
        let stage = &plan.stages[self.asks[ask as usize].stage];
        for &join in &stage.forks_and_joins.forks {
            let rows = vec![0; plan.stages[join].parents];
            self.gathered.insert((ask, join), Gathered { awaited: 0, rows });
        }
        for (at, edge) in stage.edges.iter().enumerate() {
            let rows = rows.get(at).map_or(0, |&rows| rows.min(edge.most));
            match plan.stages[edge.to].forks_and_joins.fork {
                None => self.ask(now, edge.to, Some(ask), rows, actions)?,
                Some(fork) => {
                    let gathered = self.ancestor(ask, fork).and_then(|fork| self.gathered.get_mut(&(fork, edge.to)));
                    if let Some(gathered) = gathered {
                        gathered.rows[edge.slot] = gathered.rows[edge.slot].saturating_add(rows);
                    }
                }
            }
        }
        self.settle(now, ask, actions)
    }

    /// No more comes of a stage request itself: asks the joins that wait for nothing else, inner ones first.
    fn settle(&mut self, now: Time, ask: u32, actions: &mut Vec<Action>) -> Result<(), Hopeless> {
        let plan = Arc::clone(&self.plan);
        let forks_and_joins = &plan.stages[self.asks[ask as usize].stage].forks_and_joins;
        for &join in &forks_and_joins.awaited_by {
            self.await_for(ask, join, |awaited| awaited.saturating_sub(1));
        }
        for &join in forks_and_joins.forks.iter().chain(&forks_and_joins.awaited_by) {
            let Some(fork) = plan.stages[join].forks_and_joins.fork.and_then(|fork| self.ancestor(ask, fork)) else {
                continue;
            };
            if self.gathered.get(&(fork, join)).is_none_or(|gathered| gathered.awaited > 0) {
                continue;
            }
            let Some(gathered) = self.gathered.remove(&(fork, join)) else { continue };
            // Without a row from each parent there is nothing to join; fewer rows of one go with all of another.
            let has_all = gathered.rows.iter().all(|&rows| rows > 0);
            let rows = if has_all { gathered.rows.iter().copied().max().unwrap_or(0) } else { 0 };
            self.ask(now, join, Some(fork), rows, actions)?;
        }
        Ok(())
    }

    /// Asks a stage for this many rows, if there is time for it and for the stages behind it.
    fn ask(
        &mut self,
        now: Time,
        stage: usize,
        parent: Option<u32>,
        rows: u32,
        actions: &mut Vec<Action>,
    ) -> Result<(), Hopeless> {
        let room = ASKS_MAX.saturating_sub(self.asks.len());
        let taken = (rows as usize).min(room);
        if taken < rows as usize {
            self.is_complete = false;
        }
        if taken == 0 {
            return Ok(());
        }
        let Some(deadline) = self.plan.stage_deadline(stage, now, self.deadline) else {
            // Early drop: further work for it would be wasted.
            if parent.is_some() && self.plan.is_partial {
                self.is_complete = false;
                return Ok(());
            }
            return Err(Hopeless);
        };
        // At most ASKS_MAX.
        let (first, rows) = (self.asks.len() as u32, taken as u32);
        self.asks.extend(std::iter::repeat_n(Asked { stage, parent, state: State::Open }, taken));
        self.open += taken;
        let plan = Arc::clone(&self.plan);
        for &join in &plan.stages[stage].forks_and_joins.awaited_by {
            self.await_for(first, join, |awaited| awaited.saturating_add(rows));
        }
        actions.push(Action::Ask(Ask { stage, first: AskId(first), rows, deadline }));
        Ok(())
    }

    /// Changes what a join awaits of the branches that this stage request is in.
    fn await_for(&mut self, ask: u32, join: usize, change: impl Fn(u32) -> u32) {
        let fork = self.plan.stages[join].forks_and_joins.fork.and_then(|fork| self.ancestor(ask, fork));
        if let Some(gathered) = fork.and_then(|fork| self.gathered.get_mut(&(fork, join))) {
            gathered.awaited = change(gathered.awaited);
        }
    }

    /// The stage request at `stage` that this one comes of, possibly itself.
    fn ancestor(&self, ask: u32, stage: usize) -> Option<u32> {
        let parent = |&ask: &u32| self.asks.get(ask as usize)?.parent;
        std::iter::successors(Some(ask), parent).find(|&ask| self.asks[ask as usize].stage == stage)
    }

    /// Ends the request. The first `issued` stage requests are known to others: those still open are withdrawn.
    fn end(&mut self, outcome: Outcome, issued: usize, actions: &mut Vec<Action>) {
        for (number, entry) in (0_u32..).zip(self.asks.iter_mut()) {
            if entry.state == State::Open {
                entry.state = State::Lost;
                if (number as usize) < issued {
                    actions.push(Action::Withdraw(AskId(number)));
                }
            }
        }
        self.open = 0;
        self.gathered.clear();
        self.has_ended = true;
        actions.push(Action::End { outcome, is_complete: self.is_complete });
    }
}

#[cfg(test)]
mod tests;
