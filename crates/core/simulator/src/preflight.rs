//! Checks before a run: whether it would show nothing or exceed a limit of the simulator.

use symphony_types::{LatencyProfile, Nanos, Time};
use symphony_workload::{Arrival, ModelSpec, PipelineLoad, RATE_RPS_MAX, Scenario, Trace, TraceRow};

use crate::open_requests::OPEN_SPAN_MAX;
use crate::pipelines::unsplittable;

/// A scenario that is not worth running, in words for its author. They name keys, not the file.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PreflightError {
    /// Even a request that runs alone on an idle GPU would be late.
    #[error(
        "model `{model}`: expected {what} of at least {needed} ms, got {got} ms: a batch of {items} takes ℓ({items}) = \
         {takes} ms{on}, and delays (network.ctrl_us, data_us_per_item, reply_us) take {delays} ms, so that no request \
         could be answered in time",
        needed = (*.latency + *.delays).as_millis_f64(),
        got = .longest.as_millis_f64(),
        takes = .latency.as_millis_f64(),
        delays = .delays.as_millis_f64(),
        on = .kind.as_ref().map_or_else(String::new, |kind| format!(" on the fastest GPU kind, `{kind}`"))
    )]
    SloOutOfReach {
        /// Name of the model.
        model: String,
        /// Whether the limit is the SLO or a longer deadline.
        what: &'static str,
        /// The longest time that a request allows.
        longest: Nanos,
        /// The fewest items of a request.
        items: u32,
        /// ℓ of them on the fastest GPU.
        latency: Nanos,
        /// Network delays.
        delays: Nanos,
        /// The kind of the fastest GPU, if there are several kinds.
        kind: Option<String>,
    },
    /// No request arrives in the counted time.
    #[error(
        "the trace lasts {lasts} s, and the warm-up {warmup} s: nothing would be measured; expected a lower warmup_s, or \
         a higher workload.arrival.time_scale", lasts = .lasts.as_secs_f64(), warmup = .warmup.as_secs_f64()
    )]
    TraceOverInWarmup {
        /// From zero to the last arrival.
        lasts: Nanos,
        /// The time before counting begins.
        warmup: Nanos,
    },
    /// The budget of a pipeline cannot be split.
    #[error("pipeline `{pipeline}`: {why}; delays (network.ctrl_us, data_us_per_item, reply_us) are a part of batches")]
    Unsplittable {
        /// Name of the pipeline.
        pipeline: String,
        /// Which path takes how long.
        why: String,
    },
    /// More requests would be open than the simulator keeps.
    #[error("key `{key}`: expected {limit}, got {rate_rps}")]
    RateTooHigh {
        /// The origin of the rate.
        key: &'static str,
        /// The total rate in requests per second.
        rate_rps: f64,
        /// The largest allowed rate.
        limit: RateLimit,
    },
}

/// The highest total rate for a scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct RateLimit {
    /// In requests per second.
    pub rate_rps: f64,
    /// The longest time that a request may be open, and the ratio of peak to mean rate; `None` if the general limit of
    /// rates is lower.
    open: Option<(Nanos, f64)>,
}

impl std::fmt::Display for RateLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "at most {} requests per second", self.rate_rps.floor())?;
        let Some((longest, peak)) = self.open else { return write!(f, " (RATE_RPS_MAX)") };
        let within = longest.as_millis_f64();
        write!(
            f,
            ", so that no more than {OPEN_SPAN_MAX} (OPEN_SPAN_MAX) arrive within the longest deadline, {within} ms"
        )?;
        if peak == 1.0 { Ok(()) } else { write!(f, ", at {} times the rate", (peak * 1e3).round() / 1e3) }
    }
}

/// Rejects runs that would show nothing or exceed a limit under any policy.
///
/// # Errors
/// If a model's requests cannot be answered in time on any GPU, if the budget of a pipeline cannot be split, if a trace
/// ends before the warm-up, or if the rate exceeds what the simulator can keep.
pub fn preflight(scenario: &Scenario) -> Result<(), PreflightError> {
    let limit = rate_limit(scenario);
    if scenario.rate_rps > limit.rate_rps {
        let key = if trace(scenario).is_some() { "workload.arrival.trace_csv" } else { "workload.rate_rps" };
        return Err(PreflightError::RateTooHigh { key, rate_rps: scenario.rate_rps, limit });
    }
    if let Some(trace) = trace(scenario) {
        // Cut to nanoseconds, as arrivals are.
        let (lasts, warmup) = (Nanos::new((trace.lasts_s() * 1e9) as u64), scenario.warmup);
        if lasts < warmup {
            return Err(PreflightError::TraceOverInWarmup { lasts, warmup });
        }
    }
    if let Some((pipeline, why)) = unsplittable(scenario) {
        return Err(PreflightError::Unsplittable { pipeline, why: why.to_string() });
    }
    demands(scenario).iter().zip(&scenario.models).try_for_each(|(demand, model)| demand.check(scenario, model))
}

/// The highest total rate at which the simulator can keep all requests that arrive within the longest deadline, since
/// an overloaded policy may hold one that long. Larger bursts end the run.
pub(crate) fn rate_limit(scenario: &Scenario) -> RateLimit {
    let all = RateLimit { rate_rps: RATE_RPS_MAX, open: None };
    if trace(scenario).is_some_and(|trace| trace.rows.len() <= OPEN_SPAN_MAX) {
        return all;
    }
    let until = Time::ZERO + scenario.warmup + scenario.duration;
    let peak_of = |model: &ModelSpec| model.rate_profile.as_ref().map_or(1.0, |profile| profile.peak(until));
    let of_models: f64 = scenario.models.iter().map(|model| model.share * peak_of(model)).sum();
    let of_pipelines: f64 = scenario.pipelines.iter().map(|load| load.share * stage_requests(load, until)).sum();
    let is_steady = scenario.models.iter().all(|model| model.rate_profile.is_none()) && scenario.pipelines.is_empty();
    let peak = if is_steady { 1.0 } else { of_models + of_pipelines };
    let longest = demands(scenario).into_iter().filter_map(|demand| demand.longest);
    let longest = longest.chain(scenario.pipelines.iter().map(|load| load.slo)).max().unwrap_or(Nanos::ZERO);
    let rate_rps = OPEN_SPAN_MAX as f64 / (longest.as_secs_f64() * peak);
    if rate_rps < RATE_RPS_MAX { RateLimit { rate_rps, open: Some((longest, peak)) } } else { all }
}

/// Stage requests of a request that is expected, at the highest rate.
fn stage_requests(load: &PipelineLoad, until: Time) -> f64 {
    let peak = load.rate_profile.as_ref().map_or(1.0, |profile| profile.peak(until));
    peak * load.pipeline.requests_per_request().iter().sum::<f64>()
}

fn trace(scenario: &Scenario) -> Option<&Trace> {
    match &scenario.arrival {
        Arrival::Trace(trace) => Some(trace),
        _ => None,
    }
}

/// The least demanding request of a model.
#[derive(Clone, Copy, Debug)]
struct Demand {
    /// The longest time to the deadline; `None` without arrivals.
    longest: Option<Nanos>,
    /// The fewest items.
    items: u32,
}

/// By model.
fn demands(scenario: &Scenario) -> Vec<Demand> {
    let mut demands: Vec<Demand> = scenario.models.iter().map(|model| of_law(model, model.share > 0.0)).collect();
    let Some(trace) = trace(scenario) else { return demands };
    // A row without a model may become any model's.
    let (mut any, mut named) = (None::<TraceRow>, vec![None::<TraceRow>; demands.len()]);
    for row in &trace.rows {
        let easiest = row.model.map_or(Some(&mut any), |model| named.get_mut(model as usize));
        let Some(easiest) = easiest else { continue };
        let known = easiest.get_or_insert(*row);
        (known.slo, known.items) = (known.slo.max(row.slo), least(known.items, row.items));
    }
    for ((demand, model), named) in demands.iter_mut().zip(&scenario.models).zip(named) {
        *demand = of_law(model, named.is_some() || (any.is_some() && model.share > 0.0));
        for row in [any, named].into_iter().flatten() {
            demand.longest = demand.longest.max(row.slo);
            demand.items = demand.items.min(row.items.unwrap_or(demand.items));
        }
    }
    demands
}

fn least(a: Option<u32>, b: Option<u32>) -> Option<u32> {
    a.into_iter().chain(b).min()
}

fn of_law(model: &ModelSpec, comes: bool) -> Demand {
    let longest = Nanos::new(model.deadline.max());
    Demand { longest: comes.then_some(longest), items: u32::try_from(model.items.min()).unwrap_or(u32::MAX) }
}

impl Demand {
    fn check(self, scenario: &Scenario, model: &ModelSpec) -> Result<(), PreflightError> {
        let Some(longest) = self.longest else { return Ok(()) };
        let runs = |profile: &&LatencyProfile| self.items <= profile.batch_max();
        let Some(fastest) = model.profiles.iter().filter(runs).min_by_key(|profile| profile.latency(self.items)) else {
            return Ok(());
        };
        let latency = fastest.latency(self.items);
        let network = scenario.network;
        let data = network.data_per_item.saturating_mul(u64::from(self.items));
        let delays = network.control + data + network.reply;
        if latency + delays <= longest {
            return Ok(());
        }
        let class = model.profiles.iter().position(|profile| profile == fastest);
        let kind = scenario.gpus.iter().find(|gpu| Some(gpu.class.index()) == class).map(|gpu| gpu.kind.clone());
        Err(PreflightError::SloOutOfReach {
            model: model.name.clone(),
            what: if longest == model.slo { "an SLO" } else { "a longest deadline" },
            longest,
            items: self.items,
            latency,
            delays,
            kind: kind.filter(|_| scenario.class_count() > 1),
        })
    }
}
