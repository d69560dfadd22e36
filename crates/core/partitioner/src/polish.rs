//! The end of a search: minimises equation 4 itself instead of the sum of squares.

use crate::anneal::{BLOCK, Dice, settled};
use crate::furthest::Extremes;
use crate::state::{State, Step};

/// Lowers the largest deviations with the given number of trials: only steps that involve the part furthest off can.
pub(crate) fn polish(state: &mut State<'_>, moves: u64, dice: &mut Dice, stop: &dyn Fn() -> bool) {
    let of = state.of;
    if of.parts < 2 {
        return;
    }
    let mut furthest = Extremes::of(state);
    for trial in 0..moves {
        if trial % BLOCK == 0 && stop() {
            break;
        }
        let from = if trial & 1 == 0 { furthest.rate.part() } else { furthest.memory.part() };
        let to = dice.below(of.parts);
        if from == to || from == usize::MAX {
            continue;
        }
        let Some(step) = between(state, from, to, dice) else { continue };
        let [a, b] = state.filled_after(step);
        let (a_off, b_off) = (state.off(a), state.off(b));
        let off = (a_off.0.max(b_off.0), a_off.1.max(b_off.1));
        let new = furthest.objective_with((step.from, step.to), off, of.memory_weight);
        if new > furthest.objective {
            continue;
        }
        // If several parts are equally far off, the sum of squares shows which step makes progress.
        let closer = || {
            let before = state.potential(state.filled(step.from)) + state.potential(state.filled(step.to));
            state.potential(a) + state.potential(b) < before
        };
        if new == furthest.objective && !closer() {
            continue;
        }
        let Some(outcome) = state.outcome(step).filter(|outcome| settled(outcome.excess) == 0.0) else { continue };
        state.take(step, outcome);
        furthest = Extremes::of(state);
    }
}

/// A swap between two parts, or a move from one to the other.
fn between(state: &State<'_>, from: usize, to: usize, dice: &mut Dice) -> Option<Step> {
    let (here, there) = (&state.members[from], &state.members[to]);
    let pick = |members: &[u32], dice: &mut Dice| members[dice.below(members.len())] as usize;
    // With a limit on disruption most other steps cost more than is left, but a model that has already moved costs
    // nothing.
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
