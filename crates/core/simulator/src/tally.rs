//! The counts of a run.

use std::collections::BTreeMap;

use symphony_types::{DropReason, Nanos, Outcome, Time};
use symphony_workload::{Arrival, ModelSpec, Scenario, ValueDistribution};

use crate::gpus::Run;
use crate::histogram::{Histogram, quantile};
use crate::open_requests::{OpenRequest, RequestOrigin};
use crate::pipelines::PipelineTally;
use crate::result::{ModelResult, Queueing, RunResult};
use crate::scaling_trace::ScalingResult;

/// Requests of clients: what goodput is judged by.
#[derive(Clone, Copy, Debug, Default)]
struct Judged {
    offered: u64,
    good: u64,
    bad: u64,
}

#[derive(Debug)]
struct ModelTally {
    /// The time to the deadline that all requests of the model share; `None` if they differ.
    slo: Option<Nanos>,
    judged: Judged,
    offered: u64,
    good: u64,
    late: u64,
    dropped: u64,
    shed: u64,
    withdrawn: u64,
    latency: Histogram,
    batches: u64,
    batch_items: u64,
}

/// Counts the outcomes of requests that arrive in the counted time, and the work of GPUs in it.
#[derive(Debug)]
pub(crate) struct Tally {
    from: Time,
    until: Time,
    reply: Nanos,
    models: Vec<ModelTally>,
    pipelines: Vec<PipelineTally>,
    queueing: Histogram,
    /// Requests by size of their batch; grows to the largest batch once.
    by_batch: Vec<u64>,
    busy_ns: u64,
    /// The policy's demand before the counted time, and until its end.
    demand: [Option<Nanos>; 2],
    /// When it is to be read next.
    demand_due: Time,
    used: Vec<bool>,
    simulated: u64,
    undecided: u64,
}

/// Whether a model's bad requests exceed one percent of its load: then its p99 misses the SLO.
pub(crate) const fn misses_p99(bad: u64, offered: u64) -> bool {
    bad * 100 > offered
}

impl Tally {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        // Rows of a trace may have their own deadlines.
        let from_trace = matches!(scenario.arrival, Arrival::Trace(_));
        // Stage requests have deadlines of their own.
        let is_asked = |slot: u32| scenario.pipelines.iter().any(|load| load.models.contains(&slot));
        let model = |(spec, slot): (&ModelSpec, u32)| ModelTally {
            slo: matches!(spec.deadline, ValueDistribution::Fixed(_))
                .then_some(spec.slo)
                .filter(|_| !from_trace && !is_asked(slot)),
            judged: Judged::default(),
            offered: 0,
            good: 0,
            late: 0,
            dropped: 0,
            shed: 0,
            withdrawn: 0,
            latency: Histogram::new(),
            batches: 0,
            batch_items: 0,
        };
        let from = Time::ZERO + scenario.warmup;
        Self {
            from,
            until: from + scenario.duration,
            reply: scenario.network.reply,
            models: scenario.models.iter().zip(0..).map(model).collect(),
            pipelines: scenario.pipelines.iter().map(PipelineTally::new).collect(),
            queueing: Histogram::new(),
            by_batch: vec![0; 64],
            busy_ns: 0,
            demand: [None; 2],
            demand_due: from,
            used: vec![false; scenario.gpu_count() as usize],
            simulated: 0,
            undecided: 0,
        }
    }

    /// The end of the counted time.
    pub(crate) fn until(&self) -> Time {
        self.until
    }

    /// Counted requests without an outcome.
    pub(crate) fn undecided(&self) -> u64 {
        self.undecided
    }

    pub(crate) fn simulated(&self) -> u64 {
        self.simulated
    }

    /// When to read the policy's demand: at the start and at the end of the counted time.
    #[inline]
    pub(crate) fn demand_due(&self) -> Time {
        self.demand_due
    }

    /// Records the policy's demand so far, at the first event from that time on.
    pub(crate) fn demanded(&mut self, so_far: Option<Nanos>) {
        let begins = self.demand_due < self.until;
        self.demand[usize::from(!begins)] = so_far;
        self.demand_due = if begins { self.until } else { Time::NEVER };
    }

    #[inline]
    fn counts(&self, arrival: Time) -> bool {
        arrival >= self.from && arrival < self.until
    }

    /// Returns whether the request counts.
    #[inline]
    pub(crate) fn arrived(&mut self, model: usize, at: Time, origin: RequestOrigin) -> bool {
        self.simulated += 1;
        let counts = self.counts(at);
        if counts {
            let model = &mut self.models[model];
            model.offered += 1;
            model.judged.offered += u64::from(origin == RequestOrigin::Client);
            self.undecided += 1;
        }
        counts
    }

    /// Returns the bad requests of the model's clients so far.
    pub(crate) fn dropped(&mut self, model: usize, open: &OpenRequest, reason: DropReason) -> u64 {
        let counts = self.counts(open.arrived);
        let model = &mut self.models[model];
        if counts {
            model.dropped += 1;
            model.shed += u64::from(reason == DropReason::Shed);
            model.judged.bad += u64::from(open.origin == RequestOrigin::Client);
            self.undecided -= 1;
        }
        model.judged.bad
    }

    /// A pipeline no longer needs this stage request.
    pub(crate) fn withdrawn(&mut self, model: usize, arrived: Time) {
        if self.counts(arrived) {
            self.models[model].withdrawn += 1;
            self.undecided -= 1;
        }
    }

    /// A request of a pipeline arrives. Returns whether it counts.
    pub(crate) fn came(&mut self, pipeline: usize, at: Time) -> bool {
        let counts = self.counts(at);
        if counts {
            self.pipelines[pipeline].offered += 1;
            self.undecided += 1;
        }
        counts
    }

    /// A request of a pipeline has its outcome. Returns the pipeline's bad requests so far.
    pub(crate) fn ended(&mut self, pipeline: usize, now: Time, arrived: Time, ended: (Outcome, bool)) -> u64 {
        let counts = self.counts(arrived);
        let pipeline = &mut self.pipelines[pipeline];
        if counts {
            pipeline.ended(now, arrived, ended);
            self.undecided -= 1;
        }
        pipeline.bad()
    }

    /// A request was answered by this plan. Returns whether it counts.
    #[inline]
    pub(crate) fn answered(&mut self, run: &Run, open: &OpenRequest) -> bool {
        if !self.counts(open.arrived) {
            return false;
        }
        let answered = run.end + self.reply;
        let model = &mut self.models[run.model as usize];
        let (is_good, is_judged) = (answered <= open.deadline, open.origin == RequestOrigin::Client);
        if is_good {
            model.good += 1
        } else {
            model.late += 1
        }
        model.judged.good += u64::from(is_good && is_judged);
        model.judged.bad += u64::from(!is_good && is_judged);
        model.latency.record(answered.since(open.arrived));
        self.queueing.record(run.start.since(open.arrived));
        self.undecided -= 1;
        true
    }

    /// A GPU executed during this time, whether to the end or not.
    pub(crate) fn ran(&mut self, run: &Run) {
        let busy = run.end.min(self.until).since(run.start.max(self.from)).get();
        if busy > 0 {
            self.busy_ns += busy;
            self.used[run.plan.gpu.get() as usize] = true;
        }
    }

    /// A batch has ended with `counted` requests that count. Returns the bad requests of the model's clients so far.
    pub(crate) fn batch(&mut self, run: &Run, counted: u64) -> u64 {
        let model = &mut self.models[run.model as usize];
        if counted > 0 {
            let batch = run.plan.batch as usize;
            if batch >= self.by_batch.len() {
                self.by_batch.resize(batch + 1, 0);
            }
            self.by_batch[batch] += counted;
            model.batches += 1;
            model.batch_items += u64::from(run.plan.batch);
        }
        model.judged.bad
    }

    /// Whether the p99 of every model's clients and of every pipeline is within its SLO, by decided requests only.
    pub(crate) fn meets_slo(&self) -> bool {
        let of_models = self.models.iter().map(|model| (model.judged.bad, model.judged.offered));
        let of_pipelines = self.pipelines.iter().map(|pipeline| (pipeline.bad(), pipeline.offered));
        of_models.chain(of_pipelines).all(|(bad, offered)| !misses_p99(bad, offered))
    }

    /// With the trace of the number of GPUs and their time, if it followed the load.
    pub(crate) fn into_result(
        self,
        scenario: &Scenario,
        seed: u64,
        scaling: Option<(ScalingResult, Nanos)>,
    ) -> RunResult {
        let duration_s = scenario.duration.as_secs_f64();
        let judged = self.models.iter().map(|model| (model.judged.offered, model.judged.good));
        let judged = judged.chain(self.pipelines.iter().map(|pipeline| (pipeline.offered, pipeline.good)));
        let (offered, good) = judged.fold((0_u64, 0_u64), |(offered, good), one| (offered + one.0, good + one.1));
        let (autoscale, scaled) = scaling.unzip();
        let gpu_time = scaled.unwrap_or(scenario.duration.saturating_mul(self.used.len() as u64));
        // Without any GPU nothing ran.
        let gpu_utilization = self.busy_ns as f64 / gpu_time.get().max(1) as f64;
        let [before, until] = self.demand;
        let demand = before.zip(until).map(|(before, until)| until - before);
        let ms = |span: Option<Nanos>| span.map(Nanos::as_millis_f64);
        let by_batch = (0_u32..).zip(&self.by_batch).filter(|&(_, &requests)| requests > 0);
        RunResult {
            seed,
            offered_rps: offered as f64 / duration_s,
            good_rps: good as f64 / duration_s,
            bad_rate: if offered == 0 { 0.0 } else { (offered - good) as f64 / offered as f64 },
            gpu_utilization,
            gpus_used: self.used.iter().filter(|&&used| used).count() as u32,
            idle_fraction: 1.0 - gpu_utilization,
            demand_fraction: demand.map(|demand| demand.get() as f64 / gpu_time.get().max(1) as f64),
            batch_size_by_request: by_batch.map(|(batch, &requests)| (batch, requests)).collect::<BTreeMap<_, _>>(),
            queueing_ms: Queueing {
                p50: ms(self.queueing.quantile(0.5)),
                p99: ms(self.queueing.quantile(0.99)),
                max: ms(self.queueing.max()),
                mean: ms(self.queueing.mean()),
            },
            queueing_cdf: self
                .queueing
                .cumulative()
                .iter()
                .map(|&(span, share)| (span.as_millis_f64(), share))
                .collect(),
            models: scenario.models.iter().zip(&self.models).map(|(spec, model)| model.result(&spec.name)).collect(),
            pipelines: scenario
                .pipelines
                .iter()
                .zip(&self.pipelines)
                .map(|(load, pipeline)| pipeline.result(load.pipeline.name()))
                .collect(),
            autoscale,
            learning: None,
            simulated_requests: self.simulated,
        }
    }
}

impl ModelTally {
    fn result(&self, name: &str) -> ModelResult {
        let ms = |q: f64| quantile(&self.latency, (self.offered, self.good), self.slo, q).map(Nanos::as_millis_f64);
        let mean_batch = (self.batches > 0).then(|| self.batch_items as f64 / self.batches as f64);
        ModelResult {
            name: name.to_owned(),
            offered: self.offered,
            good: self.good,
            late: self.late,
            dropped: self.dropped,
            shed: self.shed,
            withdrawn: self.withdrawn,
            p50_ms: ms(0.5),
            p99_ms: ms(0.99),
            mean_batch,
        }
    }
}
