//! When requests arrive: one seeded stream per model.

use rand::{Rng, RngCore, SeedableRng};
use rand_distr::{Distribution, Exp1, Gamma};
use rand_xoshiro::{SplitMix64, Xoshiro256PlusPlus};
use symphony_types::Time;

use crate::scenario::{Arrival, Scenario};
use crate::trace::Trace;

/// Stands in for a model's position in the stream that deals a trace's nameless rows to models.
const TRACE_STREAM: u64 = u64::MAX;

/// The arrival times of one model.
///
/// Gaps are drawn at rate one and stretched afterwards, so all rates of one seed see the same trace on another scale:
/// then whether a rate can be served is close to monotone in the rate, and policies are compared on equal luck.
#[derive(Clone, Debug)]
pub struct ArrivalStream {
    gaps: Gaps,
    rng: Xoshiro256PlusPlus,
    /// Position of the last arrival, in mean gaps.
    unit_time: f64,
    /// The mean gap in nanoseconds.
    gap_ns: f64,
}

#[derive(Clone, Debug)]
enum Gaps {
    Never,
    Poisson,
    Uniform,
    Gamma(Gamma<f64>),
    /// Arrival times in nanoseconds and the next one to play.
    Recorded {
        times_ns: Vec<f64>,
        next: usize,
    },
}

impl ArrivalStream {
    /// The next arrival, never earlier than the one before; `None` when nothing arrives any more.
    #[inline]
    pub fn next_arrival(&mut self) -> Option<Time> {
        let gap = match &mut self.gaps {
            Gaps::Poisson => self.rng.sample(Exp1),
            Gaps::Uniform => 1.0,
            Gaps::Gamma(gamma) => gamma.sample(&mut self.rng),
            Gaps::Never => return None,
            Gaps::Recorded { times_ns, next } => {
                let time = *times_ns.get(*next)?;
                *next += 1;
                return Some(Time::from_nanos(time as u64));
            }
        };
        self.unit_time += gap;
        Some(Time::from_nanos((self.unit_time * self.gap_ns) as u64))
    }
}

/// One stream per model of the scenario, for this seed and this total rate in requests per second.
///
/// A stream depends on (seed, position of the model) alone, so adding a model at the end leaves the others' as they
/// were. A trace is stretched so that its mean rate becomes `rate_rps`.
#[must_use]
pub fn arrival_streams(scenario: &Scenario, seed: u64, rate_rps: f64) -> Vec<ArrivalStream> {
    if let Arrival::Trace(trace) = &scenario.arrival {
        return recorded(scenario, trace, seed, rate_rps);
    }
    let streams = scenario.models.iter().enumerate().map(|(position, model)| {
        let mut rng = stream_rng(seed, position as u64);
        let model_rps = rate_rps * model.share;
        let (gaps, unit_time) = match scenario.arrival {
            // A share of zero: the gap would be endless.
            _ if model_rps <= 0.0 => (Gaps::Never, 0.0),
            // A random phase: else models of equal rate would all arrive in the same instants.
            Arrival::Uniform => (Gaps::Uniform, rng.random::<f64>() - 1.0),
            Arrival::Gamma(shape) => {
                Gamma::new(shape, 1.0 / shape).map_or((Gaps::Never, 0.0), |g| (Gaps::Gamma(g), 0.0))
            }
            Arrival::Poisson | Arrival::Trace(_) => (Gaps::Poisson, 0.0),
        };
        ArrivalStream { gaps, rng, unit_time, gap_ns: 1e9 / model_rps }
    });
    streams.collect()
}

fn recorded(scenario: &Scenario, trace: &Trace, seed: u64, rate_rps: f64) -> Vec<ArrivalStream> {
    let stretch_ns = 1e9 * trace.time_scale * trace.rate_rps() / rate_rps;
    let mut deal = stream_rng(seed, TRACE_STREAM);
    let mut times_ns = vec![Vec::new(); scenario.models.len()];
    for &(time_s, model) in &trace.rows {
        let model = model.map_or_else(|| draw(scenario, deal.random()), |model| model as usize);
        times_ns[model].push(time_s * stretch_ns);
    }
    let stream = |times_ns| ArrivalStream {
        gaps: Gaps::Recorded { times_ns, next: 0 },
        rng: stream_rng(seed, TRACE_STREAM),
        unit_time: 0.0,
        gap_ns: 0.0,
    };
    times_ns.into_iter().map(stream).collect()
}

/// The model in whose share the point `at` of [0, 1) falls.
fn draw(scenario: &Scenario, at: f64) -> usize {
    let mut upto = 0.0;
    let found = scenario.models.iter().position(|model| {
        upto += model.share;
        at < upto
    });
    found.unwrap_or(scenario.models.len() - 1)
}

/// A generator for (seed, stream): both pass through splitmix64, so that neighbouring numbers are unrelated streams.
fn stream_rng(seed: u64, stream: u64) -> Xoshiro256PlusPlus {
    let base = SplitMix64::seed_from_u64(seed).next_u64();
    Xoshiro256PlusPlus::seed_from_u64(SplitMix64::seed_from_u64(base.wrapping_add(stream)).next_u64())
}
