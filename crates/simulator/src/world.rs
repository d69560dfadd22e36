//! The event loop: virtual time around the production decision objects.

use std::collections::VecDeque;

use symphony_scheduler::{
    Delays, GPUS_MAX, GpuRanker, MODELS_MAX, MinTree, ModelAction, ModelActions, ModelInput, ModelQueue,
    ModelQueueConfig, QUEUE_REQUESTS_MAX, RankAction, RankActions, RankInput, Request, Violation,
};
use symphony_types::{BootId, FrontendId, GpuId, Nanos, RequestId, Time};
use symphony_workload::{ArrivalStream, SCENARIO_GPUS_MAX, SCENARIO_MODELS_MAX, Scenario, arrival_streams};

use crate::error::{Error, replay_command};
use crate::policy::scheduler_policy;
use crate::referee::Referee;
use crate::result::RunResult;
use crate::tally::{Tally, misses_p99};
use crate::tap::{Open, Tap};

/// Steps that may happen in one instant, arrivals aside, before the run counts as spinning; 16 more per model and GPU.
/// An honest instant takes a few steps per model and GPU: a wake, a grant, an answer.
pub const SPIN_STEPS_MIN: u64 = 10_000;
/// How long after its deadline a request may stay undecided before the run counts as stuck. An honest scheduler decides
/// by the deadline.
const DECIDED_AFTER_MAX: Nanos = Nanos::from_millis(1_000);

// Every scenario fits one rank thread.
const _: () = assert!(SCENARIO_GPUS_MAX as usize <= GPUS_MAX && SCENARIO_MODELS_MAX <= MODELS_MAX);

/// The answer to one question of a search for goodput.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Every model's p99 was within its SLO.
    pub passed: bool,
    /// Requests simulated: fewer where failure was certain early.
    pub simulated_requests: u64,
}

/// Runs `scenario` with this seed and total rate (requests per second) to the end.
///
/// # Errors
/// If an invariant is violated or the run is stuck: an error of the scheduler, with the command that repeats it.
pub fn simulate(scenario: &Scenario, seed: u64, rate_rps: f64) -> Result<RunResult, Error> {
    let mut world = World::new(scenario, seed, rate_rps, Open);
    world.run()?;
    Ok(world.tally.into_result(scenario, seed))
}

/// Whether every model's p99 meets its SLO at this rate. Ends as soon as failure is certain.
///
/// # Errors
/// As [`simulate`].
pub fn meets_slo(scenario: &Scenario, seed: u64, rate_rps: f64) -> Result<Verdict, Error> {
    let mut world = World::new(scenario, seed, rate_rps, Open);
    world.offered = Some(offered(scenario, seed, rate_rps));
    world.run()?;
    let passed = !world.failed && world.tally.meets_slo();
    Ok(Verdict { passed, simulated_requests: world.tally.simulated() })
}

/// Requests that will be counted per model. Arrivals do not depend on what the scheduler does, so this is known before.
fn offered(scenario: &Scenario, seed: u64, rate_rps: f64) -> Vec<u64> {
    let from = Time::ZERO + scenario.warmup;
    let until = from + scenario.duration;
    let count = |mut stream: ArrivalStream| {
        let arrivals = std::iter::from_fn(move || stream.next_arrival());
        arrivals.take_while(|&at| at < until).filter(|&at| at >= from).count() as u64
    };
    arrival_streams(scenario, seed, rate_rps).into_iter().map(count).collect()
}

/// Where events come from, as slots of one tournament tree. Of events in the same instant the lowest slot goes first:
/// the ranker's timer, then arrivals, then timers of models, each in the order of the scenario.
#[derive(Clone, Copy)]
enum Source {
    Ranker,
    Arrival(usize),
    ModelTimer(usize),
}

pub(crate) struct World<'a, T> {
    scenario: &'a Scenario,
    seed: u64,
    rate_rps: f64,
    now: Time,
    timers: MinTree,
    arrivals: Vec<ArrivalStream>,
    queues: Vec<ModelQueue>,
    ranker: GpuRanker,
    referee: Referee,
    tally: Tally,
    tap: T,
    /// Arrivals so far: the next request's sequence number.
    sequence: u64,
    /// With the final number of counted requests per model, the run ends when a model has certainly failed.
    offered: Option<Vec<u64>>,
    failed: bool,
    spin_since: Time,
    spin_steps: u64,
    // Reused, so that a turn does not allocate.
    actions: ModelActions,
    rank_actions: RankActions,
    grants: VecDeque<(u32, GpuId, Time)>,
}

impl<'a, T: Tap> World<'a, T> {
    pub(crate) fn new(scenario: &'a Scenario, seed: u64, rate_rps: f64, tap: T) -> Self {
        let network = scenario.network;
        // Timers of virtual time are never late: no guard.
        let delays = Delays {
            control: network.control,
            data_per_item: network.data_per_item,
            reply: network.reply,
            guard: Nanos::ZERO,
        };
        let (policy, choice) = scheduler_policy(&scenario.policy);
        let (models, gpus) = (scenario.models.len(), scenario.gpu_count());
        let queue = |model: &symphony_workload::ModelSpec| {
            ModelQueue::new(ModelQueueConfig {
                profile: (*model.profile).clone(),
                slo: model.slo,
                policy,
                delays,
                requests_max: QUEUE_REQUESTS_MAX,
            })
        };
        let mut world = Self {
            scenario,
            seed,
            rate_rps,
            now: Time::ZERO,
            timers: MinTree::new(1 + 2 * models),
            arrivals: arrival_streams(scenario, seed, rate_rps),
            queues: scenario.models.iter().map(queue).collect(),
            ranker: GpuRanker::new(models as u32, gpus, choice),
            referee: Referee::new(gpus, delays),
            tally: Tally::new(scenario),
            tap,
            sequence: 0,
            offered: None,
            failed: false,
            spin_since: Time::ZERO,
            spin_steps: 0,
            actions: ModelActions::default(),
            rank_actions: RankActions::default(),
            grants: VecDeque::new(),
        };
        for gpu in 0..gpus {
            world.rank(RankInput::BusyUntil { gpu: GpuId::new(gpu), free_at: Time::ZERO });
        }
        for model in 0..models {
            world.schedule_arrival(model);
        }
        world
    }

    /// Runs until every counted request is decided, or one model has certainly failed.
    pub(crate) fn run(&mut self) -> Result<(), Error> {
        let slo_max = self.scenario.models.iter().map(|model| model.slo).max().unwrap_or(Nanos::ZERO);
        let stuck_after = self.tally.until() + slo_max + DECIDED_AFTER_MAX;
        while !self.failed {
            let Some((slot, at)) = self.timers.min() else {
                if self.referee.open() > 0 {
                    return Err(self.stuck(format!("{} requests wait and no event is left", self.referee.open())));
                }
                return Ok(());
            };
            // An order may ask for a time that has passed; time itself never goes back.
            self.now = self.now.max(Time::from_nanos(at));
            if self.now >= self.tally.until() && self.tally.undecided() == 0 {
                return Ok(());
            }
            if self.now > stuck_after {
                let what = format!("{} requests are undecided long after their deadlines", self.tally.undecided());
                return Err(self.stuck(what));
            }
            match self.source(slot) {
                Source::Ranker => {
                    self.timers.set(slot, MinTree::EMPTY);
                    self.count_step()?;
                    self.rank(RankInput::Wake);
                }
                Source::Arrival(model) => self.arrive(model)?,
                Source::ModelTimer(model) => {
                    self.timers.set(slot, MinTree::EMPTY);
                    self.step_model(model, ModelInput::Wake)?;
                }
            }
            while let Some((model, gpu, free_at)) = self.grants.pop_front() {
                self.step_model(model as usize, ModelInput::Grant { gpu, free_at })?;
            }
        }
        Ok(())
    }

    fn source(&self, slot: usize) -> Source {
        let models = self.queues.len();
        match slot.checked_sub(1) {
            None => Source::Ranker,
            Some(model) if model < models => Source::Arrival(model),
            Some(beyond) => Source::ModelTimer(beyond - models),
        }
    }

    fn schedule_arrival(&mut self, model: usize) {
        let next = self.arrivals[model].next_arrival().unwrap_or(Time::NEVER);
        self.timers.set(1 + model, next.as_nanos());
    }

    fn arrive(&mut self, model: usize) -> Result<(), Error> {
        let id = RequestId { frontend: FrontendId::new(0), boot: BootId::new(self.seed), sequence: self.sequence };
        self.sequence += 1;
        self.schedule_arrival(model);
        self.tally.arrived(model, self.now);
        self.referee.arrived(model as u32, id).map_err(|violation| self.violated(violation))?;
        let deadline = self.now + self.scenario.models[model].slo;
        // Many requests may arrive in the same instant; what they set off is bounded by their number.
        self.spin_steps = 0;
        self.step_model(model, ModelInput::Arrive(Request { id, deadline, items: 1 }))
    }

    /// One step of a model's queue, and its orders carried out.
    fn step_model(&mut self, model: usize, input: ModelInput) -> Result<(), Error> {
        self.count_step()?;
        self.actions.clear();
        self.queues[model].step(self.now, input, &mut self.actions);
        self.tap.model_step(self.now, &input, &mut self.actions);
        self.carry_out(model, &input).map_err(|violation| self.violated(violation))
    }

    fn carry_out(&mut self, model: usize, input: &ModelInput) -> Result<(), Violation> {
        match *input {
            ModelInput::Grant { gpu, .. } => self.referee.answered(gpu, &self.actions.list)?,
            _ => self.referee.ungranted(&self.actions.list)?,
        }
        self.referee.queued(model as u32, self.queues[model].len(), QUEUE_REQUESTS_MAX)?;
        let slot = model as u32;
        for at in 0..self.actions.list.len() {
            match self.actions.list[at] {
                ModelAction::Offer { answered, candidate } => {
                    self.rank(RankInput::Offer { model: slot, answered, candidate });
                }
                ModelAction::Execute(plan) => {
                    let requests = self.actions.requests_of(&plan);
                    let profile = &self.scenario.models[model].profile;
                    self.referee.executed(self.now, slot, profile, &plan, requests)?;
                    let bad = self.tally.executed(model, &plan, requests);
                    self.give_up_if_certain(model, bad);
                }
                ModelAction::Release { gpu, free_at } => self.rank(RankInput::Release { model: slot, gpu, free_at }),
                ModelAction::Drop { request, .. } => {
                    self.referee.decided(slot, request.id)?;
                    let bad = self.tally.dropped(model, &request);
                    self.give_up_if_certain(model, bad);
                }
                ModelAction::WakeAt(at) => self.timers.set(1 + self.queues.len() + model, at.as_nanos()),
            }
        }
        Ok(())
    }

    /// One step of the ranker. Its grants wait until the model that is being served has had all its orders carried out.
    fn rank(&mut self, input: RankInput) {
        self.rank_actions.clear();
        self.ranker.step(self.now, input, &mut self.rank_actions);
        for action in &self.rank_actions {
            match *action {
                RankAction::Grant { model, gpu, free_at } => self.grants.push_back((model, gpu, free_at)),
                RankAction::WakeAt(at) => self.timers.set(0, at.as_nanos()),
            }
        }
    }

    fn give_up_if_certain(&mut self, model: usize, bad: u64) {
        self.failed |= self.offered.as_ref().is_some_and(|offered| misses_p99(bad, offered[model]));
    }

    fn count_step(&mut self) -> Result<(), Error> {
        if self.now != self.spin_since {
            (self.spin_since, self.spin_steps) = (self.now, 0);
        }
        self.spin_steps += 1;
        let steps_max = SPIN_STEPS_MIN + 16 * (self.queues.len() as u64 + u64::from(self.scenario.gpu_count()));
        if self.spin_steps > steps_max {
            return Err(self.stuck(format!("more than {steps_max} steps without an arrival or the passing of time")));
        }
        Ok(())
    }

    fn violated(&self, violation: Violation) -> Error {
        let command = replay_command(self.scenario, self.seed, self.rate_rps);
        Error::Violation { violation, now: self.now, seed: self.seed, command }
    }

    fn stuck(&self, what: String) -> Error {
        let command = replay_command(self.scenario, self.seed, self.rate_rps);
        Error::Stuck { what, now: self.now, seed: self.seed, command }
    }
}
