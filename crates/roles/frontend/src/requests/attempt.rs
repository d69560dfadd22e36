//! One attempt: a request in one cluster, from its submission there to its end there.

use std::sync::Arc;

use symphony_protocol::dispatch::EndReason;
use symphony_types::{DropReason, FailReason, Token};
use tokio::sync::oneshot;

use super::accepted_request::{AcceptedRequest, RequestKind};
use super::attempt_end::AttemptEnd;
use super::cluster_selection::Target;
use super::input::Input;
use super::request_guard::RequestGuard;
use super::request_table::{Ending, OpenRequest};
use crate::inner::Inner;

/// A request that a cluster has.
pub(super) struct Attempt<'a> {
    pub(super) inner: &'a Inner,
    pub(super) request: &'a AcceptedRequest,
    pub(super) target: &'a Target,
    /// The slots of the clusters in which it was before.
    pub(super) tried: &'a [usize],
    /// Its number in the cluster's table.
    pub(super) sequence: u64,
    /// No leader knows of it yet.
    pub(super) withheld: bool,
    ending: oneshot::Receiver<Ending>,
}

impl<'a> Attempt<'a> {
    pub(super) fn submit<'g: 'a>(
        guard: &mut RequestGuard<'g>,
        target: &'a Target,
        input: &Input,
        tried: &'a [usize],
    ) -> Self {
        let (inner, request) = (guard.inner, guard.request);
        let (waiter, ending) = oneshot::channel();
        let withheld = input.is_withheld();
        let (is_stage, hop) = match &request.kind {
            RequestKind::Stage(part) => (true, part.hop.clone().filter(|_| tried.is_empty())),
            RequestKind::Model | RequestKind::Pipeline(_) => (false, None),
        };
        let (id, sequence) = target.cluster.submit(OpenRequest {
            model: target.route.model,
            subcluster: target.route.subcluster,
            items: request.items,
            weight: request.weight,
            payload: input.payload(),
            deadline: request.deadline,
            withheld,
            announced: Token::default(),
            attempt: 0,
            panics: 0,
            shared: None,
            read: false,
            is_stage,
            hop,
            waiter,
        });
        request.receipt.accepted(id);
        guard.subcluster = Some(target.route.subcluster);
        guard.here = Some((Arc::clone(&target.cluster), sequence));
        Self { inner, request, target, tried, sequence, withheld, ending }
    }

    /// Waits until the cluster ends it, it is too late, or this frontend stops. May be given up and asked again before.
    pub(super) async fn end(&mut self) -> AttemptEnd {
        let deadline = self.request.deadline;
        let end_by = if self.withheld { deadline } else { deadline + self.inner.grace };
        tokio::select! {
            ending = &mut self.ending => ending.map_or(AttemptEnd::Unanswered, AttemptEnd::Settled),
            () = tokio::time::sleep_until(end_by.into()) => match self.withheld {
                true => AttemptEnd::Settled(Ending::NoResult(EndReason::Dropped(DropReason::QueueExpired))),
                false => AttemptEnd::Unanswered,
            },
            () = self.inner.ended.cancelled() => AttemptEnd::failed(FailReason::Draining),
        }
    }
}
