//! Frames of requests and cancels, and the requests of a changed model, handled over several turns if necessary.

use symphony_protocol::dispatch::RequestHeader;
use symphony_scheduler::Request;
use symphony_types::{BootId, FrontendId, ModelId, Nanos, RequestId, RequestValue, Time};

use super::{Delivery, EnqueueKind, Host, recovery};
use crate::workers::counters::count;
use crate::workers::messages::Peer;

pub(super) enum FrameInProgress {
    Requests(RequestFrame),
    Cancels(CancelFrame),
    Returns(Returning),
}

pub(super) struct RequestFrame {
    pub(super) peer: Peer,
    pub(super) received: Time,
    pub(super) requests: std::vec::IntoIter<RequestHeader>,
    pub(super) redriven: bool,
}

/// A frame of requests whose clients have gone, with their models.
pub(super) struct CancelFrame {
    pub(super) frontend: FrontendId,
    pub(super) boot: BootId,
    pub(super) requests: std::vec::IntoIter<(u64, u32)>,
}

/// What waited in former queues, with the models that they are of, queue by queue.
pub(crate) struct Returning {
    pub(crate) requests: std::vec::IntoIter<(ModelId, Request, EnqueueKind)>,
}

impl Delivery {
    /// These requests come back before anything that may concern them is handled.
    pub(crate) fn bring_back(&mut self, returning: Returning) {
        self.frame_in_progress = Some(FrameInProgress::Returns(returning));
    }
}

pub(super) fn handle_returns(host: &mut impl Host, now: Time, mut returning: Returning, limit: usize) -> usize {
    let mut taken = 0;
    while taken < limit
        && let Some((model, request, kind)) = returning.requests.next()
    {
        host.enqueue(now, model, request, kind);
        taken += 1;
    }
    if returning.requests.len() > 0 {
        host.delivery().frame_in_progress = Some(FrameInProgress::Returns(returning));
    }
    taken
}

pub(super) fn handle_requests(host: &mut impl Host, now: Time, mut arriving: RequestFrame, limit: usize) -> usize {
    let RequestFrame { peer, received, redriven, .. } = arriving;
    let mut taken = 0;
    for header in arriving.requests.by_ref().take(limit) {
        arrive(host, now, peer, received, header, redriven);
        taken += 1;
    }
    let delivery = host.delivery();
    count(&delivery.metrics.counters.requests, taken as u64);
    if arriving.requests.len() > 0 {
        delivery.frame_in_progress = Some(FrameInProgress::Requests(arriving));
    }
    taken
}

/// Each model's queue is walked once for all of its cancels, and makes one candidate.
pub(super) fn handle_cancels(host: &mut impl Host, now: Time, mut leaving: CancelFrame, limit: usize) -> usize {
    let CancelFrame { frontend, boot, .. } = leaving;
    let mut gone: Vec<(u64, u32)> = leaving.requests.by_ref().take(limit).collect();
    if leaving.requests.len() > 0 {
        host.delivery().frame_in_progress = Some(FrameInProgress::Cancels(leaving));
    }
    gone.sort_unstable();
    host.delivery().drop_waiting(|id| {
        let at = gone.partition_point(|&(sequence, _)| sequence < id.sequence);
        (id.frontend, id.boot) == (frontend, boot) && gone.get(at).is_some_and(|&(found, _)| found == id.sequence)
    });
    gone.sort_by_key(|&(_, model)| model);
    for of_model in gone.chunk_by(|(_, one), (_, other)| one == other) {
        let mut ids = of_model.iter().map(|&(sequence, _)| RequestId { frontend, boot, sequence });
        host.cancel(now, ModelId::new(of_model[0].1), &mut ids);
    }
    gone.len()
}

#[inline]
fn arrive(host: &mut impl Host, now: Time, peer: Peer, received: Time, header: RequestHeader, redriven: bool) {
    let Peer { frontend, boot, .. } = peer;
    let id = RequestId { frontend, boot, sequence: header.sequence };
    // None is what a frontend never sends.
    let weight = RequestValue::from_thousandths(header.weight).unwrap_or_default();
    let request = Request {
        id,
        deadline: received + Nanos::new(header.budget),
        items: header.items,
        weight,
        variant: header.model,
    };
    let model = ModelId::new(header.model);
    // A redriven frame also contains requests that were never announced, because there was no leader.
    if !redriven || header.attempt <= 1 {
        return host.enqueue(now, model, request, EnqueueKind::New);
    }
    let delivery = host.delivery();
    count(&delivery.metrics.counters.redriven_requests, 1);
    match &mut delivery.recovery {
        Some(recovery) => recovery.waiting.push((model, request)),
        None => recovery::redrive(host, now, model, request),
    }
}
