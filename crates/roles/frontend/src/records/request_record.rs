//! What is known of a request at its outcome.

use std::time::{Duration, Instant, SystemTime};

use symphony_protocol::data::BatchRun;
use symphony_types::{BackendId, Nanos, RequestId};

use super::RequestSpan;
use crate::oip::RequestContext;

/// What a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordKind<'a> {
    /// A client's, for a model.
    Model,
    /// A client's, for a pipeline.
    Pipeline,
    /// A pipeline's, for this stage: no request of its own, so it has a span and no line.
    Stage(&'a str),
}

/// A request at its outcome, or one that was refused.
#[derive(Clone, Debug)]
pub(crate) struct RequestRecord<'a> {
    pub(crate) kind: RecordKind<'a>,
    /// Under which name it was accepted; none if it was not.
    pub(crate) request: Option<RequestId>,
    pub(crate) context: &'a RequestContext,
    /// Its name in the cluster; empty if that is not known.
    pub(crate) model: &'a str,
    pub(crate) items: u32,
    /// `in_time`, `late`, `dropped`, `failed`, `cancelled` or `refused`.
    pub(crate) outcome: &'static str,
    /// Why it was dropped, failed or refused; else empty.
    pub(crate) reason: &'static str,
    pub(crate) arrived: Instant,
    /// When it had been read, checked and taken in.
    pub(crate) admitted: Instant,
    pub(crate) ended: Instant,
    /// The wall clock at that moment.
    pub(crate) ended_at: SystemTime,
    /// Names of the cluster and the sub-cluster that had it last; empty if none had.
    pub(crate) cluster: String,
    pub(crate) subcluster: String,
    /// Its batch, if it was answered.
    pub(crate) ran: Option<Ran>,
    /// Name of the backend that ran it.
    pub(crate) backend: String,
    pub(crate) span: Option<RequestSpan>,
}

/// The batch that a request ran in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ran {
    /// Items of the whole batch.
    pub(crate) batch: u32,
    pub(crate) execution: Nanos,
    pub(crate) run: BatchRun,
    /// The backend; none if results did not come over a link.
    pub(crate) backend: Option<BackendId>,
    /// When the result came.
    pub(crate) at: Instant,
}

impl RequestRecord<'_> {
    /// From arrival to outcome.
    pub(crate) fn latency(&self) -> Duration {
        self.ended.saturating_duration_since(self.arrived)
    }

    /// The wall clock at a moment before the outcome.
    pub(crate) fn wall(&self, moment: Instant) -> SystemTime {
        let before = self.ended.saturating_duration_since(moment);
        self.ended_at.checked_sub(before).unwrap_or(self.ended_at)
    }
}

impl Ran {
    /// The moment `us` before the result came.
    pub(crate) fn before(&self, us: u32) -> Instant {
        self.at.checked_sub(Duration::from_micros(us.into())).unwrap_or(self.at)
    }
}
