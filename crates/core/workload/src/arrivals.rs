//! Arrival times: one seeded stream per model.

use std::sync::Arc;

use rand::Rng;
use rand_distr::{Distribution, Exp1, Gamma};
use rand_xoshiro::Xoshiro256PlusPlus;
use symphony_types::{Nanos, Time};

use crate::rate_profile::RateProfile;
use crate::scenario::{Arrival, Scenario};
use crate::seed::{PIPELINE_STREAM, TRACE_STREAM, stream_rng};
use crate::trace::Trace;

/// The arrival times of one model.
///
/// Gaps are drawn at rate one and then scaled, so all rates of a seed have the same trace on another time scale:
/// whether a rate can be served is then nearly monotone in the rate, and policies are compared on the same arrivals.
#[derive(Clone, Debug)]
pub struct ArrivalStream {
    gaps: Gaps,
    rng: Xoshiro256PlusPlus,
    /// Position of the last arrival, in mean gaps.
    unit_time: f64,
    /// The mean gap in nanoseconds.
    gap_ns: f64,
    /// The rate profile, if the rate changes, and the present step.
    profile: Option<(Arc<RateProfile>, usize)>,
}

/// The fields of a trace's row besides its time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recorded {
    pub(crate) time_ns: f64,
    pub(crate) items: Option<u32>,
    pub(crate) slo: Option<Nanos>,
}

#[derive(Clone, Debug)]
enum Gaps {
    Never,
    Poisson,
    Uniform,
    Gamma(Gamma<f64>),
    /// The trace, and the index of its next row.
    Recorded {
        rows: Vec<Recorded>,
        next: usize,
    },
}

impl ArrivalStream {
    /// The next arrival, never before the previous one; `None` if there are no more.
    #[inline]
    pub fn next_arrival(&mut self) -> Option<Time> {
        let gap = match &mut self.gaps {
            Gaps::Poisson => self.rng.sample(Exp1),
            Gaps::Uniform => 1.0,
            Gaps::Gamma(gamma) => gamma.sample(&mut self.rng),
            Gaps::Never => return None,
            Gaps::Recorded { rows, next } => {
                let row = *rows.get(*next)?;
                *next += 1;
                // Rounded: a decimal number of seconds is seldom a binary one, and a nanosecond would be cut off.
                return Some(Time::from_nanos(row.time_ns.round() as u64));
            }
        };
        self.unit_time += gap;
        let mut time_ns = self.unit_time * self.gap_ns;
        if let Some((profile, cursor)) = &mut self.profile {
            time_ns = profile.time_ns(time_ns, cursor)?;
        }
        Some(Time::from_nanos(time_ns as u64))
    }

    /// The trace's fields of the last arrival; `None` without a trace.
    #[inline]
    pub(crate) fn recorded(&self) -> Option<&Recorded> {
        match &self.gaps {
            Gaps::Recorded { rows, next } => next.checked_sub(1).and_then(|last| rows.get(last)),
            _ => None,
        }
    }
}

/// One stream per model of the scenario, for this seed and this total rate in requests per second.
///
/// A stream depends only on the seed and the model's index, so an additional model at the end does not change the
/// others. A trace is scaled so that its mean rate becomes `rate_rps`.
#[must_use]
pub fn arrival_streams(scenario: &Scenario, seed: u64, rate_rps: f64) -> Vec<ArrivalStream> {
    if let Arrival::Trace(trace) = &scenario.arrival {
        return recorded(scenario, trace, seed, rate_rps);
    }
    let streams = scenario.models.iter().zip(0_u64..).map(|(model, position)| {
        drawn(&scenario.arrival, stream_rng(seed, position), rate_rps * model.share, model.rate_profile.as_ref())
    });
    streams.collect()
}

/// One stream per pipeline of the scenario, as [`arrival_streams`] for models. Pipelines go without a trace.
#[must_use]
pub fn pipeline_streams(scenario: &Scenario, seed: u64, rate_rps: f64) -> Vec<ArrivalStream> {
    let streams = scenario.pipelines.iter().zip(0_u64..).map(|(load, position)| {
        let rng = stream_rng(seed, PIPELINE_STREAM + position);
        drawn(&scenario.arrival, rng, rate_rps * load.share, load.rate_profile.as_ref())
    });
    streams.collect()
}

/// Arrivals of this rate in requests per second, before any factor over time.
fn drawn(
    arrival: &Arrival,
    mut rng: Xoshiro256PlusPlus,
    rate_rps: f64,
    profile: Option<&Arc<RateProfile>>,
) -> ArrivalStream {
    let (gaps, unit_time) = match *arrival {
        // With a share of zero the gap would be infinite.
        _ if rate_rps <= 0.0 => (Gaps::Never, 0.0),
        // A random phase: otherwise all models of equal rate would have simultaneous arrivals.
        Arrival::Uniform => (Gaps::Uniform, rng.random::<f64>() - 1.0),
        Arrival::Gamma(shape) => Gamma::new(shape, 1.0 / shape).map_or((Gaps::Never, 0.0), |g| (Gaps::Gamma(g), 0.0)),
        Arrival::Poisson | Arrival::Trace(_) => (Gaps::Poisson, 0.0),
    };
    let profile = profile.map(|profile| (Arc::clone(profile), 0));
    ArrivalStream { gaps, rng, unit_time, gap_ns: 1e9 / rate_rps, profile }
}

fn recorded(scenario: &Scenario, trace: &Trace, seed: u64, rate_rps: f64) -> Vec<ArrivalStream> {
    // At its own rate a trace is played as it is, to the nanosecond: the quotient is exactly one.
    let stretch = trace.time_scale * (trace.rate_rps() / rate_rps);
    let mut deal = stream_rng(seed, TRACE_STREAM);
    let mut rows = vec![Vec::new(); scenario.models.len()];
    for row in &trace.rows {
        let model = row.model.map_or_else(|| draw(scenario, deal.random()), |model| model as usize);
        rows[model].push(Recorded { time_ns: row.time_s * 1e9 * stretch, items: row.items, slo: row.slo });
    }
    let stream = |rows| ArrivalStream {
        gaps: Gaps::Recorded { rows, next: 0 },
        rng: stream_rng(seed, TRACE_STREAM),
        unit_time: 0.0,
        gap_ns: 0.0,
        profile: None,
    };
    rows.into_iter().map(stream).collect()
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
