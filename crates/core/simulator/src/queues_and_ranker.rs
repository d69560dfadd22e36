//! The production decision objects as one policy: a queue per model and a ranker.

use std::collections::VecDeque;

use symphony_scheduler::{
    Account, ClusterAction, ClusterActions, ClusterInput, ClusterPolicy, GpuRanker, GrantWhy, MinTree, ModelAction,
    ModelActions, ModelInput, ModelQueue, ModelQueueConfig, POOL_TICK, Policy, PoolControl, PoolInput,
    QUEUE_REQUESTS_MAX, RankAction, RankActions, RankInput, Violation,
};
use symphony_types::{GpuClass, GpuId, LatencyProfile, Nanos, Time};
use symphony_workload::SimulatedPolicy;

use crate::gpu_reports::GpuReports;
use crate::grant_check;
use crate::hosted::{Fault, Hosted};
use crate::learner_host::{LearnerHost, LearntChange};
use crate::policy_facts::PolicyFacts;
use crate::result::LearningResult;
use crate::spin_trap::SpinTrap;
use crate::tap::Tap;

/// The slot of the ranker's timer; those of the models follow. At the same instant the lowest slot goes first.
const RANKER: usize = 0;

/// A grant on its way to a model.
#[derive(Debug)]
struct Grant {
    model: u32,
    gpu: GpuId,
    class: GpuClass,
    free_at: Time,
    why: GrantWhy,
}

/// Hosts [`ModelQueue`]s and their [`GpuRanker`] as the runtime does, but without threads: messages between them take
/// no time, and a grant is answered before anything else happens.
pub(crate) struct QueuesAndRanker<T> {
    queues: Vec<ModelQueue>,
    ranker: GpuRanker,
    pool: PoolControl,
    consolidate: bool,
    /// When accounts are due; never if no policy uses them.
    account_at: Time,
    timers: MinTree,
    /// The last requested wake-up.
    wake_at: Time,
    waiting: usize,
    /// One per GPU; empty if executions are exact, since reports are then not needed.
    reports: Vec<GpuReports>,
    /// The learner's state, if learning is on.
    learner: Option<Box<LearnerHost>>,
    tap: T,
    /// The class of each GPU.
    classes: Vec<GpuClass>,
    grants: VecDeque<Grant>,
    spin: SpinTrap,
    fault: Option<Fault>,
    // Reused, so that a step does not allocate.
    actions: ModelActions,
    rank_actions: RankActions,
}

impl<T: Tap> QueuesAndRanker<T> {
    pub(crate) fn new(facts: &PolicyFacts, chosen: &SimulatedPolicy, tap: T) -> Self {
        let queue = |model: &crate::ModelFacts| {
            let mut queue = ModelQueue::new(ModelQueueConfig {
                profiles: GpuClass::all().zip(model.profiles.iter().cloned()).collect(),
                slo: model.slo,
                policy: Policy::simulated(chosen, model.slo, model.value),
                delays: facts.delays,
                requests_max: QUEUE_REQUESTS_MAX,
            });
            queue.leave_out(&facts.without);
            for (class, family) in GpuClass::all().zip(model.family.iter().flat_map(|family| family.iter())) {
                queue.share_trunk(class, family.clone());
            }
            queue
        };
        let models = facts.models.len();
        Self {
            queues: facts.models.iter().map(queue).collect(),
            ranker: GpuRanker::new(models as u32, facts.gpus),
            pool: PoolControl::default(),
            consolidate: facts.consolidate,
            account_at: Time::ZERO,
            timers: MinTree::new(1 + models),
            wake_at: Time::NEVER,
            waiting: 0,
            reports: if facts.exact { Vec::new() } else { vec![GpuReports::default(); facts.gpus as usize] },
            learner: LearnerHost::new(facts),
            tap,
            classes: facts.gpu_classes.clone(),
            grants: VecDeque::new(),
            spin: SpinTrap::new(models, facts.gpus),
            fault: None,
            actions: ModelActions::with_room(),
            rank_actions: RankActions::default(),
        }
    }

    /// Counts a step at this instant; returns false if there were too many.
    #[inline]
    fn goes_on(&mut self, now: Time) -> bool {
        match self.spin.count(now) {
            Ok(()) => true,
            Err(spins) => {
                self.fault.get_or_insert(Fault::Spins(spins));
                false
            }
        }
    }

    /// The first violation is kept.
    #[inline]
    fn check(&mut self, checked: Result<(), Violation>) {
        if let Err(violation) = checked {
            self.fault.get_or_insert(Fault::Violation(violation));
        }
    }

    /// One step of a model's queue, including its orders.
    fn step_model(&mut self, now: Time, model: u32, input: ModelInput, out: &mut ClusterActions) {
        if !self.goes_on(now) {
            return;
        }
        let slot = model as usize;
        self.actions.list.clear();
        let granted = matches!(input, ModelInput::Grant { .. });
        if granted {
            // The queue appends its plan's requests in place.
            std::mem::swap(&mut self.actions.planned, &mut out.planned);
        }
        let queue = &mut self.queues[slot];
        let waited = queue.len();
        queue.step(now, input, &mut self.actions);
        let waits = queue.len();
        self.waiting = self.waiting + waits - waited;
        self.tap.model_step(now, &input, &mut self.actions);
        if granted {
            std::mem::swap(&mut self.actions.planned, &mut out.planned);
        }
        if let ModelInput::Grant { gpu, .. } = input {
            self.check(grant_check::answered(gpu, &self.actions.list));
        }
        self.check(grant_check::queued(model, waits, QUEUE_REQUESTS_MAX));
        for at in 0..self.actions.list.len() {
            match self.actions.list[at] {
                ModelAction::Offer { answered, class, candidate } => {
                    self.rank(now, RankInput::Offer { model, answered, class, candidate });
                }
                ModelAction::Execute(plan) => {
                    self.check(grant_check::granted(granted, plan.gpu, &self.actions.list[at]));
                    if let Some(gpu) = self.reports.get_mut(plan.gpu.get() as usize) {
                        gpu.sent((plan.end.since(plan.start), plan.batch), plan.end);
                    }
                    out.list.push(ClusterAction::Execute { model, plan });
                }
                ModelAction::Release { gpu, free_at } => {
                    self.check(grant_check::granted(granted, gpu, &self.actions.list[at]));
                    let known = self.reports.get(gpu.get() as usize);
                    let free_at = known.map_or(free_at, GpuReports::usable_at);
                    let report_due = known.is_some_and(GpuReports::report_due);
                    self.rank(now, RankInput::Release { model, gpu, free_at, report_due });
                }
                ModelAction::Drop { request, reason, cause } => {
                    out.list.push(ClusterAction::Drop { model, request, reason, cause: Some(cause) });
                }
                ModelAction::WakeAt(at) => self.timers.set(1 + slot, at.as_nanos()),
            }
        }
    }

    /// Passes the accounts of the queues to the pool control, and its signal to them.
    fn account(&mut self, now: Time, out: &mut ClusterActions) {
        self.account_at = now + POOL_TICK;
        let account = self.queues.iter_mut().map(ModelQueue::take_account).fold(Account::default(), Account::and);
        let (gpus_idle, gpus) = (self.ranker.gpus_idle(), self.ranker.gpus());
        if let Some(signal) = self.pool.step(now, PoolInput { account, gpus_idle, gpus, consolidate: self.consolidate })
        {
            for model in 0..self.queues.len() as u32 {
                self.step_model(now, model, ModelInput::Pool(signal), out);
            }
        }
    }

    /// One step of the ranker. Its grants wait until all orders of the current model have been executed.
    fn rank(&mut self, now: Time, input: RankInput) {
        self.rank_actions.clear();
        self.ranker.step(now, input, &mut self.rank_actions);
        for action in &self.rank_actions {
            match *action {
                RankAction::Grant { model, gpu, class, free_at, why } => {
                    self.grants.push_back(Grant { model, gpu, class, free_at, why });
                }
                RankAction::WakeAt(at) => self.timers.set(RANKER, at.as_nanos()),
            }
        }
    }

    /// Passes corrections to the queues and the ranker.
    fn apply_learnt(&mut self, now: Time, learnt: Vec<LearntChange>) {
        for change in learnt {
            match change {
                LearntChange::Profile(model, class, profile) => self.queues[model as usize].set_profile(class, profile),
                LearntChange::Quarantine(gpu, out) => {
                    if let Some(known) = self.reports.get_mut(gpu.get() as usize) {
                        known.quarantine(out);
                        let (free_at, report_due) = (known.usable_at(), known.report_due());
                        self.rank(now, RankInput::BusyUntil { gpu, free_at, report_due });
                    }
                }
            }
        }
    }

    fn answer_grants(&mut self, now: Time, out: &mut ClusterActions) {
        while let Some(Grant { model, gpu, class, free_at, why }) = self.grants.pop_front() {
            self.step_model(now, model, ModelInput::Grant { gpu, class, free_at, why }, out);
            if self.fault.is_some() {
                return;
            }
        }
    }

    /// Serves all due timers.
    fn ring(&mut self, now: Time, out: &mut ClusterActions) {
        while let Some((slot, at)) = self.timers.min() {
            if at > now.as_nanos() || self.fault.is_some() {
                return;
            }
            self.timers.set(slot, MinTree::EMPTY);
            if slot == RANKER {
                if self.goes_on(now) {
                    self.rank(now, RankInput::Wake);
                }
            } else {
                self.step_model(now, (slot - 1) as u32, ModelInput::Wake, out);
            }
            self.answer_grants(now, out);
        }
    }
}

impl<T: Tap> ClusterPolicy for QueuesAndRanker<T> {
    #[inline(always)]
    fn step(&mut self, now: Time, input: ClusterInput, out: &mut ClusterActions) {
        match input {
            ClusterInput::Arrive { model, request } => {
                // Many requests may arrive at the same instant; the steps that they cause are bounded by their number.
                self.spin.reset();
                self.step_model(now, model, ModelInput::Arrive(request), out);
            }
            ClusterInput::Return { model, request } => {
                self.spin.reset();
                self.step_model(now, model, ModelInput::Return(request), out);
            }
            ClusterInput::GpuUp { gpu, free_at, .. } => {
                if let Some(known) = self.reports.get_mut(gpu.get() as usize) {
                    known.reset(free_at);
                }
                let class = self.classes.get(gpu.get() as usize).copied().unwrap_or_default();
                if let Some(learner) = &mut self.learner {
                    learner.gpu_up(gpu, class);
                }
                self.rank(now, RankInput::Add { gpu, class, free_at });
            }
            ClusterInput::GpuDown(gpu) => {
                if let Some(known) = self.reports.get_mut(gpu.get() as usize) {
                    known.reset(Time::NEVER);
                    known.quarantine(false);
                }
                if let Some(learner) = &mut self.learner {
                    let learnt = learner.gpu_down(gpu);
                    self.apply_learnt(now, learnt);
                }
                self.rank(now, RankInput::Remove(gpu));
            }
            ClusterInput::Done { gpu, model, start_late, latency, .. } => {
                let slot = gpu.get() as usize;
                if let Some((predicted, items)) = self.reports.get_mut(slot).and_then(|known| known.ended(now)) {
                    if let Some(learner) = &mut self.learner {
                        let learnt = learner.ran(now, gpu, model, items, latency);
                        self.apply_learnt(now, learnt);
                    }
                    let (free_at, report_due) = (self.reports[slot].usable_at(), self.reports[slot].report_due());
                    self.rank(now, RankInput::BusyUntil { gpu, free_at, report_due });
                    self.answer_grants(now, out);
                    self.step_model(now, model, ModelInput::Done { start_late, latency, predicted }, out);
                }
            }
            ClusterInput::Wake => {
                self.wake_at = Time::NEVER;
                self.ring(now, out);
            }
            ClusterInput::Cancel { model, request } => {
                // Of one request, as many may be cancelled at once as it asks for.
                self.spin.reset();
                self.step_model(now, model, ModelInput::Cancel(request.id), out);
            }
            ClusterInput::Model { model, known } => {
                // It is built with its models; what changes later is the budget of stages.
                if !self.queues.get_mut(model as usize).is_some_and(|queue| queue.set_slo(known.slo)) {
                    return;
                }
                self.spin.reset();
                self.step_model(now, model, ModelInput::Wake, out);
            }
            _ => return,
        }
        self.answer_grants(now, out);
        if now >= self.account_at {
            self.account(now, out);
        }
        if let Some(learner) = &mut self.learner {
            let learnt = learner.due(now);
            self.apply_learnt(now, learnt);
            self.answer_grants(now, out);
        }
        let wake_at = Time::from_nanos(self.timers.min_key());
        if wake_at != self.wake_at {
            self.wake_at = wake_at;
            out.list.push(ClusterAction::WakeAt(wake_at));
        }
    }

    fn waiting(&self) -> usize {
        self.waiting
    }
}

impl<T: Tap> Hosted for QueuesAndRanker<T> {
    fn wants_reports(&self) -> bool {
        !self.reports.is_empty()
    }

    #[inline]
    fn corrected(&mut self) -> Option<(u32, GpuClass, LatencyProfile)> {
        self.learner.as_mut()?.corrected()
    }

    fn demand_time(&self) -> Option<Nanos> {
        // A policy that does not use the pool signal gives no accounts, so its demand is unknown.
        (self.account_at != Time::NEVER).then(|| self.pool.demand_time())
    }

    fn learnt(&self) -> Option<LearningResult> {
        self.learner.as_ref().map(|learner| learner.result())
    }

    #[inline]
    fn fault(&mut self) -> Option<Fault> {
        self.fault.take()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    use symphony_types::DropReason;
    use symphony_workload::Scenario;

    use super::*;
    use crate::world::World;

    /// Twice the capacity of two GPUs; one of them fails briefly, again and again.
    const TEXT: &str = "
        name = 'returns'
        policy = 'auto'
        duration_s = 4
        warmup_s = 0
        seeds = [1]
        gpu = [{ kind = 'x', count = 2 }]
        model = [{ name = 'm', alpha_ms = 1, beta_ms = 5, slo_ms = 50 }]
        workload = { rate_rps = 3000, arrival = 'poisson' }
        failure = [{ gpu = 0, at_s = 1.5, for_s = 0.01 }, { gpu = 0, at_s = 2.5, for_s = 0.01 }]";

    #[test]
    fn demand_is_proportional_to_the_load_however_early_batches_start() {
        // Ten models that reach about 20 000 requests per second.
        let text = "
            name = 'demand'
            policy = 'auto'
            duration_s = 10
            warmup_s = 0
            gpu = [{ kind = 'x', count = 24 }]
            model = [{ name = 'm', count = 10, alpha_ms = 1.053, beta_ms = 5.072, slo_ms = 100 }]
            workload = { rate_rps = 1000, arrival = 'poisson' }";
        let scenario = Scenario::parse("demand.toml", text, &[], &|_| Err("no files".to_owned())).unwrap();
        for load in [0.1, 0.25, 0.5, 0.75, 0.9] {
            let rate_rps = 20_000.0 * load;
            let facts = PolicyFacts::new(&scenario, 1, rate_rps);
            let policy = QueuesAndRanker::new(&facts, scenario.policy.queues().unwrap(), crate::tap::Open);
            let mut world = World::new(&scenario, 1, rate_rps, policy);
            world.run().unwrap();
            let demand = world.policy().demand_time().unwrap().as_secs_f64() / (24.0 * scenario.duration.as_secs_f64());
            assert!((demand - load).abs() < 0.05, "{demand} at a load of {load}");
        }
    }

    #[test]
    fn what_a_failed_gpu_had_is_let_in_again_and_arrives_once() {
        let scenario = Scenario::parse("returns.toml", TEXT, &[], &|_| Err("no files".to_owned())).unwrap();
        let facts = PolicyFacts::new(&scenario, 1, scenario.rate_rps);
        let (arrived, returned) = (RefCell::new(BTreeSet::new()), RefCell::new(0));
        let watch = |_: Time, input: &ModelInput, actions: &mut ModelActions| match input {
            ModelInput::Arrive(request) => {
                assert!(arrived.borrow_mut().insert(request.id), "{} arrives twice", request.id)
            }
            ModelInput::Return(_) => {
                *returned.borrow_mut() += 1;
                let shed = |action: &ModelAction| matches!(action, ModelAction::Drop { reason: DropReason::Shed, .. });
                assert!(!actions.list.iter().any(shed), "shed although it was let in");
            }
            _ => {}
        };
        let policy = QueuesAndRanker::new(&facts, scenario.policy.queues().unwrap(), watch);
        let mut world = World::new(&scenario, 1, scenario.rate_rps, policy);
        world.run().unwrap();
        assert!(world.into_result().models[0].shed > 0, "no pressure that returning requests could meet");
        assert!(*returned.borrow() >= 2, "{} came back", returned.borrow());
    }
}
