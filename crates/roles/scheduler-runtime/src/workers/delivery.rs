//! What reaches a worker and leaves it, under any policy: what frontends announce, plans until backends report their
//! ends, outcomes to frontends, and what a take-over leaves behind.
//!
//! A worker owns a [`Delivery`] and is a [`Host`]: it says what happens to a request; everything else is here.

mod frames;
mod frontends;
mod plans;
mod recovery;

use std::collections::HashMap;
use std::sync::Arc;

use crossbeam::queue::ArrayQueue;
use symphony_controllers::Run;
use symphony_explain::BatchEnd;
use symphony_protocol::execute::Execute;
use symphony_scheduler::Request;
use symphony_types::{BootId, FailReason, FrontendId, ModelId, Nanos, RequestId, Time};

use crate::records::recorder_queue::RecorderQueue;
use crate::threads::inbox::Inbox;
use crate::workers::id_map::IdMap;
use crate::workers::messages::{GpuRoute, ModelMessage, PlanId, SealNumber};
use crate::workers::sent_plans::{SentPlan, SentPlans};
use crate::workers::worker_metrics::WorkerMetrics;
pub(crate) use frames::Returning;
use frames::{CancelFrame, FrameInProgress, RequestFrame};
use frontends::FrontendPeer;
pub(crate) use frontends::end_reason;
pub(crate) use plans::Placed;
pub(crate) use recovery::REDRIVE_WAIT;
use recovery::Recovery;

/// Whether a request is new to the decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EnqueueKind {
    /// For the first time.
    New,
    /// This lead or its predecessor admitted it before.
    Returned,
    /// The same, and more of its model follow at once.
    ReturnedWithNext,
}

/// A worker that decides about requests: what it does with what is delivered to it.
pub(crate) trait Host {
    /// What delivers for it.
    fn delivery(&mut self) -> &mut Delivery;

    /// A request waits from now on, unless its model is not served here.
    fn enqueue(&mut self, now: Time, model: ModelId, request: Request, kind: EnqueueKind);

    /// These requests of a model need no answer any longer. Most may be unknown.
    fn cancel(&mut self, now: Time, model: ModelId, ids: &mut dyn ExactSizeIterator<Item = RequestId>);

    /// None of the requests of a frontend's boot waits any longer; it announces again what it still wants.
    fn withdraw(&mut self, now: Time, frontend: FrontendId, boot: BootId);

    /// A plan has ended.
    fn plan_done(
        &mut self,
        now: Time,
        plan: PlanId,
        sent: SentPlan,
        measured: (Nanos, Nanos),
        failed: &[(RequestId, FailReason)],
    );

    /// A plan will not run; its requests come back next.
    fn plan_refused(&mut self, now: Time, plan: PlanId, sent: &SentPlan);

    /// A GPU is lost; what was sent to it comes back next.
    fn gpu_lost(&mut self, now: Time, gpu: u32, seal: SealNumber);
}

/// What a worker has to deliver, and its receivers.
pub(crate) struct Delivery {
    inbox: Arc<Inbox<ModelMessage>>,
    /// All linked backends are cordoned or draining.
    all_drained: bool,
    /// The frame in progress. Messages behind it wait, since they may concern its requests.
    frame_in_progress: Option<FrameInProgress>,
    frontends: IdMap<FrontendId, FrontendPeer>,
    /// Whether outcomes wait to be sent to frontends.
    ended: bool,
    /// By ordinal of the GPU.
    routes: Vec<Option<GpuRoute>>,
    /// Plans of this turn: place, start, and message to the backend.
    outgoing: Vec<(PlanId, Time, Execute)>,
    sent: SentPlans,
    /// The queue of ended batches for the learner.
    pub(crate) runs: Option<Arc<ArrayQueue<Run>>>,
    pub(crate) log: RecorderQueue,
    recovery: Option<Recovery>,
    /// Requests that a backend had when it was sealed. They run again only if that backend is lost.
    known_by_backend: HashMap<RequestId, SealNumber>,
    /// Requests among them that were announced again, and so are still wanted; by the seal of their backend.
    redriven_awaited: HashMap<SealNumber, Vec<(ModelId, Request)>>,
    metrics: Arc<WorkerMetrics>,
}

impl Delivery {
    /// Redriven requests wait until `recover_by` at the latest.
    pub(crate) fn new(
        inbox: Arc<Inbox<ModelMessage>>,
        metrics: Arc<WorkerMetrics>,
        log: RecorderQueue,
        recover_by: Time,
    ) -> Self {
        Self {
            inbox,
            all_drained: false,
            frame_in_progress: None,
            frontends: IdMap::default(),
            ended: false,
            routes: Vec::new(),
            outgoing: Vec::new(),
            sent: SentPlans::default(),
            runs: None,
            log,
            recovery: Some(Recovery { until: recover_by, waiting: Vec::new() }),
            known_by_backend: HashMap::new(),
            redriven_awaited: HashMap::new(),
            metrics,
        }
    }

    /// Redriven requests wait until then at the latest.
    pub(crate) fn recover_by(&mut self, until: Time) {
        self.recovery = Some(Recovery { until, waiting: Vec::new() });
    }

    /// When redriven requests are released if nothing releases them before.
    pub(crate) fn recovers_at(&self) -> Time {
        self.recovery.as_ref().map_or(Time::NEVER, |recovery| recovery.until)
    }

    /// The next message, unless a frame is in progress.
    pub(crate) fn next_message(&mut self) -> Option<ModelMessage> {
        self.inbox.pop()
    }

    pub(crate) fn has_frame(&self) -> bool {
        self.frame_in_progress.is_some()
    }

    pub(crate) fn has_plans_to_send(&self) -> bool {
        !self.outgoing.is_empty()
    }

    fn set_route(&mut self, gpu: u32, route: GpuRoute) {
        let slot = gpu as usize;
        if slot >= self.routes.len() {
            self.routes.resize(slot + 1, None);
        }
        self.routes[slot] = Some(route);
    }

    /// Whether plans reach the GPU under this seal.
    pub(crate) fn has_route(&self, gpu: u32, seal: SealNumber) -> bool {
        self.routes.get(gpu as usize).and_then(Option::as_ref).is_some_and(|route| route.seal == seal)
    }

    /// Whether the lead has any GPU that can be expected to run something: linked, accepting work, and not silent.
    pub(crate) fn is_served(&self, now: Time) -> bool {
        if self.all_drained {
            return false;
        }
        let mut linked = (0..).zip(&self.routes).filter_map(|(gpu, route)| Some((gpu, route.as_ref()?.seal)));
        linked.any(|(gpu, seal)| !self.sent.is_silent(now, gpu, seal))
    }
}

/// Handles a message that is not about decisions; returns it if it is.
pub(crate) fn receive(host: &mut impl Host, now: Time, message: ModelMessage) -> Option<ModelMessage> {
    match message {
        ModelMessage::AllDrained(all) => host.delivery().all_drained = all,
        ModelMessage::Route { gpu, route } => host.delivery().set_route(gpu, route),
        ModelMessage::Unroute { gpu, seal } => unroute(host, now, gpu, seal),
        ModelMessage::Frontend { peer, sender } => {
            if let Some((frontend, boot)) = host.delivery().link(peer, sender) {
                withdraw(host, now, frontend, boot);
            }
        }
        ModelMessage::FrontendGone { peer } => {
            if host.delivery().unlink(peer) {
                withdraw(host, now, peer.frontend, peer.boot);
            }
        }
        ModelMessage::Announce { peer, received, requests, redriven } => {
            let delivery = host.delivery();
            // Requests from a former link were, or will be, announced again on the new one.
            if delivery.is_linked(peer) {
                let requests = requests.into_iter();
                delivery.frame_in_progress =
                    Some(FrameInProgress::Requests(RequestFrame { peer, received, requests, redriven }));
            }
        }
        ModelMessage::Cancel { frontend, boot, requests } => {
            host.delivery().frame_in_progress =
                Some(FrameInProgress::Cancels(CancelFrame { frontend, boot, requests: requests.into_iter() }));
        }
        ModelMessage::Done { plan, start_late, latency, failed } => {
            if let Some(sent) = host.delivery().sent.take(plan) {
                host.plan_done(now, plan, sent, (start_late, latency), &failed);
            }
        }
        ModelMessage::Refused { plan } => {
            if let Some(sent) = host.delivery().sent.take(plan) {
                host.delivery().record_end(&sent, BatchEnd::Refused);
                host.plan_refused(now, plan, &sent);
                recovery::requeue(host, now, sent);
            }
        }
        ModelMessage::Known { seal, requests } => {
            host.delivery().known_by_backend.extend(requests.iter().map(|&id| (id, seal)));
        }
        ModelMessage::AllSealed => recover(host, now),
        #[cfg(test)]
        ModelMessage::Hang(until) => {
            let _ = until.recv();
        }
        #[cfg(test)]
        // Without a panic message: in an unoptimised program, printing one can take longer than repeated
        // failures are remembered.
        ModelMessage::Panic => std::panic::resume_unwind(Box::new("planted")),
        of_decisions => return Some(of_decisions),
    }
    None
}

/// The GPU is lost under this seal: what was sent to it, or was awaited from it, waits again.
fn unroute(host: &mut impl Host, now: Time, gpu: u32, seal: SealNumber) {
    if let Some(route) = host.delivery().routes.get_mut(gpu as usize) {
        route.take_if(|route| route.seal == seal);
    }
    host.gpu_lost(now, gpu, seal);
    give_back(host, now, gpu, seal);
    let delivery = host.delivery();
    delivery.known_by_backend.retain(|_, by| *by != seal);
    for (model, request) in delivery.redriven_awaited.remove(&seal).unwrap_or_default() {
        recovery::requeue_request(host, now, model, request);
    }
}

/// What was sent to a GPU under this seal waits again.
pub(crate) fn give_back(host: &mut impl Host, now: Time, gpu: u32, seal: SealNumber) {
    while let Some(plan) = host.delivery().sent.take_oldest(gpu, seal) {
        host.delivery().record_end(&plan, BatchEnd::Lost);
        recovery::requeue(host, now, plan);
    }
}

fn withdraw(host: &mut impl Host, now: Time, frontend: FrontendId, boot: BootId) {
    host.delivery().drop_waiting(|id| id.frontend == frontend && id.boot == boot);
    host.withdraw(now, frontend, boot);
}

/// Releases the redriven requests that wait: those that backends have are only waited for, the others wait for a batch.
pub(crate) fn recover(host: &mut impl Host, now: Time) {
    for (model, request) in host.delivery().release_redriven() {
        recovery::redrive(host, now, model, request);
    }
}

/// Handles up to `limit` requests or cancels of the frame in progress, and returns how many.
pub(crate) fn handle_frame(host: &mut impl Host, now: Time, limit: usize) -> usize {
    match host.delivery().frame_in_progress.take() {
        Some(FrameInProgress::Requests(arriving)) => frames::handle_requests(host, now, arriving, limit),
        Some(FrameInProgress::Cancels(leaving)) => frames::handle_cancels(host, now, leaving, limit),
        Some(FrameInProgress::Returns(returning)) => frames::handle_returns(host, now, returning, limit),
        None => 0,
    }
}
