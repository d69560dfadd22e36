//! A division during the search: sums per part, and the effect of a change on them.

use crate::balance::Balance;
use crate::dynamic_max::DynamicMax;
use crate::instance::{Instance, NOWHERE};

/// The relative rounding error of sums after many changes: limits are kept to within this.
pub(crate) const SLACK: f64 = 1e-9;

/// The present and the previous division.
#[derive(Clone, Debug)]
pub(crate) struct State<'a> {
    pub(crate) of: &'a Instance,
    /// The part of each model; [`NOWHERE`] before it is placed.
    pub(crate) part_of: Vec<u32>,
    pub(crate) members: Vec<Vec<u32>>,
    /// The index of each model among its part's members.
    place: Vec<u32>,
    pub(crate) rate: Vec<f64>,
    pub(crate) memory: Vec<f64>,
    /// Static memory by part, in the order of its kinds.
    held: Vec<Vec<f64>>,
    /// By kind.
    dynamic: Vec<DynamicMax>,
    /// The load of parts with their own GPUs.
    load: Vec<f64>,
    /// The relative limit violation of each part.
    pub(crate) excess: Vec<f64>,
    /// The part of each model in the plan in force; [`NOWHERE`] if it is new.
    home: Vec<u32>,
    /// The number of models away from home.
    pub(crate) displaced: Vec<u32>,
    displaced_at: Vec<u32>,
    /// The cost of the moves so far.
    pub(crate) cost: f64,
    pub(crate) cost_max: f64,
}

/// A step: `model` goes to `to`; `other`, if any, goes the opposite way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) model: usize,
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) other: Option<usize>,
}

/// The effect of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    pub(crate) from_excess: f64,
    pub(crate) to_excess: f64,
    /// Change of the two parts' total excess.
    pub(crate) excess: f64,
}

impl<'a> State<'a> {
    /// With every model unplaced.
    pub(crate) fn new(of: &'a Instance, home: Vec<u32>, cost_max: f64) -> Self {
        let (models, parts) = (of.models, of.parts);
        Self {
            of,
            part_of: vec![NOWHERE; models],
            members: vec![Vec::new(); parts],
            place: vec![0; models],
            rate: vec![0.0; parts],
            memory: vec![0.0; parts],
            held: of.memory_max.iter().map(|kinds| vec![0.0; kinds.len()]).collect(),
            dynamic: of.dynamic.iter().map(|dynamic| DynamicMax::new(dynamic, parts)).collect(),
            load: vec![0.0; parts],
            excess: vec![0.0; parts],
            home,
            displaced: Vec::new(),
            displaced_at: vec![NOWHERE; models],
            cost: 0.0,
            cost_max,
        }
    }

    /// These models in the given parts.
    pub(crate) fn with(&self, part_of: &[u32]) -> Self {
        let mut state = Self::new(self.of, self.home.clone(), self.cost_max);
        for (model, &part) in part_of.iter().enumerate() {
            if part != NOWHERE {
                state.put(model, part as usize);
            }
        }
        state
    }

    /// Places a model in a part.
    pub(crate) fn put(&mut self, model: usize, part: usize) {
        self.attach(model, part);
        self.excess[part] = self.excess_with(part, None, None);
    }

    fn attach(&mut self, model: usize, part: usize) {
        let of = self.of;
        self.part_of[model] = part as u32;
        self.place[model] = self.members[part].len() as u32;
        self.members[part].push(model as u32);
        self.rate[part] += of.rate[model];
        self.memory[part] += of.memory[model];
        for (held, &(kind, _)) in self.held[part].iter_mut().zip(&of.memory_max[part]) {
            *held += of.held[kind][model];
            self.dynamic[kind].put(part, model);
        }
        if let Some(load) = &of.load[part] {
            self.load[part] += load[model];
        }
        if self.is_displaced(model, part) {
            self.displaced_at[model] = self.displaced.len() as u32;
            self.displaced.push(model as u32);
            self.cost += of.cost[model];
        }
    }

    fn detach(&mut self, model: usize) {
        let of = self.of;
        let part = self.part_of[model] as usize;
        let place = self.place[model] as usize;
        self.members[part].swap_remove(place);
        if let Some(&moved) = self.members[part].get(place) {
            self.place[moved as usize] = place as u32;
        }
        self.rate[part] -= of.rate[model];
        self.memory[part] -= of.memory[model];
        for (held, &(kind, _)) in self.held[part].iter_mut().zip(&of.memory_max[part]) {
            *held -= of.held[kind][model];
            self.dynamic[kind].take(part, model);
        }
        if let Some(load) = &of.load[part] {
            self.load[part] -= load[model];
        }
        if self.displaced_at[model] != NOWHERE {
            let at = self.displaced_at[model] as usize;
            self.displaced.swap_remove(at);
            if let Some(&moved) = self.displaced.get(at) {
                self.displaced_at[moved as usize] = at as u32;
            }
            self.displaced_at[model] = NOWHERE;
            self.cost -= of.cost[model];
        }
        self.part_of[model] = NOWHERE;
    }

    #[inline]
    fn is_displaced(&self, model: usize, part: usize) -> bool {
        let home = self.home[model];
        home != NOWHERE && home != part as u32
    }

    /// The part's violation of its limits after `out` leaves and `into` enters (equations 5 and 6, and its own GPUs).
    pub(crate) fn excess_with(&self, part: usize, out: Option<usize>, into: Option<usize>) -> f64 {
        let of = self.of;
        let after =
            |now: f64, of: &[f64]| now - out.map_or(0.0, |model| of[model]) + into.map_or(0.0, |model| of[model]);
        let over =
            |amount: f64, max: f64| if amount > max * (1.0 + SLACK) { amount / max.max(1e-300) - 1.0 } else { 0.0 };
        let mut excess = over(after(self.rate[part], &of.rate), of.rate_max[part]);
        for (&held, &(kind, max)) in self.held[part].iter().zip(&of.memory_max[part]) {
            let held = after(held, &of.held[kind]);
            // Usually it fits even with the largest of all models.
            if held + self.dynamic[kind].most() > max {
                excess += over(held + self.dynamic[kind].largest(part, out, into), max);
            }
        }
        if let Some(load) = &of.load[part] {
            excess += over(after(self.load[part], load), 1.0);
        }
        excess
    }

    /// Whether the step is possible, and its effect on limits and cost.
    #[inline]
    pub(crate) fn outcome(&self, step: Step) -> Option<Outcome> {
        let Step { model, from, to, other } = step;
        if !self.of.allows(model, to) || other.is_some_and(|other| !self.of.allows(other, from)) {
            return None;
        }
        let mut cost = self.cost_of_move(model, to);
        if let Some(other) = other {
            cost += self.cost_of_move(other, from);
        }
        if cost > 0.0 && !self.affords(self.cost + cost) {
            return None;
        }
        let from_excess = self.excess_with(from, Some(model), other);
        let to_excess = self.excess_with(to, other, Some(model));
        let excess = from_excess + to_excess - self.excess[from] - self.excess[to];
        Some(Outcome { from_excess, to_excess, excess })
    }

    /// Whether the moves may have this total cost.
    #[inline]
    pub(crate) fn affords(&self, cost: f64) -> bool {
        cost <= self.cost_max * (1.0 + SLACK)
    }

    /// The other parts where the model may be.
    pub(crate) fn elsewhere(&self, model: usize) -> impl Iterator<Item = usize> {
        let here = self.part_of[model] as usize;
        (0..self.of.parts).filter(move |&part| part != here && self.of.allows(model, part))
    }

    /// The total cost of moves if it is this now and the model leaves its part; `None` if it cannot, or if that is too
    /// much. The target does not matter: a model away from home may be unable to return there.
    pub(crate) fn cost_elsewhere(&self, model: usize, cost: f64) -> Option<f64> {
        let after = cost + self.cost_of_move(model, self.elsewhere(model).next()?);
        (after <= cost || self.affords(after)).then_some(after)
    }

    /// The model's home in the plan in force.
    pub(crate) fn home(&self, model: usize) -> Option<usize> {
        Some(self.home[model]).filter(|&home| home != NOWHERE).map(|home| home as usize)
    }

    fn cost_of(&self, model: usize, part: usize) -> f64 {
        if self.is_displaced(model, part) { self.of.cost[model] } else { 0.0 }
    }

    pub(crate) fn take(&mut self, step: Step, outcome: Outcome) {
        let Step { model, from, to, other } = step;
        self.detach(model);
        if let Some(other) = other {
            self.detach(other);
            self.attach(other, from);
        }
        self.attach(model, to);
        self.excess[from] = outcome.from_excess;
        self.excess[to] = outcome.to_excess;
    }

    /// Moves models between two parts regardless of limits and cost, and recomputes the violations. The same call again
    /// undoes it.
    pub(crate) fn exchange(&mut self, parts: (usize, usize), models: &[u32]) {
        let (a, b) = parts;
        for &model in models {
            let model = model as usize;
            let to = if self.part_of[model] as usize == a { b } else { a };
            self.detach(model);
            self.attach(model, to);
        }
        for part in [a, b] {
            self.excess[part] = self.excess_with(part, None, None);
        }
    }

    /// The change of the total cost by moving the model to a part; negative if it returns home.
    #[inline]
    pub(crate) fn cost_of_move(&self, model: usize, to: usize) -> f64 {
        self.cost_of(model, to) - self.cost_of(model, self.part_of[model] as usize)
    }

    /// The part's rate and memory relative to its targets; 1 is ideal.
    #[inline]
    pub(crate) fn filled(&self, part: usize) -> (f64, f64) {
        (self.rate[part] * self.of.rate_scale[part], self.memory[part] * self.of.memory_scale[part])
    }

    /// What [`filled`](Self::filled) gives for both parts of a step, after it.
    #[inline]
    pub(crate) fn filled_after(&self, step: Step) -> [(f64, f64); 2] {
        let Step { model, from, to, other } = step;
        let of = self.of;
        let back = |amounts: &[f64]| other.map_or(0.0, |other| amounts[other]);
        let (rate, memory) = (of.rate[model] - back(&of.rate), of.memory[model] - back(&of.memory));
        let at = |part: usize, rate: f64, memory: f64| {
            ((self.rate[part] + rate) * of.rate_scale[part], (self.memory[part] + memory) * of.memory_scale[part])
        };
        [at(from, -rate, -memory), at(to, rate, memory)]
    }

    /// The deviations of rate and memory at these ratios; zero if there is nothing to divide.
    #[inline]
    pub(crate) fn off(&self, (rate, memory): (f64, f64)) -> (f64, f64) {
        let of = |filled: f64, scale: f64| if scale > 0.0 { (filled - 1.0).abs() } else { 0.0 };
        (of(rate, self.of.rate_scale[0]), of(memory, self.of.memory_scale[0]))
    }

    /// The squared deviation: annealing minimises its sum, which is more sensitive than the largest deviation.
    #[inline]
    pub(crate) fn potential(&self, filled: (f64, f64)) -> f64 {
        let (rate, memory) = self.off(filled);
        rate * rate + self.of.memory_weight * memory * memory
    }

    pub(crate) fn total_excess(&self) -> f64 {
        self.excess.iter().sum()
    }

    pub(crate) fn balance(&self) -> Balance {
        balance_of(self.of, &self.part_of)
    }
}

/// The balance of a complete division, summed from scratch.
pub(crate) fn balance_of(of: &Instance, part_of: &[u32]) -> Balance {
    let (mut rate, mut memory) = (vec![0.0; of.parts], vec![0.0; of.parts]);
    for (model, &part) in part_of.iter().enumerate() {
        rate[part as usize] += of.rate[model];
        memory[part as usize] += of.memory[model];
    }
    let filled = |sums: Vec<f64>, scale: &[f64]| -> Vec<f64> {
        sums.iter().zip(scale).map(|(sum, &scale)| if scale > 0.0 { sum * scale } else { 1.0 }).collect()
    };
    Balance::of(&filled(rate, &of.rate_scale), &filled(memory, &of.memory_scale), of.memory_weight)
}
