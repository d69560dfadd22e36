//! The leader's side of the execute link to one backend: seal first, then plans out and reports in.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use symphony_net::{Expected, Net, Role};
use symphony_protocol::execute::{EndedPlan, FromBackend, HostedModel, Refusal, SealedGpu, ToBackend};
use symphony_scheduler::{Account, LatenessMeter};
use symphony_transport::{EchoTimes, LinkReceiver, LinkSender, Movement, SendError, connect_link};
use symphony_types::PayloadDelay;
use symphony_types::{BackendId, BootId, FailReason, GpuClass, GpuId, Nanos, RequestId, SubclusterId, Token};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::lead::prepared_handover::Dialled;
use crate::lead::stuck_links::{StuckLinks, TrackedLink};
use crate::threads::clock::Clock;
use crate::workers::corrections;
use crate::workers::counters::{add, count};
use crate::workers::load::GpuCounts;
use crate::workers::messages::{GpuRoute, ModelMessage, PlanId, RankMessage, SealNumber};
use crate::workers::subcluster_workers::Workers;

/// Pause between attempts to reach a backend.
const RECONNECT_AFTER: Duration = Duration::from_millis(20);
/// How long a backend may be unreachable after its link has ended before it is reported to the control group. A process
/// that was killed and restarted at once is back sooner; a longer wait would keep dead GPUs in the plan.
const REPORT_DOWN_AFTER: Duration = Duration::from_millis(500);
/// How long a backend may take to answer the hello and the seal.
const SEAL_TIMEOUT: Duration = Duration::from_millis(500);

/// How long the first echo answer may take: a lead may begin with a thousand links, while all processes are busy.
const FIRST_ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// A GPU of the backend, as the leader knows it.
#[derive(Clone, Debug)]
pub(crate) struct LinkedGpu {
    pub(crate) gpu: GpuId,
    pub(crate) class: GpuClass,
    pub(crate) token: Token,
    pub(crate) ordinal: u32,
    /// Its load counts.
    pub(crate) counts: Arc<GpuCounts>,
}

/// What a link reports to its lead.
#[derive(Debug)]
pub(crate) enum LinkEvent {
    /// The backend has promised our tokens.
    Sealed(BackendId),
    /// The backend has promised a higher token: another replica leads, or the backend belongs to another sub-cluster.
    Fenced(BackendId),
    /// The backend has measured how long inputs take to arrive.
    PayloadDelay(BackendId, BootId, PayloadDelay),
    /// The models that the backend runs through shared trunks.
    Hosts(BackendId, BootId, Vec<HostedModel>),
    /// The backend is unreachable.
    Down(BackendId, BootId),
}

/// One backend of a led sub-cluster.
pub(crate) struct BackendLink {
    pub(crate) clock: Clock,
    pub(crate) node: symphony_types::NodeId,
    pub(crate) node_boot: BootId,
    pub(crate) subcluster: SubclusterId,
    pub(crate) backend: BackendId,
    pub(crate) boot: BootId,
    pub(crate) net: Net,
    pub(crate) addr: String,
    pub(crate) name: String,
    pub(crate) gpus: Vec<LinkedGpu>,
    pub(crate) workers: Arc<Workers>,
    pub(crate) events: mpsc::UnboundedSender<LinkEvent>,
    /// The intended usage of its GPUs.
    pub(crate) usage: watch::Receiver<Usage>,
    /// A connection that was made before the lead began.
    pub(crate) dialled: Option<Dialled>,
    /// Where the link reports that it is stuck, and the clock of its echo requests.
    pub(crate) stuck_links: Arc<StuckLinks>,
    pub(crate) echo: EchoTimes,
}

/// How the GPUs of a sealed backend are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Usage {
    /// Not yet: the backend does not hold every served model.
    Hold,
    /// They run plans.
    Use,
    /// No longer: plans that were sent finish, and the backend learns that no more come.
    Retire,
}

/// How far a link has followed its usage.
enum Phase {
    /// Sealed and never used: when the seal was answered, the states of the GPUs, and whether the backend knows that
    /// no plan comes.
    Sealed(symphony_types::Time, Vec<SealedGpu>, bool),
    /// In use.
    Used,
    /// This many GPUs are still granted to a model.
    Retiring(usize),
    /// No longer in use, and the backend knows.
    Retired,
}

/// The GPUs in use over one connection. Dropping this takes them back, also when the link's task is aborted. Reported
/// by another task, the loss could arrive before the use.
struct InUse {
    workers: Arc<Workers>,
    gpus: Vec<LinkedGpu>,
    seal: SealNumber,
}

impl Drop for InUse {
    fn drop(&mut self) {
        let seal = self.seal;
        for gpu in &self.gpus {
            self.workers.rank.push(RankMessage::Lost { gpu: gpu.ordinal, seal });
            self.workers.send_to_all(|| ModelMessage::Unroute { gpu: gpu.ordinal, seal });
        }
    }
}

/// Why a link ended.
enum End {
    /// The connection failed, or the peer broke the protocol; try again.
    Lost(String),
    /// Another replica leads; never try again.
    Fenced,
}

impl BackendLink {
    /// Keeps the link up until the task is aborted or the leader is fenced.
    pub(crate) async fn run(mut self) {
        let stuck_links = Arc::clone(&self.stuck_links);
        let mut last_seen = Instant::now();
        // A link that ended because it was stuck counts as stuck until the backend has sealed again: the other links
        // of a lead that is cut off get stuck a little later, and only together are they enough.
        let mut counted_stuck = None;
        let expected = Expected::named(Role::Backend, &self.name);
        loop {
            let connected = match self.dialled.take() {
                Some(dialled) => Ok(dialled),
                None => {
                    // Delays inside this process do not count as the backend's silence.
                    let started = Instant::now();
                    let turn = self.net.dial_turn().await;
                    last_seen += started.elapsed();
                    turn.spend(connect_link::<ToBackend, FromBackend>(&self.net, &self.addr, &expected)).await
                }
            };
            let end = match connected {
                Ok((sender, receiver)) => {
                    self.serve(sender, receiver, &stuck_links, &mut counted_stuck, &mut last_seen).await
                }
                Err(error) => End::Lost(error.to_string()),
            };
            match end {
                End::Fenced => {
                    tracing::warn!(backend = %self.backend, subcluster = %self.subcluster, "fenced: another replica has it");
                    let _ = self.events.send(LinkEvent::Fenced(self.backend));
                    return;
                }
                End::Lost(reason) => tracing::debug!(backend = %self.backend, %reason, "execute link lost"),
            }
            if last_seen.elapsed() > REPORT_DOWN_AFTER {
                // The report may be lost if the control group is in trouble too, so it is repeated at this pace.
                last_seen = Instant::now();
                tracing::warn!(backend = %self.backend, "backend unreachable");
                let _ = self.events.send(LinkEvent::Down(self.backend, self.boot));
            }
            tokio::time::sleep(RECONNECT_AFTER).await;
        }
    }

    /// One connection, from its seal to its end.
    async fn serve<'a>(
        &mut self,
        sender: LinkSender<ToBackend>,
        mut receiver: LinkReceiver<FromBackend>,
        stuck_links: &'a StuckLinks,
        counted_stuck: &mut Option<TrackedLink<'a>>,
        last_seen: &mut Instant,
    ) -> End {
        let in_use = InUse { workers: Arc::clone(&self.workers), gpus: self.gpus.clone(), seal: self.workers.number() };
        let sealed = self.seal(&sender, &mut receiver, in_use.seal);
        let sealed = match tokio::time::timeout(SEAL_TIMEOUT, sealed).await {
            Ok(Ok(sealed)) => sealed,
            Ok(Err(end)) => return end,
            Err(_) => return End::Lost(format!("no seal within {} ms", SEAL_TIMEOUT.as_millis())),
        };
        *counted_stuck = None;
        let (movement, echo_trigger) = receiver.watch(self.echo);
        let stuck_after = self.echo.stuck_after;
        // A stopped process or a host without network does not close its connections. What has arrived is read first.
        let end = tokio::select! {
            biased;
            end = self.follow_usage(&sender, &mut receiver, in_use.seal, sealed) => end,
            never = stuck_links.track((movement.clone(), echo_trigger)) => match never {},
            () = hangs(movement.clone(), stuck_after) => {
                if *movement.borrow() == Movement::Stuck {
                    *counted_stuck = Some(stuck_links.count_stuck());
                }
                End::Lost("it does not answer".into())
            }
        };
        *last_seen = Instant::now();
        end
    }

    /// Offers the GPUs for plans according to their usage, and reads the reports.
    async fn follow_usage(
        &mut self,
        sender: &LinkSender<ToBackend>,
        receiver: &mut LinkReceiver<FromBackend>,
        seal: SealNumber,
        sealed: (symphony_types::Time, Vec<SealedGpu>),
    ) -> End {
        let mut phase = Phase::Sealed(sealed.0, sealed.1, false);
        let (done, mut retired) = mpsc::unbounded_channel();
        let mut round = 0;
        loop {
            let usage = *self.usage.borrow_and_update();
            // A backend that learnt that no plan comes must learn that this is over before the first plan. Until then
            // it considers lost what has not reached it. Repeating the same seal orders that, and changes nothing else.
            if usage == Usage::Use
                && matches!(phase, Phase::Sealed(.., true) | Phase::Retired)
                && let Err(error) = self.request_seal(sender)
            {
                return End::Lost(error.to_string());
            }
            phase = match (usage, phase) {
                (Usage::Use, Phase::Sealed(at, gpus, _)) => {
                    self.use_gpus(sender, seal, at, &gpus);
                    Phase::Used
                }
                (Usage::Use, Phase::Retiring(_) | Phase::Retired) => {
                    for gpu in &self.gpus {
                        self.workers.rank.push(RankMessage::Resume { gpu: gpu.ordinal, seal });
                    }
                    Phase::Used
                }
                // From use back to hold: the lead has retired the backend meanwhile, and would use it again once it
                // holds every model. The backend need not know.
                (Usage::Hold | Usage::Retire, Phase::Used) => {
                    round += 1;
                    for gpu in &self.gpus {
                        let (gpu, done) = (gpu.ordinal, done.clone());
                        self.workers.rank.push(RankMessage::Retire { gpu, seal, round, done });
                    }
                    Phase::Retiring(self.gpus.len())
                }
                (Usage::Retire, phase @ (Phase::Sealed(.., false) | Phase::Retiring(0))) => {
                    let gpus = self.gpus.iter().map(|g| g.gpu).collect();
                    if let Err(error) = sender.send(ToBackend::Retired { gpus }) {
                        return End::Lost(error.to_string());
                    }
                    tracing::info!(backend = %self.backend, "no more plans for it");
                    match phase {
                        Phase::Sealed(at, gpus, _) => Phase::Sealed(at, gpus, true),
                        _ => Phase::Retired,
                    }
                }
                (_, phase) => phase,
            };
            tokio::select! {
                changed = self.usage.changed() => {
                    if changed.is_err() {
                        return End::Lost("the lead has ended".into());
                    }
                }
                Some(of) = retired.recv() => {
                    if let Phase::Retiring(left) = &mut phase && of == round {
                        *left -= 1;
                    }
                }
                frame = receiver.receive() => match frame {
                    Ok(frame) => {
                        if let Err(end) = self.report(seal, frame.message) {
                            return end;
                        }
                    }
                    Err(error) => return End::Lost(error.to_string()),
                },
            }
        }
    }

    fn request_seal(&self, sender: &LinkSender<ToBackend>) -> Result<(), SendError> {
        let gpus = self.gpus.iter().map(|g| (g.gpu, g.token)).collect();
        sender.send(ToBackend::Seal { subcluster: self.subcluster, gpus })
    }

    /// Asks for the promise; returns the states of the GPUs and when the answer came.
    async fn seal(
        &self,
        sender: &LinkSender<ToBackend>,
        receiver: &mut LinkReceiver<FromBackend>,
        seal: SealNumber,
    ) -> Result<(symphony_types::Time, Vec<SealedGpu>), End> {
        let lost = |error: &dyn std::fmt::Display| End::Lost(error.to_string());
        sender.send(ToBackend::Hello { node: self.node, boot: self.node_boot }).map_err(|e| lost(&e))?;
        self.request_seal(sender).map_err(|e| lost(&e))?;
        loop {
            match receiver.receive().await.map_err(|e| lost(&e))?.message {
                FromBackend::Welcome { backend, boot } if backend != self.backend || boot != self.boot => {
                    return Err(End::Lost(format!("found {backend} {boot} instead")));
                }
                FromBackend::Sealed { boot, gpus, finished, plans } if boot == self.boot => {
                    let at = self.clock.now();
                    if self.gpus.iter().any(|mine| gpus.iter().any(|g| g.gpu == mine.gpu && g.promised > mine.token)) {
                        return Err(End::Fenced);
                    }
                    let known: HashSet<RequestId> =
                        gpus.iter().flat_map(|g| g.in_flight.iter().copied()).chain(finished).collect();
                    let known = Arc::new(known);
                    self.workers.send_to_all(|| ModelMessage::Known { seal, requests: Arc::clone(&known) });
                    if !plans.is_empty() {
                        self.workers.rank.push(RankMessage::Account(Box::new(overrun_of(&plans))));
                    }
                    let _ = self.events.send(LinkEvent::Sealed(self.backend));
                    return Ok((at, gpus));
                }
                _ => {}
            }
        }
    }

    fn use_gpus(
        &self,
        sender: &LinkSender<ToBackend>,
        seal: SealNumber,
        at: symphony_types::Time,
        sealed: &[SealedGpu],
    ) {
        for gpu in &self.gpus {
            let Some(state) = sealed.iter().find(|s| s.gpu == gpu.gpu && s.promised == gpu.token) else { continue };
            let route = GpuRoute {
                gpu: gpu.gpu,
                class: gpu.class,
                seal,
                token: gpu.token,
                backend: self.backend,
                backend_boot: self.boot,
                sender: sender.clone(),
            };
            self.workers.send_to_all(|| ModelMessage::Route { gpu: gpu.ordinal, route: route.clone() });
            let free_at = at + Nanos::new(state.free_in);
            self.workers.rank.push(RankMessage::GpuReady { gpu: gpu.ordinal, class: gpu.class, seal, free_at });
        }
    }

    fn report(&self, seal: SealNumber, message: FromBackend) -> Result<(), End> {
        let plan_of = |gpu: GpuId, token: Token, sequence: u64| {
            let linked = self.gpus.iter().find(|g| g.gpu == gpu && g.token == token)?;
            Some(PlanId { gpu: linked.ordinal, seal, sequence })
        };
        match message {
            FromBackend::Done(done) => {
                let Some(plan) = plan_of(done.gpu, done.token, done.sequence) else { return Ok(()) };
                let free_at = self.clock.now() + Nanos::new(done.free_in);
                if let Some(linked) = self.gpus.iter().find(|g| g.gpu == done.gpu) {
                    count(&linked.counts.plans, 1);
                    count(&linked.counts.busy_ns, done.latency);
                }
                let counters = &self.workers.link_counters;
                add(&counters.plans_done, 1);
                add(&counters.start_late_nanoseconds, done.start_late);
                add(&counters.measured_nanoseconds, done.latency);
                self.workers.rank.push(RankMessage::Done { plan, free_at, more: done.free_in > 0 });
                if done.failed.iter().any(|(_, reason)| *reason == FailReason::GpuLost) {
                    corrections::lost(&self.workers, plan.gpu);
                }
                let (start_late, latency, failed) =
                    (Nanos::new(done.start_late), Nanos::new(done.latency), done.failed);
                self.workers.of_model(done.model.get()).push(ModelMessage::Done { plan, start_late, latency, failed });
            }
            FromBackend::Refused { gpu, sequence, token, model, refusal } => {
                tracing::warn!(backend = %self.backend, %gpu, sequence, ?refusal, "plan refused");
                if matches!(refusal, Refusal::Fenced { .. }) {
                    return Err(End::Fenced);
                }
                add(&self.workers.link_counters.plans_refused, 1);
                if let Some(plan) = plan_of(gpu, token, sequence) {
                    self.workers.rank.push(RankMessage::Refused { plan });
                    self.workers.of_model(model.get()).push(ModelMessage::Refused { plan });
                }
                if refusal != Refusal::ModelNotReady {
                    // Leader and backend disagree about the GPU: a new seal resets both to the same state.
                    return Err(End::Lost(format!("plan {sequence} on {gpu} refused: {refusal:?}")));
                }
            }
            FromBackend::PayloadDelay { fixed, per_mib } => {
                let delay = PayloadDelay { fixed: Nanos::new(fixed), per_mib: Nanos::new(per_mib) };
                let _ = self.events.send(LinkEvent::PayloadDelay(self.backend, self.boot, delay));
            }
            FromBackend::Hosts { models } => {
                let _ = self.events.send(LinkEvent::Hosts(self.backend, self.boot, models));
            }
            FromBackend::Welcome { .. } | FromBackend::Sealed { .. } => {}
        }
        Ok(())
    }
}

/// Resolves when the peer stops answering; never if the link ends first. One late answer may come from a busy machine:
/// the link must be stuck for twice the limit.
async fn hangs(mut movement: watch::Receiver<Movement>, stuck_after: Duration) {
    let first = movement.wait_for(|movement| *movement != Movement::Unknown);
    if tokio::time::timeout(FIRST_ANSWER_WITHIN, first).await.is_err() {
        return;
    }
    while movement.wait_for(|movement| *movement == Movement::Stuck).await.is_ok() {
        let moves = movement.wait_for(|movement| *movement != Movement::Stuck);
        if tokio::time::timeout(stuck_after, moves).await.is_err() {
            return;
        }
    }
    // The sender is gone: the link ends.
    std::future::pending().await
}

/// The overrun that a former lead would have reported for these plans.
fn overrun_of(plans: &[EndedPlan]) -> Account {
    let mut meter = LatenessMeter::default();
    for plan in plans {
        meter.record(Nanos::ZERO, Nanos::new(plan.longer), Nanos::new(plan.predicted));
    }
    let (longer, predicted) = meter.take_totals();
    Account { longer, predicted, ..Account::default() }
}

#[cfg(test)]
mod tests;
