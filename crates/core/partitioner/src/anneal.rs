//! Simulated annealing over moves and swaps of models.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::RngCore;

use crate::instance::Instance;
use crate::state::{State, Step};

/// Steps between updates of the temperature and the best division, and checks for a stop.
pub(crate) const BLOCK: u64 = 4096;

/// The least number of cooling steps of a search.
const BLOCKS_LEAST: u64 = 128;

/// Of 256 trials, this many swap two models instead of moving one: swaps keep the sums almost unchanged.
const SWAPS_OF_256: u64 = 208;
/// The tolerated deviation of a part, as a share of one model's size, at the start and at the end; squared it is the
/// temperature.
const HOT: f64 = 0.3;
const COLD: f64 = 1e-4;
/// The same deviation if a plan is in force: most of it is good and should stay.
const WARM: f64 = 0.1;

/// The weight of a limit violation by 100 %, in initial temperatures.
const EXCESS_WEIGHT: f64 = 30.0;

/// The start of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// Any division.
    Afresh,
    /// The plan in force, which most models should not leave.
    Near,
}

/// The objective of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// The sum of squared distances: cheap to update and sensitive to every part.
    Squares,
    /// Equation 4: in a small problem its optimum differs from that of the squares.
    Furthest,
}

/// The random numbers of the search.
#[derive(Clone, Debug)]
pub(crate) struct Dice(pub(crate) Xoshiro256PlusPlus);

impl Dice {
    /// A number below `count`, which is below 2^32.
    #[inline]
    pub(crate) fn below(&mut self, count: usize) -> usize {
        (((self.0.next_u64() >> 32) * count as u64) >> 32) as usize
    }

    /// A member of `first` and one of `second`.
    #[inline]
    fn two_below(&mut self, first: usize, second: usize) -> (usize, usize) {
        let bits = self.0.next_u64();
        ((((bits >> 32) * first as u64) >> 32) as usize, (((bits & 0xffff_ffff) * second as u64) >> 32) as usize)
    }

    /// An exponential variate of mean 1, accurate to a few percent: the logarithm is interpolated linearly between
    /// powers of two. Uses only sums and products, which are equal on every machine, unlike `ln`.
    #[inline]
    fn exponential(&mut self) -> f64 {
        let bits = self.0.next_u64() | 1;
        let zeros = bits.leading_zeros();
        let rest = (bits << zeros << 1) >> 12;
        let fraction = rest as f64 / (1_u64 << 52) as f64;
        std::f64::consts::LN_2 * (f64::from(zeros) + 1.0 - fraction)
    }
}

/// The best division so far.
#[derive(Clone, Debug)]
pub(crate) struct Best {
    pub(crate) excess: f64,
    pub(crate) objective: f64,
    pub(crate) part_of: Vec<u32>,
}

impl Best {
    pub(crate) fn of(state: &State<'_>) -> Self {
        let part_of = state.part_of.clone();
        Self { excess: settled(state.total_excess()), objective: state.balance().objective, part_of }
    }

    /// This division, summed from scratch, since incremental sums accumulate rounding errors.
    pub(crate) fn afresh(&self, start: &State<'_>) -> Self {
        Self::of(&start.with(&self.part_of))
    }

    /// Keeps the better one: the one closer to its limits, then the more even one.
    pub(crate) fn offer(&mut self, state: &State<'_>) {
        let excess = settled(state.total_excess());
        if excess > self.excess {
            return;
        }
        let objective = objective_with(state, None);
        if excess < self.excess || objective < self.objective {
            self.excess = excess;
            self.objective = objective;
            self.part_of.clone_from(&state.part_of);
        }
    }
}

/// An excess without the rounding error.
pub(crate) fn settled(excess: f64) -> f64 {
    if excess > crate::state::SLACK { excess } else { 0.0 }
}

/// Equation 4, for the present sums or those after a step.
pub(crate) fn objective_with(state: &State<'_>, step: Option<Step>) -> f64 {
    let of = state.of;
    let after = step.map(|step| (step.from, step.to, state.filled_after(step)));
    let (mut rate, mut memory) = (0.0_f64, 0.0_f64);
    for part in 0..of.parts {
        let (full, held) = match after {
            Some((from, _, [filled, _])) if from == part => filled,
            Some((_, to, [_, filled])) if to == part => filled,
            _ => state.filled(part),
        };
        if of.rate_scale[0] > 0.0 {
            rate = rate.max((full - 1.0).abs());
        }
        if of.memory_scale[0] > 0.0 {
            memory = memory.max((held - 1.0).abs());
        }
    }
    rate + of.memory_weight * memory
}

/// Runs the given number of steps from the present state and returns the best division on the way.
///
/// Metropolis' rule on the sum of squared distances. Limit violations have such a weight that only a hot search accepts
/// them.
pub(crate) fn anneal(
    state: &mut State<'_>,
    moves: u64,
    (start, goal): (Start, Goal),
    dice: &mut Dice,
    stop: &dyn Fn() -> bool,
) -> Best {
    let of = state.of;
    let mut best = Best::of(state);
    let block_moves = (moves / BLOCKS_LEAST).clamp(1, BLOCK);
    let blocks = moves.div_ceil(block_moves).max(1);
    // The share of an average model in a part.
    let grain = of.parts as f64 / of.models as f64;
    let temperature = |share: f64| match goal {
        Goal::Squares => (share * grain) * (share * grain),
        Goal::Furthest => share * grain,
    };
    let mut heat = match (start, goal) {
        (Start::Near, _) => temperature(WARM),
        (Start::Afresh, Goal::Squares) => temperature(HOT),
        // In a small problem one large model decides, and must be able to pass the others.
        (Start::Afresh, Goal::Furthest) => largest(of),
    };
    let excess_weight = EXCESS_WEIGHT * heat;
    let cooling = root(temperature(COLD) / heat, blocks);
    // The allowed cost of moves grows as the search cools: a hot search would spend all of it on noise, and a cold one
    // needs it, since swaps of two unmoved models are its most precise steps.
    let most = state.cost_max;
    let all: f64 = of.cost.iter().sum();
    for block in 0..blocks {
        if stop() {
            break;
        }
        if start == Start::Near {
            state.cost_max = most.min(all) * ((block + 1) as f64 / blocks as f64);
        }
        let trials = block_moves.min(moves - block * block_moves);
        for _ in 0..trials {
            if let Some(step) = propose(state, dice) {
                try_step(state, step, goal, heat, excess_weight, dice);
            }
        }
        heat *= cooling;
        best.offer(state);
    }
    state.cost_max = most;
    best
}

/// The approximate change of equation 4 by moving the largest model.
fn largest(of: &Instance) -> f64 {
    let most = |amounts: &[f64], scale: &[f64]| {
        let amount = amounts.iter().copied().fold(0.0, f64::max);
        amount * scale.iter().copied().fold(0.0, f64::max)
    };
    most(&of.rate, &of.rate_scale) + of.memory_weight * most(&of.memory, &of.memory_scale)
}

/// The `count`-th root of `ratio`, which is between 0 and 1: by bisection with products only, which are equal on every
/// machine, unlike `powf`.
fn root(ratio: f64, count: u64) -> f64 {
    let power = |base: f64| {
        let (mut result, mut square, mut left) = (1.0, base, count);
        while left > 0 {
            if left & 1 == 1 {
                result *= square;
            }
            square *= square;
            left >>= 1;
        }
        result
    };
    let (mut low, mut high) = (0.0_f64, 1.0_f64);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if power(middle) < ratio { low = middle } else { high = middle }
    }
    high
}

#[inline]
fn propose(state: &State<'_>, dice: &mut Dice) -> Option<Step> {
    let of = state.of;
    let (choice, place) = dice.two_below(256, of.models);
    // With a limit on disruption most steps would only spend it, so half of them start with a model that has already
    // moved.
    let tight = state.cost_max.is_finite() && !state.displaced.is_empty();
    if tight && choice & 1 == 1 {
        return spend_again(state, dice);
    }
    let model = place;
    let from = state.part_of[model] as usize;
    let (to, other) = if (choice as u64) < SWAPS_OF_256 {
        let other = dice.below(of.models);
        (state.part_of[other] as usize, Some(other))
    } else {
        (dice.below(of.parts), None)
    };
    (from != to).then_some(Step { model, from, to, other })
}

/// A step of a model that is away from home: back home or to another part, alone or as a swap.
fn spend_again(state: &State<'_>, dice: &mut Dice) -> Option<Step> {
    let of = state.of;
    let (choice, at) = dice.two_below(4, state.displaced.len());
    let model = state.displaced[at] as usize;
    let from = state.part_of[model] as usize;
    let to = if choice & 1 == 0 { state.home(model)? } else { dice.below(of.parts) };
    if from == to {
        return None;
    }
    let there = &state.members[to];
    let other = (choice & 2 == 0 && !there.is_empty()).then(|| there[dice.below(there.len())] as usize);
    Some(Step { model, from, to, other })
}

/// The increase of the sum of squares by a step.
#[inline]
fn worse(state: &State<'_>, step: Step) -> f64 {
    let [from, to] = state.filled_after(step);
    let before = state.potential(state.filled(step.from)) + state.potential(state.filled(step.to));
    state.potential(from) + state.potential(to) - before
}

#[inline]
fn try_step(state: &mut State<'_>, step: Step, goal: Goal, heat: f64, excess_weight: f64, dice: &mut Dice) {
    let worse = match goal {
        Goal::Squares => worse(state, step),
        Goal::Furthest => objective_with(state, Some(step)) - objective_with(state, None),
    };
    let allowed = heat * dice.exponential();
    let sound = state.excess[step.from] == 0.0 && state.excess[step.to] == 0.0;
    if sound && worse > allowed {
        return;
    }
    let Some(outcome) = state.outcome(step) else { return };
    if worse + excess_weight * outcome.excess <= allowed {
        state.take(step, outcome);
    }
}

#[cfg(test)]
mod tests {
    use rand_xoshiro::rand_core::SeedableRng;

    use super::*;

    #[test]
    fn the_exponential_has_mean_one_and_the_tail_of_one() {
        let mut dice = Dice(Xoshiro256PlusPlus::seed_from_u64(1));
        let drawn: Vec<f64> = (0..100_000).map(|_| dice.exponential()).collect();
        let mean = drawn.iter().sum::<f64>() / 1e5;
        let beyond = |x: f64| drawn.iter().filter(|&&e| e > x).count() as f64 / 1e5;
        assert!((mean - 1.0).abs() < 0.06, "{mean}");
        assert!((beyond(1.0) - 0.368).abs() < 0.03 && (beyond(3.0) - 0.05).abs() < 0.01);
        assert!(drawn.iter().all(|&e| e > 0.0));
    }

    #[test]
    fn a_root_is_a_root() {
        for (ratio, count) in [(0.5, 1), (1e-8, 1000), (1e-8, 3)] {
            assert!((root(ratio, count).powf(count as f64) / ratio - 1.0).abs() < 1e-6);
        }
    }
}
