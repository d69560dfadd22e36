//! Explains selected requests of a run: given ones, or the worst.

use std::cmp::Reverse;
use std::collections::VecDeque;

use symphony_explain::{
    BatchEnd, BatchRecord, DropRecord, Explainer, Explanation, Finding, FlightRecorder, Names, PolicyRules,
    RecorderLimits, Since,
};
use symphony_scheduler::{DropCause, Plan, Request};
use symphony_types::{DropReason, GpuClass, GpuId, Nanos, Time};
use symphony_workload::Scenario;

use crate::gpus::Run;
use crate::rules::rules;
use crate::watch::Watch;

/// The most requests explained in a run.
pub const EXPLAINED_MAX: usize = 1000;

/// Which requests to explain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// These sequence numbers; the simulator numbers arrivals from 0.
    Requests(Vec<u64>),
    /// This many of those that were dropped or late after the warm-up: first dropped ones, each group by the time that
    /// was missing.
    Worst(usize),
}

/// Severity of an outcome: dropped before late, then by the time that was missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Badness {
    dropped: bool,
    missing: Nanos,
}

/// Watches a run and records the selected requests.
#[derive(Debug)]
pub(crate) struct Explained<'a> {
    scenario: &'a Scenario,
    ask: Ask,
    recorder: FlightRecorder,
    /// The unfinished batches of each GPU, in the order of their ends.
    on_gpu: Vec<VecDeque<u64>>,
    /// Selected requests in unfinished batches.
    awaited: Vec<(u64, u64)>,
    found: Vec<(Badness, Finding)>,
}

struct ScenarioNames<'a>(&'a Scenario);

impl Names for ScenarioNames<'_> {
    fn model(&self, model: u32) -> String {
        self.0.models.get(model as usize).map_or_else(|| format!("m{model}"), |model| model.name.clone())
    }

    fn policy(&self, _model: u32) -> Option<String> {
        Some(self.0.policy.to_string())
    }

    fn rival(&self, slot: u32) -> String {
        self.model(slot)
    }

    fn gpu(&self, gpu: GpuId) -> String {
        gpu.to_string()
    }

    fn gpu_kind(&self, gpu: GpuId) -> Option<String> {
        self.0.gpu_kind(gpu).map(str::to_owned)
    }

    fn class_kind(&self, class: GpuClass) -> Option<String> {
        self.0.gpus.iter().find(|gpu| gpu.class == class).map(|gpu| gpu.kind.clone())
    }

    fn rules(&self) -> Option<PolicyRules> {
        rules(&self.0.policy)
    }
}

impl<'a> Explained<'a> {
    pub(crate) fn new(scenario: &'a Scenario, ask: Ask) -> Self {
        Self {
            scenario,
            ask,
            recorder: FlightRecorder::new(RecorderLimits::WORKER),
            on_gpu: vec![VecDeque::new(); scenario.gpu_count() as usize],
            awaited: Vec::new(),
            found: Vec::new(),
        }
    }

    /// The explanations, in the order of the decisions or by severity.
    pub(crate) fn explain(mut self) -> Vec<Explanation> {
        for (sequence, number) in std::mem::take(&mut self.awaited) {
            self.keep(sequence, number);
        }
        match self.ask {
            Ask::Requests(_) => self.found.sort_by_key(|(_, found)| found.decided()),
            Ask::Worst(_) => self.found.sort_by_key(|&(badness, _)| Reverse(badness)),
        }
        let explainer = Explainer { names: &ScenarioNames(self.scenario), since: Since::Origin };
        self.found.iter().map(|(_, found)| explainer.explain(found)).collect()
    }

    fn wants(&self, sequence: u64) -> bool {
        matches!(&self.ask, Ask::Requests(wanted) if wanted.contains(&sequence))
    }

    /// Records a request of a batch as known now.
    fn keep(&mut self, sequence: u64, number: u64) {
        if let Some(Finding::Batch { number, record, requests, .. }) = self.recorder.batch_at(number) {
            let request = requests.iter().find(|request| request.id.sequence == sequence).copied();
            let badness = Badness { dropped: false, missing: Nanos::ZERO };
            self.keep_found(badness, Finding::Batch { number, record, request, requests });
        }
    }

    fn keep_found(&mut self, badness: Badness, found: Finding) {
        let limit = match self.ask {
            Ask::Requests(_) => EXPLAINED_MAX,
            Ask::Worst(count) => count.min(EXPLAINED_MAX),
        };
        if self.found.len() < limit {
            self.found.push((badness, found));
        } else if let Ask::Worst(_) = self.ask
            && let Some(best) = self.found.iter_mut().min_by_key(|(badness, _)| *badness)
            && best.0 < badness
        {
            *best = (badness, found);
        }
    }

    fn is_counted(&self, at: Time) -> bool {
        let from = Time::ZERO + self.scenario.warmup;
        (from..from + self.scenario.duration).contains(&at)
    }

    fn end_batch(&mut self, number: u64, end: BatchEnd) {
        self.recorder.ended(number, end);
        let (ended, waits) = self.awaited.iter().partition(|&&(_, awaited)| awaited == number);
        self.awaited = waits;
        for (sequence, number) in Vec::<(u64, u64)>::from_iter(ended) {
            self.keep(sequence, number);
        }
    }

    fn keep_late(&mut self, number: u64, end: Time) {
        let Some(Finding::Batch { record, requests, .. }) = self.recorder.batch_at(number) else { return };
        if !matches!(self.ask, Ask::Worst(_)) || !self.is_counted(record.decided) {
            return;
        }
        let answered = end + self.scenario.network.reply;
        for &request in requests.iter().filter(|request| answered > request.deadline) {
            let badness = Badness { dropped: false, missing: answered.since(request.deadline) };
            let found = Finding::Batch { number, record, request: Some(request), requests: requests.clone() };
            self.keep_found(badness, found);
        }
    }
}

impl Watch for Explained<'_> {
    fn dropped(&mut self, now: Time, model: u32, request: &Request, reason: DropReason, cause: Option<&DropCause>) {
        let is_worst = matches!(self.ask, Ask::Worst(_)) && self.is_counted(now);
        if !is_worst && !self.wants(request.id.sequence) {
            return;
        }
        let needed = cause.map(|cause| cause.batch_end).filter(|&end| end < Time::NEVER);
        let missing = needed.map_or(Nanos::ZERO, |end| end.since(cause.map_or(end, |cause| cause.must_end_by)));
        let record = DropRecord { model, decided: now, request: *request, reason, cause: cause.copied(), lost: false };
        self.keep_found(Badness { dropped: true, missing }, Finding::Drop(record));
    }

    fn planned(&mut self, now: Time, model: u32, plan: &Plan, requests: &[Request]) {
        let record = BatchRecord { model, decided: now, plan: *plan, end: BatchEnd::Running };
        let number = self.recorder.batch(record, requests);
        self.on_gpu[plan.gpu.get() as usize].push_back(number);
        for request in requests {
            if self.wants(request.id.sequence) {
                self.awaited.push((request.id.sequence, number));
            }
        }
    }

    fn ran(&mut self, run: &Run, _late: u32, cut: bool) {
        let gpu = run.plan.gpu.get() as usize;
        while let Some(number) = self.on_gpu[gpu].pop_front() {
            let is_it = match self.recorder.batch_at(number) {
                Some(Finding::Batch { record, .. }) => record.plan == run.plan,
                _ => false,
            };
            if !is_it || cut {
                // Stopping a GPU ends all its batches, whether they had started or not.
                self.end_batch(number, BatchEnd::Lost);
                continue;
            }
            let (start, latency) = (run.start, run.end.since(run.start));
            self.end_batch(number, BatchEnd::Done { start, at_latest: false, latency });
            self.keep_late(number, run.end);
            return;
        }
    }
}
