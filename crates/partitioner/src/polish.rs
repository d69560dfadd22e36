//! The end of a search: equation 4 itself instead of the sum of squares.

use crate::anneal::{BLOCK, Best, Dice, settled};
use crate::state::{State, Step};

/// The parts that are furthest off, in one resource.
#[derive(Clone, Copy, Debug, Default)]
struct Furthest {
    /// Distance and part; three, so that one is left when both parts of a step are among them.
    off: [(f64, usize); 3],
}

impl Furthest {
    fn of(distances: impl Iterator<Item = f64>) -> Self {
        let mut off = [(-1.0, usize::MAX); 3];
        for (part, distance) in distances.enumerate() {
            if distance > off[2].0 {
                off[2] = (distance, part);
                if off[2].0 > off[1].0 {
                    off.swap(1, 2);
                }
                if off[1].0 > off[0].0 {
                    off.swap(0, 1);
                }
            }
        }
        Self { off }
    }

    /// The largest distance if `a` and `b` leave.
    fn beside(&self, a: usize, b: usize) -> f64 {
        self.off.iter().find(|&&(_, part)| part != a && part != b).map_or(0.0, |&(distance, _)| distance.max(0.0))
    }
}

/// Lowers the largest distances with so many trials: only steps of the part that is furthest off can.
pub(crate) fn polish(state: &mut State<'_>, moves: u64, dice: &mut Dice, stop: &dyn Fn() -> bool) -> Best {
    let of = state.of;
    let mut best = Best::of(state);
    if of.parts < 2 {
        return best;
    }
    let rated = of.rate_scale[0] > 0.0;
    let sized = of.memory_scale[0] > 0.0;
    let off = |(rate, memory): (f64, f64)| {
        (if rated { (rate - 1.0).abs() } else { 0.0 }, if sized { (memory - 1.0).abs() } else { 0.0 })
    };
    let look = |state: &State<'_>| {
        let each = |part: usize| off(state.filled(part));
        (Furthest::of((0..of.parts).map(|part| each(part).0)), Furthest::of((0..of.parts).map(|part| each(part).1)))
    };
    let (mut rate, mut memory) = look(state);
    let mut objective = rate.off[0].0 + of.memory_weight * memory.off[0].0;
    for trial in 0..moves {
        if trial % BLOCK == 0 && stop() {
            break;
        }
        let from = if trial & 1 == 0 { rate.off[0].1 } else { memory.off[0].1 };
        let to = dice.below(of.parts);
        if from == to || from == usize::MAX {
            continue;
        }
        let Some(step) = between(state, from, to, dice) else { continue };
        let [a, b] = state.filled_after(step);
        let (a_off, b_off) = (off(a), off(b));
        let new_rate = rate.beside(step.from, step.to).max(a_off.0).max(b_off.0);
        let new_memory = memory.beside(step.from, step.to).max(a_off.1).max(b_off.1);
        let new = new_rate + of.memory_weight * new_memory;
        if new > objective {
            continue;
        }
        // Where several parts are equally far off, the sum of squares says which step leads on.
        let closer = || {
            let before = state.potential(state.filled(step.from)) + state.potential(state.filled(step.to));
            state.potential(a) + state.potential(b) < before
        };
        if new == objective && !closer() {
            continue;
        }
        let Some(outcome) = state.outcome(step).filter(|outcome| settled(outcome.excess) == 0.0) else { continue };
        state.take(step, outcome);
        (rate, memory) = look(state);
        objective = rate.off[0].0 + of.memory_weight * memory.off[0].0;
    }
    best.offer(state);
    best
}

/// A swap between two parts, or a move from one to the other.
fn between(state: &State<'_>, from: usize, to: usize, dice: &mut Dice) -> Option<Step> {
    let (here, there) = (&state.members[from], &state.members[to]);
    let pick = |members: &[u32], dice: &mut Dice| members[dice.below(members.len())] as usize;
    // With a bound on disruption most other steps cost more than is left: one whose model has moved already costs nothing.
    if state.cost_max.is_finite() && !state.displaced.is_empty() && dice.below(4) > 0 {
        let model = state.displaced[dice.below(state.displaced.len())] as usize;
        let at = state.part_of[model] as usize;
        // Out of the part that is furthest off, or into it.
        let to = if at == from { to } else { from };
        let there = &state.members[to];
        let other = (!there.is_empty() && dice.below(3) > 0).then(|| pick(there, dice));
        return Some(Step { model, from: at, to, other });
    }
    match (dice.below(8), here.is_empty(), there.is_empty()) {
        (0, false, _) | (_, false, true) => Some(Step { model: pick(here, dice), from, to, other: None }),
        (1, _, false) | (_, true, false) => Some(Step { model: pick(there, dice), from: to, to: from, other: None }),
        (_, false, false) => Some(Step { model: pick(here, dice), from, to, other: Some(pick(there, dice)) }),
        _ => None,
    }
}
