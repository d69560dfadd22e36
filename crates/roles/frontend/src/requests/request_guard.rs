//! Gives an accepted request its one outcome, also if its caller goes away.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime};

use symphony_protocol::dispatch::EndReason;
use symphony_protocol::view::View;
use symphony_telemetry::history::RequestEnd;
use symphony_types::{FailReason, Nanos, Outcome, SubclusterId};

use super::accepted_request::{AcceptedRequest, RequestKind};
use super::attempt_end::AttemptEnd;
use super::request_table::Ending;
use crate::clusters::cluster::Cluster;
use crate::inner::Inner;
use crate::oip::{InferAnswer, InferError, Timeliness};
use crate::records::pipeline_memory::PipelineEnd;
use crate::records::{Ran, RequestRecord};

/// An accepted request: gets its outcome from [`RequestGuard::end`], or when this is dropped: its client has gone, or
/// got the answer that its deadline has passed.
pub(super) struct RequestGuard<'a> {
    pub(super) inner: &'a Arc<Inner>,
    pub(super) request: &'a AcceptedRequest,
    /// Which cluster has it, under which number.
    pub(super) here: Option<(Arc<Cluster>, u64)>,
    /// The sub-cluster that had it last.
    pub(super) subcluster: Option<SubclusterId>,
    ended: bool,
}

impl<'a> RequestGuard<'a> {
    /// Counts the request as accepted; a stage request as open, since what it is part of was accepted.
    pub(super) fn accept(inner: &'a Arc<Inner>, request: &'a AcceptedRequest) -> Self {
        match &request.kind {
            RequestKind::Stage(part) => {
                part.open.fetch_add(1, Ordering::Relaxed);
            }
            RequestKind::Model | RequestKind::Pipeline(_) => inner.ledger.accept(),
        }
        Self { inner, request, here: None, subcluster: None, ended: false }
    }

    /// Counts the outcome that follows from how the last attempt ended, and makes the answer.
    pub(super) fn end(mut self, end: AttemptEnd) -> Result<InferAnswer, InferError> {
        self.ended = true;
        // Whatever ended it, nothing else may end it from now on.
        let was_with = self.withdraw();
        let (outcome, ran, result) = match end {
            AttemptEnd::Settled(Ending::Answer { payload, batch, execution_ns, at, run, backend }) => {
                let execution = Nanos::new(execution_ns);
                let (outcome, timeliness) = match at <= self.request.deadline {
                    true => (Outcome::InTime, Timeliness::InTime),
                    false => (Outcome::Late, Timeliness::Late),
                };
                (
                    outcome,
                    Some(Ran { batch, execution, run, backend, at }),
                    Ok(InferAnswer { payload, batch, execution, timeliness, pipeline: None }),
                )
            }
            AttemptEnd::Settled(Ending::NoResult(EndReason::Dropped(reason))) => {
                (Outcome::Dropped(reason), None, Err(InferError::Dropped(reason)))
            }
            AttemptEnd::Settled(Ending::NoResult(EndReason::Failed(reason))) => failed(reason),
            AttemptEnd::Settled(Ending::NotHere) => failed(FailReason::ModelNotReady),
            // More time would not have helped.
            AttemptEnd::Unanswered if was_with.is_some_and(|(cluster, of)| cluster.is_suspended(of)) => {
                failed(FailReason::ControlPlaneLost)
            }
            AttemptEnd::Unanswered => failed(FailReason::NoAnswer),
            // As if its client had gone; the client gets the reason.
            AttemptEnd::BadInput(error) => (Outcome::Cancelled, None, Err(error)),
        };
        self.settle(outcome, ran);
        result
    }

    /// Takes the request out of the table, and back from the leader that has it. Where that was.
    fn withdraw(&self) -> Option<(&Arc<Cluster>, SubclusterId)> {
        let (cluster, sequence) = self.here.as_ref()?;
        Some((cluster, cluster.withdraw(*sequence)?))
    }

    fn settle(&self, outcome: Outcome, ran: Option<Ran>) {
        let AcceptedRequest { model, items, arrived, receipt, kind, .. } = self.request;
        let (ended, run) = (Instant::now(), ran.map(|ran| (ran.batch, ran.execution)));
        let elapsed = ended.saturating_duration_since(*arrived);
        let end = RequestEnd { request: receipt.id(), outcome, items: *items, elapsed, ran: run };
        if let RequestKind::Stage(part) = kind {
            part.open.fetch_sub(1, Ordering::Relaxed);
            self.inner.statistics.observe_stage(&model.loaded_as, end);
            if self.request.span.is_some() {
                self.record(outcome, ended, ran);
            }
            return;
        }
        self.inner.ledger.end(outcome);
        self.inner.statistics.observe(&model.loaded_as, end);
        if matches!(kind, RequestKind::Pipeline(_)) {
            self.inner.pipeline_counters.request_ended(&model.loaded_as, outcome);
        }
        if let (RequestKind::Pipeline(log), Some(request)) = (kind, receipt.id()) {
            let end = PipelineEnd {
                request,
                pipeline: model.loaded_as.clone(),
                items: *items,
                outcome: outcome.label(),
                reason: reason_of(outcome),
                took: elapsed,
                allowed: self.request.deadline.saturating_duration_since(*arrived),
            };
            self.inner.pipeline_memory.remember(end, log);
        }
        if self.inner.records.wants(self.request.span) {
            self.record(outcome, ended, ran.filter(|_| matches!(kind, RequestKind::Model)));
        }
    }

    #[cold]
    fn record(&self, outcome: Outcome, ended: Instant, ran: Option<Ran>) {
        let request = self.request;
        let view = self.here.as_ref().map(|(cluster, _)| Arc::clone(&cluster.view.borrow()));
        let named = |view: &View| {
            let subcluster = self.subcluster.and_then(|id| Some(view.subclusters.get(&id)?.name.clone()));
            let backend = ran.and_then(|ran| Some(view.backends.get(&ran.backend?)?.name.clone()));
            (view.cluster.clone(), subcluster.unwrap_or_default(), backend.unwrap_or_default())
        };
        let (cluster, subcluster, backend) = view.as_deref().map(named).unwrap_or_default();
        self.inner.records.ended(&RequestRecord {
            kind: request.kind.recorded(),
            request: request.receipt.id(),
            context: &request.context,
            model: &request.model.loaded_as,
            items: request.items,
            outcome: outcome.label(),
            reason: reason_of(outcome),
            arrived: request.arrived,
            admitted: request.admitted,
            ended,
            ended_at: SystemTime::now(),
            cluster,
            subcluster,
            ran,
            backend,
            span: request.span,
        });
    }
}

const fn reason_of(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Dropped(reason) => reason.label(),
        Outcome::Failed(reason) => reason.label(),
        Outcome::InTime | Outcome::Late | Outcome::Cancelled => "",
    }
}

type Ended = (Outcome, Option<Ran>, Result<InferAnswer, InferError>);

fn failed(reason: FailReason) -> Ended {
    (Outcome::Failed(reason), None, Err(InferError::Failed(reason)))
}

impl Drop for RequestGuard<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.withdraw();
            // Over gRPC a call is dropped at its client's deadline: it was not cancelled, and there was no answer.
            let outcome = match Instant::now() >= self.request.deadline {
                true => Outcome::Failed(FailReason::NoAnswer),
                false => Outcome::Cancelled,
            };
            self.settle(outcome, None);
        }
    }
}
