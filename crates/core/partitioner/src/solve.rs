//! The production solver: greedy start, annealing, polishing, and the rules that keep the plan in force.

use std::cell::Cell;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use crate::anneal::{Best, Dice, Goal, Start, anneal};
use crate::change::homes;
use crate::enumeration::best_of_all;
use crate::exchange::exchange;
use crate::explain;
use crate::greedy;
use crate::instance::{Instance, NOWHERE};
use crate::partition_plan::PartitionPlan;
use crate::polish::polish;
use crate::problem::Problem;
use crate::state::{SLACK, State};
use crate::unsolved::{Reason, Unsolved};

/// If all divisions can be evaluated in this many times fewer evaluations than there are moves, that is done instead,
/// in no more time.
pub(crate) const MOVES_PER_EVALUATION: u64 = 2;
/// Of 16 moves, this many polish.
const POLISH_OF_16: u64 = 4;
/// Of those, with a limit of disruption, this many exchange sets of models.
const EXCHANGE_OF_16: u64 = 2;
/// Moves per model in a run.
const MOVES_PER_RUN: u64 = 5_000;
/// With many models a search with a limit on disruption is this many times as long: it has the same parts to balance,
/// with about a tenth of the models.
const BOUNDED_FACTOR: u64 = 3;
/// The most runs of one search.
const RUNS_MAX: u64 = 64;
/// Bisection steps when looking for the least cost that repairs a plan.
const REPAIR_HALVINGS: u32 = 5;

/// The budget of a search.
#[derive(Clone, Copy)]
pub struct Budget<'a> {
    /// Moves that a search tries. Equal budgets give equal plans.
    pub moves: u64,
    /// Seed of the search.
    pub seed: u64,
    /// Called from time to time; if it returns true the search ends with its best result. The host has a clock, the
    /// search has none.
    pub should_stop: Option<&'a dyn Fn() -> bool>,
}

impl Budget<'_> {
    /// A budget for a problem of this size: accurate to a tenth of a percent, and about a second for up to a thousand
    /// models.
    #[must_use]
    pub fn for_models(models: usize) -> Self {
        const MOVES_LEAST: u64 = 2_000_000;
        const MOVES_PER_MODEL: u64 = 3_000;
        Self { moves: MOVES_LEAST + MOVES_PER_MODEL * models as u64, seed: 1, should_stop: None }
    }
}

/// Divides the models and distributes the GPUs.
///
/// Without a plan in force the best division found is the plan. A plan in force is kept as far as possible: completely
/// while it keeps all limits and is even to within [`Steadiness::keep_within`](crate::Steadiness), or if no division
/// found is better by [`Steadiness::gain_min_share`](crate::Steadiness); new models go where they fit best. Moves cost
/// at most C_max, counted from the plan that was in force when this problem was first solved. The rules are applied
/// until they change nothing, so solving again from the plan moves nothing (C4), unless the search was stopped early.
///
/// # Errors
/// [`Unsolved::Bad`] if the problem is invalid, [`Unsolved::Infeasible`] if no division keeps the limits: which limit,
/// by how much, and which models.
pub fn solve(
    problem: &Problem,
    previous: Option<&PartitionPlan>,
    budget: &Budget<'_>,
) -> Result<PartitionPlan, Unsolved> {
    problem.check()?;
    let instance = Instance::new(problem);
    explain::hopeless(problem, &instance)?;
    let search = Search { of: &instance, problem, budget, cut_short: Cell::new(false) };
    let spent = spent_before(problem, previous);
    let settled = search.settle(previous.map(|plan| homes(problem, plan)), spent);
    if let Some(broken) = explain::worst(problem, &instance, &settled.part_of) {
        return Err(search.why(previous, spent, broken));
    }
    let left = left_of(problem, spent);
    if settled.spent - spent > left * (1.0 + SLACK) {
        let broken = Reason::Disruption { left, would_do: settled.spent - spent, forced: Vec::new() };
        return Err(search.why(previous, spent, broken));
    }
    let mut plan = PartitionPlan::of(problem, &instance, &settled.part_of, previous);
    (plan.disruption_spent, plan.cut_short) = (settled.spent, search.cut_short.get());
    Ok(plan)
}

/// The plan for a division found elsewhere, given as the part of each model. As in [`solve`], the plan in force is kept
/// if it is good enough.
///
/// # Errors
/// As [`solve`], and [`Unsolved::Bad`] if the division is not one of this problem.
pub fn adopt(
    problem: &Problem,
    previous: Option<&PartitionPlan>,
    division: &[usize],
) -> Result<PartitionPlan, Unsolved> {
    problem.check()?;
    let instance = Instance::new(problem);
    let whole = division.len() == instance.models
        && division.iter().enumerate().all(|(model, &part)| part < instance.parts && instance.allows(model, part));
    if !whole {
        return Err(Unsolved::Bad("the division has not one part for each model, where it may be".to_owned()));
    }
    let spent = spent_before(problem, previous);
    let home = previous.map(|plan| homes(problem, plan));
    let left = left_of(problem, spent);
    let empty = State::new(&instance, home.clone().unwrap_or_else(|| vec![NOWHERE; instance.models]), left);
    let found: Vec<u32> = division.iter().map(|&part| part as u32).collect();
    let mut state = empty.with(&found);
    if let Some(home) = home {
        let mut start = empty.with(&allowed_homes(&instance, &home));
        greedy::place(&mut start);
        let keep = problem.steadiness.keep_within;
        let (now, new) = (Best::of(&start), Best::of(&state));
        if (now.excess == 0.0 && now.objective <= keep) || !worth_it(problem, &now, &new) {
            state = start;
        }
    }
    if let Some(broken) = explain::worst(problem, &instance, &state.part_of) {
        return Err(Unsolved::Infeasible(vec![broken]));
    }
    if state.cost > left * (1.0 + SLACK) {
        let reason = Reason::Disruption { left, would_do: state.cost, forced: Vec::new() };
        return Err(Unsolved::Infeasible(vec![reason]));
    }
    let mut plan = PartitionPlan::of(problem, &instance, &state.part_of, previous);
    plan.disruption_spent = spent + state.cost;
    Ok(plan)
}

/// The part of C_max that the plan in force has spent for this same problem.
fn spent_before(problem: &Problem, previous: Option<&PartitionPlan>) -> f64 {
    let same = previous.filter(|plan| plan.problem == problem.fingerprint());
    // A plan may come from a file.
    same.map_or(0.0, |plan| if plan.disruption_spent >= 0.0 { plan.disruption_spent } else { 0.0 })
}

/// The rest of C_max; infinite without a limit.
pub(crate) fn left_of(problem: &Problem, spent: f64) -> f64 {
    problem.disruption_max.map_or(f64::INFINITY, |max| (max - spent).max(0.0))
}

/// Homes, without those where a model may no longer be.
fn allowed_homes(of: &Instance, home: &[u32]) -> Vec<u32> {
    let stays = |(model, &home): (usize, &u32)| {
        if home != NOWHERE && of.allows(model, home as usize) { home } else { NOWHERE }
    };
    home.iter().enumerate().map(stays).collect()
}

/// Whether a division is better by enough to justify moves.
fn worth_it(problem: &Problem, now: &Best, new: &Best) -> bool {
    let enough = 1.0 - problem.steadiness.gain_min_share;
    if now.excess > 0.0 && new.excess <= enough * now.excess {
        return true;
    }
    new.excess <= now.excess && new.objective < now.objective && new.objective <= enough * now.objective
}

struct Search<'a> {
    of: &'a Instance,
    problem: &'a Problem,
    budget: &'a Budget<'a>,
    cut_short: Cell<bool>,
}

/// A division that the rules no longer change, and the remaining C_max.
struct Settled {
    part_of: Vec<u32>,
    spent: f64,
}

impl Search<'_> {
    fn stop(&self) -> bool {
        let stop = self.cut_short.get() || self.budget.should_stop.is_some_and(|stop| stop());
        self.cut_short.set(stop);
        stop
    }

    /// Applies the rules until they change nothing. Every round but the first lowers an excess or the objective by
    /// `gain_min_share`, and none starts below `keep_within`, so there are few.
    fn settle(&self, home: Option<Vec<u32>>, mut spent: f64) -> Settled {
        let mut home = home;
        loop {
            let (part_of, cost) = self.round(home.as_deref(), left_of(self.problem, spent));
            spent += cost;
            if home.as_ref() == Some(&part_of) || self.stop() {
                return Settled { part_of, spent };
            }
            home = Some(part_of);
        }
    }

    /// One division starting from `home` within the given part of C_max, and its cost.
    fn round(&self, home: Option<&[u32]>, left: f64) -> (Vec<u32>, f64) {
        let nowhere = vec![NOWHERE; self.of.models];
        let mut start = State::new(self.of, home.unwrap_or(&nowhere).to_vec(), left);
        start = start.with(&allowed_homes(self.of, home.unwrap_or(&nowhere)));
        greedy::place(&mut start);
        let now = Best::of(&start);
        if home.is_some() && now.excess == 0.0 && now.objective <= self.problem.steadiness.keep_within {
            return (now.part_of, start.cost);
        }
        let found = self.search(&start, home.is_some());
        if home.is_some() && !worth_it(self.problem, &now, &found) {
            return (now.part_of, start.cost);
        }
        let cost = start.with(&found.part_of).cost;
        (found.part_of, cost)
    }

    /// The best of all divisions if there are few, otherwise of several runs: one with many models, more where a run is
    /// cheap, since runs on small problems get stuck in local optima.
    fn search(&self, start: &State<'_>, in_force: bool) -> Best {
        if let Some(best) = best_of_all(start, self.budget.moves / MOVES_PER_EVALUATION, &|| self.stop()) {
            return best.afresh(start);
        }
        let mut dice = Dice(Xoshiro256PlusPlus::seed_from_u64(self.budget.seed));
        let runs = (self.budget.moves / (MOVES_PER_RUN * self.of.models as u64)).clamp(1, RUNS_MAX);
        let bounded = in_force && start.cost_max.is_finite();
        let moves = self.budget.moves * if bounded && runs == 1 { BOUNDED_FACTOR } else { 1 };
        let mut best = Best::of(start);
        for run in 0..runs {
            // With a plan in force every other run starts hot nevertheless, with all of C_max at once.
            let from = if in_force && run % 2 == 0 { Start::Near } else { Start::Afresh };
            let goal = if run % 4 < 2 { Goal::Squares } else { Goal::Furthest };
            let found = self.run(start, moves / runs, (from, goal), &mut dice);
            if (found.excess, found.objective) < (best.excess, best.objective) {
                best = found;
            }
        }
        best
    }

    fn run(&self, start: &State<'_>, moves: u64, how: (Start, Goal), dice: &mut Dice) -> Best {
        let stop = || self.stop();
        let exchanging = if start.cost_max.is_finite() { moves / 16 * EXCHANGE_OF_16 } else { 0 };
        let polishing = moves / 16 * POLISH_OF_16 - exchanging;
        let mut state = start.clone();
        let annealed = anneal(&mut state, moves - polishing - exchanging, how, dice, &stop);
        let mut state = start.with(&annealed.part_of);
        polish(&mut state, polishing, dice, &stop);
        let polished = exchange(&mut state, exchanging, dice, &stop);
        let (annealed, polished) = (annealed.afresh(start), polished.afresh(start));
        let better = polished.excess <= annealed.excess && polished.objective <= annealed.objective;
        if better { polished } else { annealed }
    }

    /// Why no plan was found: the violated limit, or how much more disruption would have repaired it.
    fn why(&self, previous: Option<&PartitionPlan>, spent: f64, broken: Reason) -> Unsolved {
        let left = left_of(self.problem, spent);
        let disruption = previous.filter(|_| left.is_finite()).and_then(|plan| {
            let home = homes(self.problem, plan);
            self.repair_cost(&home, left).map(|would_do| {
                let must = |&model: &usize| home[model] != NOWHERE && !self.of.allows(model, home[model] as usize);
                let forced = (0..self.of.models).filter(must);
                let forced =
                    forced.map(|model| (self.problem.models[model].name.clone(), self.of.cost[model])).collect();
                Reason::Disruption { left, would_do, forced }
            })
        });
        Unsolved::Infeasible(vec![disruption.unwrap_or(broken)])
    }

    /// The approximate least cost of a plan; `None` if none was found at any cost.
    fn repair_cost(&self, home: &[u32], left: f64) -> Option<f64> {
        let cost_within = |left: f64| {
            let (part_of, cost) = self.round(Some(home), left);
            explain::worst(self.problem, self.of, &part_of).is_none().then_some(cost)
        };
        let (mut low, mut high) = (left, cost_within(f64::INFINITY)?);
        for _ in 0..REPAIR_HALVINGS {
            let middle = f64::midpoint(low, high);
            match cost_within(middle) {
                Some(cost) => high = high.min(cost),
                None => low = middle,
            }
            if high <= low || self.stop() {
                break;
            }
        }
        Some(high)
    }
}
