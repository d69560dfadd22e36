//! The event loop: virtual time, arrivals and GPUs around a policy.

mod stages;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use symphony_scheduler::{
    ClusterAction, ClusterActions, ClusterInput, GPUS_MAX, MODELS_MAX, MinTree, Plan, PolicyFault, Request, Violation,
};
use symphony_types::{BootId, DropReason, FrontendId, GpuId, Invariant, LatencyProfile, Nanos, RequestId, Time};
use symphony_workload::{
    ArrivalStream, Arriving, NoiseStream, RequestStream, SCENARIO_GPUS_MAX, SCENARIO_MODELS_MAX, Scenario,
    noise_streams, pipeline_streams, request_streams,
};

use crate::error::{Error, replay_command};
use crate::failures::{Change, Failures};
use crate::gpus::Gpus;
use crate::hosted::{Fault, Hosted};
use crate::open_requests::{OPEN_SPAN_MAX, OpenRequest, RequestOrigin};
use crate::pipelines::{HostEvent, Pipelines};
use crate::policy_facts::PolicyFacts;
use crate::referee::Referee;
use crate::result::RunResult;
use crate::scaling::{Scaling, ScalingOrder};
use crate::slow_gpus::SlowGpus;
use crate::spin_trap::SpinTrap;
use crate::tally::{Tally, misses_p99};
use crate::watch::Watch;

/// How long after its deadline, and after the end of every plan, a request may be undecided before the run counts as
/// stuck. A correct scheduler decides by the deadline.
const DECIDED_AFTER_MAX: Nanos = Nanos::from_millis(1_000);

// Every scenario fits one rank worker.
const _: () = assert!(SCENARIO_GPUS_MAX as usize <= GPUS_MAX && SCENARIO_MODELS_MAX <= MODELS_MAX);

pub(crate) struct World<'a, P, W = ()> {
    watch: W,
    scenario: &'a Scenario,
    seed: u64,
    rate_rps: f64,
    now: Time,
    policy: P,
    wants_reports: bool,
    /// The next wake-up of the policy.
    wake_at: Time,
    /// The next arrival of each model, then of each pipeline.
    next_arrivals: MinTree,
    streams: Vec<RequestStream>,
    pipeline_streams: Vec<ArrivalStream>,
    /// The request that arrives then.
    arriving: Vec<Arriving>,
    gpus: Gpus,
    /// One per GPU; empty if executions are exact.
    noise: Vec<NoiseStream>,
    failures: Failures,
    slow: SlowGpus,
    /// The profiles used for plans, by model, if they differ from the scenario's.
    corrected: BTreeMap<u32, Arc<[LatencyProfile]>>,
    /// The autoscaling state, if the number of GPUs follows the load.
    scaling: Option<Box<Scaling>>,
    /// Its next due time.
    scale_at: Time,
    /// The runs of pipelines, if the scenario has any.
    pipelines: Option<Box<Pipelines<'a>>>,
    /// When their budgets are split again.
    replan_at: Time,
    /// Dropped stage requests whose runs do not know it yet.
    lost: VecDeque<(u64, DropReason)>,
    referee: Referee,
    pub(crate) tally: Tally,
    /// Arrivals so far, which is the next request's sequence number.
    sequence: u64,
    /// If set to the final number of counted requests per model and pipeline, the run ends as soon as one of them has
    /// certainly failed.
    pub(crate) offered: Option<Vec<u64>>,
    pub(crate) failed: bool,
    spin: SpinTrap,
    stuck_after: Time,
    /// Reused, so that a turn does not allocate.
    orders: ClusterActions,
}

impl<'a, P: Hosted> World<'a, P> {
    pub(crate) fn new(scenario: &'a Scenario, seed: u64, rate_rps: f64, policy: P) -> Self {
        Self::watched(scenario, seed, rate_rps, policy, ())
    }
}

impl<'a, P: Hosted, W: Watch> World<'a, P, W> {
    pub(crate) fn watched(scenario: &'a Scenario, seed: u64, rate_rps: f64, policy: P, watch: W) -> Self {
        let facts = PolicyFacts::new(scenario, seed, rate_rps);
        let (models, gpus) = (scenario.models.len(), scenario.gpu_count());
        let pipelines = Pipelines::new(scenario, seed, rate_rps).map(Box::new);
        let epoch = scenario.split_epoch.filter(|_| pipelines.is_some());
        let tally = Tally::new(scenario);
        let scaling = scenario.autoscale.as_ref().map(|autoscale| Box::new(Scaling::new(scenario, autoscale)));
        let mut world = Self {
            watch,
            scenario,
            seed,
            rate_rps,
            now: Time::ZERO,
            wants_reports: policy.wants_reports(),
            policy,
            wake_at: Time::NEVER,
            next_arrivals: MinTree::new(models + scenario.pipelines.len()),
            pipeline_streams: pipeline_streams(scenario, seed, rate_rps),
            streams: request_streams(scenario, seed, rate_rps),
            arriving: vec![Arriving { at: Time::NEVER, slo: Nanos::ZERO, items: 1, variant: 0 }; models],
            gpus: Gpus::new(gpus),
            noise: noise_streams(scenario, seed),
            failures: Failures::new(&scenario.failures),
            slow: SlowGpus::new(&scenario.slow),
            corrected: BTreeMap::new(),
            scale_at: scaling.as_ref().map_or(Time::NEVER, |scaling| scaling.next()),
            scaling,
            pipelines,
            replan_at: epoch.map_or(Time::NEVER, |epoch| Time::ZERO + epoch),
            lost: VecDeque::new(),
            referee: Referee::new(facts.gpu_classes, facts.delays),
            stuck_after: tally.until() + DECIDED_AFTER_MAX,
            tally,
            sequence: 0,
            offered: None,
            failed: false,
            spin: SpinTrap::new(models, gpus),
            orders: ClusterActions::with_room(),
        };
        for slot in 0..models + scenario.pipelines.len() {
            world.schedule_arrival(slot);
        }
        world
    }

    /// Runs until every counted request is decided, or one model or pipeline has certainly failed.
    pub(crate) fn run(&mut self) -> Result<(), Error> {
        let facts = PolicyFacts::new(self.scenario, self.seed, self.rate_rps);
        for (model, known) in (0..).zip(facts.cluster_models()) {
            self.step(ClusterInput::Model { model, known })?;
        }
        for gpu in (0..self.scenario.gpu_count()).map(GpuId::new) {
            if self.scaling.as_ref().is_none_or(|scaling| scaling.serves(gpu)) {
                self.step(ClusterInput::GpuUp { gpu, class: self.referee.class_of(gpu), free_at: Time::ZERO })?;
            } else {
                self.referee.busy_until(gpu, Time::NEVER);
            }
        }
        while !self.failed {
            // Order of simultaneous events: ends of plans, results at the hosts of pipelines, failures, new splits, the
            // autoscaler, the policy's timer, arrivals in the order of the scenario.
            let (ends, changes) = (self.gpus.next_end(), self.failures.next());
            let dues = self.pipelines.as_ref().map_or(Time::NEVER, |pipelines| pipelines.next_due());
            let arrivals = Time::from_nanos(self.next_arrivals.min_key());
            let at = ends.min(dues).min(changes).min(self.replan_at).min(self.scale_at).min(self.wake_at).min(arrivals);
            if at == Time::NEVER || (at == self.replan_at && self.is_over(arrivals)) {
                let open = self.referee.open() + self.pipelines.as_ref().map_or(0, |pipelines| pipelines.open());
                if open > 0 {
                    return Err(self.stuck(format!("{open} requests wait and no event is left")));
                }
                return Ok(());
            }
            // A wake-up may be requested for a past time; virtual time never goes back.
            self.now = self.now.max(at);
            if self.now >= self.tally.demand_due() {
                self.tally.demanded(self.policy.demand_time());
            }
            if self.now >= self.tally.until() && self.tally.undecided() == 0 {
                return Ok(());
            }
            if self.now > self.stuck_after {
                let what = format!("{} requests are undecided long after their deadlines", self.tally.undecided());
                return Err(self.stuck(what));
            }
            if at == ends {
                self.end_plan()?;
            } else if at == dues {
                self.host(HostEvent::Due)?;
            } else if at == changes {
                self.change()?;
            } else if at == self.replan_at {
                self.replan()?;
            } else if at == self.scale_at {
                self.scale()?;
            } else if at == self.wake_at {
                self.wake_at = Time::NEVER;
                self.step(ClusterInput::Wake)?;
            } else {
                self.arrive()?;
            }
            while let Some((sequence, reason)) = self.lost.pop_front() {
                self.host(HostEvent::Dropped(sequence, reason))?;
            }
        }
        Ok(())
    }

    /// Whether nothing is left to do but to split budgets again, for ever.
    fn is_over(&self, arrivals: Time) -> bool {
        arrivals == Time::NEVER
            && self.pipelines.as_ref().is_none_or(|pipelines| pipelines.open() == 0)
            && self.referee.open() == 0
    }

    pub(crate) fn into_result(self) -> RunResult {
        self.into_parts().0
    }

    pub(crate) fn into_parts(mut self) -> (RunResult, W) {
        // If the last event was before the end of the counted time, there was no load after it.
        while self.tally.demand_due() < Time::NEVER {
            self.tally.demanded(self.policy.demand_time());
        }
        let scaling = self.scaling.map(|scaling| scaling.into_result());
        let mut result = self.tally.into_result(self.scenario, self.seed, scaling);
        result.learning = self.policy.learnt();
        (result, self.watch)
    }

    #[cfg(test)]
    pub(crate) const fn policy(&self) -> &P {
        &self.policy
    }

    fn schedule_arrival(&mut self, slot: usize) {
        let mut at = Time::NEVER;
        if let Some(stream) = self.streams.get_mut(slot) {
            if let Some(next) = stream.next_request() {
                at = next.at;
                self.arriving[slot] = next;
            }
        } else if let Some(stream) = self.pipeline_streams.get_mut(slot - self.streams.len()) {
            at = stream.next_arrival().unwrap_or(Time::NEVER);
        }
        self.next_arrivals.set(slot, at.as_nanos());
    }

    fn arrive(&mut self) -> Result<(), Error> {
        let Some((model, _)) = self.next_arrivals.min() else { return Ok(()) };
        if model >= self.streams.len() {
            self.schedule_arrival(model);
            self.pipeline_arrives(model - self.streams.len());
            return Ok(());
        }
        let arriving = self.arriving[model];
        let id = self.id(self.sequence);
        self.sequence += 1;
        self.schedule_arrival(model);
        if self.tally.arrived(model, self.now, RequestOrigin::Client) {
            self.stuck_after = self.stuck_after.max(self.now + arriving.slo + DECIDED_AFTER_MAX);
        }
        if let Some(scaling) = &mut self.scaling {
            scaling.arrived(model, arriving.items);
        }
        let request = Request {
            id,
            deadline: self.now + arriving.slo,
            items: arriving.items,
            weight: symphony_types::RequestValue::ONE,
            variant: arriving.variant,
        };
        let model = model as u32;
        if let Some(oldest) = self.referee.arrived(self.now, model, &request, RequestOrigin::Client) {
            return Err(self.too_many_open(id, &oldest));
        }
        self.watch.queued(self.now, model);
        // Many requests may arrive at the same instant; the steps that they cause are bounded by their number.
        self.spin.reset();
        self.step(ClusterInput::Arrive { model, request })
    }

    const fn id(&self, sequence: u64) -> RequestId {
        RequestId { frontend: FrontendId::new(0), boot: BootId::new(self.seed), sequence }
    }

    /// A GPU fails or recovers.
    fn change(&mut self) -> Result<(), Error> {
        match self.failures.take() {
            None => Ok(()),
            Some(Change::Down(gpu)) => {
                let mut lost = Vec::new();
                if let Some(run) = self.gpus.stop(self.now, gpu, |model, sequence| lost.push((model, sequence))) {
                    self.tally.ran(&run);
                    self.watch.ran(&run, 0, true);
                }
                self.watch.gpu(self.now, gpu, false);
                self.referee.busy_until(gpu, Time::NEVER);
                self.step(ClusterInput::GpuDown(gpu))?;
                for (model, sequence) in lost {
                    let Some(open) = self.referee.given_back(model, sequence) else { continue };
                    let id = self.id(sequence);
                    let Some(request) = self.returned(id, &open) else {
                        // Its run no longer needs it.
                        self.referee.withdrawn(model, id);
                        self.tally.withdrawn(model as usize, open.arrived);
                        continue;
                    };
                    self.watch.queued(self.now, model);
                    self.spin.reset();
                    self.step(ClusterInput::Return { model, request })?;
                }
                Ok(())
            }
            Some(Change::Up(gpu)) => {
                self.referee.busy_until(gpu, self.now);
                self.watch.gpu(self.now, gpu, true);
                self.step(ClusterInput::GpuUp { gpu, class: self.referee.class_of(gpu), free_at: self.now })
            }
        }
    }

    /// A request that comes back from a GPU, as it arrived; `None` if it is not awaited.
    fn returned(&self, id: RequestId, open: &OpenRequest) -> Option<Request> {
        if open.origin == RequestOrigin::Stage {
            return self.pipelines.as_ref()?.request(id.sequence);
        }
        let (deadline, items, variant) = (open.deadline, u32::from(open.items), u32::from(open.variant));
        Some(Request { id, deadline, items, weight: symphony_types::RequestValue::ONE, variant })
    }

    /// Ordered GPUs arrive, and the autoscaler evaluates its measurements.
    fn scale(&mut self) -> Result<(), Error> {
        let Some(scaling) = &mut self.scaling else { return Ok(()) };
        let mut orders = Vec::new();
        scaling.step(self.now, &self.gpus, self.policy.demand_time(), &mut orders);
        self.scale_at = scaling.next();
        for order in orders {
            // One after another makes many steps at one instant.
            self.spin.reset();
            match order {
                ScalingOrder::Up(gpu) => {
                    self.referee.busy_until(gpu, self.now);
                    self.watch.gpu(self.now, gpu, true);
                    self.step(ClusterInput::GpuUp { gpu, class: self.referee.class_of(gpu), free_at: self.now })?;
                }
                ScalingOrder::Drain(gpu) => {
                    // It finishes its plans; a policy that sends more violates S1.
                    self.referee.busy_until(gpu, Time::NEVER);
                    self.step(ClusterInput::GpuDown(gpu))?;
                    if self.gpus.is_idle(gpu) {
                        self.watch.gpu(self.now, gpu, false);
                    }
                }
            }
        }
        Ok(())
    }

    /// The plan that ends next has ended: its requests have their outcome.
    fn end_plan(&mut self) -> Result<(), Error> {
        let (referee, tally, pipelines) = (&mut self.referee, &mut self.tally, &mut self.pipelines);
        let (mut counted, mut late, reply) = (0, 0, self.scenario.network.reply);
        let run = self.gpus.finish(|run, sequence| {
            // The plan was checked when it was made.
            if let Some(request) = referee.finished(run.model, sequence) {
                counted += u64::from(tally.answered(run, &request));
                late += u32::from(run.end + reply > request.deadline);
                if let (RequestOrigin::Stage, Some(pipelines)) = (request.origin, pipelines.as_mut()) {
                    pipelines.answered(run.end + reply, sequence);
                }
            }
        });
        let Some(run) = run else { return Ok(()) };
        self.tally.ran(&run);
        self.watch.ran(&run, late, false);
        let bad = self.tally.batch(&run, counted);
        self.give_up_if_certain(run.model as usize, bad);
        let idle = self.gpus.is_idle(run.plan.gpu);
        if let Some(scaling) = &mut self.scaling
            && scaling.ran(self.now, &run, late, idle)
        {
            // It drains: its reports are no longer needed.
            if idle {
                self.watch.gpu(self.now, run.plan.gpu, false);
            }
            return Ok(());
        }
        if !self.wants_reports {
            return Ok(());
        }
        if idle {
            // An early end makes room, if the policy gets it as an input.
            self.referee.busy_until(run.plan.gpu, self.now);
        }
        self.step(ClusterInput::Done {
            gpu: run.plan.gpu,
            model: run.model,
            start: run.plan.start,
            start_late: run.start.since(run.plan.start),
            latency: run.end.since(run.start),
        })
    }

    /// One step of the policy, including its orders. Inlined, so that inputs need not be built in memory.
    #[inline(always)]
    fn step(&mut self, input: ClusterInput) -> Result<(), Error> {
        self.spin.count(self.now).map_err(|spins| self.stuck(spins))?;
        self.orders.clear();
        self.policy.step(self.now, input, &mut self.orders);
        match self.policy.fault() {
            None => {}
            Some(Fault::Violation(violation)) => return Err(self.violated(violation)),
            Some(Fault::Spins(spins)) => return Err(self.stuck(spins)),
            Some(Fault::Policy(fault)) => return Err(self.faulted(fault)),
        }
        self.carry_out().map_err(|violation| self.violated(violation))?;
        // From the next plan on: the plans of this step were made before.
        while let Some((model, class, profile)) = self.policy.corrected() {
            let given = &self.scenario.models[model as usize].profiles;
            let profiles = self.corrected.entry(model).or_insert_with(|| Arc::clone(given));
            if let Some(known) = Arc::make_mut(profiles).get_mut(class.index()) {
                *known = profile;
            }
        }
        Ok(())
    }

    fn carry_out(&mut self) -> Result<(), Violation> {
        for at in 0..self.orders.list.len() {
            match self.orders.list[at] {
                ClusterAction::Execute { model, plan } => self.execute(model, &plan)?,
                ClusterAction::Preempt(gpu) => self.preempt(gpu),
                ClusterAction::Drop { model, request, reason, cause } => {
                    let open = self.referee.dropped(model, request.id)?;
                    let bad = self.tally.dropped(model as usize, &open, reason);
                    self.give_up_if_certain(model as usize, bad);
                    if open.origin == RequestOrigin::Stage {
                        self.lost.push_back((request.id.sequence, reason));
                    }
                    if let Some(scaling) = &mut self.scaling {
                        scaling.dropped(model);
                    }
                    self.watch.dropped(self.now, model, &request, reason, cause.as_ref());
                }
                ClusterAction::WakeAt(at) => self.wake_at = at,
            }
        }
        self.referee.waiting(self.policy.waiting())
    }

    fn execute(&mut self, model: u32, plan: &Plan) -> Result<(), Violation> {
        let requests = self.orders.requests_of(plan);
        let symphony_workload::ModelSpec { profiles: given, variants, .. } = &self.scenario.models[model as usize];
        let known = self.corrected.get(&model).unwrap_or(given);
        let family = variants.as_ref().map(|variants| &*variants.profiles);
        self.referee.planned(self.now, (&**known, family), plan, requests)?;
        let mut latency = plan.end.since(plan.start);
        if !self.corrected.is_empty() {
            // Learning does not change the GPU's real speed.
            let class = self.referee.class_of(plan.gpu);
            latency = given.get(class.index()).map_or(latency, |profile| profile.latency(plan.batch));
        }
        latency = self.slow.stretch(plan.gpu, self.gpus.start_of(plan.gpu, plan.start), latency);
        if let Some(noise) = self.noise.get_mut(plan.gpu.get() as usize) {
            latency = noise.stretch(latency);
        }
        let run = self.gpus.execute(model, plan, latency);
        for request in requests {
            self.referee.planned_request(model, plan, request)?;
        }
        self.gpus.add_requests(plan.gpu, requests.iter().map(|request| request.id.sequence));
        self.stuck_after = self.stuck_after.max(run.end + DECIDED_AFTER_MAX);
        self.watch.planned(self.now, model, plan, requests);
        Ok(())
    }

    /// Stops the GPU; the policy owns its requests again.
    fn preempt(&mut self, gpu: GpuId) {
        let (referee, watch, now) = (&mut self.referee, &mut self.watch, self.now);
        let stopped = self.gpus.stop(now, gpu, |model, sequence| {
            referee.given_back(model, sequence);
            watch.queued(now, model);
        });
        if let Some(run) = stopped {
            self.tally.ran(&run);
            self.watch.ran(&run, 0, true);
        }
        self.referee.busy_until(gpu, self.now);
    }

    /// With the bad requests so far of a model's clients, or of the pipeline at this place behind the models.
    fn give_up_if_certain(&mut self, slot: usize, bad: u64) {
        self.failed |= self.offered.as_ref().is_some_and(|offered| misses_p99(bad, offered[slot]));
    }

    fn violated(&self, violation: Violation) -> Error {
        let command = replay_command(self.scenario, self.seed, self.rate_rps);
        Error::Violation { violation, now: self.now, seed: self.seed, command }
    }

    #[cold]
    fn faulted(&self, fault: PolicyFault) -> Error {
        let command = replay_command(self.scenario, self.seed, self.rate_rps);
        Error::Policy { fault, now: self.now, seed: self.seed, command }
    }

    /// A burst that no limit on the rate prevents, unless the oldest request should have been decided long ago.
    #[cold]
    pub(crate) fn too_many_open(&self, id: RequestId, oldest: &OpenRequest) -> Error {
        if oldest.planned || oldest.deadline >= self.now {
            let command = replay_command(self.scenario, self.seed, self.rate_rps);
            return Error::TooManyOpen { now: self.now, seed: self.seed, command };
        }
        let detail = format!("request {id} arrives while one {OPEN_SPAN_MAX} arrivals older has no outcome");
        self.violated(Violation { invariant: Invariant::S5, detail })
    }

    fn stuck(&self, what: String) -> Error {
        let command = replay_command(self.scenario, self.seed, self.rate_rps);
        Error::Stuck { what, now: self.now, seed: self.seed, command }
    }
}
