//! The fluid bound: the goodput of perfect coordination, where the search for goodput starts.

use symphony_types::{LatencyProfile, Nanos};
use symphony_workload::{ModelSpec, RateProfile, Scenario};

use crate::pipelines::PipelinePlans;

/// Bisection steps: the remaining 2⁻⁶⁰ of the highest rate is far below any relevant one.
const HALVINGS: u32 = 60;

/// The fluid bound in requests per second: the highest total rate at which staggered batches fit the GPUs.
///
/// At rate λ a model's best batch is the largest b with b/λ + ℓ(b) within the SLO less delays: b requests gather while
/// the batch before runs (the Symphony paper, section 4.2, equations 2 and 3). It takes λ·ℓ(b)/b GPUs; all models
/// together may take as many as there are. With one model this is the paper's staggered bound. Luck with arrivals can
/// beat it by a little, and so can models that suit different kinds of GPUs: here each uses all kinds alike. Stages of
/// a pipeline take what its split says. Zero if some model cannot meet its SLO even alone, nor its longest deadline, or
/// a pipeline's budget cannot be split.
#[must_use]
pub fn fluid_bound_rps(scenario: &Scenario) -> f64 {
    let gpus = f64::from(scenario.gpu_count());
    // If rates change, their peaks must fit.
    let peak = |profile: Option<&std::sync::Arc<RateProfile>>| {
        profile.map_or(1.0, |profile| {
            let until = symphony_types::Time::ZERO + scenario.warmup + scenario.duration;
            // Without arrivals everything fits; a finite number is returned.
            let peak = profile.peak(until);
            if peak > 0.0 { peak } else { 1.0 }
        })
    };
    let fits = |rate_rps: f64| {
        let needed = |model: &ModelSpec| {
            let rate_rps = rate_rps * peak(model.rate_profile.as_ref()) * model.share;
            gpus_needed(scenario, model, rate_rps * model.items.mean())
        };
        let of_models = scenario.models.iter().filter(|model| model.share > 0.0).map(needed).sum::<f64>();
        if scenario.pipelines.is_empty() || of_models > gpus {
            return of_models <= gpus;
        }
        let plans = PipelinePlans::new(scenario, rate_rps);
        let peaks = scenario.pipelines.iter().map(|load| peak(load.rate_profile.as_ref()));
        of_models + plans.gpus.iter().zip(peaks).map(|(gpus, peak)| gpus * peak).sum::<f64>() <= gpus
    };
    let (mut low, mut high) = (0.0, symphony_workload::RATE_RPS_MAX);
    for _ in 0..HALVINGS {
        // Bisect the logarithm once the bracket has a lower end: rates span nine orders of magnitude.
        let middle = if low > 0.0 { f64::sqrt(low * high) } else { high / 16.0 };
        if fits(middle) {
            low = middle
        } else {
            high = middle
        }
        if high < 1e-6 {
            return 0.0;
        }
    }
    low
}

/// GPUs that staggered batches keep busy in the fluid model of [`fluid_bound_rps`], at these rates of requests per
/// second. Infinite if some model cannot meet its SLO even alone, nor its longest deadline.
#[must_use]
pub fn fluid_gpus(scenario: &Scenario, rate_rps: impl Fn(&ModelSpec) -> f64) -> f64 {
    let rates = scenario.models.iter().map(|model| (model, rate_rps(model) * model.items.mean()));
    rates.filter(|&(_, rate)| rate > 0.0).map(|(model, rate)| gpus_needed(scenario, model, rate)).sum()
}

/// GPUs that the model keeps busy at this rate of items per second; infinite if its SLO cannot be met. With several
/// classes, each serves a share by its number and speed.
fn gpus_needed(scenario: &Scenario, model: &ModelSpec, rate_rps: f64) -> f64 {
    let budget = budget(scenario, model);
    if let [only] = &model.profiles[..] {
        return gpus_needed_of(scenario, only, budget, rate_rps);
    }
    let served = scenario.gpus.iter().map(|gpu| {
        let needed = gpus_needed_of(scenario, &model.profiles[gpu.class.index()], budget, rate_rps);
        f64::from(gpu.count) / needed
    });
    f64::from(scenario.gpu_count()) / served.sum::<f64>()
}

/// The time for the model's batches: by its SLO, or by its longest deadline if no GPU can meet the SLO.
fn budget(scenario: &Scenario, model: &ModelSpec) -> Nanos {
    let of = |slo: Nanos| slo - scenario.network.control - scenario.network.reply;
    let reached = |slo: Nanos| model.profiles.iter().any(|profile| execution(scenario, profile, 1) <= of(slo));
    if reached(model.slo) { of(model.slo) } else { of(Nanos::new(model.deadline.max())) }
}

fn execution(scenario: &Scenario, profile: &LatencyProfile, batch: u32) -> Nanos {
    profile.latency(batch) + scenario.network.data_per_item.saturating_mul(u64::from(batch))
}

/// How many GPUs the model needs if all have this profile.
fn gpus_needed_of(scenario: &Scenario, profile: &LatencyProfile, budget: Nanos, rate_rps: f64) -> f64 {
    let execution = |batch: u32| execution(scenario, profile, batch);
    if execution(1) > budget {
        return f64::INFINITY;
    }
    let gathers = |batch: u32| Nanos::from_secs_f64(f64::from(batch) / rate_rps) + execution(batch) <= budget;
    let (mut fits, mut too_large) = (1, profile.batch_max() + 1);
    while too_large - fits > 1 {
        let middle = u32::midpoint(fits, too_large);
        if gathers(middle) { fits = middle } else { too_large = middle }
    }
    rate_rps * profile.latency(fits).as_secs_f64() / f64::from(fits)
}
