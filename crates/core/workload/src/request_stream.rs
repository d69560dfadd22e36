//! The requests of one model: arrival times, deadlines and items.

use rand_xoshiro::Xoshiro256PlusPlus;
use symphony_types::{Nanos, Time};

use crate::arrivals::{ArrivalStream, arrival_streams};
use crate::scenario::Scenario;
use crate::seed::{DEADLINE_STREAM, ITEMS_STREAM, VARIANT_STREAM, stream_rng};
use crate::value_distribution::ValueDistribution;

/// A request that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arriving {
    /// Arrival time.
    pub at: Time,
    /// Time from arrival to the deadline.
    pub slo: Nanos,
    /// Its items, at least one.
    pub items: u32,
    /// The variant of its family that it calls; 0 without one.
    pub variant: u32,
}

/// The requests of one model. Deadlines, items and variants have separate streams, so they do not affect arrivals.
#[derive(Clone, Debug)]
pub struct RequestStream {
    arrivals: ArrivalStream,
    deadline: ValueDistribution,
    items: ValueDistribution,
    variant: ValueDistribution,
    deadline_rng: Xoshiro256PlusPlus,
    items_rng: Xoshiro256PlusPlus,
    variant_rng: Xoshiro256PlusPlus,
}

impl RequestStream {
    /// The next request; `None` if there are no more. Inlined, so that it is constructed in place.
    #[inline(always)]
    pub fn next_request(&mut self) -> Option<Arriving> {
        let at = self.arrivals.next_arrival()?;
        let recorded = self.arrivals.recorded();
        // Also drawn if the trace has the value, so that one row does not affect the others.
        let mut slo = Nanos::new(self.deadline.draw(&mut self.deadline_rng));
        let mut items = self.items.draw(&mut self.items_rng) as u32;
        if let Some(row) = recorded {
            (slo, items) = (row.slo.unwrap_or(slo), row.items.unwrap_or(items));
        }
        let variant = self.variant.draw(&mut self.variant_rng) as u32;
        Some(Arriving { at, slo, items, variant })
    }
}

/// One stream per model of the scenario, for this seed and this total rate in requests per second.
#[must_use]
pub fn request_streams(scenario: &Scenario, seed: u64, rate_rps: f64) -> Vec<RequestStream> {
    let arrivals = arrival_streams(scenario, seed, rate_rps).into_iter();
    let stream = |((arrivals, model), position): ((ArrivalStream, &crate::ModelSpec), u64)| RequestStream {
        arrivals,
        deadline: model.deadline.clone(),
        items: model.items.clone(),
        variant: model.variants.as_ref().map_or(ValueDistribution::Fixed(0), |variants| variants.of_requests.clone()),
        deadline_rng: stream_rng(seed, DEADLINE_STREAM + position),
        items_rng: stream_rng(seed, ITEMS_STREAM + position),
        variant_rng: stream_rng(seed, VARIANT_STREAM + position),
    };
    arrivals.zip(&scenario.models).zip(0_u64..).map(stream).collect()
}
