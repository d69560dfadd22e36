//! Exchanges sets of models between two parts, which makes them more even than any single move or swap.
//!
//! A swap between two parts chooses among some thousand differences of two models. An exchange of sets chooses among
//! millions in the same time: the sets of one side are listed, and the best counterpart is looked up. Under a limit of
//! disruption it exploits the models that have moved already: each of them may be on either side at no cost, or return
//! home, which pays for others.

use crate::anneal::{Best, Dice};
use crate::furthest::Extremes;
use crate::state::{SLACK, State};

/// Of this many models every subset is tried.
const ANY_MAX: usize = 10;
/// Of this many further ones, at most two are added.
const FEW_MAX: usize = 64;
/// Looking up a set takes this share of the time of a trial move.
const LOOKUPS_PER_MOVE: u64 = 2;
/// The least relative improvement of equation 4; less is rounding.
const GAIN_LEAST: f64 = 1e-6;
/// The value of all of C_max in units of equation 4: a costlier exchange must be better in proportion.
const COST_WEIGHT: f64 = 1.0;

/// The amounts that change from the first part to the second if a model or set changes sides.
#[derive(Clone, Copy, Debug, Default)]
struct Shift {
    rate: f64,
    memory: f64,
    /// Cost of moves, less that of models that return home.
    cost: f64,
    /// The models: positions in a list as bits, or two positions counted from 1.
    which: u32,
}

impl Shift {
    fn and(self, other: Self) -> Self {
        Self {
            rate: self.rate + other.rate,
            memory: self.memory + other.memory,
            cost: self.cost + other.cost,
            which: self.which | other.which,
        }
    }
}

/// The requirements on an exchange.
#[derive(Clone, Copy, Debug)]
struct ExchangeGoal {
    /// Equation 4 must be below this afterwards.
    below: f64,
    /// The largest cost; negative if models must return home.
    cost_max: f64,
}

/// Exchanges models between the part that is furthest off and another one as long as that lowers equation 4, for the
/// time of the given number of moves.
///
/// If nothing does and moves have a cost, models of any two parts return home where that makes nothing worse, and the
/// freed part of C_max is spent where it helps most.
pub(crate) fn exchange(state: &mut State<'_>, moves: u64, dice: &mut Dice, stop: &dyn Fn() -> bool) -> Best {
    let parts = state.of.parts;
    let mut best = Best::of(state);
    // Sets are looked up by their rate.
    if parts < 2 || state.of.rate_scale[0] <= 0.0 {
        return best;
    }
    let mut search = Search { left: moves.saturating_mul(LOOKUPS_PER_MOVE), stop, lists: Lists::default() };
    while !search.is_over() {
        search.left -= 1;
        let mut furthest = Extremes::of(state);
        let worst = [furthest.rate.part(), furthest.memory.part()];
        let first = dice.below(parts);
        let mut pairs = (0..parts).flat_map(|at| worst.map(|from| (from, (first + at) % parts)));
        let left = state.cost_max * (1.0 + SLACK) - state.cost;
        let goal = ExchangeGoal { below: furthest.objective * (1.0 - GAIN_LEAST), cost_max: left };
        let gained = pairs.any(|pair| search.attempt(state, pair, &furthest, goal, dice));
        if !gained && state.cost_max.is_finite() && state.cost > 0.0 {
            for pair in (0..parts).flat_map(|from| (0..from).map(move |to| (from, to))) {
                let goal =
                    ExchangeGoal { below: furthest.objective * (1.0 + SLACK), cost_max: -SLACK * state.cost_max };
                if search.attempt(state, pair, &furthest, goal, dice) {
                    furthest = Extremes::of(state);
                }
            }
        }
        best.offer(state);
    }
    best
}

/// The remaining work, the stop condition, and reused lists.
struct Search<'a> {
    left: u64,
    stop: &'a dyn Fn() -> bool,
    lists: Lists,
}

impl Search<'_> {
    fn is_over(&self) -> bool {
        self.left == 0 || (self.stop)()
    }

    /// Makes the best exchange between two parts that meets the requirements and violates no limit.
    fn attempt(
        &mut self,
        state: &mut State<'_>,
        parts: (usize, usize),
        furthest: &Extremes,
        goal: ExchangeGoal,
        dice: &mut Dice,
    ) -> bool {
        if parts.0 == parts.1 || self.is_over() {
            return false;
        }
        self.lists.fill(state, parts, goal.cost_max, dice);
        let mut lookups = self.lists.any.len() as u64 + 1;
        let found = Pair { state, parts, furthest, goal }.best(&self.lists, &mut lookups);
        self.left = self.left.saturating_sub(lookups);
        let Some((any, few)) = found else { return false };
        self.lists.choose(any, few);
        let before = state.excess[parts.0] + state.excess[parts.1];
        state.exchange(parts, &self.lists.chosen);
        let sound = state.excess[parts.0] + state.excess[parts.1] <= before;
        if !sound {
            state.exchange(parts, &self.lists.chosen);
        }
        sound
    }
}

/// Sets of models of two parts that may change sides: every subset of those that cost nothing, plus up to two others.
#[derive(Debug, Default)]
struct Lists {
    members: Vec<u32>,
    ones: Vec<Shift>,
    /// By rate.
    any: Vec<Shift>,
    few: Vec<Shift>,
    chosen: Vec<u32>,
}

impl Lists {
    fn fill(&mut self, state: &State<'_>, (a, b): (usize, usize), cost_max: f64, dice: &mut Dice) {
        let of = state.of;
        let bounded = state.cost_max.is_finite();
        let other = |model: usize| if state.part_of[model] as usize == a { b } else { a };
        let cost = |model: u32| {
            let model = model as usize;
            if bounded { state.cost_of_move(model, other(model)) } else { 0.0 }
        };
        self.members.clear();
        let both = state.members[a].iter().chain(&state.members[b]).copied();
        self.members.extend(both.filter(|&model| of.allows(model as usize, other(model as usize))));
        for at in (1..self.members.len()).rev() {
            self.members.swap(at, dice.below(at + 1));
        }
        if bounded {
            self.members.sort_by_key(|&model| cost(model) > 0.0);
        }
        let free = self.members.iter().take_while(|&&model| cost(model) <= 0.0).count();
        let any = free.min(ANY_MAX);
        self.members.truncate(any + FEW_MAX);
        self.ones.clear();
        self.ones.extend(self.members.iter().map(|&model| {
            let at = model as usize;
            let sign = if state.part_of[at] as usize == a { 1.0 } else { -1.0 };
            Shift { rate: sign * of.rate[at], memory: sign * of.memory[at], cost: cost(model), which: 0 }
        }));
        self.any.clear();
        self.any.push(Shift::default());
        let mut least = 0.0;
        for (bit, &one) in self.ones[..any].iter().enumerate() {
            least += one.cost.min(0.0);
            for at in 0..self.any.len() {
                let with = self.any[at].and(Shift { which: 1 << bit, ..one });
                self.any.push(with);
            }
            // Merges two sorted runs.
            self.any.sort_by(|a, b| a.rate.total_cmp(&b.rate));
        }
        self.few.clear();
        self.few.push(Shift::default());
        let affordable = |shift: &Shift| shift.cost + least <= cost_max;
        for (second, &one) in self.ones.iter().enumerate().skip(any) {
            let one = Shift { which: second as u32 + 1, ..one };
            if affordable(&one) {
                self.few.push(one);
            }
            let firsts = self.ones[any..second].iter().zip(any as u32 + 1..);
            let twos = firsts.map(|(&first, place)| one.and(Shift { which: place << 16, ..first }));
            self.few.extend(twos.filter(affordable));
        }
    }

    /// The models of a set of the first list and one of the second.
    fn choose(&mut self, any: u32, few: u32) {
        self.chosen.clear();
        let bits = (0..ANY_MAX).filter(|bit| any >> bit & 1 == 1);
        let places = [few >> 16, few & 0xffff].into_iter().filter(|&place| place > 0).map(|place| place as usize - 1);
        self.chosen.extend(bits.chain(places).map(|at| self.members[at]));
    }
}

/// Two parts, and the requirements on an exchange between them.
struct Pair<'a> {
    state: &'a State<'a>,
    parts: (usize, usize),
    furthest: &'a Extremes,
    goal: ExchangeGoal,
}

impl Pair<'_> {
    /// The best combination of a set of each list.
    fn best(&self, lists: &Lists, lookups: &mut u64) -> Option<(u32, u32)> {
        let weight = self.state.of.memory_weight;
        let cost_max = self.state.cost_max;
        let bounded = cost_max.is_finite() && cost_max > 0.0;
        let price = if bounded { COST_WEIGHT * self.furthest.objective / cost_max } else { 0.0 };
        let least_cost = lists.any.iter().map(|shift| shift.cost).fold(0.0, f64::min);
        // The part of the allowed equation 4 that the other parts leave.
        let rate_max = self.goal.below - weight * self.furthest.memory.beside(self.parts.0, self.parts.1);
        let (mut best, mut found) = (f64::INFINITY, None);
        for few in &lists.few {
            *lookups += 1;
            // It cannot beat the best one so far either if its rate alone uses up the allowance at the least cost.
            let (low, high) = self.rate_within(rate_max.min(best - price * (least_cost + few.cost)));
            let from = lists.any.partition_point(|any| any.rate + few.rate < low);
            for any in lists.any[from..].iter().take_while(|any| any.rate + few.rate <= high) {
                *lookups += 1;
                let both = any.and(*few);
                if both.cost > self.goal.cost_max {
                    continue;
                }
                let off = self.off_after(both);
                let score = off.0 + weight * off.1 + price * both.cost;
                if score < best && self.furthest.objective_with(self.parts, off, weight) <= self.goal.below {
                    best = score;
                    found = Some((any.which, few.which));
                }
            }
        }
        found
    }

    /// The range of rate to transfer from the first part to the second such that both are within `width` of their
    /// targets.
    fn rate_within(&self, width: f64) -> (f64, f64) {
        let (state, (a, b)) = (self.state, self.parts);
        let (a_scale, b_scale) = (state.of.rate_scale[a], state.of.rate_scale[b]);
        let low = (state.rate[a] - (1.0 + width) / a_scale).max((1.0 - width) / b_scale - state.rate[b]);
        let high = (state.rate[a] - (1.0 - width) / a_scale).min((1.0 + width) / b_scale - state.rate[b]);
        (low, high)
    }

    /// The largest deviation of the two parts after it.
    #[inline]
    fn off_after(&self, shift: Shift) -> (f64, f64) {
        let (state, (a, b)) = (self.state, self.parts);
        let filled = |part: usize, sign: f64| {
            let rate = (state.rate[part] + sign * shift.rate) * state.of.rate_scale[part];
            state.off((rate, (state.memory[part] + sign * shift.memory) * state.of.memory_scale[part]))
        };
        let (a_off, b_off) = (filled(a, -1.0), filled(b, 1.0));
        (a_off.0.max(b_off.0), a_off.1.max(b_off.1))
    }
}

#[cfg(test)]
mod tests {
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::SeedableRng;

    use super::*;
    use crate::exhaustive;
    use crate::instance::{Instance, NOWHERE};
    use crate::problem::Problem;

    /// Models of these rates and static memories, in this many parts.
    fn problem(parts: usize, sizes: &[(u32, u32)]) -> Problem {
        let mut text = format!(
            "[[gpu]]\nkind = \"a100\"\nmemory_mb = 40960\ncount = {parts}\n[[part]]\nname = \"s\"\ncount = {parts}\n"
        );
        for (at, (rate, memory)) in sizes.iter().enumerate() {
            text += &format!(
                "[[model]]\nname = \"m{at}\"\nrate_rps = {rate}\nslo_ms = 50\nalpha_ms = 1\nbeta_ms = 5\nstatic_mb = {memory}\ndynamic_mb = 1\n"
            );
        }
        Problem::parse("test", &text, &|_| Err("none".to_owned())).unwrap()
    }

    fn drawn(models: usize, dice: &mut Dice) -> Vec<(u32, u32)> {
        (0..models).map(|_| (1 + dice.below(1000) as u32, 20 + dice.below(500) as u32)).collect()
    }

    fn dice(seed: u64) -> Dice {
        Dice(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    #[test]
    fn two_parts_become_as_even_as_any_division_of_them() {
        for seed in 0..20 {
            let mut dice = dice(seed);
            let problem = problem(2, &drawn(ANY_MAX, &mut dice));
            let of = Instance::new(&problem);
            let mut state = State::new(&of, vec![NOWHERE; of.models], f64::INFINITY);
            (0..of.models).for_each(|model| state.put(model, dice.below(2)));
            let best = exchange(&mut state, 10_000, &mut dice, &|| false);
            let optimum = exhaustive::optimum(&problem, None).unwrap().unwrap();
            assert!((best.objective - optimum.objective).abs() < 1e-9, "{} {}", best.objective, optimum.objective);
        }
    }

    #[test]
    fn what_moves_costs_no_more_than_there_is_and_makes_parts_more_even() {
        for (seed, cost_max) in (0..10).flat_map(|seed| [0.0, 1.0, 4.0, 9.0].map(|cost_max| (seed, cost_max))) {
            let mut dice = dice(seed);
            let problem = problem(4, &drawn(60, &mut dice));
            let of = Instance::new(&problem);
            let home: Vec<u32> = (0..60).map(|model| model % 4).collect();
            let mut state = State::new(&of, home.clone(), cost_max).with(&home);
            let before = state.balance().objective;
            let best = exchange(&mut state, 50_000, &mut dice, &|| false);
            let moved = best.part_of.iter().zip(&home).filter(|(now, home)| now != home).count();
            assert!(moved as f64 <= cost_max, "{moved} of {cost_max}");
            assert!((state.cost - state.displaced.len() as f64).abs() < 1e-9 && best.excess == 0.0);
            assert!(
                best.objective <= before && (cost_max < 4.0 || best.objective < 0.7 * before),
                "{before} {}",
                best.objective
            );
        }
    }

    /// Half as even, paid for by models that return home. The first list alone does not show it.
    #[test]
    fn a_set_of_the_second_list_that_comes_home_is_not_passed_over() {
        let problem = problem(2, &[(60, 100), (40, 100)]);
        let of = Instance::new(&problem);
        let state = State::new(&of, vec![NOWHERE; 2], 4.0).with(&[0, 1]);
        let furthest = Extremes::of(&state);
        let goal = ExchangeGoal { below: furthest.objective, cost_max: 4.0 };
        let one = |rate: f64, cost, which| Shift { rate: rate * of.rate[0] / 60.0, memory: 0.0, cost, which };
        let few = vec![one(10.0, 1.0, 1), one(5.0, -2.0, 2)];
        let lists = Lists { any: vec![Shift::default()], few, ..Lists::default() };
        let pair = Pair { state: &state, parts: (0, 1), furthest: &furthest, goal };
        assert_eq!(pair.best(&lists, &mut 0), Some((0, 2)));
    }

    /// Sets of returning models are in either list.
    #[test]
    fn no_pair_of_sets_is_better_than_the_one_that_is_found() {
        let mut homecomings = 0;
        for seed in 0..20 {
            let mut dice = dice(seed);
            let problem = problem(2, &drawn(40, &mut dice));
            let of = Instance::new(&problem);
            let draw = |dice: &mut Dice| (0..40).map(|_| dice.below(2) as u32).collect::<Vec<_>>();
            let (home, now) = (draw(&mut dice), draw(&mut dice));
            let state = State::new(&of, home, 40.0).with(&now);
            let furthest = Extremes::of(&state);
            let goal = ExchangeGoal { below: furthest.objective, cost_max: state.cost_max - state.cost };
            let mut lists = Lists::default();
            lists.fill(&state, (0, 1), goal.cost_max, &mut dice);
            let pair = Pair { state: &state, parts: (0, 1), furthest: &furthest, goal };
            let (weight, price) = (of.memory_weight, COST_WEIGHT * furthest.objective / state.cost_max);
            let score = |any: &Shift, few: &Shift| {
                let both = any.and(*few);
                let off = pair.off_after(both);
                let sound = both.cost <= goal.cost_max && furthest.objective_with((0, 1), off, weight) <= goal.below;
                if sound { off.0 + weight * off.1 + price * both.cost } else { f64::INFINITY }
            };
            let all = lists.any.iter().flat_map(|any| lists.few.iter().map(move |few| (any, few)));
            let least = all.map(|(any, few)| score(any, few)).fold(f64::INFINITY, f64::min);
            let (any, few) = pair.best(&lists, &mut 0).expect("a division that is drawn is not even");
            let any = lists.any.iter().find(|shift| shift.which == any).unwrap();
            let few = lists.few.iter().find(|shift| shift.which == few).unwrap();
            assert_eq!(score(any, few), least, "seed {seed}");
            homecomings += u32::from(few.cost < 0.0);
        }
        assert!(homecomings > 0, "a set of the second list came home");
    }

    #[test]
    fn what_is_away_for_nothing_comes_home() {
        let problem = problem(2, &[(10, 100), (10, 100), (20, 50), (30, 50)]);
        let of = Instance::new(&problem);
        let mut state = State::new(&of, vec![0, 1, 0, 1], 2.0).with(&[1, 0, 0, 1]);
        assert_eq!(state.cost, 2.0);
        exchange(&mut state, 1_000, &mut dice(1), &|| false);
        assert_eq!((state.cost, &state.part_of[..]), (0.0, &[0, 1, 0, 1][..]));
    }

    #[test]
    fn nothing_changes_that_would_break_a_limit_or_after_a_stop() {
        let mut problem = problem(2, &[(10, 100), (10, 100), (20, 50), (30, 50)]);
        problem.parts[0].rate_max_rps = 30.0;
        let of = Instance::new(&problem);
        // The ideal is 35 each.
        for stopped in [false, true] {
            let mut state = State::new(&of, vec![NOWHERE; 4], f64::INFINITY).with(&[0, 1, 0, 1]);
            let best = exchange(&mut state, 1_000, &mut dice(1), &|| stopped);
            assert!(best.excess == 0.0 && state.excess == [0.0, 0.0] && state.rate[0] <= 30.0, "{state:?}");
            assert!(!stopped || state.part_of == [0, 1, 0, 1]);
        }
    }
}
