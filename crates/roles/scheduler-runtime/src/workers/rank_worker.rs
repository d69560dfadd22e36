//! Hosts the [`GpuRanker`] of one sub-cluster: carries offers to it and grants from it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use symphony_scheduler::{Account, GpuRanker, PoolControl, PoolInput, RankAction, RankInput};
use symphony_types::{GPU_CLASSES_MAX, GPU_PLANS_MAX, GpuClass, GpuId, Invariant, Time};
use tokio::sync::mpsc::UnboundedSender;

use crate::records::tape_recorder::TapeRecorder;
use crate::threads::inbox::Inbox;
use crate::threads::turn::{TurnEnd, TurnStart};
use crate::threads::worker::{TURN_EVENTS_MAX, Worker};
use crate::workers::counters::count;
use crate::workers::id_map::IdMap;
use crate::workers::messages::{ModelMessage, PlanId, RankMessage, SealNumber};
use crate::workers::offer_board::{Offer, OfferBoard};
use crate::workers::worker_metrics::WorkerMetrics;

#[derive(Clone, Copy, Debug, Default)]
struct GpuPlans {
    /// The seal under which the GPU is in use; none while it is lost.
    seal: Option<SealNumber>,
    /// Number of the next plan.
    next: u64,
    /// Plans that have ended.
    ended: u64,
    /// The last plan that was reported as run, and when the GPU is free by that report.
    reported: (u64, Time),
    /// Whether the GPU is granted to a model.
    granted: bool,
    /// Whether grants of it have stopped.
    retired: bool,
    /// Whether it is too slow to be granted. Kept across seals: the GPU is the same.
    quarantined: bool,
    /// When all plans sent will be done, as far as is known.
    free_at: Time,
    /// The predicted end of the last plan that was sent; only the backend's report makes it earlier. S1 is checked
    /// against it here, where the plans of all model workers meet.
    busy_until: Time,
}

impl GpuPlans {
    /// Plans that were sent and have not been reported as ended.
    const fn plans_out(&self) -> u64 {
        self.next.saturating_sub(1 + self.ended)
    }

    /// Whether the backend has yet to report the end of a plan.
    const fn report_due(&self) -> bool {
        self.plans_out() > 0
    }

    /// When the GPU may be granted.
    const fn usable_at(&self) -> Time {
        let room = self.plans_out() < GPU_PLANS_MAX as u64;
        if room && !self.retired && !self.quarantined { self.free_at } else { Time::NEVER }
    }
}

/// Hosts the ranker of the sub-cluster's GPUs.
#[derive(Debug)]
pub(crate) struct RankWorker {
    ranker: GpuRanker,
    pool: PoolControl,
    consolidate: bool,
    inbox: Arc<Inbox<RankMessage>>,
    offers: Arc<OfferBoard>,
    /// Offers taken from the board in this turn.
    offered: Vec<(u32, GpuClass, Offer)>,
    /// The last word read from the board, by class.
    last_word: [u32; GPU_CLASSES_MAX],
    models: Arc<[Arc<Inbox<ModelMessage>>]>,
    /// Which model workers have unread grants or pressure and were not woken for them.
    to_wake: Vec<bool>,
    gpus: Vec<GpuPlans>,
    /// The GPUs that retire while granted: the receiver of the answer, and its number.
    retiring: IdMap<u32, (u64, UnboundedSender<u64>)>,
    actions: Vec<RankAction>,
    wake_at: Time,
    /// The turn that armed the timer.
    armed_in: u64,
    tape: TapeRecorder,
    metrics: Arc<WorkerMetrics>,
    /// The number of the current turn.
    turn: u64,
}

impl RankWorker {
    /// `models[ordinal % models.len()]` is the worker of a model.
    pub(crate) fn new(
        inbox: Arc<Inbox<RankMessage>>,
        offers: Arc<OfferBoard>,
        models: Arc<[Arc<Inbox<ModelMessage>>]>,
        metrics: Arc<WorkerMetrics>,
    ) -> Self {
        Self {
            ranker: GpuRanker::new(0, 0),
            inbox,
            offers,
            offered: Vec::new(),
            last_word: [0; GPU_CLASSES_MAX],
            pool: PoolControl::default(),
            consolidate: false,
            to_wake: vec![false; models.len()],
            models,
            gpus: Vec::new(),
            retiring: IdMap::default(),
            actions: Vec::new(),
            wake_at: Time::NEVER,
            armed_in: 0,
            tape: TapeRecorder::default(),
            metrics,
            turn: 0,
        }
    }

    /// Sets the tape.
    pub(crate) fn with_tape(mut self, mut tape: TapeRecorder) -> Self {
        tape.ranker(0, 0);
        tape.pool();
        self.tape = tape;
        self
    }

    fn step(&mut self, now: Time, input: RankInput) {
        self.ranker.step(now, input, &mut self.actions);
        self.tape.rank_step(now, &input, &self.actions);
        for action in self.actions.drain(..) {
            match action {
                RankAction::Grant { model, gpu, class, free_at, why } => {
                    let gpu = gpu.get();
                    // The ranker knows only GPUs that were sealed here, and forgets lost ones.
                    let Some(plans) = self.gpus.get_mut(gpu as usize) else { continue };
                    let Some(seal) = plans.seal else { continue };
                    if free_at < plans.busy_until {
                        let until = plans.busy_until;
                        count(&self.metrics.counters.violations, 1);
                        symphony_telemetry::violated(
                            Invariant::S1,
                            format_args!("GPU {gpu} is busy until {until}, and model {model} gets it from {free_at}"),
                        );
                    }
                    plans.granted = true;
                    let plan = PlanId { gpu, seal, sequence: plans.next };
                    let grant = ModelMessage::Grant { ordinal: model, class, free_at, plan, why };
                    let worker = model as usize % self.models.len();
                    self.models[worker].push_silently(grant);
                    self.to_wake[worker] = true;
                    count(&self.metrics.counters.grants, 1);
                }
                RankAction::WakeAt(time) => {
                    self.wake_at = time;
                    self.armed_in = self.turn;
                }
            }
        }
    }

    fn receive(&mut self, now: Time, message: RankMessage) {
        match message {
            RankMessage::Release { ordinal, plan, free_at, used } => self.release(now, ordinal, plan, free_at, used),
            RankMessage::GpuReady { gpu, class, seal, free_at } => self.add_gpu(now, gpu, class, seal, free_at),
            RankMessage::Lost { gpu, seal } => {
                if let Some(plans) = self.under_seal(gpu, seal) {
                    plans.seal = None;
                    self.step(now, RankInput::Remove(GpuId::new(gpu)));
                }
            }
            RankMessage::Done { plan, free_at, more } => self.ended(now, plan, Some((free_at, more))),
            RankMessage::Refused { plan } => self.ended(now, plan, None),
            RankMessage::Account(account) => self.account(now, *account),
            RankMessage::Consolidate => self.consolidate = true,
            RankMessage::Forget { ordinal } => self.step(now, RankInput::Forget(ordinal)),
            RankMessage::Retire { gpu, seal, round, done } => self.retire(now, gpu, seal, (round, done)),
            RankMessage::Resume { gpu, seal } => {
                let Some(plans) = self.under_seal(gpu, seal) else { return };
                plans.retired = false;
                let (granted, free_at, report_due) = (plans.granted, plans.usable_at(), plans.report_due());
                self.retiring.remove(&gpu);
                if !granted {
                    self.step(now, RankInput::BusyUntil { gpu: GpuId::new(gpu), free_at, report_due });
                }
            }
            RankMessage::Quarantine { gpu, out } => {
                let plans = self.plans_of(gpu);
                plans.quarantined = out;
                // A granted GPU is answered for when it returns, an unsealed one when it is sealed.
                if plans.seal.is_some() && !plans.granted {
                    let (free_at, report_due) = (plans.usable_at(), plans.report_due());
                    self.step(now, RankInput::BusyUntil { gpu: GpuId::new(gpu), free_at, report_due });
                }
            }
        }
    }
}

impl RankWorker {
    /// What is known of a GPU, which may be new.
    fn plans_of(&mut self, gpu: u32) -> &mut GpuPlans {
        let slot = gpu as usize;
        if slot >= self.gpus.len() {
            self.gpus.resize(slot + 1, GpuPlans::default());
        }
        &mut self.gpus[slot]
    }

    fn under_seal(&mut self, gpu: u32, seal: SealNumber) -> Option<&mut GpuPlans> {
        self.gpus.get_mut(gpu as usize).filter(|plans| plans.seal == Some(seal))
    }

    /// Every model worker gets each new signal.
    fn account(&mut self, now: Time, account: Account) {
        let (gpus_idle, gpus) = (self.ranker.gpus_idle(), self.ranker.gpus());
        let input = PoolInput { account, gpus_idle, gpus, consolidate: self.consolidate };
        let signal = self.pool.step(now, input);
        self.tape.pool_step(now, &input, signal);
        self.metrics.demand_ns.store(self.pool.demand_time().get(), Ordering::Relaxed);
        let Some(signal) = signal else { return };
        self.metrics.pressed(now, signal.pressure);
        for (inbox, wake) in self.models.iter().zip(&mut self.to_wake) {
            inbox.push_silently(ModelMessage::Pool(signal));
            *wake = true;
        }
    }

    /// The answer to a grant: the model has used it, or not.
    fn release(&mut self, now: Time, ordinal: u32, plan: PlanId, free_at: Time, used: bool) {
        // A grant from before the GPU was lost: the model no longer has it.
        let Some(plans) = self.under_seal(plan.gpu, plan.seal).filter(|plans| plans.granted) else { return };
        plans.granted = false;
        plans.next += u64::from(used);
        // What was reported meanwhile: a plan goes to its backend before this answer comes here, and a short one may
        // have ended; or the grant was not used, and the plan before it has ended.
        let newest = if used { plan.sequence } else { plan.sequence - 1 };
        if let (sequence, free_at) = plans.reported
            && sequence == newest
        {
            (plans.free_at, plans.busy_until) = (free_at, free_at);
        } else {
            plans.free_at = free_at;
            if used {
                plans.busy_until = plans.busy_until.max(free_at);
            }
        }
        let (gpu, free_at, report_due) = (GpuId::new(plan.gpu), plans.usable_at(), plans.report_due());
        self.step(now, RankInput::Release { model: ordinal, gpu, free_at, report_due });
        self.report_retired(plan.gpu);
    }

    fn add_gpu(&mut self, now: Time, gpu: u32, class: GpuClass, seal: SealNumber, free_at: Time) {
        let plans = self.plans_of(gpu);
        if plans.seal.is_some_and(|newer| newer > seal) {
            return;
        }
        let (seal, busy_until, quarantined) = (Some(seal), free_at, plans.quarantined);
        let (granted, retired, reported) = (false, false, (0, free_at));
        *plans = GpuPlans { seal, next: 1, ended: 0, reported, granted, retired, quarantined, free_at, busy_until };
        let free_at = plans.usable_at();
        self.retiring.remove(&gpu);
        self.step(now, RankInput::Remove(GpuId::new(gpu)));
        self.step(now, RankInput::Add { gpu: GpuId::new(gpu), class, free_at });
    }

    /// No more grants of the GPU; once its last one has been answered, the round is done.
    fn retire(&mut self, now: Time, gpu: u32, seal: SealNumber, round: (u64, UnboundedSender<u64>)) {
        let Some(plans) = self.under_seal(gpu, seal) else { return };
        plans.retired = true;
        let granted = plans.granted;
        self.retiring.insert(gpu, round);
        if !granted {
            // The plan, if any, went to its backend before the answer to its grant came here.
            self.step(now, RankInput::BusyUntil { gpu: GpuId::new(gpu), free_at: Time::NEVER, report_due: false });
            self.report_retired(gpu);
        }
    }

    fn report_retired(&mut self, gpu: u32) {
        if let Some((round, done)) = self.retiring.remove(&gpu) {
            // If the link has ended, the GPU has too.
            let _ = done.send(round);
        }
    }

    /// A plan has ended: there is room for another, and the backend may have reported when the GPU is free, and whether
    /// that counts plans behind this one.
    fn ended(&mut self, now: Time, plan: PlanId, report: Option<(Time, bool)>) {
        let Some(plans) = self.under_seal(plan.gpu, plan.seal) else { return };
        // A plan's release may arrive after its report, on another thread's path.
        plans.ended = plans.ended.max(plan.sequence);
        if let Some((free_at, _)) = report {
            plans.reported = (plan.sequence, free_at);
        }
        if plans.granted {
            return;
        }
        if let Some((free_at, more)) = report {
            // A report covers a later plan only if its backend has that, and behind one plan there is at most one more.
            // Otherwise it may only postpone the end.
            let covers_all = plans.next <= plan.sequence + 1 + u64::from(more);
            plans.free_at = if covers_all { free_at } else { free_at.max(plans.free_at) };
            plans.busy_until = plans.free_at;
        }
        let (gpu, free_at, report_due) = (GpuId::new(plan.gpu), plans.usable_at(), plans.report_due());
        self.step(now, RankInput::BusyUntil { gpu, free_at, report_due });
    }
}

impl Worker for RankWorker {
    fn run_turn(&mut self, turn: TurnStart) -> TurnEnd {
        let now = turn.now;
        self.turn = turn.number;
        let mut handled = 0;
        while handled < TURN_EVENTS_MAX
            && let Some(message) = self.inbox.pop()
        {
            self.receive(now, message);
            handled += 1;
        }
        let mut more = handled >= TURN_EVENTS_MAX;
        let mut offered = std::mem::take(&mut self.offered);
        more |= self.offers.take(&mut self.last_word, TURN_EVENTS_MAX, |model, class, offer| {
            offered.push((model, class, offer));
        });
        handled += offered.len();
        count(&self.metrics.counters.offers, offered.len() as u64);
        for (model, class, (answered, candidate)) in offered.drain(..) {
            self.step(now, RankInput::Offer { model, answered, class, candidate });
        }
        self.offered = offered;
        if self.wake_at <= now {
            self.metrics.timer_fired(turn, self.armed_in, self.wake_at);
            self.wake_at = Time::NEVER;
            self.step(now, RankInput::Wake);
            handled += 1;
        }
        TurnEnd { wake_at: if more { Time::ZERO } else { self.wake_at }, handled }
    }

    fn send_outputs(&mut self, _now: Time) {
        for (inbox, wake) in self.models.iter().zip(&mut self.to_wake) {
            if std::mem::take(wake) {
                inbox.wake();
            }
        }
    }

    fn metrics(&self) -> &WorkerMetrics {
        &self.metrics
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use symphony_scheduler::{Candidate, POOL_TICK, Pressure};
    use symphony_types::{Nanos, RequestValue};

    use super::*;
    use crate::threads::clock::Clock;
    use crate::threads::waker::GroupWaker;
    use crate::workers::worker_metrics::WorkerKind;

    struct Scene {
        worker: RankWorker,
        rank: Arc<Inbox<RankMessage>>,
        model: Arc<Inbox<ModelMessage>>,
        offers: Arc<OfferBoard>,
        clock: Clock,
    }

    impl Scene {
        fn new() -> Self {
            let (waker, clock) = (Arc::<GroupWaker>::default(), Clock::start());
            let rank = Arc::new(Inbox::new(Arc::clone(&waker)));
            let model = Arc::new(Inbox::new(waker));
            let offers = Arc::new(OfferBoard::new(1));
            let metrics = Arc::new(WorkerMetrics::new(WorkerKind::Rank));
            let models = Arc::from([Arc::clone(&model)]);
            let worker = RankWorker::new(Arc::clone(&rank), Arc::clone(&offers), models, metrics);
            Self { worker, rank, model, offers, clock }
        }

        /// Sends the worker a message, with a candidate that wants to run at once.
        fn turn(&mut self, answered: u64, message: RankMessage) -> Option<PlanId> {
            self.turn_ahead(answered, message, Nanos::ZERO)
        }

        /// The same; the candidate takes a GPU that is free after `lead`.
        fn turn_ahead(&mut self, answered: u64, message: RankMessage, lead: Nanos) -> Option<PlanId> {
            let start = self.clock.now();
            let latest = start + Nanos::from_millis(60_000) + lead;
            let (frontrun, must_end_by) = (start, latest);
            let candidate = Candidate { batch: 1, start, latest, frontrun, must_end_by, lead, ..Candidate::default() };
            self.offers.publish(0, GpuClass::FIRST, (answered, Some(candidate)));
            self.rank.push(message);
            let turn = TurnStart { number: 1, now: self.clock.now(), last_ended: start };
            assert!(self.worker.run_turn(turn).handled > 0);
            match self.model.pop() {
                Some(ModelMessage::Grant { plan, .. }) => Some(plan),
                other => {
                    assert!(other.is_none(), "{other:?}");
                    None
                }
            }
        }
    }

    #[test]
    fn the_answer_to_a_grant_from_before_a_loss_changes_nothing_after_it() {
        let mut scene = Scene::new();
        let free_at = scene.clock.now();
        let before = scene.turn(0, RankMessage::GpuReady { gpu: 0, class: GpuClass::FIRST, seal: 1, free_at }).unwrap();
        assert_eq!(before, PlanId { gpu: 0, seal: 1, sequence: 1 });
        assert_eq!(scene.turn(1, RankMessage::Lost { gpu: 0, seal: 1 }), None);
        let after = scene.turn(1, RankMessage::GpuReady { gpu: 0, class: GpuClass::FIRST, seal: 2, free_at }).unwrap();
        assert_eq!(after, PlanId { gpu: 0, seal: 2, sequence: 1 });
        // The stale message neither frees the GPU, which is granted again, nor counts a plan.
        let stale = RankMessage::Release { ordinal: 0, plan: before, free_at, used: true };
        assert_eq!(scene.turn(2, stale), None, "S1: granted while it is out");
        let answer = RankMessage::Release { ordinal: 0, plan: after, free_at, used: true };
        assert_eq!(scene.turn(2, answer), None, "it is busy until it is reported, whatever was predicted");
        let done = RankMessage::Done { plan: after, free_at, more: false };
        assert_eq!(scene.turn(2, done), Some(PlanId { gpu: 0, seal: 2, sequence: 2 }));
    }

    #[test]
    fn a_gpu_that_is_granted_while_it_is_busy_is_counted() {
        let mut scene = Scene::new();
        let now = scene.clock.now();
        let (gpu, busy) = (GpuId::new(0), now + Nanos::from_millis(60_000));
        let violations = |scene: &Scene| scene.worker.metrics.counters.violations.load(Ordering::Relaxed);
        let first =
            scene.turn(0, RankMessage::GpuReady { gpu: 0, class: GpuClass::FIRST, seal: 1, free_at: now }).unwrap();
        let used = |plan| RankMessage::Release { ordinal: 0, plan, free_at: busy, used: true };
        assert_eq!(scene.turn(1, used(first)), None, "busy");
        // The backend reports an early end of the plan: then the grant overlaps nothing.
        let second = scene.turn(1, RankMessage::Done { plan: first, free_at: now, more: false }).unwrap();
        assert_eq!(scene.turn(2, used(second)), None, "busy");
        assert_eq!(violations(&scene), 0);
        // A planted fault: the ranker considers the GPU free although a plan runs.
        scene.worker.step(scene.clock.now(), RankInput::BusyUntil { gpu, free_at: now, report_due: false });
        assert!(matches!(scene.model.pop(), Some(ModelMessage::Grant { .. })), "the fault changes nothing");
        assert_eq!(violations(&scene), 1);
        assert!(symphony_telemetry::violations(Invariant::S1) > 0);
    }

    #[test]
    fn a_report_that_overtakes_the_answer_to_a_grant_frees_the_gpu() {
        let mut scene = Scene::new();
        let free_at = scene.clock.now();
        let plan = scene.turn(0, RankMessage::GpuReady { gpu: 0, class: GpuClass::FIRST, seal: 1, free_at }).unwrap();
        assert_eq!(scene.turn(0, RankMessage::Done { plan, free_at, more: false }), None, "it is still granted");
        let planned = free_at + Nanos::from_millis(60_000);
        let answer = RankMessage::Release { ordinal: 0, plan, free_at: planned, used: true };
        let next = scene.turn(1, answer).unwrap();
        assert_eq!(next, PlanId { gpu: 0, seal: 1, sequence: 2 }, "its plan has ended");

        // The next plan's report comes while the GPU is granted ahead of its end, and that grant is not used.
        let used = RankMessage::Release { ordinal: 0, plan: next, free_at: planned, used: true };
        let ahead = scene.turn_ahead(2, used, Nanos::from_millis(90_000)).unwrap();
        assert_eq!(scene.turn(2, RankMessage::Done { plan: next, free_at, more: false }), None, "it is still granted");
        let unused = RankMessage::Release { ordinal: 0, plan: ahead, free_at: planned, used: false };
        assert_eq!(scene.turn(3, unused), Some(ahead), "nothing runs there");
        assert_eq!(scene.worker.metrics.counters.violations.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_report_covers_the_plan_behind_its_own_only_if_the_backend_has_it() {
        let mut scene = Scene::new();
        let now = scene.clock.now();
        let (sooner, planned) = (now + Nanos::from_millis(50_000), now + Nanos::from_millis(60_000));
        let ready = RankMessage::GpuReady { gpu: 0, class: GpuClass::FIRST, seal: 1, free_at: now };
        let plan = scene.turn(0, ready).unwrap();
        let answer = RankMessage::Release { ordinal: 0, plan, free_at: planned, used: true };
        assert_eq!(scene.turn(1, answer), None, "busy");
        // As if another plan had been sent behind it.
        scene.worker.gpus[0].next += 1;
        for (more, free_at) in [(false, planned), (true, sooner)] {
            assert_eq!(scene.turn(1, RankMessage::Done { plan, free_at: sooner, more }), None, "busy");
            assert_eq!(scene.worker.gpus[0].free_at, free_at, "more: {more}");
        }
    }

    #[test]
    fn accounts_make_the_pressure_and_every_model_worker_hears_it() {
        let mut scene = Scene::new();
        let ms = Nanos::from_millis;
        let (asked, dropped) = (ms(100), ms(25));
        let value_max = Some(RequestValue::ONE);
        let account = Account { asked, asked_by_value: asked, dropped, value_max, ..Account::default() };
        let start = scene.clock.now();
        let mut last = None;
        for tick in 1..50 {
            scene.rank.push(RankMessage::Account(Box::new(account)));
            let now = start + POOL_TICK.saturating_mul(tick);
            scene.worker.run_turn(TurnStart { number: tick, now, last_ended: start });
            if let Some(ModelMessage::Pool(signal)) = scene.model.pop() {
                assert!(scene.worker.to_wake[0], "it is not woken for it");
                last = Some((now, signal.pressure));
            }
        }
        let (now, pressure) = last.expect("a quarter is lost and nobody hears of it");
        assert_eq!(pressure, Pressure::from_share(0.25));
        assert_eq!(scene.worker.metrics.pressure(now), pressure);
    }

    #[test]
    fn a_loss_told_late_does_not_take_the_next_seal_along() {
        let mut scene = Scene::new();
        let free_at = scene.clock.now();
        assert!(scene.turn(0, RankMessage::GpuReady { gpu: 0, class: GpuClass::FIRST, seal: 2, free_at }).is_some());
        assert_eq!(scene.turn(1, RankMessage::Lost { gpu: 0, seal: 1 }), None);
        let plan = PlanId { gpu: 0, seal: 2, sequence: 1 };
        let answer = RankMessage::Release { ordinal: 0, plan, free_at, used: false };
        assert_eq!(scene.turn(1, answer), Some(plan));
    }

    #[test]
    fn a_retired_gpu_is_given_to_nobody_and_says_so_once_no_plan_can_follow() {
        let mut scene = Scene::new();
        let free_at = scene.clock.now();
        let plan = scene.turn(0, RankMessage::GpuReady { gpu: 0, class: GpuClass::FIRST, seal: 1, free_at }).unwrap();
        let (done, mut retired) = tokio::sync::mpsc::unbounded_channel();
        let retire = |round| RankMessage::Retire { gpu: 0, seal: 1, round, done: done.clone() };
        assert_eq!(scene.turn(0, retire(1)), None);
        assert!(retired.try_recv().is_err(), "it is out with a model: a plan may follow");
        let answer = RankMessage::Release { ordinal: 0, plan, free_at, used: true };
        assert_eq!(scene.turn(1, answer), None);
        assert_eq!(retired.try_recv(), Ok(1));
        assert_eq!(scene.turn(1, RankMessage::Done { plan, free_at, more: false }), None, "free, but retired");
        let next = scene.turn(1, RankMessage::Resume { gpu: 0, seal: 1 });
        assert_eq!(next, Some(PlanId { gpu: 0, seal: 1, sequence: 2 }), "and given again");
        let answer = RankMessage::Release { ordinal: 0, plan: next.unwrap(), free_at, used: false };
        scene.rank.push(retire(2));
        assert_eq!(scene.turn(2, answer), None);
        assert_eq!(retired.try_recv(), Ok(2));
    }

    #[test]
    fn a_quarantined_gpu_is_given_to_nobody_also_after_its_link_came_back() {
        let mut scene = Scene::new();
        let free_at = scene.clock.now();
        let ready = |seal| RankMessage::GpuReady { gpu: 0, class: GpuClass::FIRST, seal, free_at };
        let out = |out| RankMessage::Quarantine { gpu: 0, out };
        let plan = scene.turn(0, ready(1)).unwrap();
        assert_eq!(scene.turn(0, out(true)), None, "it is out with a model");
        let answer = RankMessage::Release { ordinal: 0, plan, free_at, used: true };
        assert_eq!(scene.turn(1, answer), None);
        assert_eq!(scene.turn(1, RankMessage::Done { plan, free_at, more: false }), None, "free, but out of use");
        assert_eq!(scene.turn(1, RankMessage::Lost { gpu: 0, seal: 1 }), None);
        assert_eq!(scene.turn(1, ready(2)), None, "the same GPU");
        let again = scene.turn(1, out(false));
        assert_eq!(again, Some(PlanId { gpu: 0, seal: 2, sequence: 1 }));
        // Quarantined before its first seal.
        let mut scene = Scene::new();
        assert_eq!(scene.turn(0, out(true)), None);
        assert_eq!(scene.turn(0, ready(1)), None);
    }

    #[test]
    fn words_about_gpus_never_seen_are_ignored() {
        let mut scene = Scene::new();
        let (plan, free_at) = (PlanId { gpu: 40, seal: 3, sequence: 1 }, scene.clock.now());
        for message in [
            RankMessage::Release { ordinal: 0, plan, free_at, used: true },
            RankMessage::Done { plan, free_at, more: false },
            RankMessage::Refused { plan },
            RankMessage::Lost { gpu: 40, seal: 3 },
        ] {
            assert_eq!(scene.turn(0, message), None);
        }
    }
}
