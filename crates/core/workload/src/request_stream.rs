//! The requests of one model: when they arrive, how long they may take, how many items they have.

use rand_xoshiro::Xoshiro256PlusPlus;
use symphony_types::{Nanos, Time};

use crate::arrivals::{ArrivalStream, arrival_streams};
use crate::law::Law;
use crate::scenario::Scenario;
use crate::seed::{DEADLINE_STREAM, ITEMS_STREAM, stream_rng};

/// A request that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arriving {
    /// When.
    pub at: Time,
    /// The time from arrival to answer that it allows.
    pub slo: Nanos,
    /// Its items, at least one.
    pub items: u32,
}

/// The requests of one model. Deadlines and items have streams of their own, so arrivals are the same whatever these
/// are.
#[derive(Clone, Debug)]
pub struct RequestStream {
    arrivals: ArrivalStream,
    deadline: Law,
    items: Law,
    deadline_rng: Xoshiro256PlusPlus,
    items_rng: Xoshiro256PlusPlus,
}

impl RequestStream {
    /// The next request; `None` when nothing arrives any more. Inlined, so that it goes right where it is kept.
    #[inline(always)]
    pub fn next_request(&mut self) -> Option<Arriving> {
        let at = self.arrivals.next_arrival()?;
        let recorded = self.arrivals.recorded();
        // Drawn also where the trace knows better, so that one row changes nothing for the others.
        let mut slo = Nanos::new(self.deadline.draw(&mut self.deadline_rng));
        let mut items = self.items.draw(&mut self.items_rng) as u32;
        if let Some(row) = recorded {
            (slo, items) = (row.slo.unwrap_or(slo), row.items.unwrap_or(items));
        }
        Some(Arriving { at, slo, items })
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
        deadline_rng: stream_rng(seed, DEADLINE_STREAM + position),
        items_rng: stream_rng(seed, ITEMS_STREAM + position),
    };
    arrivals.zip(&scenario.models).zip(0_u64..).map(stream).collect()
}
