//! Whether a request for a pipeline is taken in, and its way to the one outcome.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use symphony_pipeline::RunPlan;
use symphony_protocol::data::BatchRun;
use symphony_types::{FailReason, ModelId, Nanos, SubclusterId, Token};
use tokio::sync::oneshot;

use super::host::{Ended, Host};
use super::item::ClientInputs;
use crate::clusters::cluster::Cluster;
use crate::clusters::live_pipeline::LivePipeline;
use crate::inner::Inner;
use crate::oip::{InferAnswer, InferError, InferRequest, RefusedCall, RequestedDeadline};
use crate::records::pipeline_memory::StageLog;
use crate::requests::accepted_request::{AcceptedRequest, RequestKind};
use crate::requests::admission::time_asked;
use crate::requests::attempt_end::AttemptEnd;
use crate::requests::request_guard::RequestGuard;
use crate::requests::request_table::{Ending, OpenRequest, Payload};

/// A request that is taken in.
struct PipelineAdmission {
    request: AcceptedRequest,
    cluster: Arc<Cluster>,
    pipeline: Arc<LivePipeline>,
    plan: Arc<RunPlan>,
    client: ClientInputs,
    quick: bool,
}

impl Inner {
    /// Runs a request for a pipeline to its outcome. Dropping the future withdraws what its stages have of it.
    pub(crate) async fn infer_by_stages(self: &Arc<Self>, request: InferRequest) -> Result<InferAnswer, InferError> {
        let PipelineAdmission { request, cluster, pipeline, plan, client, quick } = self.admit_pipeline(request)?;
        let mut guard = RequestGuard::accept(self, &request);
        // Its place in the table: an id, a request in flight, and what a drain waits for. No leader hears of it.
        let (id, sequence) = cluster.submit(in_table(&request));
        request.receipt.accepted(id);
        guard.here = Some((cluster, sequence));
        let ended = Host::new(self, pipeline, plan, &request, client, quick).run().await;
        match ended {
            Ended::Answered { payload, execution, pipeline_answer } => {
                let execution_ns = execution.get();
                let (batch, run, at) = (request.items, BatchRun::default(), Instant::now());
                let end = Ending::Answer { payload, batch, execution_ns, at, run, backend: None };
                guard
                    .end(AttemptEnd::Settled(end))
                    .map(|answer| InferAnswer { pipeline: Some(pipeline_answer), ..answer })
            }
            Ended::Lost { end, of_stage } => guard.end(end).map_err(|error| of_stage.unwrap_or(error)),
        }
    }

    /// Takes a request in, or says why it is refused, which is counted.
    fn admit_pipeline(&self, request: InferRequest) -> Result<PipelineAdmission, InferError> {
        let InferRequest { model, items, payload, pictures, deadline: requested, receipt, context, weight } = request;
        let arrived = requested.arrived;
        let refused = |error: InferError| {
            self.refused_call(&RefusedCall { model: Some(&model), context: &context, arrived, error: &error });
            error
        };
        if self.is_draining() {
            return Err(refused(InferError::Failed(FailReason::Draining)));
        }
        let found = self.pipeline(&model.loaded_as);
        let found = found.filter(|(_, pipeline)| pipeline.info.reads_and_answers_as(&model));
        let Some((cluster, pipeline)) = found else {
            let name = &model.loaded_as;
            return Err(refused(InferError::UnknownModel(format!("pipeline `{name}` is not loaded any more"))));
        };
        let admitted = self.time_for_stages(&requested, cluster, &pipeline).and_then(|(allowed, plan)| {
            let gpu_time = pipeline.gpu_time_per_item.saturating_mul(items.into());
            context.caller.charge(self.tenants.as_deref(), items, gpu_time)?;
            Ok((allowed, plan))
        });
        let (allowed, plan) = admitted.map_err(refused)?;
        let (encoded, quick) = pictures.map_or_else(Default::default, |pictures| (pictures.encoded, pictures.quick));
        let client = ClientInputs::new(&pipeline, items, payload, encoded);
        let span = self.records.span(context.trace);
        if let Some(span) = &span {
            receipt.traced(span.context);
        }
        let deadline = arrived + Duration::from(allowed);
        let (admitted, kind) = (Instant::now(), RequestKind::Pipeline(StageLog::default()));
        let weight = weight.times(pipeline.declaration.value);
        let request =
            AcceptedRequest { model, items, arrived, deadline, weight, receipt, context, admitted, span, kind };
        Ok(PipelineAdmission { request, cluster: Arc::clone(cluster), pipeline, plan, client, quick })
    }

    /// The time that a request has, if all stages take requests and the longest path can be gone in it.
    fn time_for_stages(
        &self,
        requested: &RequestedDeadline,
        cluster: &Arc<Cluster>,
        pipeline: &LivePipeline,
    ) -> Result<(Nanos, Arc<RunPlan>), InferError> {
        // Nothing new in a cluster that drains the frontend, or that would never end.
        if cluster.is_cordoned() {
            return Err(InferError::Failed(FailReason::Draining));
        }
        // These tell of the version, and canaries are judged by them; other refusals tell of the client or its quota.
        let of_version = |error: InferError| {
            self.pipeline_counters.request_refused(pipeline);
            error
        };
        if let Some(error) = self.pipeline_unready(pipeline) {
            return Err(of_version(error));
        }
        let unready = || of_version(InferError::Failed(FailReason::ModelNotReady));
        let plan = pipeline.plan.clone().ok_or_else(unready)?;
        let allowed = time_asked(requested, pipeline.info.slo)?;
        let left = allowed - Nanos::from(requested.arrived.elapsed());
        let least = plan.least();
        if left < least {
            return Err(of_version(InferError::TooLittleForStages { allowed: left, least }));
        }
        Ok((allowed, plan))
    }
}

/// A request without an input, of no model and withheld for ever.
fn in_table(request: &AcceptedRequest) -> OpenRequest {
    OpenRequest {
        model: ModelId::new(0),
        subcluster: SubclusterId::new(0),
        items: request.items,
        weight: request.weight,
        payload: Payload::Here(Bytes::new()),
        deadline: request.deadline,
        withheld: true,
        announced: Token::default(),
        attempt: 0,
        panics: 0,
        shared: None,
        // Nothing withdraws it but its own end.
        read: true,
        is_stage: false,
        hop: None,
        waiter: oneshot::channel().0,
    }
}
