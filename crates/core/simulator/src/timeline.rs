//! The events of GPUs and queues in a range of time, for display.

use symphony_scheduler::{DropCause, Plan, Request};
use symphony_types::{DropReason, GpuClass, GpuId, Nanos, Time};
use symphony_workload::Scenario;

use crate::gpus::Run;
use crate::pipelines::StageSpan;
use crate::watch::Watch;

/// The most events of a timeline: about 100 MB. Beyond, it is marked as cut.
pub const TIMELINE_EVENTS_MAX: usize = 1_000_000;

/// The time range of a timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimelineRange {
    /// Start of the range, in virtual time.
    pub from: Time,
    /// End of the range, in virtual time.
    pub until: Time,
}

/// An executed batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Batch {
    pub(crate) run: Run,
    /// Start of its window: from then on no further request could join.
    pub(crate) frontrun: Time,
    /// End of its window: the last start that was in time.
    pub(crate) latest: Time,
    /// Requests that were answered too late.
    pub(crate) late: u32,
    /// Whether it was stopped before its end.
    pub(crate) cut: bool,
}

/// The number of waiting requests of a model after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueLength {
    pub(crate) at: Time,
    pub(crate) model: u32,
    pub(crate) waiting: u32,
}

/// The events of a run in a range of time. [`Timeline::to_trace_json`] and [`Timeline::to_svg`] convert it to files.
#[derive(Clone, Debug)]
pub struct Timeline {
    pub(crate) title: String,
    pub(crate) range: TimelineRange,
    pub(crate) model_names: Vec<String>,
    /// By model and GPU class.
    profiles: Vec<std::sync::Arc<[symphony_types::LatencyProfile]>>,
    gpu_classes: Vec<GpuClass>,
    data_per_item: Nanos,
    pub(crate) gpus: u32,
    pub(crate) gpu_kinds: Vec<(String, u32)>,
    waiting: Vec<u32>,
    /// Waiting requests of each model at the start of the range.
    pub(crate) waiting_at_first: Vec<u32>,
    /// In the order of their ends.
    pub(crate) batches: Vec<Batch>,
    pub(crate) queues: Vec<QueueLength>,
    /// Time and model of each drop.
    pub(crate) drops: Vec<(Time, u32)>,
    /// Names of each pipeline and of its stages.
    pub(crate) pipelines: Vec<(String, Vec<String>)>,
    /// Requests of pipelines and their stage requests, in the order of their ends.
    pub(crate) stages: Vec<StageSpan>,
    /// GPU, start and end of each failure.
    pub(crate) outages: Vec<(GpuId, Time, Time)>,
    /// Whether events were left out.
    pub(crate) is_cut: bool,
}

impl Timeline {
    pub(crate) fn new(scenario: &Scenario, seed: u64, range: TimelineRange) -> Self {
        Self {
            title: format!("{}, {}, seed {seed}", scenario.name, scenario.policy),
            range,
            model_names: scenario.models.iter().map(|model| model.name.clone()).collect(),
            profiles: scenario.models.iter().map(|model| std::sync::Arc::clone(&model.profiles)).collect(),
            gpu_classes: scenario.gpu_classes().collect(),
            data_per_item: scenario.network.data_per_item,
            gpus: scenario.gpu_count(),
            gpu_kinds: scenario.gpus.iter().map(|gpu| (gpu.kind.clone(), gpu.count)).collect(),
            waiting: vec![0; scenario.models.len()],
            waiting_at_first: vec![0; scenario.models.len()],
            batches: Vec::new(),
            queues: Vec::new(),
            drops: Vec::new(),
            pipelines: scenario
                .pipelines
                .iter()
                .map(|load| {
                    let stages = load.pipeline.stages().iter().map(|stage| stage.name.clone());
                    (load.pipeline.name().to_owned(), stages.collect())
                })
                .collect(),
            stages: Vec::new(),
            outages: Vec::new(),
            is_cut: false,
        }
    }

    /// Whether the range had more than [`TIMELINE_EVENTS_MAX`] events, so that some were left out.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    fn keeps(&mut self, at: Time) -> bool {
        if at < self.range.from || at > self.range.until {
            return false;
        }
        let kept = self.batches.len() + self.queues.len() + self.drops.len() + self.outages.len() + self.stages.len();
        self.is_cut |= kept >= TIMELINE_EVENTS_MAX;
        !self.is_cut
    }

    /// Whether nothing happened in its range.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.batches.is_empty() && self.queues.is_empty() && self.drops.is_empty()
    }

    fn waits(&mut self, at: Time, model: u32, change: impl Fn(u32) -> u32) {
        let waiting = &mut self.waiting[model as usize];
        *waiting = change(*waiting);
        let length = QueueLength { at, model, waiting: *waiting };
        if at < self.range.from {
            self.waiting_at_first[model as usize] = length.waiting;
        }
        if self.keeps(at) {
            match self.queues.last_mut().filter(|last| last.at == at && last.model == model) {
                Some(last) => *last = length,
                None => self.queues.push(length),
            }
        }
    }
}

impl Watch for Timeline {
    fn queued(&mut self, now: Time, model: u32) {
        self.waits(now, model, |waiting| waiting + 1);
    }

    fn dropped(&mut self, now: Time, model: u32, _: &Request, _: DropReason, _: Option<&DropCause>) {
        self.waits(now, model, |waiting| waiting.saturating_sub(1));
        if self.keeps(now) {
            self.drops.push((now, model));
        }
    }

    fn withdrawn(&mut self, now: Time, model: u32) {
        self.waits(now, model, |waiting| waiting.saturating_sub(1));
    }

    fn stage(&mut self, span: StageSpan) {
        if self.keeps(span.until.min(self.range.until).max(span.from)) {
            self.stages.push(span);
        }
    }

    fn planned(&mut self, now: Time, model: u32, plan: &Plan, _: &[Request]) {
        self.waits(now, model, |waiting| waiting.saturating_sub(plan.requests));
    }

    fn ran(&mut self, run: &Run, late: u32, cut: bool) {
        // Kept if any part of it is visible.
        if !self.keeps(run.end.min(self.range.until).max(run.start)) {
            return;
        }
        let class = self.gpu_classes[run.plan.gpu.get() as usize];
        let profile = &self.profiles[run.model as usize][class.index()];
        let (batch, due) = (run.plan.batch, run.plan.must_end_by);
        let latest = due - profile.latency(batch);
        // From the plan's explanation, if there is one; otherwise when no single-item request could join. No request
        // can join a full batch, from the start of time on.
        let one_more = || due - profile.latency(batch + 1) - self.data_per_item;
        let frontrun = run.plan.why.map_or_else(one_more, |why| why.frontrun);
        self.batches.push(Batch { run: *run, frontrun, latest, late, cut });
    }

    fn gpu(&mut self, now: Time, gpu: GpuId, up: bool) {
        if !up {
            self.outages.push((gpu, now, Time::NEVER));
        } else if let Some(outage) = self.outages.iter_mut().rev().find(|outage| outage.0 == gpu) {
            outage.2 = now;
        }
    }
}
