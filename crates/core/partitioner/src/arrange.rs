//! Places models and GPUs together, where GPUs belong to processes: which models and which processes go to which part.

use std::collections::BTreeMap;

use crate::change::{Change, homes};
use crate::gpu_need::gpu_need;
use crate::instance::{Instance, LOAD_MAX, load_of};
use crate::partition_plan::PartitionPlan;
use crate::problem::{Gpu, Part, PartKind, Problem};
use crate::solve::{Budget, solve};
use crate::unplaceable::{UnplaceableModel, fits, remove_unplaceable, reserve};
use crate::unsolved::Unsolved;
use crate::verify::{Violation, verify};

/// Rounds of models and units in turn. Each but the last lowers an overload or an imbalance by a share, so few are
/// used.
const ROUNDS_MAX: usize = 16;

/// The GPUs of one process, which change parts together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Index of the part in which it is, in [`Problem::parts`].
    pub part: usize,
    /// Whether its GPUs take work and it may move. Otherwise it still limits which models its part can hold.
    pub works: bool,
    /// The GPUs that move with it.
    pub gpus: Vec<UnitGpu>,
}

/// A GPU of a group that changes parts together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitGpu {
    /// Its name, used in plans.
    pub name: String,
    /// Index of its kind in [`Problem::kinds`].
    pub kind: usize,
    /// Memory that models may take on it, in bytes.
    pub memory_bytes: u64,
}

/// A placement of models and units.
#[derive(Clone, Debug, PartialEq)]
pub struct Arranged {
    /// The problem that the plan answers: each GPU belongs to the target part of its unit, and models that were set
    /// aside are left out.
    pub problem: Problem,
    /// Where models and GPUs are after the moves.
    pub plan: PartitionPlan,
    /// The part of each unit, in the order of the units.
    pub places: Vec<usize>,
    /// Models that fit nowhere and stay where they are.
    pub unplaceable: Vec<UnplaceableModel>,
    /// The cost of moving the units, in the unit of C_max.
    pub units_cost: f64,
}

/// Divides models and units among the parts of `base`, whose GPUs, kinds and shares are taken from the units: every
/// part has one that works.
///
/// Models are divided first, by the GPUs that are there; then units go to parts whose GPUs are too few for their models
/// ([`LOAD_MAX`]), if that lessens the overload by [`Steadiness::gain_min_share`](crate::Steadiness::gain_min_share);
/// and again, until neither changes anything. A part's share of rate and memory does not depend on where units are, so
/// every round lowers the same two numbers, overload first, and asking again from the outcome moves nothing (C4), but
/// for the units that follow.
///
/// A unit moves as a whole. A part keeps a unit that works and was there, for each kind that it has, since those that
/// come hold no model yet; when they do, the next call may let it go. Nothing comes to where it cannot hold all models.
///
/// # Errors
/// As [`solve`].
pub fn arrange(
    base: &Problem,
    units: &[Unit],
    previous: &PartitionPlan,
    budget: &Budget<'_>,
) -> Result<Arranged, Unsolved> {
    check(base, units)?;
    let mut grounds = base.clone();
    let mut places: Vec<usize> = units.iter().map(|unit| unit.part).collect();
    settle_parts(&mut grounds, units, &places);
    let aside = remove_unplaceable(&mut grounds, previous);
    if grounds.models.is_empty() {
        return Err(Unsolved::Bad("every model can be nowhere".to_owned()));
    }
    let mut in_force = previous.clone();
    let mut units_cost = 0.0;
    let mut left = base.disruption_max;
    let mut found: Option<Arranged> = None;
    for _ in 0..ROUNDS_MAX {
        let mut unreserved = grounds.clone();
        settle_parts(&mut unreserved, units, &places);
        unreserved.disruption_max = left;
        let mut problem = unreserved.clone();
        reserve(&aside, &mut problem, &in_force);
        let mut solved = solve(&problem, Some(&in_force), budget);
        if solved.as_ref().is_ok_and(|plan| !fits(&aside, &unreserved, plan)) {
            // No limits are shared then.
            problem = unreserved;
            reserve(&aside, &mut problem, &PartitionPlan::default());
            solved = solve(&problem, Some(&in_force), budget);
        }
        let plan = match (solved, found) {
            (Ok(plan), _) => plan,
            // The previous result is valid.
            (Err(_), Some(found)) => return Ok(found),
            (Err(unsolved), None) => return Err(unsolved),
        };
        let cost = Change::between(&problem, &in_force, &plan).cost;
        left = left.map(|left| (left - cost).max(0.0));
        let mut fleet = Fleet::new(&problem, units, &places, &plan, &aside);
        let spent = fleet.relieve(left);
        problem.disruption_max = base.disruption_max;
        let next = fleet.places;
        let cut_short = plan.cut_short;
        in_force = plan.clone();
        let arranged = Arranged { problem, plan, places: places.clone(), unplaceable: aside.clone(), units_cost };
        if next == places {
            return Ok(arranged);
        }
        units_cost += spent;
        left = left.map(|left| (left - spent).max(0.0));
        places = next;
        // The present models and the new units: the result if there is no further round.
        let mut moved = arranged.problem;
        settle_parts(&mut moved, units, &places);
        reserve(&aside, &mut moved, &arranged.plan);
        let division = homes(&moved, &arranged.plan);
        let plan = PartitionPlan { cut_short, ..PartitionPlan::of(&moved, &Instance::new(&moved), &division, None) };
        found = Some(Arranged { problem: moved, plan, places: places.clone(), unplaceable: aside.clone(), units_cost });
        if cut_short {
            break;
        }
    }
    found.ok_or_else(|| Unsolved::Bad("no round was made".to_owned()))
}

impl Arranged {
    /// All violations in it, judged by names and numbers alone, with `previous` in force.
    #[must_use]
    pub fn verify(&self, units: &[Unit], previous: &PartitionPlan) -> Vec<Violation> {
        let mut found = verify(&self.problem, Some(previous), &self.plan);
        let mut wrong = |gpu: &str, why: &str| {
            found.push(Violation::Gpu { gpu: gpu.to_owned(), why: why.to_owned() });
        };
        for (unit, &place) in units.iter().zip(&self.places) {
            let first = unit.gpus.first().map_or("", |gpu| gpu.name.as_str());
            if !unit.works && place != unit.part {
                wrong(first, "its process takes no work and is to move");
            }
            for gpu in &unit.gpus {
                let here = |part: &crate::PartPlan| part.gpus.iter().any(|gpus| gpus.names.contains(&gpu.name));
                if unit.works && !self.plan.parts.get(place).is_some_and(here) {
                    wrong(&gpu.name, "it is not in the part of its process");
                }
                let held = self.plan.parts.get(place).map_or(0, |part| self.held_bytes(part, gpu.kind));
                if place != unit.part && held > gpu.memory_bytes {
                    wrong(&gpu.name, "it has no room for the models of the part that it is to move to");
                }
            }
            let stays = |part: usize| {
                units.iter().zip(&self.places).any(|(other, &at)| other.works && other.part == part && at == part)
            };
            if place != unit.part && !stays(unit.part) {
                wrong(first, "its process is the last one of its part that holds its models");
            }
        }
        found
    }

    /// Σ static + max dynamic of a part's models on a GPU kind.
    fn held_bytes(&self, part: &crate::PartPlan, kind: usize) -> u64 {
        let models = self.problem.models.iter().filter(|model| part.models.contains(&model.name));
        let needs: Vec<_> = models.filter_map(|model| model.needs[kind].as_ref()).collect();
        let held: u64 = needs.iter().map(|need| need.static_memory_bytes).sum();
        held + needs.iter().map(|need| need.dynamic_memory_bytes).max().unwrap_or(0)
    }
}

fn check(base: &Problem, units: &[Unit]) -> Result<(), Unsolved> {
    for (at, unit) in units.iter().enumerate() {
        let known = unit.part < base.parts.len() && unit.gpus.iter().all(|gpu| gpu.kind < base.kinds.len());
        if !known || unit.gpus.is_empty() {
            return Err(Unsolved::Bad(format!("unit {at} is in a part, or has a kind of GPU, that does not exist")));
        }
    }
    let served = |part: usize| units.iter().any(|unit| unit.works && unit.part == part);
    match (0..base.parts.len()).find(|&part| !served(part)) {
        Some(part) => Err(Unsolved::Bad(format!("part {} has no unit that works", base.parts[part].name))),
        None => Ok(()),
    }
}

/// Sets GPUs, kinds, memory and shares of the parts from their units.
///
/// A part's share assumes that each kind is divided equally among the parts that have it, so it does not depend on
/// where the units are.
fn settle_parts(problem: &mut Problem, units: &[Unit], places: &[usize]) {
    for (at, part) in problem.parts.iter_mut().enumerate() {
        let here = || units.iter().zip(places).filter(|&(_, &place)| place == at).flat_map(|(unit, _)| &unit.gpus);
        let least = |kind: usize| here().filter(|gpu| gpu.kind == kind).map(|gpu| gpu.memory_bytes).min();
        let kinds = (0..problem.kinds.len()).filter_map(|kind| {
            let memory_max_bytes = least(kind)?;
            Some(PartKind { kind, memory_max_bytes })
        });
        part.kinds = kinds.collect();
    }
    let working = || units.iter().zip(places).filter(|(unit, _)| unit.works);
    problem.gpus = working()
        .flat_map(|(unit, &place)| unit.gpus.iter().map(move |gpu| (gpu, place)))
        .map(|(gpu, place)| Gpu { name: gpu.name.clone(), kind: gpu.kind, part: Some(place) })
        .collect();
    let has = |part: &Part, kind: usize| part.kinds.iter().any(|own| own.kind == kind);
    let per_part: Vec<f64> = (0..problem.kinds.len())
        .map(|kind| {
            let gpus = problem.gpus.iter().filter(|gpu| gpu.kind == kind).count();
            let parts = problem.parts.iter().filter(|part| has(part, kind)).count();
            gpus as f64 / parts.max(1) as f64
        })
        .collect();
    for part in &mut problem.parts {
        part.share = part.kinds.iter().map(|own| per_part[own.kind]).sum();
    }
}

/// The units during their distribution, with the models fixed.
struct Fleet<'a> {
    units: &'a [Unit],
    places: Vec<usize>,
    /// Working GPUs by part and kind.
    counts: Vec<Vec<u32>>,
    /// The GPUs that each part's models need of each kind, one by one; infinite if a model cannot run there.
    needs: Vec<Vec<Vec<f64>>>,
    /// The bytes that they need on a GPU of each kind; `None` if a model cannot run there.
    held: Vec<Vec<Option<u64>>>,
    /// The cost of moving all models of the part.
    cost: Vec<f64>,
    kinds: Vec<Vec<usize>>,
    gain: f64,
}

impl<'a> Fleet<'a> {
    fn new(
        problem: &Problem,
        units: &'a [Unit],
        places: &[usize],
        plan: &PartitionPlan,
        aside: &[UnplaceableModel],
    ) -> Self {
        let kinds = problem.kinds.len();
        let mut counts = vec![vec![0; kinds]; problem.parts.len()];
        for (unit, &place) in units.iter().zip(places).filter(|(unit, _)| unit.works) {
            unit.gpus.iter().for_each(|gpu| counts[place][gpu.kind] += 1);
        }
        let mut fleet = Self {
            units,
            places: places.to_vec(),
            counts,
            needs: Vec::new(),
            held: Vec::new(),
            cost: Vec::new(),
            kinds: problem.parts.iter().map(|part| part.kinds.iter().map(|own| own.kind).collect()).collect(),
            gain: problem.steadiness.gain_min_share,
        };
        let by_name: BTreeMap<&str, usize> =
            problem.models.iter().enumerate().map(|(at, model)| (model.name.as_str(), at)).collect();
        for (at, part) in plan.parts.iter().enumerate() {
            let members: Vec<_> = part.models.iter().filter_map(|name| by_name.get(name.as_str())).collect();
            let models: Vec<_> = members.iter().map(|&&model| &problem.models[model]).collect();
            let need = |model: &crate::Model, kind: usize| {
                let own = model.needs[kind].as_ref()?;
                gpu_need(&own.profile, model.rate_rps, model.slo).map(|need| need.gpus)
            };
            let of =
                |model: &&crate::Model| (0..kinds).map(|kind| need(model, kind).unwrap_or(f64::INFINITY)).collect();
            fleet.needs.push(models.iter().map(of).collect());
            let stay = aside.iter().filter(|model| model.part == Some(at)).map(|model| &model.model);
            let all: Vec<_> = models.iter().copied().chain(stay).collect();
            let held = |kind: usize| {
                let needs: Option<Vec<_>> = all.iter().map(|model| model.needs[kind].as_ref()).collect();
                let needs = needs?;
                let dynamic = needs.iter().map(|need| need.dynamic_memory_bytes).max().unwrap_or(0);
                Some(needs.iter().map(|need| need.static_memory_bytes).sum::<u64>() + dynamic)
            };
            fleet.held.push((0..kinds).map(held).collect());
            fleet.cost.push(models.iter().map(|model| model.move_cost).sum());
        }
        fleet
    }

    /// The load of a part with the GPUs of a unit added or removed.
    fn load(&self, part: usize, unit: Option<&Unit>, sign: i64) -> f64 {
        let change =
            |kind: usize| unit.map_or(0, |u| u.gpus.iter().filter(|gpu| gpu.kind == kind).count() as i64) * sign;
        let counts: Vec<u32> =
            (0..self.counts[part].len()).map(|k| (i64::from(self.counts[part][k]) + change(k)).max(0) as u32).collect();
        self.needs[part].iter().map(|needs| load_of(counts.iter().copied(), |kind| needs[kind])).sum()
    }

    /// Moves units to parts with too few GPUs until no move helps. Returns the cost.
    fn relieve(&mut self, left: Option<f64>) -> f64 {
        let mut spent = 0.0;
        let mut stuck = vec![false; self.counts.len()];
        // Every move lessens the overload by a share; the limit guards against rounding.
        for _ in 0..4 * self.units.len() {
            let short = (0..stuck.len()).filter(|&part| !stuck[part]);
            let short = short.map(|part| (self.load(part, None, 0), part)).filter(|&(load, _)| load > LOAD_MAX);
            let Some((_, to)) = short.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1))) else { break };
            let Some((unit, cost)) = self.helper(to, left.map(|left| left - spent)) else {
                stuck[to] = true;
                continue;
            };
            spent += cost;
            let from = std::mem::replace(&mut self.places[unit], to);
            for gpu in &self.units[unit].gpus {
                self.counts[from][gpu.kind] -= 1;
                self.counts[to][gpu.kind] += 1;
            }
            stuck.fill(false);
        }
        spent
    }

    /// The best unit for the part, and the cost of its move. Order: least remaining overload, fewest moved GPUs, least
    /// loss for its old part; of equal ones the last, as when GPUs are released.
    fn helper(&self, to: usize, left: Option<f64>) -> Option<(usize, f64)> {
        let over = |load: f64| (load / LOAD_MAX - 1.0).max(0.0);
        let now = self.load(to, None, 0);
        let mut best: Option<((f64, usize, f64), usize, f64)> = None;
        for (at, unit) in self.units.iter().enumerate() {
            let from = self.places[at];
            if from == to || !unit.works || !self.may_go(at, to) {
                continue;
            }
            let here = f64::from(self.counts[to].iter().sum::<u32>());
            let cost = self.cost[to] * unit.gpus.len() as f64 / here.max(1.0);
            if left.is_some_and(|left| cost > left) {
                continue;
            }
            let (gets, gives) = (self.load(to, Some(unit), 1), self.load(from, Some(unit), -1));
            let before = over(now) + over(self.load(from, None, 0));
            let after = over(gets) + over(gives);
            let helps = gets < now && gives < now && after <= (1.0 - self.gain) * before;
            let key = (after, unit.gpus.len(), gives);
            let better = best.is_none_or(|(least, ..)| {
                key.0.total_cmp(&least.0).then(key.1.cmp(&least.1)).then(key.2.total_cmp(&least.2)).is_le()
            });
            if helps && better {
                best = Some((key, at, cost));
            }
        }
        best.map(|(_, at, cost)| (at, cost))
    }

    /// Whether the unit can hold the part's models, and another unit keeps serving the models that it leaves.
    fn may_go(&self, at: usize, to: usize) -> bool {
        let (unit, from) = (&self.units[at], self.places[at]);
        let fits = unit.gpus.iter().all(|gpu| {
            let held = self.held[to][gpu.kind];
            self.kinds[to].contains(&gpu.kind) && held.is_some_and(|held| held <= gpu.memory_bytes)
        });
        let others = || {
            let all = self.units.iter().zip(&self.places).enumerate();
            all.filter(move |&(other, (of, &place))| other != at && of.works && of.part == from && place == from)
        };
        let kind_stays = |kind: usize| others().any(|(_, (of, _))| of.gpus.iter().any(|gpu| gpu.kind == kind));
        // A unit that only passes through did not serve its part.
        fits && (unit.part != from || unit.gpus.iter().all(|gpu| kind_stays(gpu.kind)))
    }
}
