//! The thread of one GPU: waits for inputs and for the planned start, runs, returns results. Execution is serial by
//! construction (invariant S1 at its last line).

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use bytes::Bytes;
use symphony_executor::{BatchInputs, ModelExecutor, wait_until};
use symphony_protocol::data::{RequestResult, ResultBytes};
use symphony_protocol::execute::PlannedRequest;
use symphony_transport::{PayloadTransport, ResultToOwner};
use symphony_types::{BootId, FailReason, FrontendId, ModelId, RequestId};
use tokio::sync::mpsc::UnboundedSender;

use crate::plan::{AcceptedPlan, GpuOrder, LetGo, PlanReport};

/// How long after its planned start a plan waits for its inputs. Longer, and the plans behind it miss their deadlines
/// for the sake of one that has missed its own.
const INPUTS_LATE_MAX: Duration = Duration::from_millis(100);

pub(crate) struct GpuThread<T> {
    pub(crate) gpu: usize,
    pub(crate) orders: mpsc::Receiver<GpuOrder>,
    pub(crate) reports: UnboundedSender<PlanReport>,
    pub(crate) transport: Arc<T>,
    pub(crate) runtime: tokio::runtime::Handle,
}

/// One request's fate inside its batch.
type Fate = (PlannedRequest, Result<Bytes, FailReason>);

impl<T: PayloadTransport> GpuThread<T> {
    /// Runs until the sender of orders is gone.
    pub(crate) fn run(self) {
        let mut models: HashMap<ModelId, Box<dyn ModelExecutor>> = HashMap::new();
        let mut outputs = Vec::new();
        let _in_runtime = self.runtime.enter();
        while let Ok(order) = self.orders.recv() {
            match order {
                GpuOrder::Load(model, executor) => {
                    models.insert(model, executor);
                }
                GpuOrder::Unload(model, let_go) => self.let_go(models.remove(&model), let_go),
                GpuOrder::Run(plan) => {
                    let executor = models.get_mut(&plan.model);
                    let report = self.execute(plan, executor, &mut outputs);
                    if self.reports.send(report).is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// Gives a model's memory back, elsewhere: gigabytes take their time, and the next batch waits for this thread.
    fn let_go(&self, executor: Option<Box<dyn ModelExecutor>>, let_go: Arc<LetGo>) {
        self.runtime.spawn_blocking(move || {
            drop(executor);
            // Not before the executor.
            drop(let_go);
        });
    }

    fn execute(
        &self,
        plan: AcceptedPlan,
        executor: Option<&mut Box<dyn ModelExecutor>>,
        outputs: &mut Vec<Vec<u8>>,
    ) -> PlanReport {
        let patience = (plan.start + INPUTS_LATE_MAX).saturating_duration_since(Instant::now());
        let inputs = gather_inputs(&plan, Instant::now() + patience);
        let mut begun = Instant::now();
        let mut latency = Duration::ZERO;
        let (mut ran, mut memory) = (None, None);
        let (fates, batch) = match executor {
            None => {
                let failed = |&request: &PlannedRequest| (request, Err(FailReason::ModelNotReady));
                (plan.requests.iter().map(failed).collect(), 0)
            }
            Some(executor) => {
                let batch = Batch::gather(&plan.requests, inputs, executor.signature());
                if batch.items > 0 {
                    wait_until(plan.start);
                    begun = Instant::now();
                }
                let fates = batch.run(executor.as_mut(), plan.start.max(begun - SLACK), outputs);
                let ended = Instant::now();
                latency = ended - begun;
                ran = (batch.items > 0).then_some((begun, ended));
                memory = executor.memory();
                (fates, batch.items)
            }
        };
        let (mut finished, mut failed) = (Vec::with_capacity(fates.len()), Vec::new());
        for (request, fate) in &fates {
            finished.push(request.id);
            if let Err(reason) = fate {
                failed.push((request.id, *reason));
            }
        }
        self.deliver(fates, batch, latency);
        PlanReport {
            gpu: self.gpu,
            token: plan.token,
            sequence: plan.sequence,
            model: plan.model,
            start_late: begun.saturating_duration_since(plan.start),
            ran,
            latency,
            memory,
            finished,
            failed,
        }
    }

    /// Returns results to their owners, one frame each.
    fn deliver(&self, fates: Vec<Fate>, batch: u32, latency: Duration) {
        let mut by_owner: HashMap<(FrontendId, BootId), Vec<ResultToOwner>> = HashMap::new();
        for (request, fate) in fates {
            let RequestId { frontend, boot, sequence } = request.id;
            let (outcome, bytes) = match fate {
                Ok(bytes) => (ResultBytes::Answer(bytes.len() as u32), bytes),
                Err(reason) => (ResultBytes::Failed(reason), Bytes::new()),
            };
            let execution = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
            let result = RequestResult { sequence, outcome, batch, execution };
            by_owner.entry((frontend, boot)).or_default().push(ResultToOwner { result, bytes });
        }
        for ((frontend, boot), results) in by_owner {
            self.transport.deliver(frontend, boot, results);
        }
    }
}

/// Every input that arrives until `late`. An owner that does not answer costs its own requests only.
fn gather_inputs(plan: &AcceptedPlan, late: Instant) -> Vec<Option<Bytes>> {
    let mut inputs = vec![None; plan.requests.len()];
    while let Ok(some) = plan.inputs.recv_timeout(late.saturating_duration_since(Instant::now())) {
        for (index, input) in some {
            inputs[index] = input;
        }
    }
    inputs
}

/// Lateness up to this much is the clock's, not the plan's: an emulated GPU still counts from the planned start.
const SLACK: Duration = Duration::from_micros(200);

/// The requests of a plan whose inputs arrived, and one buffer per input of the model.
struct Batch {
    items: u32,
    tensors: Vec<Vec<u8>>,
    requests: Vec<(PlannedRequest, Result<(), FailReason>)>,
}

impl Batch {
    fn gather(requests: &[PlannedRequest], inputs: Vec<Option<Bytes>>, signature: &symphony_types::Signature) -> Self {
        let sizes: Vec<_> = signature.inputs.iter().map(symphony_types::TensorSpec::item_bytes).collect();
        let item_bytes: usize = sizes.iter().sum();
        let mut batch = Self { items: 0, tensors: vec![Vec::new(); sizes.len()], requests: Vec::new() };
        let inputs = inputs.into_iter().chain(std::iter::repeat(None));
        for (&request, input) in requests.iter().zip(inputs) {
            // An input of another length belongs to another model or another life: it must not be answered. Numbers of
            // items come from the wire and may be anything.
            let length = item_bytes.checked_mul(request.items as usize);
            let whole = input.filter(|input| request.items > 0 && Some(input.len()) == length);
            let (Some(input), Some(items)) = (whole, batch.items.checked_add(request.items)) else {
                batch.requests.push((request, Err(FailReason::PayloadLost)));
                continue;
            };
            let mut rest = input.as_ref();
            for (tensor, size) in batch.tensors.iter_mut().zip(&sizes) {
                let (mine, others) = rest.split_at(size * request.items as usize);
                tensor.extend_from_slice(mine);
                rest = others;
            }
            batch.items = items;
            batch.requests.push((request, Ok(())));
        }
        batch
    }

    fn run(&self, executor: &mut dyn ModelExecutor, start: Instant, outputs: &mut Vec<Vec<u8>>) -> Vec<Fate> {
        let mut outcome = Ok(());
        if self.items > 0 {
            let tensors: Vec<_> = self.tensors.iter().map(Vec::as_slice).collect();
            let inputs = BatchInputs { items: self.items, tensors: &tensors, start: Some(start) };
            // A GPU thread that dies would leave a backend that accepts plans and runs none.
            let ran = catch_unwind(AssertUnwindSafe(|| executor.run(&inputs, outputs)));
            let failed = match ran {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some("the executor panicked".to_owned()),
            };
            if let Some(error) = failed {
                tracing::error!(%error, items = self.items, "batch failed");
                outcome = Err(FailReason::ExecutionFailed);
            }
        }
        let sizes: Vec<_> = executor.signature().outputs.iter().map(symphony_types::TensorSpec::item_bytes).collect();
        let lengths = sizes.iter().map(|size| size * self.items as usize);
        if outcome.is_ok() && self.items > 0 && !outputs.iter().map(Vec::len).eq(lengths) {
            tracing::error!(items = self.items, kind = executor.kind(), "the executor's outputs have another length");
            outcome = Err(FailReason::ExecutionFailed);
        }
        let mut done = 0;
        self.requests
            .iter()
            .map(|&(request, input)| {
                let fate = input.and(outcome).map(|()| {
                    let mut answer = Vec::with_capacity(sizes.iter().sum::<usize>() * request.items as usize);
                    for (output, size) in outputs.iter().zip(&sizes) {
                        let from = size * done;
                        answer.extend_from_slice(&output[from..from + size * request.items as usize]);
                    }
                    done += request.items as usize;
                    Bytes::from(answer)
                });
                (request, fate)
            })
            .collect()
    }
}
