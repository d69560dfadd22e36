//! Exhaustive search within the limit of disruption: a small problem needs no heuristic.
//!
//! A stepwise search gets stuck where only joint moves help and C_max leaves no room for the step between. If there are
//! few divisions, all can be evaluated in the time of a search, and the best one is never missed.

use crate::anneal::{BLOCK, Best};
use crate::state::{Outcome, State, Step};

/// The best division that `start`, in which every model has a part, can become within its limit of disruption; `None`
/// if that takes more than the given number of evaluations of a model and a target.
pub(crate) fn best_of_all(start: &State<'_>, evaluations_max: u64, stop: &dyn Fn() -> bool) -> Option<Best> {
    let mut count = EvaluationCount { start, counted: 0, max: evaluations_max };
    count.suffice(0, 1, start.cost).then(|| {
        let mut enumeration = Enumeration { state: start.clone(), best: Best::of(start), tried: 0, stop };
        enumeration.with_moves_of(0);
        enumeration.best
    })
}

/// Counts evaluations by cost of moves, so that a large problem is rejected quickly.
struct EvaluationCount<'s, 'a> {
    start: &'s State<'a>,
    counted: u64,
    max: u64,
}

impl EvaluationCount<'_, '_> {
    /// Whether the remaining evaluations suffice for all divisions of this number and cost in which models from `first`
    /// on may move.
    fn suffice(&mut self, first: usize, divisions: u64, cost: f64) -> bool {
        let start = self.start;
        for model in first..start.of.models {
            let after = start.cost_elsewhere(model, cost);
            let more = after.map_or(0, |_| divisions.saturating_mul(start.elsewhere(model).count() as u64));
            self.counted = self.counted.saturating_add(divisions).saturating_add(more);
            if self.counted > self.max || after.is_some_and(|after| !self.suffice(model + 1, more, after)) {
                return false;
            }
        }
        true
    }
}

/// Divisions, each made from another by moving one more model.
struct Enumeration<'s, 'a> {
    state: State<'a>,
    best: Best,
    tried: u64,
    stop: &'s dyn Fn() -> bool,
}

impl Enumeration<'_, '_> {
    /// Visits each division in which some models from `first` on have moved, once; returns false after a stop.
    fn with_moves_of(&mut self, first: usize) -> bool {
        for model in first..self.state.of.models {
            if self.state.cost_elsewhere(model, self.state.cost).is_none() {
                continue;
            }
            let from = self.state.part_of[model] as usize;
            for to in 0..self.state.of.parts {
                self.tried += 1;
                if self.tried.is_multiple_of(BLOCK) && (self.stop)() {
                    return false;
                }
                let step = Step { model, from, to, other: None };
                let Some(outcome) = (from != to).then(|| self.state.outcome(step)).flatten() else { continue };
                let back = Outcome {
                    from_excess: self.state.excess[to],
                    to_excess: self.state.excess[from],
                    excess: -outcome.excess,
                };
                self.state.take(step, outcome);
                self.best.offer(&self.state);
                if !self.with_moves_of(model + 1) {
                    return false;
                }
                self.state.take(Step { model, from: to, to: from, other: None }, back);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::homes;
    use crate::instance::{Instance, NOWHERE};
    use crate::problem::Problem;
    use crate::solve::{Budget, MOVES_PER_EVALUATION, solve};

    const MODELS: u32 = 7;
    const PARTS: u32 = 3;

    fn problem(seed: u32, parts: u32, models: u32) -> Problem {
        let mut text = format!(
            "[[gpu]]\nkind = \"a100\"\nmemory_mb = 40960\ncount = {parts}\n[[part]]\nname = \"s\"\ncount = {parts}\n"
        );
        for at in 0..models {
            let (rate, memory) = (1 + (at * 7919 + seed * 613) % 401, 20 + (at * 3571 + seed * 97) % 503);
            text += &format!(
                "[[model]]\nname = \"m{at}\"\nrate_rps = {rate}\nslo_ms = 50\nalpha_ms = 1\nbeta_ms = 5\nstatic_mb = {memory}\ndynamic_mb = 1\n"
            );
        }
        let mut problem = Problem::parse("test", &text, &|_| Err("none".to_owned())).unwrap();
        for (at, model) in (0..).zip(&mut problem.models) {
            model.move_cost = 0.5 + f64::from((at * 31 + seed) % 5);
        }
        let rate: f64 = problem.models.iter().map(|model| model.rate_rps).sum();
        for part in &mut problem.parts {
            part.rate_max_rps = 1.3 * rate / f64::from(parts) + 200.0;
        }
        problem.steadiness.keep_within = 0.0;
        problem
    }

    /// Every division in turn, each summed from scratch.
    fn least(start: &State<'_>) -> (f64, f64) {
        let divisions = (0..PARTS.pow(MODELS)).map(|number| {
            let part_of: Vec<u32> = (0..MODELS).map(|model| number / PARTS.pow(model) % PARTS).collect();
            start.with(&part_of)
        });
        let within = divisions.filter(|state| state.affords(state.cost)).map(|state| Best::of(&state));
        within.map(|best| (best.excess, best.objective)).min_by(|a, b| a.partial_cmp(b).unwrap()).unwrap()
    }

    #[test]
    fn no_division_within_the_limit_is_better() {
        for (seed, cost_max) in (0..8).flat_map(|seed| [0.0, 2.0, 5.0, f64::INFINITY].map(|cost_max| (seed, cost_max)))
        {
            let problem = problem(seed, PARTS, MODELS);
            let of = Instance::new(&problem);
            let mut home: Vec<u32> = (0..MODELS).map(|model| (model + seed) % PARTS).collect();
            let at_home = State::new(&of, home.clone(), cost_max).with(&home);
            let best = best_of_all(&at_home, 1 << 20, &|| false).unwrap();
            let found = best.afresh(&at_home);
            assert!(at_home.affords(at_home.with(&best.part_of).cost), "seed {seed}, at most {cost_max}");
            let (excess, objective) = least(&at_home);
            assert!(found.excess == excess && (found.objective - objective).abs() < 1e-9, "seed {seed}: {found:?}");
            // New models cost nothing.
            home[0] = NOWHERE;
            home[1] = NOWHERE;
            let start = State::new(&of, home, cost_max).with(&at_home.part_of);
            let found = best_of_all(&start, 1 << 20, &|| false).unwrap().afresh(&start);
            assert!((found.objective - least(&start).1).abs() < 1e-9, "seed {seed}: {found:?}");
        }
    }

    /// The value of the heuristic search where this one would take too long.
    #[test]
    fn a_search_of_more_divisions_finds_mostly_the_best() {
        let budget = Budget { moves: 400_000, seed: 1, should_stop: None };
        let mut missed = Vec::new();
        for seed in 0..20 {
            let mut problem = problem(seed, 3, 15);
            let plan = solve(&problem, None, &budget).unwrap();
            problem.models.iter_mut().step_by(2).for_each(|model| model.rate_rps *= 2.0);
            problem.parts.iter_mut().for_each(|part| part.rate_max_rps *= 2.0);
            let costs: f64 = problem.models.iter().map(|model| model.move_cost).sum();
            problem.disruption_max = Some(0.4 * costs);
            let of = Instance::new(&problem);
            let home = homes(&problem, &plan);
            let start = State::new(&of, home.clone(), 0.4 * costs).with(&home);
            assert!(
                best_of_all(&start, budget.moves / MOVES_PER_EVALUATION, &|| false).is_none(),
                "seed {seed} is searched"
            );
            let best = best_of_all(&start, 1 << 24, &|| false).unwrap().afresh(&start);
            let found = solve(&problem, Some(&plan), &budget).unwrap().balance.objective;
            assert!(best.excess == 0.0 && found >= best.objective - 1e-9, "seed {seed}: {found} {best:?}");
            // An improvement below a tenth is not worth a move.
            if 0.9 * found > best.objective + 1e-9 {
                missed.push((seed, found / best.objective));
            }
        }
        assert!(missed.len() <= 5, "{missed:?}");
    }

    #[test]
    fn it_is_not_begun_where_looks_are_too_few_and_ends_when_it_is_told_to() {
        let large = problem(1, 20, 800);
        let of = Instance::new(&large);
        let home: Vec<u32> = (0..800).map(|model| model % 20).collect();
        for (cost_max, evaluations_max, begins) in
            [(f64::INFINITY, 1 << 20, false), (40.0, 1 << 20, false), (0.5, 1_000_000, false), (0.5, 1_500_000, true)]
        {
            let start = State::new(&of, home.clone(), cost_max).with(&home);
            // A fifth of the models may move alone, each to 19 parts; for each the remaining cost is tried.
            assert_eq!(best_of_all(&start, evaluations_max, &|| true).is_some(), begins, "at most {cost_max}");
        }
        let middling = problem(1, PARTS, 10);
        let of = Instance::new(&middling);
        let start = State::new(&of, vec![NOWHERE; 10], f64::INFINITY).with(&[0; 10]);
        let [stopped, whole] = [true, false].map(|stop| best_of_all(&start, 1 << 20, &|| stop).unwrap());
        assert!(whole.objective < stopped.objective, "{} {}", whole.objective, stopped.objective);
    }
}
