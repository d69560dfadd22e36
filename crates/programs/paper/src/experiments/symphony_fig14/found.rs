//! The measures by which a run of Figure 14 is judged.

use symphony_simulator::{CourseStep, ScalingResult};

use super::super::changing_rates::STEP_S;
use super::load::Load;
use crate::report::Comparison;

/// An order within this many seconds after a release takes it back.
pub(super) const TAKEN_BACK_S: f64 = 30.0;
/// A rise of the need by this share from one step of the rates to the next is a step of the load.
pub(super) const RISE_MIN: f64 = 0.02;
/// After this many seconds the step is over: time to notice it, twice the time for GPUs to come, and to notice that
/// they did.
pub(super) const SETTLED_S: f64 = 30.0;
/// How near GPUs should be to the ideal, as a share of it.
pub(super) const NEAR: f64 = 0.15;

/// The measures by which the run is judged.
pub(super) struct Measured {
    /// By moment: its second, the ideal, GPUs that were there in the steps around it, and what the bound needs.
    pub(super) gpus: Vec<(f64, f64, f64, f64)>,
    /// Bad rates of [`STEP_S`] each, and whether they follow a step of the load.
    bad: Vec<(f64, bool)>,
    /// Bad requests, and all, outside of steps.
    outside: (f64, f64),
    pub(super) bad_rate: f64,
    pub(super) gpus_mean: f64,
    pub(super) turns: Turns,
}

/// How often GPUs were ordered, how often released, and how many of the orders took a release back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Turns {
    pub(super) orders: u32,
    pub(super) releases: u32,
    pub(super) taken_back: u32,
}

impl Turns {
    fn of(course: &[CourseStep]) -> Self {
        let mut turns = Self::default();
        let mut released_s = f64::NEG_INFINITY;
        for look in course {
            if look.add > 0 {
                turns.orders += 1;
                turns.taken_back += u32::from(look.at_s - released_s <= TAKEN_BACK_S);
                // Whatever comes after is an order of its own.
                released_s = f64::NEG_INFINITY;
            }
            if look.release > 0 {
                turns.releases += 1;
                released_s = look.at_s;
            }
        }
        turns
    }
}

impl Measured {
    pub(super) fn new(
        load: &Load,
        need: &[f64],
        scaling: &ScalingResult,
        moments: &[usize],
        ideals: &[u32],
        bad_rate: f64,
    ) -> Self {
        let course = &scaling.course;
        let per_step = STEP_S as usize;
        let chunks: Vec<&[CourseStep]> = course.chunks(per_step).take(load.rates.len()).collect();
        let there = |step: usize| {
            let sum: f64 = chunks[step].iter().map(|at| at.serving + f64::from(at.draining)).sum();
            sum / chunks[step].len() as f64
        };
        let gpus = moments
            .iter()
            .zip(ideals)
            .filter(|(step, _)| **step < chunks.len())
            .map(|(&step, &ideal)| (step as f64 * STEP_S, f64::from(ideal), there(step), need[step]))
            .collect();
        let rises: Vec<bool> =
            (0..need.len()).map(|step| step > 0 && need[step] > (1.0 + RISE_MIN) * need[step - 1]).collect();
        let settling = (SETTLED_S / STEP_S) as usize;
        let (mut bad, mut outside) = (Vec::new(), (0.0, 0.0));
        for (step, chunk) in chunks.iter().enumerate() {
            let counts = chunk.iter().map(CourseStep::total);
            let (good, lost) =
                counts.fold((0.0, 0.0), |sum, at| (sum.0 + f64::from(at.good), sum.1 + f64::from(at.bad)));
            let after_rise = rises[(step + 1).saturating_sub(settling)..=step].contains(&true);
            bad.push((if lost > 0.0 { lost / (good + lost) } else { 0.0 }, after_rise));
            if !after_rise {
                outside = (outside.0 + lost, outside.1 + good + lost);
            }
        }
        Self { gpus, bad, outside, bad_rate, gpus_mean: scaling.gpus_mean, turns: Turns::of(course) }
    }

    /// GPUs over the ideal number, at each moment.
    fn excess(&self) -> Vec<f64> {
        self.gpus.iter().map(|&(_, ideal, there, _)| there / ideal - 1.0).collect()
    }

    /// Moments at which GPUs are within 15 % of the ideal.
    pub(super) fn within(&self) -> usize {
        self.excess().into_iter().filter(|excess| excess.abs() <= NEAR).count()
    }

    /// The mean and the largest ratio of GPUs to the ideal number.
    pub(super) fn over(&self) -> (f64, f64) {
        let excess = self.excess();
        let mean = excess.iter().sum::<f64>() / excess.len() as f64;
        (1.0 + mean, 1.0 + excess.into_iter().fold(f64::NEG_INFINITY, f64::max))
    }

    /// The bad rate outside of steps.
    pub(super) fn calm_bad(&self) -> f64 {
        self.outside.0 / self.outside.1
    }

    /// The share of [`STEP_S`] outside of steps with a bad rate below one per cent.
    fn calm_share(&self) -> f64 {
        let calm: Vec<f64> = self.bad.iter().filter(|(_, after)| !after).map(|&(bad, _)| bad).collect();
        calm.iter().filter(|&&bad| bad < 0.01).count() as f64 / calm.len() as f64
    }
}

/// The values of the first draw, and the range of the others for the targets.
pub(super) fn comparisons(all: &[Measured]) -> Vec<Comparison> {
    let found = &all[0];
    let share = |of: &[Measured]| {
        let moments: usize = of.iter().map(|found| found.gpus.len()).sum();
        of.iter().map(Measured::within).sum::<usize>() as f64 / moments as f64
    };
    let (mean, most) = found.over();
    let near = (1.0 - NEAR, 1.0 + NEAR);
    let within = "share of the moments at which GPUs are within 15 % of the ideal";
    let calm_share = "share of the 10 s outside of steps with a bad rate below 1 %";
    let mut comparisons = vec![
        Comparison::words("symphony-fig14", "bad_rate", Some(100.0 * found.calm_bad()), "%"),
        Comparison::aim("gpus_over_ideal", "GPUs there over the offline ideal, mean", near, mean, ""),
        Comparison::aim("gpus_within", within, (1.0, 1.0), share(&all[..1]), ""),
        Comparison::aim("gpus_over_ideal_most", "GPUs there over the offline ideal, largest", near, most, ""),
        Comparison::aim("bad_below_1_share", calm_share, (1.0, 1.0), found.calm_share(), ""),
        Comparison::aim(
            "bad_rate_whole",
            "bad rate of the whole run, steps included",
            (0.0, 1.0),
            100.0 * found.bad_rate,
            "%",
        ),
    ];
    if all.len() > 1 {
        let what = format!("{within}, other seeds");
        comparisons.push(Comparison::aim("gpus_within_others", &what, (1.0, 1.0), share(&all[1..]), ""));
    }
    comparisons
}

/// The spread of the draws, in words.
pub(super) fn chance(seeds: &[u64], all: &[Measured]) -> String {
    let each = seeds.iter().zip(all).map(|(seed, found)| {
        let (count, (_, most)) = (found.gpus.len(), found.over());
        let Turns { orders, releases, taken_back } = found.turns;
        format!(
            "with seed {seed} {} of {count} are within 15 %, the largest at {most:.2}, in {orders} orders and {releases} releases, of which an order \
             took {taken_back} back within {TAKEN_BACK_S} s",
            found.within()
        )
    });
    each.collect::<Vec<_>>().join("; ")
}
