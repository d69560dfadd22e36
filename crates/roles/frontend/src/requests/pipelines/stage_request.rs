//! One stage request: an attempt like every request's, which is counted with what it is part of.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Instant;

use bytes::Bytes;
use futures::future::{BoxFuture, Shared};
use symphony_pipeline::Lost;
use symphony_types::{DropReason, FailReason, Nanos, RequestValue};

use crate::clusters::live_pipeline::LivePipeline;
use crate::inner::Inner;
use crate::oip::{InferAnswer, InferError, ModelInfo, Pictures, Receipt, RequestContext, Timeliness};
use crate::records::RequestSpan;
use crate::requests::accepted_request::{AcceptedRequest, RequestKind, StagePart};
use crate::requests::attempt_end::AttemptEnd;
use crate::requests::cluster_selection::unready_model;
use crate::requests::input::Input;
use crate::requests::request_guard::RequestGuard;
use crate::requests::request_table::Ending;

/// Items that several stage requests take, one each: regions of one picture.
pub(super) type Regions = Shared<BoxFuture<'static, Result<Arc<Vec<Bytes>>, InferError>>>;

/// The input of a stage request.
pub(super) enum StageInput {
    Tensors(Bytes),
    /// With a whole picture of the client.
    Picture {
        payload: Bytes,
        pictures: Pictures,
    },
    /// With the nth region, which has its place among the other bytes.
    Region {
        regions: Regions,
        nth: usize,
        payload: Bytes,
        at: usize,
    },
}

/// A stage to be asked for one row.
pub(super) struct StageRequest {
    pub(super) pipeline: Arc<LivePipeline>,
    pub(super) stage: usize,
    pub(super) model: Arc<ModelInfo>,
    pub(super) input: StageInput,
    pub(super) deadline: Instant,
    pub(super) weight: RequestValue,
    pub(super) context: RequestContext,
    /// Under which name it is asked.
    pub(super) receipt: Receipt,
    /// Its span, if it is traced.
    pub(super) span: Option<RequestSpan>,
    /// When the last result came that led here; none for the source.
    pub(super) fed_at: Option<Instant>,
    /// Stage requests of the same request that are open.
    pub(super) open: Arc<AtomicUsize>,
}

/// What a stage has answered.
#[derive(Debug)]
pub(super) struct StageAnswer {
    pub(super) model: Arc<ModelInfo>,
    pub(super) payload: Bytes,
    pub(super) at: Instant,
    pub(super) execution: Nanos,
    pub(super) timeliness: Timeliness,
}

impl Inner {
    /// Sends one request to a stage's model, and waits for its end.
    pub(super) async fn ask_stage(self: Arc<Self>, stage_request: StageRequest) -> Result<StageAnswer, InferError> {
        let StageRequest { pipeline, stage, model, input, deadline, weight, context, receipt, span, fed_at, open } =
            stage_request;
        let (asked_at, is_region) = (Instant::now(), matches!(input, StageInput::Region { .. }));
        // A region may wait for a thread beyond its deadline.
        let made = tokio::time::timeout_at(deadline.into(), self.stage_input(&model, input)).await;
        let mut input = made.map_err(|_| InferError::Dropped(DropReason::QueueExpired))??;
        let target = self.select_cluster(&model.loaded_as, Some(&model), &[]);
        let target = target.ok_or(InferError::Failed(FailReason::ModelNotReady))?;
        if let Some(error) = unready_model(&target.cluster, &target.route) {
            return Err(error);
        }
        // A federation plans for models, whether clients or pipelines ask them.
        if !context.is_copy {
            self.rates.arrived(&model.loaded_as);
        }
        let now = Instant::now();
        let hop = fed_at.map(|fed_at| self.pipeline_counters.hop(&pipeline, fed_at, now));
        let kind = RequestKind::Stage(StagePart { pipeline, stage, hop, open });
        let request = AcceptedRequest {
            model: Arc::clone(&model),
            items: 1,
            // What else it takes is there or, as other pictures, decoded while it is queued.
            arrived: if is_region { asked_at } else { now },
            deadline,
            weight,
            receipt,
            context,
            admitted: now,
            span,
            kind,
        };
        let mut guard = RequestGuard::accept(&self, &request);
        let mut end = guard.attempt(&target, &mut input, &[]).await;
        if end.may_run_elsewhere() {
            end = Box::pin(guard.fail_over(&target, &mut input)).await;
        }
        let at = match &end {
            AttemptEnd::Settled(Ending::Answer { at, .. }) => *at,
            _ => Instant::now(),
        };
        let InferAnswer { payload, execution, timeliness, .. } = guard.end(end)?;
        if payload.len() != model.signature.output_item_bytes() {
            let (bytes, expected) = (payload.len(), model.signature.output_item_bytes());
            tracing::error!(model = model.loaded_as, bytes, expected, "a stage's answer has the wrong size");
            return Err(InferError::Failed(FailReason::ExecutionFailed));
        }
        Ok(StageAnswer { model, payload, at, execution, timeliness })
    }

    async fn stage_input(&self, model: &ModelInfo, input: StageInput) -> Result<Input, InferError> {
        match input {
            StageInput::Tensors(payload) => Ok(Input::Ready(payload)),
            StageInput::Picture { payload, pictures } => {
                self.decoders.begin(model, payload, pictures).map(Input::Pending)
            }
            StageInput::Region { regions, nth, payload, at } => {
                let regions = regions.await?;
                let region = regions.get(nth).ok_or(InferError::Failed(FailReason::PayloadLost))?;
                if payload.is_empty() {
                    return Ok(Input::Ready(region.clone()));
                }
                Ok(Input::Ready([&payload[..at], &region[..], &payload[at..]].concat().into()))
            }
        }
    }
}

/// The run's event for a stage request without a result. None if what its client sent is to blame.
pub(super) fn lost(error: &InferError) -> Option<Lost> {
    Some(match error {
        InferError::BadPicture(_) | InferError::InvalidRequest(_) => return None,
        InferError::Dropped(reason) => Lost::Dropped(*reason),
        InferError::Failed(reason) => Lost::Failed(*reason),
        InferError::NoGpu(_) => Lost::Failed(FailReason::NoGpu),
        InferError::DecodersBusy { .. } | InferError::DecodedFull { .. } => Lost::Dropped(DropReason::QueueFull),
        // Nothing else ends a stage request.
        _ => Lost::Failed(FailReason::ExecutionFailed),
    })
}
