//! A test kit for policies of clusters: drives one through a random story and holds it to its rules.
//!
//! A story is random but repeats with its seed: requests of all sizes and deadlines, some cancelled; models that come,
//! change and go; GPUs of two classes that come and fail; plans that are refused, end early and end late; measured
//! delays that change. The referee checks S1 to S5 after every step, and no request may be held for long after its
//! deadline while there are GPUs.
//!
//! ```
//! use symphony_scheduler::rivals::{Clockwork, ClockworkSettings};
//! use symphony_scheduler::{ClusterFacts, GuardedPolicy, policy_kit};
//! use symphony_types::Nanos;
//!
//! let settings = ClockworkSettings { commit: Nanos::from_millis(5), early: Nanos::from_millis(5) };
//! for seed in 0..8 {
//!     let facts = ClusterFacts::default();
//!     let policy = Box::new(Clockwork::new(&facts, settings));
//!     policy_kit::drive(GuardedPolicy::new("clockwork", policy), &facts, seed).unwrap();
//! }
//! ```

use std::collections::VecDeque;
use std::sync::Arc;

use symphony_types::{GpuClass, GpuId, LatencyProfile, Nanos, RequestId, RequestValue, Time};

use crate::rivals::round_robin::Mixer;
use crate::{
    ClassProfiles, ClusterAction, ClusterActions, ClusterFacts, ClusterInput, ClusterModel, ClusterReferee, DataDelay,
    Delays, GuardedPolicy, Plan, PolicyFault, Request,
};

/// Turns of a story: enough for every input to come many times.
const TURNS: usize = 400;
const MODELS: u32 = 4;
const GPUS: u32 = 5;
const CLASSES: usize = 2;
/// How long after its deadline a request may be without an outcome, as in the simulator.
const DECIDED_AFTER_MAX: Nanos = Nanos::from_millis(1_000);
/// The most events between two turns: far more than there are requests, models and GPUs.
const EVENTS_MAX: usize = 20_000;

/// What a story found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KitFault {
    /// The policy panicked, did not stop ordering, or broke an invariant.
    #[error("seed {seed}, at {now}: {fault}")]
    Policy {
        /// The story.
        seed: u64,
        /// When.
        now: Time,
        /// What it did.
        fault: PolicyFault,
    },
    /// A request has no outcome long after its deadline.
    #[error("seed {seed}, at {now}: policy `{policy}` still holds request {request}, which was due at {deadline}")]
    Undecided {
        /// The story.
        seed: u64,
        /// When.
        now: Time,
        /// Name of the policy.
        policy: String,
        /// The request that is left.
        request: RequestId,
        /// By when its answer should have been at the client.
        deadline: Time,
    },
    /// The policy asks for wake-ups without end.
    #[error("seed {seed}, at {now}: policy `{policy}` asked for more than {EVENTS_MAX} wake-ups at once")]
    Spins {
        /// The story.
        seed: u64,
        /// When.
        now: Time,
        /// Name of the policy.
        policy: String,
    },
}

/// What happened in a story.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KitReport {
    /// Requests that arrived.
    pub arrived: u64,
    /// Requests whose batch has run.
    pub ran: u64,
    /// Requests that the policy dropped.
    pub dropped: u64,
    /// Requests that were cancelled while they waited.
    pub cancelled: u64,
    /// Plans that were refused.
    pub refused: u64,
    /// Batches that were stopped.
    pub preempted: u64,
}

/// A plan on its way to, or on, a GPU.
#[derive(Debug)]
struct Run {
    model: u32,
    plan: Plan,
    start: Time,
    end: Time,
    is_refused: bool,
    requests: Vec<Request>,
}

struct Story {
    seed: u64,
    now: Time,
    policy: GuardedPolicy,
    referee: ClusterReferee,
    random: Mixer,
    wake_at: Time,
    gpus: Vec<Option<VecDeque<Run>>>,
    /// Which models exist.
    served: Vec<bool>,
    out: ClusterActions,
    report: KitReport,
}

/// Drives the policy, which was built with these facts and has had no input yet, through the story of this seed.
///
/// # Errors
/// If the policy breaks a rule; the message names it and the time.
pub fn drive(policy: GuardedPolicy, facts: &ClusterFacts, seed: u64) -> Result<KitReport, KitFault> {
    let mut story = Story {
        seed,
        // An hour in, so that times before now exist.
        now: Time::from_nanos(3_600_000_000_000),
        policy,
        referee: ClusterReferee::new(facts.clone()),
        random: Mixer::new(seed),
        wake_at: Time::NEVER,
        gpus: (0..GPUS).map(|_| None).collect(),
        served: vec![false; MODELS as usize],
        out: ClusterActions::default(),
        report: KitReport::default(),
    };
    for model in 0..MODELS {
        story.set_model(model)?;
    }
    for _ in 0..TURNS {
        story.turn()?;
    }
    story.end()?;
    Ok(story.report)
}

impl Story {
    fn turn(&mut self) -> Result<(), KitFault> {
        match self.random.below(32) {
            0 => {
                let model = self.random.below(MODELS as usize) as u32;
                self.set_model(model)
            }
            1 => {
                let model = self.random.below(MODELS as usize) as u32;
                self.served[model as usize] = false;
                self.step(ClusterInput::ModelGone(model))
            }
            2 => {
                let gpu = self.random.below(GPUS as usize) as u32;
                self.gpu_down(gpu)
            }
            3..6 => {
                let (gpu, after) = (self.random.below(GPUS as usize) as u32, self.up_to_ms(10));
                self.gpu_up(gpu, after)
            }
            6 => self.cancel(),
            // Early and repeated wake-ups are harmless.
            7 => self.step(ClusterInput::Wake),
            8..14 => {
                let until = self.now + self.up_to_ms(8);
                self.run_until(until)
            }
            _ => self.arrive(),
        }
    }

    /// Until nothing more happens; then no request is left.
    fn end(&mut self) -> Result<(), KitFault> {
        for gpu in 0..GPUS {
            self.gpu_up(gpu, Nanos::ZERO)?;
        }
        let until = self.now + Nanos::from_millis(5_000);
        self.run_until(until)?;
        let due = |request: &Request| request.deadline < Time::NEVER && request.deadline + DECIDED_AFTER_MAX < until;
        if let Some((_, request)) = self.referee.all_owned().into_iter().find(|(_, request)| due(request)) {
            let (seed, now, policy) = (self.seed, self.now, self.policy.name().to_owned());
            return Err(KitFault::Undecided { seed, now, policy, request: request.id, deadline: request.deadline });
        }
        for model in 0..MODELS {
            self.served[model as usize] = false;
            self.step(ClusterInput::ModelGone(model))?;
        }
        Ok(())
    }

    fn up_to_ms(&mut self, millis: u64) -> Nanos {
        Nanos::new(self.random.below((millis * 1_000_000) as usize) as u64)
    }

    /// A model comes or changes.
    fn set_model(&mut self, model: u32) -> Result<(), KitFault> {
        let mut profiles = Vec::new();
        for class in GpuClass::all().take(CLASSES) {
            // Now and then a model does not run on a class.
            if profiles.is_empty() || self.random.below(4) > 0 {
                let (alpha_ms, beta_ms) = (1 + self.random.below(3), 1 + self.random.below(9));
                let line = LatencyProfile::from_line(alpha_ms as f64, beta_ms as f64, 1 + self.random.below(12) as u32);
                profiles.extend(line.ok().map(|profile| (class, profile)));
            }
        }
        let micros = |random: &mut Mixer| Nanos::from_micros(random.below(1_500) as u64);
        let (control, reply) = (micros(&mut self.random), micros(&mut self.random));
        let delays =
            Delays { control, data: DataDelay::each_item(micros(&mut self.random)), reply, guard: Nanos::ZERO };
        let slo = Nanos::from_millis(20 + self.random.below(60) as u64);
        let known = ClusterModel::new(profiles.into_iter().collect::<ClassProfiles>(), slo).with_delays(delays);
        let known = Arc::new(known.with_rate(self.random.below(400) as f64));
        self.served[model as usize] = true;
        self.step(ClusterInput::Model { model, known })
    }

    fn gpu_up(&mut self, gpu: u32, after: Nanos) -> Result<(), KitFault> {
        if self.gpus[gpu as usize].is_some() {
            return Ok(());
        }
        self.gpus[gpu as usize] = Some(VecDeque::new());
        let class = GpuClass::all().nth(self.random.below(CLASSES)).unwrap_or_default();
        self.step(ClusterInput::GpuUp { gpu: GpuId::new(gpu), class, free_at: self.now + after })
    }

    fn gpu_down(&mut self, gpu: u32) -> Result<(), KitFault> {
        let Some(runs) = self.gpus[gpu as usize].take() else { return Ok(()) };
        self.step(ClusterInput::GpuDown(GpuId::new(gpu)))?;
        for run in runs {
            self.give_back(run)?;
        }
        Ok(())
    }

    /// The requests of a plan that will not run return, unless their model has gone.
    fn give_back(&mut self, run: Run) -> Result<(), KitFault> {
        for request in run.requests {
            if self.served[run.model as usize] {
                self.step(ClusterInput::Return { model: run.model, request })?;
            }
        }
        Ok(())
    }

    fn arrive(&mut self) -> Result<(), KitFault> {
        let model = self.random.below(MODELS as usize) as u32;
        if !self.served[model as usize] {
            return Ok(());
        }
        self.report.arrived += 1;
        let items = match self.random.below(16) {
            0 => u32::MAX,
            1 => 8 + self.random.below(12) as u32,
            2..6 => 2 + self.random.below(6) as u32,
            _ => 1,
        };
        let deadline = match self.random.below(24) {
            0 => Time::NEVER,
            1 => self.now,
            2 => Time::ZERO,
            _ => self.now + self.up_to_ms(90),
        };
        let id = RequestId { sequence: self.report.arrived, ..RequestId::default() };
        let request = Request { id, deadline, items, weight: RequestValue::ONE, variant: 0 };
        self.step(ClusterInput::Arrive { model, request })
    }

    fn cancel(&mut self) -> Result<(), KitFault> {
        let owned = self.referee.all_owned();
        let Some(&(model, request)) = owned.get(self.random.below(owned.len())) else { return Ok(()) };
        self.report.cancelled += 1;
        self.step(ClusterInput::Cancel { model, request })
    }

    /// Follows ends and wake-ups up to this time.
    fn run_until(&mut self, until: Time) -> Result<(), KitFault> {
        for _ in 0..EVENTS_MAX {
            let ends = self.gpus.iter().enumerate();
            let next = ends.filter_map(|(gpu, runs)| Some((runs.as_ref()?.front()?.end, gpu))).min();
            let at = next.map_or(Time::NEVER, |(end, _)| end).min(self.wake_at);
            if at == Time::NEVER || at > until {
                self.now = self.now.max(until);
                return Ok(());
            }
            self.now = self.now.max(at);
            match next {
                Some((end, gpu)) if end == at => self.end_run(gpu)?,
                _ => {
                    self.wake_at = Time::NEVER;
                    self.step(ClusterInput::Wake)?;
                }
            }
        }
        Err(KitFault::Spins { seed: self.seed, now: self.now, policy: self.policy.name().to_owned() })
    }

    fn end_run(&mut self, gpu: usize) -> Result<(), KitFault> {
        let Some(run) = self.gpus[gpu].as_mut().and_then(VecDeque::pop_front) else { return Ok(()) };
        let (gpu, model, start) = (GpuId::new(gpu as u32), run.model, run.plan.start);
        if run.is_refused {
            self.report.refused += 1;
            self.step(ClusterInput::Refused { gpu, model, start })?;
            return self.give_back(run);
        }
        self.report.ran += run.requests.len() as u64;
        let (start_late, latency) = (run.start.since(start), run.end.since(run.start));
        self.step(ClusterInput::Done { gpu, model, start, start_late, latency })
    }

    /// One step, its check, and what follows from it.
    fn step(&mut self, input: ClusterInput) -> Result<(), KitFault> {
        let (seed, now) = (self.seed, self.now);
        let at_fault = |fault| KitFault::Policy { seed, now, fault };
        self.referee.observe(now, &input);
        let mut out = std::mem::take(&mut self.out);
        out.clear();
        self.policy.step(now, input, &mut out).map_err(at_fault)?;
        let checked = self.referee.ordered(now, &out, self.policy.waiting());
        checked.map_err(|violation| at_fault(self.policy.violated(violation)))?;
        for action in &out.list {
            match action {
                ClusterAction::Execute { model, plan } => self.execute(*model, plan, out.requests_of(plan)),
                ClusterAction::Preempt(gpu) => {
                    self.report.preempted += 1;
                    if let Some(runs) = self.gpus.get_mut(gpu.get() as usize).and_then(Option::as_mut) {
                        runs.clear();
                    }
                }
                ClusterAction::Drop { .. } => self.report.dropped += 1,
                ClusterAction::WakeAt(at) => self.wake_at = *at,
            }
        }
        self.out = out;
        Ok(())
    }

    fn execute(&mut self, model: u32, plan: &Plan, requests: &[Request]) {
        // As planned, or as soon as the plan before has ended; and as planned, or up to half shorter or longer.
        let begins = if self.random.below(4) == 0 { self.now } else { plan.start };
        let percent = if self.random.below(2) == 0 { 100 } else { 50 + self.random.below(100) as u64 };
        let is_refused = self.random.below(24) == 0;
        let Some(runs) = self.gpus.get_mut(plan.gpu.get() as usize).and_then(Option::as_mut) else { return };
        let start = runs.back().map_or(begins, |last| last.end.max(begins));
        let takes = Nanos::new(plan.end.since(plan.start).get() / 100 * percent);
        let end = if is_refused { start } else { start + takes };
        runs.push_back(Run { model, plan: *plan, start, end, is_refused, requests: requests.to_vec() });
    }
}

#[cfg(test)]
mod tests;
