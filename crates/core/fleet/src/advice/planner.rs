//! Chooses the fleet of a running sub-cluster, and steers its autoscaler to it.

use symphony_controllers::{Advice, Autoscaler, KindWindow, Reason, Window};
use symphony_types::{Nanos, Time};

use super::Mix;
use crate::choice::{Bound, RankedFleet, rank};
use crate::classes::Merging;
use crate::fluid::FluidBound;
use crate::problem::FleetProblem;

/// The part of the bound that is counted on: `auto` answers nine tenths of it, and of these a twentieth is the reserve.
/// It decides until the autoscaler has measured the fleet, which then corrects it.
pub const FLEET_MARGIN: f64 = 0.85;
/// Requests of one measurement of the mix: by chance, two such measurements of one mix differ by [`MIX_CHANGE`] once in
/// some four thousand.
const MIX_REQUESTS: u64 = 400;
/// A difference of cumulative shares that is another mix.
const MIX_CHANGE: f64 = 0.15;
/// Fleets times classes of requests that are ranked at once: some fifty milliseconds, while reports wait.
const PLAN_WORK_MAX: u64 = 500_000;
/// What a fleet costs beside its classes, in classes.
const WORK_OF_FLEET: usize = 100;

/// GPUs of one block at most: as many as there may be of a kind.
const BLOCK_GPUS_MAX: u32 = symphony_controllers::SCALED_GPUS_MAX;

/// The fleet that was chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetPlan {
    /// GPUs by kind.
    pub counts: Vec<u32>,
    /// What one of each kind costs per hour.
    pub prices: Vec<f64>,
    /// What may be spent per hour.
    pub budget_per_hour: f64,
    /// What they cost per hour.
    pub price_per_hour: f64,
    /// No more requests per second can be answered in time by them.
    pub bound_rps: f64,
    /// The rate required of the bound: more than the present rate.
    pub needed_rps: f64,
    /// The requests per second that came when it was chosen.
    pub rate_rps: f64,
    /// Why it was chosen.
    pub reason: Reason,
}

impl FleetPlan {
    /// The next step from the present fleet: GPUs go when those that replace them serve, as far as the budget has both.
    fn step(&self, window: &Window) -> Vec<u32> {
        let coming = window.kinds.iter().zip(&self.counts).any(|(kind, &count)| serving(kind) < count);
        let both: Vec<u32> = there(window).iter().zip(&self.counts).map(|(&there, &count)| there.max(count)).collect();
        let price: f64 = both.iter().zip(&self.prices).map(|(&count, price)| f64::from(count) * price).sum();
        if coming && price <= self.budget_per_hour * (1.0 + 1e-9) { both } else { self.counts.clone() }
    }

    /// Whether the bound is as high as was asked; otherwise it is the highest within the budget.
    #[must_use]
    pub fn is_enough(&self) -> bool {
        self.bound_rps >= self.needed_rps * (1.0 - 1e-9)
    }
}

/// Requests over a span of time.
#[derive(Clone, Debug, Default)]
struct Measurement {
    mix: Mix,
    span: Nanos,
}

impl Measurement {
    fn rate_rps(&self) -> f64 {
        let span_s = self.span.as_secs_f64();
        if span_s > 0.0 { self.mix.total() as f64 / span_s } else { 0.0 }
    }
}

/// Decides which kinds a sub-cluster should have, where its [`Autoscaler`] decides how much capacity.
///
/// A fleet is chosen again when the autoscaler asks for more or less, which it does after its windows and pauses, and
/// when the sizes of requests have become others. Then the sub-cluster goes to the new fleet in one step: everything
/// that it lacks is ordered at once, and everything that it does not need goes once that serves.
#[derive(Clone, Debug, Default)]
pub struct FleetPlanner {
    /// What has come since the last full measurement.
    newest: Measurement,
    last: Option<Measurement>,
    /// The plan, and the mix and the batches that it is for.
    plan: Option<(FleetPlan, Mix, Merging)>,
    refused: Option<String>,
}

impl FleetPlanner {
    /// Nothing is measured yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The fleet in force.
    #[must_use]
    pub fn plan(&self) -> Option<&FleetPlan> {
        self.plan.as_ref().map(|(plan, ..)| plan)
    }

    /// Why the last choice was none; the plan before it stays.
    #[must_use]
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// Takes the measurements of a span that ends `now`, with the `requests` in it. `merging` says whether the
    /// policy in force has requests share batches, and `problem` poses the problem of answering a mix, its kinds in the
    /// order of the autoscaler's, or says why it cannot.
    ///
    /// The autoscaler's settings must leave kinds free: its limits are not those of the budget.
    pub fn observe(
        &mut self,
        now: Time,
        scaler: &mut Autoscaler,
        window: &Window,
        requests: &Mix,
        merging: Merging,
        problem: impl FnOnce(&Mix) -> Result<FleetProblem, String>,
    ) -> Advice {
        let finding = scaler.observe(now, window);
        let other_mix = self.measure(window.length, requests);
        let other_batches = self.plan.as_ref().is_some_and(|(.., of)| *of != merging);
        let is_other = other_mix || other_batches;
        if let Some(reason) = self.cause(&finding, is_other) {
            let measured = self.last.as_ref().unwrap_or(&self.newest);
            let (mix, rate_rps) = (measured.mix.clone(), measured.rate_rps());
            // Measurements of another mix, or with other batches, do not apply to this one.
            let wanted = if is_other { None } else { Wanted::of(scaler, window, &finding) };
            match problem(&mix).and_then(|problem| choose(&problem, rate_rps, wanted.as_ref(), merging)) {
                Ok(chosen) => {
                    self.plan = Some((FleetPlan { reason, ..chosen }, mix, merging));
                    self.refused = None;
                }
                Err(words) => {
                    self.refused = Some(words);
                    // It is not asked every second.
                    if let Some((.., of)) = &mut self.plan {
                        *of = merging;
                    }
                }
            }
        }
        // Whatever the autoscaler would do by itself, it was not checked against the budget.
        let Some((plan, ..)) = &self.plan else { return scaler.toward(now, window, &there(window), &finding) };
        let advice = scaler.toward(now, window, &plan.step(window), &finding);
        if advice.changes() { Advice { reason: plan.reason, ..advice } } else { advice }
    }

    /// Adds what has come; whether a full measurement has just shown that the mix is another one, and steady.
    fn measure(&mut self, length: Nanos, requests: &Mix) -> bool {
        self.newest.mix.add(requests);
        self.newest.span += length;
        if self.newest.mix.total() < MIX_REQUESTS {
            return false;
        }
        let newest = std::mem::take(&mut self.newest);
        // While it changes, a measurement is of both mixes, and no fleet is for them.
        let steady = self.last.as_ref().is_some_and(|last| last.mix.distance(&newest.mix) < MIX_CHANGE);
        let other = self.plan.as_ref().is_none_or(|(_, mix, _)| mix.distance(&newest.mix) >= MIX_CHANGE);
        self.last = Some(newest);
        steady && other
    }

    /// Why to choose again, if at all.
    fn cause(&self, finding: &Advice, is_other: bool) -> Option<Reason> {
        if is_other {
            return Some(Reason::Fleet);
        }
        // Advice beyond the budget could not be followed, and would be repeated every second.
        let spent = self.plan().is_some_and(|plan| !plan.is_enough());
        let asks = finding.changes() && !(finding.adds() && spent);
        let known = self.last.is_some() || self.newest.mix.total() > 0;
        (asks && known).then_some(finding.reason)
    }
}

/// What the autoscaler asks for, as a multiple of the capacity of these GPUs.
struct Wanted {
    of: Vec<u32>,
    factor: f64,
}

impl Wanted {
    /// None if there are no GPUs to compare with.
    fn of(scaler: &Autoscaler, window: &Window, finding: &Advice) -> Option<Self> {
        let settings = scaler.settings();
        let capacity = |counts: &[u32]| {
            settings.kinds.iter().zip(counts).map(|(kind, &count)| kind.capacity * f64::from(count)).sum::<f64>()
        };
        let (of, wanted) = if finding.adds() {
            // Not as many GPUs as it would order: these are whole ones of whichever kind it knows first.
            let of: Vec<u32> = window.kinds.iter().map(serving).collect();
            let most = capacity(&of) * (1.0 + settings.up_step_max);
            (of, (scaler.serving() + finding.pressure).min(most))
        } else {
            let targets: Vec<u32> = finding.kinds.iter().map(|kind| kind.target).collect();
            (there(window), capacity(&targets))
        };
        let have = capacity(&of);
        (have > 0.0).then(|| Self { of, factor: wanted / have })
    }
}

fn serving(kind: &KindWindow) -> u32 {
    u32::try_from(kind.serving.len()).unwrap_or(u32::MAX)
}

/// GPUs by kind that serve or are on order.
fn there(window: &Window) -> Vec<u32> {
    window.kinds.iter().map(|kind| serving(kind).saturating_add(kind.ordered)).collect()
}

/// The cheapest fleet that is enough; otherwise the best within the budget. `wanted`: what the autoscaler asks for, if
/// it has measured this mix.
fn choose(
    problem: &FleetProblem,
    rate_rps: f64,
    wanted: Option<&Wanted>,
    merging: Merging,
) -> Result<FleetPlan, String> {
    let bound = FluidBound::new(problem, merging);
    let by_rate = rate_rps / FLEET_MARGIN;
    let by_capacity = wanted.map_or(0.0, |wanted| bound.rps(&wanted.of) * wanted.factor);
    // Measurements of GPUs count for more than a margin. But losses do not tell how much beyond twice is asked.
    let fewer = by_capacity > 0.0 && wanted.is_some_and(|wanted| wanted.factor < 1.0);
    let needed_rps = if fewer { by_capacity } else { by_capacity.max(by_rate) };
    let blocks = Blocks::of(problem, &bound, needed_rps);
    let ranked_by = match merging {
        Merging::Alone => Bound::Alone,
        Merging::Together => Bound::Together,
    };
    let ranking = rank(&blocks.problem, ranked_by).map_err(|error| format!("budget_per_hour: expected {error}"))?;
    // Blocks of GPUs have the bound of as many times fewer.
    let enough = |fleet: &&RankedFleet| fleet.bound_rps * f64::from(blocks.gpus) >= needed_rps * (1.0 - 1e-9);
    let cheapest =
        ranking.fleets.iter().filter(enough).min_by(|a, b| {
            a.price_per_hour.total_cmp(&b.price_per_hour).then_with(|| b.bound_rps.total_cmp(&a.bound_rps))
        });
    let mut counts: Vec<u32> =
        cheapest.unwrap_or(&ranking.fleets[0]).counts.iter().map(|count| count * blocks.gpus).collect();
    if cheapest.is_some() {
        trim(problem, &bound, needed_rps, &mut counts);
    }
    let (price_per_hour, bound_rps) = (problem.price_per_hour(&counts), bound.rps(&counts));
    let prices = problem.kinds.iter().map(|kind| kind.price_per_hour).collect();
    let budget_per_hour = problem.budget_per_hour;
    let reason = Reason::Fleet;
    Ok(FleetPlan { counts, prices, budget_per_hour, price_per_hour, bound_rps, needed_rps, rate_rps, reason })
}

/// A problem whose GPUs come in blocks of this size.
struct Blocks {
    problem: FleetProblem,
    gpus: u32,
}

impl Blocks {
    /// Blocks as small as [`PLAN_WORK_MAX`] allows: one GPU, unless many are needed.
    fn of(problem: &FleetProblem, bound: &FluidBound, needed_rps: f64) -> Self {
        let mut blocks = Self { problem: problem.clone(), gpus: 1 };
        for (position, kind) in blocks.problem.kinds.iter_mut().enumerate() {
            // More would idle, whatever the others are, or break the budget by themselves.
            let useful = bound.busy_gpus(position, needed_rps).ceil().max(1.0);
            let affordable = problem.budget_per_hour / kind.price_per_hour * (1.0 + 1e-9);
            // `as` saturates.
            kind.count_max = kind.count_max.min(useful.min(affordable) as u32);
        }
        let single = blocks.problem.kinds.clone();
        while blocks.work(bound.class_count()) > PLAN_WORK_MAX && blocks.gpus < BLOCK_GPUS_MAX {
            blocks.gpus *= 2;
            for (kind, single) in blocks.problem.kinds.iter_mut().zip(&single) {
                kind.price_per_hour = single.price_per_hour * f64::from(blocks.gpus);
                kind.count_max = single.count_max / blocks.gpus;
            }
        }
        blocks
    }

    /// At most this much is done to rank it.
    fn work(&self, classes: usize) -> u64 {
        let fleets = self.problem.kinds.iter().map(|kind| u64::from(kind.count_max) + 1);
        fleets.fold((classes + WORK_OF_FLEET) as u64, u64::saturating_mul)
    }
}

/// Takes away what is not needed of the last blocks, the dearest kinds first.
fn trim(problem: &FleetProblem, bound: &FluidBound, needed_rps: f64, counts: &mut [u32]) {
    let mut kinds: Vec<usize> = (0..counts.len()).collect();
    let price = |kind: &usize| problem.kinds[*kind].price_per_hour;
    kinds.sort_by(|a, b| price(b).total_cmp(&price(a)));
    for kind in kinds {
        while counts[kind] > 0 {
            counts[kind] -= 1;
            if bound.rps(counts) < needed_rps * (1.0 - 1e-9) {
                counts[kind] += 1;
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::LatencyTable;
    use crate::problem::{FleetModel, Kind};

    /// Large requests are for the first kind only, small ones cost least on the last.
    fn problem(budget_per_hour: f64) -> FleetProblem {
        let kind = |name: &str, price_per_hour| Kind { name: name.to_owned(), price_per_hour, count_max: 5000 };
        let table = |points: &[(u32, f64)]| LatencyTable::from_points(points).unwrap();
        let latencies =
            vec![table(&[(1, 10.0), (10, 50.0)]), table(&[(1, 20.0), (10, 120.0)]), table(&[(1, 40.0), (10, 400.0)])];
        let model =
            FleetModel { name: "m".to_owned(), slo_ms: 100.0, share: 1.0, sizes: vec![(1, 0.7), (10, 0.3)], latencies };
        FleetProblem {
            budget_per_hour,
            kinds: vec![kind("base", 1.0), kind("middle", 0.45), kind("small", 0.1)],
            models: vec![model],
        }
    }

    #[test]
    fn many_gpus_are_chosen_in_blocks_and_the_last_block_is_not_wasted() {
        let problem = problem(1e4);
        let bound = FluidBound::new(&problem, Merging::Together);
        // A request of ten items costs 50 ms · 1.0 on the base, one of one item 40 ms · 0.1 on the small kind.
        let per_request = 0.3 * 0.05 + 0.7 * 0.04 * 0.1;
        for (rate_rps, blocks, more) in [(40.0, 1, 1.4), (40_000.0, 2, 1.03)] {
            let needed_rps = rate_rps / FLEET_MARGIN;
            assert!(Blocks::of(&problem, &bound, needed_rps).gpus >= blocks);
            let plan = choose(&problem, rate_rps, None, Merging::Together).unwrap();
            assert!(plan.is_enough() && plan.needed_rps == needed_rps);
            let least = needed_rps * per_request;
            assert!((least..=more * least).contains(&plan.price_per_hour), "{plan:?}, at least {least}");
        }
    }

    #[test]
    fn a_budget_that_buys_too_little_is_spent_and_one_that_buys_nothing_is_named() {
        let plan = choose(&problem(3.0), 1000.0, None, Merging::Together).unwrap();
        assert!(!plan.is_enough() && plan.price_per_hour > 2.85 && plan.price_per_hour <= 3.0 + 1e-9, "{plan:?}");
        let refused = choose(&problem(0.5), 1000.0, None, Merging::Together).unwrap_err();
        assert!(refused.contains("budget_per_hour: expected at least 1"), "{refused}");
    }
}
