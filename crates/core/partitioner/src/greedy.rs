//! The initial division: large models first, each to the best part (longest processing time first, in two resources).

use crate::instance::NOWHERE;
use crate::state::State;

/// Places every unplaced model. Models that few parts may have go first, since only they depend on that room.
pub(crate) fn place(state: &mut State<'_>) {
    let of = state.of;
    let (rate, memory): (f64, f64) = (of.rate.iter().sum(), of.memory.iter().sum());
    let part_of = |total: f64, amount: f64| if total > 0.0 { amount / total } else { 0.0 };
    let choices = |model: usize| (0..of.parts).filter(|&part| of.allows(model, part)).count();
    let mut open: Vec<_> = (0..of.models)
        .filter(|&model| state.part_of[model] == NOWHERE)
        .map(|model| {
            let size = part_of(rate, of.rate[model]) + of.memory_weight * part_of(memory, of.memory[model]);
            (choices(model), size, model)
        })
        .collect();
    open.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.total_cmp(&a.1)).then(a.2.cmp(&b.2)));
    for (_, _, model) in open {
        let mut best: Option<(f64, f64, usize)> = None;
        for part in (0..of.parts).filter(|&part| of.allows(model, part)) {
            let excess = state.excess_with(part, None, Some(model)) - state.excess[part];
            // Half of the growth of the sum of squares, so that the model's own size counts as much as the present
            // content.
            let (full, held) = state.filled(part);
            let (more, wider) = (of.rate[model], of.memory[model]);
            let grows = part_of(rate, more) * (full + 0.5 * more * of.rate_scale[part])
                + of.memory_weight * part_of(memory, wider) * (held + 0.5 * wider * of.memory_scale[part]);
            if best.is_none_or(|(most, growth, _)| excess < most || (excess == most && grows < growth)) {
                best = Some((excess, grows, part));
            }
        }
        if let Some((_, _, part)) = best {
            state.put(model, part);
        }
    }
}
