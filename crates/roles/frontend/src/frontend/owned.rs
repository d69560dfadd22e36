//! A request from its acceptance to its one outcome.

use std::sync::Arc;
use std::time::Instant;

use symphony_protocol::dispatch::EndReason;
use symphony_types::{FailReason, Nanos, Outcome, SubclusterId};

use super::Inner;
use crate::cluster::Cluster;
use crate::oip::{InferAnswer, InferError, Timeliness};
use crate::request_table::Ending;
use crate::statistics::Observed;

/// A request in the hands of its caller: gets its outcome from [`Owned::end`], or is cancelled when the caller goes.
pub(super) struct Owned<'a> {
    pub(super) inner: &'a Arc<Inner>,
    /// Which cluster has it, under which number.
    pub(super) here: Option<(Arc<Cluster>, u64)>,
    pub(super) name: &'a str,
    pub(super) arrived: Instant,
    pub(super) items: u32,
    pub(super) ended: bool,
}

impl Owned<'_> {
    pub(super) fn end(&mut self, ending: Option<Ending>, deadline: Instant) -> Result<InferAnswer, InferError> {
        self.ended = true;
        // Whatever ended it, nobody else may end it from now on.
        let was_with = self.withdraw();
        let (outcome, ran, result) = match ending {
            Some(Ending::Answer { payload, batch, execution_ns, at }) => {
                let execution = Nanos::new(execution_ns);
                let timeliness = if at <= deadline { Timeliness::InTime } else { Timeliness::Late };
                let outcome = if at <= deadline { Outcome::InTime } else { Outcome::Late };
                (outcome, Some((batch, execution)), Ok(InferAnswer { payload, batch, execution, timeliness }))
            }
            Some(Ending::Ended(EndReason::Dropped(reason))) => {
                (Outcome::Dropped(reason), None, Err(InferError::Dropped(reason)))
            }
            Some(Ending::Ended(EndReason::Failed(reason))) => failed(reason),
            Some(Ending::NotHere) => failed(FailReason::ModelNotReady),
            // More time would not have helped.
            None if was_with.is_some_and(|(cluster, subcluster)| cluster.is_suspended(subcluster)) => {
                failed(FailReason::ControlPlaneLost)
            }
            None => failed(FailReason::NoAnswer),
        };
        self.settle(outcome, ran);
        result
    }

    /// Its input cannot be made: it is taken back from whoever has it, as if its client had gone, and the client hears why.
    pub(super) fn withdrawn(&mut self, error: InferError) -> Result<InferAnswer, InferError> {
        self.ended = true;
        self.withdraw();
        self.settle(Outcome::Cancelled, None);
        Err(error)
    }

    /// Takes the request out of the table, and back from the leader that has it. Where that was.
    fn withdraw(&self) -> Option<(&Arc<Cluster>, SubclusterId)> {
        let (cluster, sequence) = self.here.as_ref()?;
        Some((cluster, cluster.withdraw(*sequence)?))
    }

    fn settle(&self, outcome: Outcome, ran: Option<(u32, Nanos)>) {
        self.inner.ledger.end(outcome);
        let observed = Observed { outcome, items: self.items, elapsed: self.arrived.elapsed(), ran };
        self.inner.statistics.observe(self.name, observed);
    }
}

type Ended = (Outcome, Option<(u32, Nanos)>, Result<InferAnswer, InferError>);

fn failed(reason: FailReason) -> Ended {
    (Outcome::Failed(reason), None, Err(InferError::Failed(reason)))
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.withdraw();
            self.settle(Outcome::Cancelled, None);
        }
    }
}
