//! The thread of one GPU: waits for inputs, runs the batch, returns results. Execution is serial by construction (the
//! last line of invariant S1); on a device the next plan's inputs are copied meanwhile.
//!
//! A batch whose inputs are there begins before its planned start: the start allows for slow networks and machines, and
//! nothing else was planned for the GPU by then.

use std::collections::HashMap;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use bytes::Bytes;
use symphony_executor::{MemoryUse, ModelExecutor, use_smallest_timer_slack};
use symphony_protocol::data::{BatchRun, RequestResult, ResultBytes};
use symphony_protocol::execute::PlannedRequest;
use symphony_transport::{PayloadTransport, ResultToFrontend};
use symphony_types::{BootId, FailReason, FrontendId, GpuId, RequestId, Token};
use tokio::sync::mpsc::UnboundedSender;

use crate::accepted_plan::{AcceptedPlan, GpuOrder, PlanReport, UnloadGuard};
use crate::batch::{Batch, Fate};
use crate::counts::Counts;
use crate::gpu_time::GpuTime;
use crate::mixed::{self, MixedRun};
use crate::order_queue::{OrderQueue, QueuedOrder, QueuedPlan};
use crate::steps::{self, Models};
use crate::unresponsive_frontends::UnresponsiveFrontends;

pub(crate) struct GpuThread<T> {
    /// Its place in the backend.
    pub(crate) gpu: usize,
    pub(crate) id: GpuId,
    pub(crate) orders: mpsc::Receiver<GpuOrder>,
    pub(crate) reports: UnboundedSender<PlanReport>,
    pub(crate) transport: Arc<T>,
    pub(crate) unresponsive_frontends: Arc<UnresponsiveFrontends>,
    pub(crate) counts: Arc<Counts>,
    pub(crate) time: Arc<GpuTime>,
    pub(crate) runtime: tokio::runtime::Handle,
}

/// A thread that is late by up to this much does not make an emulated GPU late: its batch began when its inputs were
/// there and the GPU was free.
const SLACK: Duration = Duration::from_micros(200);

/// What a plan came to.
struct PlanRun {
    /// Of each request.
    fates: Vec<Fate>,
    /// Rows that ran.
    items: u32,
    begun: Instant,
    latency: Duration,
    /// The measured memory of its model so far, if it has one model.
    memory: Option<MemoryUse>,
}

impl<T: PayloadTransport> GpuThread<T> {
    /// Runs until the sender of orders is gone.
    pub(crate) fn run(self) {
        // Late inputs and devices are waited for by timers.
        use_smallest_timer_slack();
        let mut models = Models::new();
        let mut order_queue = OrderQueue::new(&self.orders);
        let mut outputs = Vec::new();
        // The end of the last batch.
        let mut free_at = Instant::now();
        let _in_runtime = self.runtime.enter();
        while let Some(queued) = order_queue.next() {
            match queued {
                QueuedOrder::Load(model, executor) => {
                    // The model that it replaces goes like one that is unloaded.
                    if let Some(former) = models.insert(model, executor) {
                        self.runtime.spawn_blocking(move || drop(former));
                    }
                }
                QueuedOrder::Unload(model, unload_guard) => self.unload(models.remove(&model), unload_guard),
                QueuedOrder::Plan(plan) => {
                    self.time.taken();
                    let report = self.execute((plan, free_at), &mut models, &mut order_queue, &mut outputs);
                    free_at = report.ran.map_or(free_at, |(_, ended)| ended);
                    if self.reports.send(report).is_err() {
                        return;
                    }
                    // Not even for a moment before the next plan: a load's batch would begin in it.
                    if order_queue.next_plan().is_none() {
                        self.time.free();
                    }
                }
            }
        }
    }

    /// Frees a model's memory on another thread: gigabytes take time, and the next batch waits for this one.
    fn unload(&self, executor: Option<Box<dyn ModelExecutor>>, unload_guard: Arc<UnloadGuard>) {
        self.runtime.spawn_blocking(move || {
            drop(executor);
            // After the executor.
            drop(unload_guard);
        });
    }

    fn execute(
        &self,
        (mut queued, free_at): (QueuedPlan, Instant),
        models: &mut Models,
        order_queue: &mut OrderQueue<'_>,
        outputs: &mut Vec<Vec<u8>>,
    ) -> PlanReport {
        queued.gather(&self.unresponsive_frontends);
        let (late, gone) = queued.without_input();
        Counts::add(&self.counts.inputs_late, late);
        Counts::add(&self.counts.inputs_gone, gone);
        let QueuedPlan { plan, inputs, inputs_at, batch, .. } = queued;
        let PlanRun { fates, items, begun, latency, memory } = if plan.is_mixed() {
            self.run_mixed(&plan, inputs, models)
        } else {
            self.run_one_model((&plan, inputs_at.max(free_at)), (inputs, batch), models, order_queue, outputs)
        };
        let (mut finished, mut failed) = (Vec::with_capacity(fates.len()), Vec::new());
        for (request, fate) in &fates {
            finished.push(request.id);
            if let Err(reason) = fate {
                failed.push((request.id, *reason));
            }
        }
        let ended = begun + latency;
        self.deliver(fates, items, latency, (plan.token, plan.sequence), [plan.accepted, inputs_at, begun, ended]);
        PlanReport {
            gpu: self.gpu,
            token: plan.token,
            sequence: plan.sequence,
            model: plan.model,
            start_late: begun.saturating_duration_since(plan.start),
            ran: (items > 0).then_some((begun, ended)),
            latency,
            memory,
            finished,
            failed,
            next_is_ready: order_queue.next_plan().is_some_and(QueuedPlan::gather_now),
        }
    }

    /// Runs a plan of several models.
    fn run_mixed(&self, plan: &AcceptedPlan, inputs: Vec<Option<Bytes>>, models: &mut Models) -> PlanRun {
        let MixedRun { fates, items, begun, latency, through_one_trunk, hung } =
            mixed::run(self.id, models, plan, inputs);
        Counts::add(&self.counts.mixed_batches, through_one_trunk);
        Counts::add(&self.counts.models_hung, hung);
        PlanRun { fates, items, begun, latency, memory: None }
    }

    /// Runs a plan of one model. `ready_at` is when its inputs were there and the GPU was free.
    fn run_one_model(
        &self,
        (plan, ready_at): (&AcceptedPlan, Instant),
        (inputs, batch): (Vec<Option<Bytes>>, Option<Batch>),
        models: &mut Models,
        order_queue: &mut OrderQueue<'_>,
        outputs: &mut Vec<Vec<u8>>,
    ) -> PlanRun {
        let mut begun = Instant::now();
        let Some(executor) = models.get(&plan.model) else {
            let failed = |&request: &PlannedRequest| (request, Err(FailReason::ModelNotReady));
            let fates = plan.requests.iter().map(failed).collect();
            return PlanRun { fates, items: 0, begun, latency: Duration::ZERO, memory: None };
        };
        let batch = batch.unwrap_or_else(|| Batch::gather(&plan.requests, inputs, executor.signature()));
        let counts_from_start = executor.counts_from_start();
        let mut outcome = Ok(());
        if batch.items > 0 {
            // On a device, whose batches wait there for their inputs, these begin to travel.
            outcome = steps::stage(models, plan.model, &batch, ready_at);
            begun = Instant::now();
            if counts_from_start {
                begun = ready_at.max(begun - SLACK);
            }
            if outcome.is_ok() {
                outcome = steps::run(models, Some(order_queue), (plan.model, &batch, begun), outputs);
            }
        }
        let latency = begun.elapsed();
        if let Err(error) = &outcome {
            batch.log_failure(self.id, plan.model, error);
            Counts::add(&self.counts.models_hung, u64::from(error.hung));
        }
        let (fates, memory) = match models.get(&plan.model) {
            Some(executor) => (batch.fates(executor.as_ref(), outcome, outputs), executor.memory()),
            // Models are added and removed between plans only, except one that panicked and could not be reset.
            None => (batch.lost(), None),
        };
        PlanRun { fates, items: batch.items, begun, latency, memory }
    }

    /// Returns results to their frontends, one frame each.
    /// `times` are when the plan came, its inputs had come, it began to run, and it had run.
    fn deliver(
        &self,
        fates: Vec<Fate>,
        batch: u32,
        latency: Duration,
        (token, plan): (Token, u64),
        times: [Instant; 4],
    ) {
        let now = Instant::now();
        let ago = |at: Instant| u32::try_from(now.saturating_duration_since(at).as_micros()).unwrap_or(u32::MAX);
        let [planned_us, inputs_us, started_us, ended_us] = times.map(ago);
        let run = BatchRun { gpu: self.id, token, plan, planned_us, inputs_us, started_us, ended_us };
        let mut by_frontend: HashMap<(FrontendId, BootId), Vec<ResultToFrontend>> = HashMap::new();
        for (request, fate) in fates {
            let RequestId { frontend, boot, sequence } = request.id;
            let (outcome, bytes) = match fate {
                Ok(bytes) => (ResultBytes::Answer(bytes.len() as u32), bytes),
                Err(reason) => (ResultBytes::Failed(reason), Bytes::new()),
            };
            let execution = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
            let result = RequestResult { sequence, outcome, batch, execution, run };
            by_frontend.entry((frontend, boot)).or_default().push(ResultToFrontend { result, bytes });
        }
        for ((frontend, boot), results) in by_frontend {
            self.transport.deliver(frontend, boot, results);
        }
    }
}
