//! The parts with the largest deviation, which determine equation 4.

use crate::state::State;

/// The parts with the largest deviation in one resource.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Furthest {
    /// Deviation and part; three, so that one remains when both parts of a step are among them.
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

    /// The largest deviation.
    pub(crate) fn distance(&self) -> f64 {
        self.off[0].0
    }

    /// The part with the largest deviation.
    pub(crate) fn part(&self) -> usize {
        self.off[0].1
    }

    /// The largest deviation without `a` and `b`.
    pub(crate) fn beside(&self, a: usize, b: usize) -> f64 {
        self.off.iter().find(|&&(_, part)| part != a && part != b).map_or(0.0, |&(distance, _)| distance.max(0.0))
    }
}

/// Both resources, and equation 4.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extremes {
    pub(crate) rate: Furthest,
    pub(crate) memory: Furthest,
    pub(crate) objective: f64,
}

impl Extremes {
    pub(crate) fn of(state: &State<'_>) -> Self {
        let each = |part: usize| state.off(state.filled(part));
        let parts = 0..state.of.parts;
        let rate = Furthest::of(parts.clone().map(|part| each(part).0));
        let memory = Furthest::of(parts.map(|part| each(part).1));
        Self { rate, memory, objective: rate.distance() + state.of.memory_weight * memory.distance() }
    }

    /// Equation 4 if parts `a` and `b` had these deviations in rate and memory.
    #[inline]
    pub(crate) fn objective_with(&self, (a, b): (usize, usize), (rate, memory): (f64, f64), memory_weight: f64) -> f64 {
        self.rate.beside(a, b).max(rate) + memory_weight * self.memory.beside(a, b).max(memory)
    }
}
