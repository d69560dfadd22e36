//! Joins the requests of a plan to one batch of a model, and splits its results.

use std::fmt;
use std::time::Instant;

use bytes::Bytes;
use symphony_executor::{BatchInputs, ExecuteError, ModelExecutor, Segment};
use symphony_protocol::execute::PlannedRequest;
use symphony_types::{FailReason, GpuId, ModelId, Signature, TensorSpec};

/// The outcome of one request of a batch.
pub(crate) type Fate = (PlannedRequest, Result<Bytes, FailReason>);

/// Requests that a log names.
const LOGGED_REQUESTS_MAX: usize = 3;

/// Why a batch failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NotRun {
    /// The reason for its requests.
    reason: FailReason,
    /// The text for the log.
    words: String,
    /// It had to be aborted.
    pub(crate) hung: bool,
}

/// The requests of a plan whose inputs arrived, and one buffer per input of the model.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) items: u32,
    tensors: Vec<Vec<u8>>,
    requests: Vec<(PlannedRequest, Result<(), FailReason>)>,
}

impl Batch {
    pub(crate) fn gather(requests: &[PlannedRequest], inputs: Vec<Option<Bytes>>, signature: &Signature) -> Self {
        let sizes: Vec<_> = signature.inputs.iter().map(TensorSpec::item_bytes).collect();
        let item_bytes: usize = sizes.iter().sum();
        let mut batch = Self { items: 0, tensors: vec![Vec::new(); sizes.len()], requests: Vec::new() };
        let inputs = inputs.into_iter().chain(std::iter::repeat(None));
        for (&request, input) in requests.iter().zip(inputs) {
            // An input of another length belongs to another model or another boot, and must not be answered. The
            // number of items comes from the wire and may be anything.
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

    /// Passes its inputs to an executor.
    pub(crate) fn given<R>(&self, start: Instant, to: impl FnOnce(&BatchInputs<'_>) -> R) -> R {
        let tensors: Vec<_> = self.tensors.iter().map(Vec::as_slice).collect();
        to(&BatchInputs { items: self.items, tensors: &tensors, start: Some(start) })
    }

    /// Whose rows follow each other in it; requests without a model of their own are of the plan's.
    pub(crate) fn segments(&self, plan: ModelId) -> Vec<Segment> {
        let with_inputs = self.requests.iter().filter(|(_, input)| input.is_ok());
        let segment =
            |(request, _): &(PlannedRequest, _)| Segment { variant: request.model_in(plan).get(), rows: request.items };
        with_inputs.map(segment).collect()
    }

    /// The outcomes of its requests, by the result of its [`segments`](Self::segments).
    pub(crate) fn family_fates(&self, ran: Result<(), NotRun>, outputs: &[Vec<Vec<u8>>]) -> Vec<Fate> {
        let outcome = ran.map_err(|error| error.reason);
        let mut answers = outputs.iter();
        let fate = |&(request, input): &(PlannedRequest, Result<(), FailReason>)| {
            let answer = input.and(outcome).and_then(|()| answers.next().ok_or(FailReason::ExecutionFailed));
            (request, answer.map(|tensors| Bytes::from(tensors.concat())))
        };
        self.requests.iter().map(fate).collect()
    }

    /// Logs that it has not run, with the first of its requests: `symphony explain` takes their ids.
    pub(crate) fn log_failure(&self, gpu: GpuId, model: ModelId, error: &NotRun) {
        let with_inputs = self.requests.iter().filter(|(_, input)| input.is_ok());
        let first: Vec<_> = with_inputs.map(|(request, _)| request.id.to_string()).take(LOGGED_REQUESTS_MAX).collect();
        tracing::error!(%gpu, %model, %error, items = self.items, requests = first.join(", "), "batch failed");
    }

    /// The outcomes of its requests, if their model was removed while they ran.
    pub(crate) fn lost(&self) -> Vec<Fate> {
        let failed = |&(request, input): &(_, Result<(), _>)| (request, input.and(Err(FailReason::ExecutionFailed)));
        self.requests.iter().map(failed).collect()
    }

    /// The outcomes of its requests, by the batch's result.
    pub(crate) fn fates(
        &self,
        executor: &dyn ModelExecutor,
        ran: Result<(), NotRun>,
        outputs: &[Vec<u8>],
    ) -> Vec<Fate> {
        let mut outcome = ran.map_err(|error| error.reason);
        let sizes: Vec<_> = executor.signature().outputs.iter().map(TensorSpec::item_bytes).collect();
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

impl From<ExecuteError> for NotRun {
    fn from(error: ExecuteError) -> Self {
        let reason = match error {
            ExecuteError::OutOfMemory { .. } => FailReason::OutOfMemory,
            ExecuteError::DeviceLost { .. } => FailReason::GpuLost,
            _ => FailReason::ExecutionFailed,
        };
        Self { reason, words: error.to_string(), hung: matches!(error, ExecuteError::Ended { .. }) }
    }
}

impl From<&str> for NotRun {
    fn from(words: &str) -> Self {
        Self { reason: FailReason::ExecutionFailed, words: words.to_owned(), hung: false }
    }
}

impl fmt::Display for NotRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}
