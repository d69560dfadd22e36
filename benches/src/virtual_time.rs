//! Queues and ranker in virtual time.

use std::collections::VecDeque;

use symphony_scheduler::{
    Delays, GpuRanker, GrantWhy, MinTree, ModelAction, ModelActions, ModelInput, ModelQueue, ModelQueueConfig, Policy,
    QUEUE_REQUESTS_MAX, RankAction, RankActions, RankInput, Request,
};
use symphony_types::{GpuClass, GpuId, LatencyProfile, Nanos, RequestId, Time};

use crate::tape::Tapes;

/// The SLO of every model: the Symphony paper, Table 4, ResNet-50.
pub const CONFIG_SLO: Nanos = Nanos::from_millis(25);

/// ResNet-50 of the Symphony paper, Table 4 (α 1.053 ms, β 5.072 ms, SLO 25 ms) under deferred batch scheduling. Each
/// class of GPUs beyond the first is a third slower than the one before.
///
/// # Panics
/// Never: the profiles are constants.
#[must_use]
pub fn queue_config(classes: usize) -> ModelQueueConfig {
    let profile = |class: GpuClass| {
        let slower = 1.0 + class.index() as f64 / 3.0;
        (class, LatencyProfile::from_line(1.053 * slower, 5.072 * slower, 64).expect("a sane line"))
    };
    ModelQueueConfig {
        profiles: GpuClass::all().take(classes.max(1)).map(profile).collect(),
        slo: CONFIG_SLO,
        policy: Policy::SYMPHONY,
        delays: Delays::default(),
        requests_max: QUEUE_REQUESTS_MAX,
    }
}

/// A cluster of equal models in virtual time, its GPUs equal or of some classes in turn; its objects' inputs can be
/// recorded.
#[derive(Debug)]
pub struct VirtualHost {
    now: Time,
    pub(crate) queues: Vec<ModelQueue>,
    pub(crate) ranker: GpuRanker,
    /// Slot 0 wakes the ranker, slot 1 + m model m.
    timers: MinTree,
    actions: ModelActions,
    rank_actions: RankActions,
    grants: VecDeque<(u32, GpuId, GpuClass, Time, GrantWhy)>,
    random: u64,
    sequence: u64,
    pub(crate) tapes: Option<Tapes>,
}

impl VirtualHost {
    /// `models` models on `gpus` free GPUs of `classes` classes.
    #[must_use]
    pub fn new(models: u32, gpus: u32, classes: usize) -> Self {
        let mut host = Self {
            now: Time::ZERO,
            queues: (0..models).map(|_| ModelQueue::new(queue_config(classes))).collect(),
            ranker: GpuRanker::new(models, gpus),
            timers: MinTree::new(1 + models as usize),
            actions: ModelActions::default(),
            rank_actions: RankActions::default(),
            grants: VecDeque::new(),
            random: 0x5EED,
            sequence: 0,
            tapes: None,
        };
        for (gpu, class) in (0..gpus).zip(GpuClass::all().take(classes.max(1)).collect::<Vec<_>>().into_iter().cycle())
        {
            host.rank(RankInput::Add { gpu: GpuId::new(gpu), class, free_at: Time::ZERO });
        }
        host
    }

    /// `requests` Poisson arrivals at `rate_rps` in total, the models drawn uniformly, and everything that follows.
    pub fn serve(&mut self, requests: u64, rate_rps: f64) {
        let mean_gap_s = 1.0 / rate_rps;
        for _ in 0..requests {
            let uniform = (self.random() >> 11) as f64 / (1_u64 << 53) as f64;
            self.run_until(self.now + Nanos::from_secs_f64(-(1.0 - uniform).ln() * mean_gap_s));
            let model = (self.random() % self.queues.len() as u64) as u32;
            let id = RequestId { sequence: self.sequence, ..RequestId::default() };
            self.sequence += 1;
            let request = Request {
                id,
                deadline: self.now + CONFIG_SLO,
                items: 1,
                weight: symphony_types::RequestValue::ONE,
                variant: 0,
            };
            self.model(model, ModelInput::Arrive(request));
            self.answer_grants();
        }
    }

    /// Xorshift: seeded, and negligible beside what is measured.
    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn run_until(&mut self, until: Time) {
        while let Some((slot, at)) = self.timers.min().filter(|&(_, at)| at <= until.as_nanos()) {
            self.now = self.now.max(Time::from_nanos(at));
            self.timers.set(slot, MinTree::EMPTY);
            match slot.checked_sub(1) {
                None => self.rank(RankInput::Wake),
                Some(model) => self.model(model as u32, ModelInput::Wake),
            }
            self.answer_grants();
        }
        self.now = until;
    }

    fn answer_grants(&mut self) {
        while let Some((model, gpu, class, free_at, why)) = self.grants.pop_front() {
            self.model(model, ModelInput::Grant { gpu, class, free_at, why });
        }
    }

    fn model(&mut self, model: u32, input: ModelInput) {
        if let Some(tapes) = &mut self.tapes {
            tapes.model.inputs.push((model, self.now, input));
        }
        self.actions.clear();
        self.queues[model as usize].step(self.now, input, &mut self.actions);
        for at in 0..self.actions.list.len() {
            match self.actions.list[at] {
                ModelAction::Offer { answered, class, candidate } => {
                    self.rank(RankInput::Offer { model, answered, class, candidate });
                }
                ModelAction::Release { gpu, free_at } => {
                    self.rank(RankInput::Release { model, gpu, free_at, report_due: false })
                }
                ModelAction::Execute(plan) => {
                    if let Some(tapes) = &mut self.tapes {
                        tapes.batches += 1;
                        tapes.planned += u64::from(plan.requests);
                    }
                }
                ModelAction::Drop { .. } => {}
                ModelAction::WakeAt(at) => self.timers.set(1 + model as usize, at.as_nanos()),
            }
        }
    }

    fn rank(&mut self, input: RankInput) {
        if let Some(tapes) = &mut self.tapes {
            tapes.rank.inputs.push((self.now, input));
        }
        self.rank_actions.clear();
        self.ranker.step(self.now, input, &mut self.rank_actions);
        for action in &self.rank_actions {
            match *action {
                RankAction::Grant { model, gpu, class, free_at, why } => {
                    self.grants.push_back((model, gpu, class, free_at, why));
                }
                RankAction::WakeAt(at) => self.timers.set(0, at.as_nanos()),
            }
        }
    }
}
