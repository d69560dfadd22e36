//! What a queue orders, action by action. ℓ(b) = 1·b + 5 ms and an SLO of 25 ms unless stated otherwise.

mod auto;
mod budgets;
mod delays;
mod family;
mod orders;

use symphony_scheduler::{
    Candidate, Delays, GpuChoice, GrantWhy, Matched, ModelAction, ModelActions, ModelInput, ModelQueue,
    ModelQueueConfig, Policy,
};
use symphony_types::{GpuClass, GpuId, LatencyProfile, Nanos, Time};

use crate::request::request;

const SLO_MS: u64 = 25;
/// Where there are delays.
const DATA_PER_ITEM: Nanos = Nanos::from_micros(500);

fn ms(millis: u64) -> Time {
    Time::from_nanos(millis * 1_000_000)
}

fn after(time: Time) -> Time {
    time + Nanos::new(1)
}

const CLASS: GpuClass = GpuClass::FIRST;
/// Why every GPU here is granted; goes into the plans as it is.
const WHY: GrantWhy =
    GrantWhy { matched: Matched::AtItsStart, choice: GpuChoice::LowestId, others_idle: 2, rivals: 0, next_rival: None };

struct Host {
    queue: ModelQueue,
    actions: ModelActions,
}

impl Host {
    fn new(policy: Policy, delays: Delays, batch_max: u32, requests_max: usize) -> Self {
        let profile = LatencyProfile::from_line(1.0, 5.0, batch_max).unwrap();
        let (profiles, slo) = (profile.into(), Nanos::from_millis(SLO_MS));
        let config = ModelQueueConfig { profiles, slo, policy, delays, requests_max };
        Self { queue: ModelQueue::new(config), actions: ModelActions::default() }
    }

    fn symphony() -> Self {
        Self::new(Policy::SYMPHONY, Delays::default(), 64, 100)
    }

    fn step(&mut self, now: Time, input: ModelInput) -> Vec<ModelAction> {
        self.actions.clear();
        self.queue.step(now, input, &mut self.actions);
        self.actions.list.clone()
    }

    fn arrive(&mut self, at_ms: u64, sequence: u64) -> Vec<ModelAction> {
        self.step(ms(at_ms), ModelInput::Arrive(request(sequence, ms(at_ms + SLO_MS))))
    }

    fn grant(&mut self, at_ms: u64, free_at: Time) -> Vec<ModelAction> {
        self.step(ms(at_ms), ModelInput::Grant { gpu: GpuId::new(3), class: CLASS, free_at, why: WHY })
    }
}

fn offer(answered: u64, batch: u32, start: Time, latest: Time, lead: Nanos) -> ModelAction {
    // D and, where the batch can grow, D − ℓ(b+1) − d.
    let must_end_by = latest + Nanos::from_millis(u64::from(batch) + 5);
    let data = if lead == Nanos::ZERO { Nanos::ZERO } else { DATA_PER_ITEM };
    let frontrun = latest - Nanos::from_millis(1) - data;
    let candidate = Candidate { batch, start, latest, frontrun, must_end_by, lead, ..Candidate::default() };
    ModelAction::Offer { answered, class: CLASS, candidate: Some(candidate) }
}

/// An offer of a batch that cannot grow: whatever waits, it gains nothing.
fn full(offer: ModelAction) -> ModelAction {
    let ModelAction::Offer { answered, candidate: Some(candidate), .. } = offer else {
        panic!("no candidate: {offer:?}")
    };
    ModelAction::Offer { answered, class: CLASS, candidate: Some(Candidate { frontrun: Time::ZERO, ..candidate }) }
}

/// When the candidate that waits wants to start.
fn wanted_start(actions: &[ModelAction]) -> Option<Time> {
    actions.iter().find_map(|action| match action {
        ModelAction::Offer { candidate: Some(candidate), .. } => Some(candidate.start),
        _ => None,
    })
}
