//! Gives an accepted request its one outcome, also if its caller goes away.

use std::sync::Arc;

use symphony_protocol::dispatch::EndReason;
use symphony_types::{FailReason, Nanos, Outcome, SubclusterId};

use super::admission::AcceptedRequest;
use super::attempt::AttemptEnd;
use super::request_table::Ending;
use crate::accounts::statistics::Observed;
use crate::clusters::cluster::Cluster;
use crate::frontend::Inner;
use crate::oip::{InferAnswer, InferError, Timeliness};

/// An accepted request: gets its outcome from [`RequestGuard::end`], or is cancelled when this is dropped.
pub(super) struct RequestGuard<'a> {
    pub(super) inner: &'a Arc<Inner>,
    pub(super) request: &'a AcceptedRequest,
    /// Which cluster has it, under which number.
    pub(super) here: Option<(Arc<Cluster>, u64)>,
    ended: bool,
}

impl<'a> RequestGuard<'a> {
    /// Counts the request as accepted.
    pub(super) fn accept(inner: &'a Arc<Inner>, request: &'a AcceptedRequest) -> Self {
        inner.ledger.accept();
        Self { inner, request, here: None, ended: false }
    }

    /// Counts the outcome that follows from how the last attempt ended, and makes the answer.
    pub(super) fn end(mut self, end: AttemptEnd) -> Result<InferAnswer, InferError> {
        self.ended = true;
        // Whatever ended it, nothing else may end it from now on.
        let was_with = self.withdraw();
        let (outcome, ran, result) = match end {
            AttemptEnd::Ended(Ending::Answer { payload, batch, execution_ns, at }) => {
                let execution = Nanos::new(execution_ns);
                let (outcome, timeliness) = match at <= self.request.deadline {
                    true => (Outcome::InTime, Timeliness::InTime),
                    false => (Outcome::Late, Timeliness::Late),
                };
                (outcome, Some((batch, execution)), Ok(InferAnswer { payload, batch, execution, timeliness }))
            }
            AttemptEnd::Ended(Ending::Ended(EndReason::Dropped(reason))) => {
                (Outcome::Dropped(reason), None, Err(InferError::Dropped(reason)))
            }
            AttemptEnd::Ended(Ending::Ended(EndReason::Failed(reason))) => failed(reason),
            AttemptEnd::Ended(Ending::NotHere) => failed(FailReason::ModelNotReady),
            // More time would not have helped.
            AttemptEnd::Unanswered if was_with.is_some_and(|(cluster, of)| cluster.is_suspended(of)) => {
                failed(FailReason::ControlPlaneLost)
            }
            AttemptEnd::Unanswered => failed(FailReason::NoAnswer),
            // As if its client had gone; the client hears why.
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

    fn settle(&self, outcome: Outcome, ran: Option<(u32, Nanos)>) {
        let AcceptedRequest { model, items, arrived, .. } = self.request;
        self.inner.ledger.end(outcome);
        let observed = Observed { outcome, items: *items, elapsed: arrived.elapsed(), ran };
        self.inner.statistics.observe(&model.loaded_as, observed);
    }
}

type Ended = (Outcome, Option<(u32, Nanos)>, Result<InferAnswer, InferError>);

fn failed(reason: FailReason) -> Ended {
    (Outcome::Failed(reason), None, Err(InferError::Failed(reason)))
}

impl Drop for RequestGuard<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.withdraw();
            self.settle(Outcome::Cancelled, None);
        }
    }
}
