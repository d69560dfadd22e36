//! The task between leaders' orders and the GPUs' threads: it owns fences, plan queues, and accepted plans. One task,
//! a closed set of events, no lock.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, mpsc as blocking};
use std::time::{Duration, Instant};

use symphony_executor::{ModelExecutor, PartShares};
use symphony_protocol::execute::{
    Done, EndedPlan, Execute, FromBackend, HostedModel, PlannedRequest, Refusal, SEAL_RECENT_PLANS_MAX,
    SEAL_RECENT_REQUESTS_MAX, SealedGpu, ToBackend,
};
use symphony_protocol::journal::Record;
use symphony_transport::{LinkSender, PayloadTransport, until};
use symphony_types::{
    BackendId, BootId, CutDigest, FailReason, GPU_PLANS_MAX, GpuId, ModelId, NodeId, PAYLOAD_DELAY_FORGOTTEN_AFTER,
    PayloadDelay, RequestId, SubclusterId, Token,
};
use tokio::sync::{mpsc, watch};

use crate::accepted_plan::{AcceptedPlan, GpuOrder, InputsOfFrontend, PlanReport, UnloadGuard};
use crate::counts::Counts;
use crate::gpu_fence::{Connection, GpuFence};
use crate::gpu_thread::GpuThread;
use crate::gpu_time::GpuTime;
use crate::journal::Journal;
use crate::model_states::ModelStates;
use crate::unresponsive_frontends::{FrontendBoot, UnresponsiveFrontends};

/// A backend's identity after registration.
#[derive(Clone, Debug)]
pub struct BackendIdentity {
    /// The id that the control group has given it.
    pub backend: BackendId,
    /// The boot under which it is registered.
    pub boot: BootId,
    /// Its sub-cluster.
    pub subcluster: SubclusterId,
    /// Ids that the control group has given its GPUs, in the order of its offer.
    pub gpus: Vec<GpuId>,
    /// Log index of its registration: the first promise of its GPUs.
    pub token: Token,
}

/// What the intake reacts to.
pub(crate) enum IntakeEvent {
    Connected(Connection, LinkSender<FromBackend>),
    Disconnected(Connection),
    FromLeader(Connection, ToBackend),
    /// One executor per GPU.
    Loaded(ModelId, Vec<Box<dyn ModelExecutor>>),
    /// Accept no more plans for the model, and drop it when the accepted ones have run.
    Unloaded(Arc<UnloadGuard>),
    /// The sub-clusters that may use this backend, by the newest view.
    Homes(Vec<SubclusterId>),
}

/// The trunk of a model that shares it, and what parts of a batch's time the trunk and the suffix take at most.
type Hosted = (CutDigest, PartShares);

type WaitingSeal = (Connection, SubclusterId, Vec<(GpuId, Token)>);

/// How long a seal may be delayed because a frontend does not answer, after this backend was cut off: less than a
/// leader waits for its seal.
pub(crate) const READY_WITHIN: Duration = Duration::from_millis(300);

/// An accepted plan that has not ended.
struct UnfinishedPlan {
    /// The connection of its leader: sequence numbers on other connections mean other plans.
    connection: Connection,
    start: Instant,
    latency: Duration,
    requests: Vec<RequestId>,
}

struct Gpu {
    id: GpuId,
    fence: GpuFence,
    unfinished: VecDeque<UnfinishedPlan>,
    /// The leader has announced that no more plans come.
    retired: bool,
    /// Its device is permanently failed.
    lost: bool,
    orders: blocking::Sender<GpuOrder>,
    time: Arc<GpuTime>,
}

pub(crate) struct PlanIntake<T> {
    identity: BackendIdentity,
    /// The sub-clusters whose leaders may seal: its own, and the destination of a move.
    homes: Vec<SubclusterId>,
    gpus: Vec<Gpu>,
    models: HashSet<ModelId>,
    /// The models that run through shared trunks, on all GPUs.
    hosted: BTreeMap<ModelId, Hosted>,
    /// Whether there ever were any: then a leader that seals again may still think so.
    has_hosted: bool,
    connections: HashMap<Connection, LinkSender<FromBackend>>,
    /// The replica at the other end of each connection, as far as it is known; for the journal.
    leaders: HashMap<Connection, NodeId>,
    /// The payload delay that was last sent to each leader, and when.
    sent_delays: HashMap<Connection, (Instant, PayloadDelay)>,
    /// When to check again whether all leaders know the newest delay, since one got a change too recently.
    send_again_at: Option<Instant>,
    journal: Option<Journal>,
    recent: VecDeque<RequestId>,
    ended: VecDeque<EndedPlan>,
    transport: Arc<T>,
    unresponsive_frontends: Arc<UnresponsiveFrontends>,
    events: mpsc::UnboundedReceiver<IntakeEvent>,
    reports: mpsc::UnboundedReceiver<PlanReport>,
    /// Seals that have waited for the connections to the frontends.
    ready: (mpsc::UnboundedSender<WaitingSeal>, mpsc::UnboundedReceiver<WaitingSeal>),
    counts: Arc<Counts>,
    model_states: Arc<ModelStates>,
    /// Whether nothing is left to run and no sender remains.
    idle: watch::Sender<bool>,
    /// Whether all GPUs are lost.
    lost: watch::Sender<bool>,
}

impl<T: PayloadTransport> PlanIntake<T> {
    /// Starts one thread per GPU.
    pub(crate) fn new(
        identity: BackendIdentity,
        transport: Arc<T>,
        events: mpsc::UnboundedReceiver<IntakeEvent>,
        counts: Arc<Counts>,
        model_states: Arc<ModelStates>,
        mut journal: Option<Journal>,
    ) -> std::io::Result<Self> {
        if let Some(journal) = &mut journal {
            journal.append(Record::Registered {
                at_ns: journal.nanos(Instant::now()),
                backend: identity.backend.get(),
                boot: identity.boot.get(),
                gpus: identity.gpus.iter().map(|gpu| gpu.get()).collect(),
                token: identity.token.get(),
            });
        }
        let unresponsive_frontends = Arc::<UnresponsiveFrontends>::default();
        let (reports_in, reports) = mpsc::unbounded_channel();
        let mut gpus = Vec::with_capacity(identity.gpus.len());
        for (index, &id) in identity.gpus.iter().enumerate() {
            let time = Arc::<GpuTime>::default();
            let (orders, orders_out) = blocking::channel();
            let thread = GpuThread {
                gpu: index,
                id,
                orders: orders_out,
                reports: reports_in.clone(),
                transport: Arc::clone(&transport),
                unresponsive_frontends: Arc::clone(&unresponsive_frontends),
                counts: Arc::clone(&counts),
                time: Arc::clone(&time),
                runtime: tokio::runtime::Handle::current(),
            };
            std::thread::Builder::new().name(format!("gpu-{id}")).spawn(move || thread.run())?;
            let fence = GpuFence::new(identity.boot, identity.token, GPU_PLANS_MAX);
            gpus.push(Gpu { id, fence, unfinished: VecDeque::new(), retired: false, lost: false, orders, time });
        }
        Ok(Self {
            homes: vec![identity.subcluster],
            identity,
            gpus,
            models: HashSet::new(),
            hosted: BTreeMap::new(),
            has_hosted: false,
            connections: HashMap::new(),
            leaders: HashMap::new(),
            sent_delays: HashMap::new(),
            send_again_at: None,
            journal,
            recent: VecDeque::new(),
            ended: VecDeque::new(),
            transport,
            unresponsive_frontends,
            events,
            reports,
            ready: mpsc::unbounded_channel(),
            counts,
            model_states,
            idle: watch::Sender::new(true),
            lost: watch::Sender::new(false),
        })
    }

    /// Whether nothing is left to run, and no leader is linked that may send more.
    pub(crate) fn idle(&self) -> watch::Receiver<bool> {
        self.idle.subscribe()
    }

    /// Whether all GPUs are lost: only a restart can help.
    pub(crate) fn lost(&self) -> watch::Receiver<bool> {
        self.lost.subscribe()
    }

    /// The gaps between plans, by GPU.
    pub(crate) fn times(&self) -> Vec<Arc<GpuTime>> {
        self.gpus.iter().map(|gpu| Arc::clone(&gpu.time)).collect()
    }

    /// Runs until all senders of events are gone.
    pub(crate) async fn run(mut self) {
        loop {
            // Reports first: a plan's end makes room for the next plan.
            tokio::select! {
                biased;
                Some(report) = self.reports.recv() => self.report(report),
                event = self.events.recv() => match event {
                    Some(event) => self.apply(event),
                    None => return,
                },
                Some((connection, subcluster, gpus)) = self.ready.1.recv() => {
                    // A delayed seal of a closed connection would take the GPUs from the leader's next connection.
                    if self.connections.contains_key(&connection) {
                        self.seal(connection, subcluster, &gpus);
                    }
                }
                () = until(self.send_again_at) => self.send_delays(),
            }
            let idle = self.gpus.iter().all(|gpu| {
                let leader_linked = gpu.fence.sealed_by().is_some_and(|by| self.connections.contains_key(&by));
                gpu.unfinished.is_empty() && (gpu.retired || !leader_linked)
            });
            self.idle.send_if_modified(|before| std::mem::replace(before, idle) != idle);
        }
    }

    fn apply(&mut self, event: IntakeEvent) {
        match event {
            IntakeEvent::Connected(connection, sender) => {
                let welcome = FromBackend::Welcome { backend: self.identity.backend, boot: self.identity.boot };
                let _ = sender.send(welcome);
                self.connections.insert(connection, sender);
            }
            IntakeEvent::Disconnected(connection) => {
                self.connections.remove(&connection);
                self.leaders.remove(&connection);
                self.sent_delays.remove(&connection);
            }
            IntakeEvent::FromLeader(connection, ToBackend::Seal { subcluster, gpus }) => {
                if self.is_reconnect(connection, &gpus) {
                    self.seal_when_ready(connection, subcluster, gpus);
                } else {
                    self.seal(connection, subcluster, &gpus);
                }
            }
            IntakeEvent::Homes(homes) => self.homes = homes,
            IntakeEvent::FromLeader(connection, ToBackend::Execute(order)) => self.intake_plan(connection, order),
            IntakeEvent::FromLeader(connection, ToBackend::Retired { gpus }) => {
                let retired = |gpu: &&mut Gpu| gpu.fence.sealed_by() == Some(connection) && gpus.contains(&gpu.id);
                self.gpus.iter_mut().filter(retired).for_each(|gpu| gpu.retired = true);
            }
            IntakeEvent::FromLeader(connection, ToBackend::Hello { node, .. }) => {
                tracing::debug!(%node, "leader linked");
                self.leaders.insert(connection, node);
            }
            IntakeEvent::Loaded(model, executors) => {
                let hosted = hosted(&executors);
                for (gpu, executor) in self.gpus.iter().zip(executors) {
                    let _ = gpu.orders.send(GpuOrder::Load(model, executor));
                }
                self.models.insert(model);
                self.set_hosted(model, hosted);
            }
            IntakeEvent::Unloaded(unload_guard) => {
                self.models.remove(&unload_guard.model);
                self.set_hosted(unload_guard.model, None);
                for gpu in &self.gpus {
                    let _ = gpu.orders.send(GpuOrder::Unload(unload_guard.model, Arc::clone(&unload_guard)));
                }
            }
        }
    }

    fn send(&mut self, connection: Connection, message: FromBackend) {
        if let Some(sender) = self.connections.get(&connection)
            && let Err(error) = sender.send(message)
        {
            // A leader that misses a report counts wrongly from then on; without the link it seals again.
            tracing::warn!(%error, "report not sent; the link ends and the leader will seal again");
            self.connections.remove(&connection);
        }
    }

    /// The replica at the other end; 0 before its hello.
    fn leader_of(&self, connection: Connection) -> u64 {
        self.leaders.get(&connection).map_or(0, |node| node.get())
    }

    /// Whether this leader is back after its link ended. Then this backend was cut off or stopped, and perhaps from
    /// frontends too. A different lead is never delayed.
    fn is_reconnect(&self, connection: Connection, tokens: &[(GpuId, Token)]) -> bool {
        let fence = |id: &GpuId| self.gpus.iter().find(|gpu| gpu.id == *id).map(|gpu| &gpu.fence);
        tokens.iter().any(|(id, token)| fence(id).is_some_and(|fence| fence.is_reconnect(connection, *token)))
    }

    /// Seals once inputs can be read.
    fn seal_when_ready(&self, connection: Connection, subcluster: SubclusterId, tokens: Vec<(GpuId, Token)>) {
        let (transport, ready) = (Arc::clone(&self.transport), self.ready.0.clone());
        tokio::spawn(async move {
            transport.ready(READY_WITHIN).await;
            let _ = ready.send((connection, subcluster, tokens));
        });
    }

    /// Between leaders of its sub-clusters, the larger token owns the GPU: the last one to be assigned the GPU has
    /// read the assignment in the log, and so has the larger token.
    fn seal(&mut self, connection: Connection, subcluster: SubclusterId, tokens: &[(GpuId, Token)]) {
        if !self.homes.contains(&subcluster) {
            // One of the two has an old view. Without the link the leader soon tries again.
            tracing::warn!(%subcluster, mine = ?self.homes, "seal for another sub-cluster; the link ends");
            self.connections.remove(&connection);
            return;
        }
        let now = Instant::now();
        let node = self.leader_of(connection);
        let mut sealed = Vec::with_capacity(tokens.len());
        for &(id, token) in tokens {
            let Some(gpu) = self.gpus.iter_mut().find(|gpu| gpu.id == id) else { continue };
            let promised = gpu.fence.seal(connection, token);
            gpu.retired &= gpu.fence.sealed_by() != Some(connection);
            if let Some(journal) = &mut self.journal {
                let (at_ns, gpu) = (journal.nanos(now), id.get());
                journal.append(Record::Sealed { at_ns, gpu, node, token: token.get(), promised: promised.get() });
            }
            let in_flight = gpu.unfinished.iter().flat_map(|plan| plan.requests.iter().copied()).collect();
            sealed.push(SealedGpu { gpu: id, promised, free_in: nanos(gpu.free_in(now)), in_flight });
        }
        Counts::add(&self.counts.seals, 1);
        let finished = self.recent.iter().copied().collect();
        let plans = self.ended.iter().copied().collect();
        let boot = self.identity.boot;
        self.send(connection, FromBackend::Sealed { boot, gpus: sealed, finished, plans });
        // A new leader learns at once what its predecessor knew.
        self.send_delay(connection, now);
        if self.has_hosted {
            self.send_hosted(connection);
        }
    }

    /// A model runs through a shared trunk from here on, or whole; leaders get a message. Before level 3 there is
    /// nothing to report, and no leader that could read it.
    fn set_hosted(&mut self, model: ModelId, now: Option<Hosted>) {
        let before = match now {
            Some(now) => self.hosted.insert(model, now),
            None => self.hosted.remove(&model),
        };
        if before != now {
            self.has_hosted = true;
            let connections: Vec<_> = self.connections.keys().copied().collect();
            connections.into_iter().for_each(|connection| self.send_hosted(connection));
        }
    }

    fn send_hosted(&mut self, connection: Connection) {
        let hosted = |(&model, &(trunk, shares)): (&ModelId, &Hosted)| HostedModel {
            model,
            trunk_share: shares.trunk,
            suffix_share: shares.suffix,
            trunk: trunk.get().to_be_bytes(),
        };
        let models = self.hosted.iter().map(hosted).collect();
        self.send(connection, FromBackend::Hosts { models });
    }

    /// Tells a leader how long inputs take, when that has changed, and periodically when it has not. After a recent
    /// change the next one is sent when [`DELAY_SENT_EVERY`] has passed, with or without plans.
    fn send_delay(&mut self, connection: Connection, now: Instant) {
        let Some(delay) = self.transport.delay() else { return };
        if let Some(&(at, sent)) = self.sent_delays.get(&connection) {
            if sent == delay {
                if now.saturating_duration_since(at) < DELAY_CONFIRMED_EVERY {
                    return;
                }
            } else if now < at + DELAY_SENT_EVERY {
                let again = at + DELAY_SENT_EVERY;
                self.send_again_at = Some(self.send_again_at.map_or(again, |sooner| sooner.min(again)));
                return;
            }
        }
        self.sent_delays.insert(connection, (now, delay));
        let (fixed, per_mib) = (delay.fixed.get(), delay.per_mib.get());
        self.send(connection, FromBackend::PayloadDelay { fixed, per_mib });
    }

    /// Sends the newest delay to the leaders that do not have it, once the last message to them is old enough.
    fn send_delays(&mut self) {
        let Some(due) = self.send_again_at.take() else { return };
        let now = Instant::now().max(due);
        let leaders: Vec<_> = self.sent_delays.keys().copied().collect();
        leaders.into_iter().for_each(|leader| self.send_delay(leader, now));
    }

    fn intake_plan(&mut self, connection: Connection, order: Execute) {
        let now = Instant::now();
        if let Err(refusal) = self.accept(connection, &order) {
            Counts::add(&self.counts.refused, 1);
            let Execute { gpu, sequence, token, model, .. } = order;
            self.send(connection, FromBackend::Refused { gpu, sequence, token, model, refusal });
            return;
        }
        Counts::add(&self.counts.plans, 1);
        let node = self.leader_of(connection);
        if let Some(journal) = &mut self.journal {
            let (at_ns, gpu, token) = (journal.nanos(now), order.gpu.get(), order.token.get());
            journal.append(Record::Accepted { at_ns, gpu, node, token, sequence: order.sequence });
        }
        let Some(gpu) = self.gpus.iter_mut().find(|gpu| gpu.id == order.gpu) else { return };
        let start = now + Duration::from_nanos(order.start_in.min(START_IN_MAX));
        let latency = Duration::from_nanos(order.latency.min(START_IN_MAX));
        let requests = order.requests.iter().map(|r| r.id).collect();
        gpu.unfinished.push_back(UnfinishedPlan { connection, start, latency, requests });
        let (inputs_in, inputs) = blocking::channel();
        let plan = AcceptedPlan {
            token: order.token,
            sequence: order.sequence,
            model: order.model,
            accepted: now,
            start,
            requests: order.requests.clone(),
            inputs,
        };
        let _ = gpu.orders.send(GpuOrder::Run(plan));
        // Inputs travel while plans before it run; it begins when they are there.
        tokio::spawn(fetch(
            Arc::clone(&self.transport),
            Arc::clone(&self.unresponsive_frontends),
            order.requests,
            inputs_in,
        ));
    }

    fn accept(&mut self, connection: Connection, order: &Execute) -> Result<(), Refusal> {
        // All or nothing: what waits again at its leader is not lost.
        let mut rows = order.requests.iter().map(|request| request.model_in(order.model));
        let ready = self.models.contains(&order.model) && rows.all(|model| self.models.contains(&model));
        let gpu = self.gpus.iter_mut().find(|gpu| gpu.id == order.gpu).ok_or(Refusal::UnknownGpu)?;
        gpu.fence.accept(connection, order.token, order.backend_boot, order.sequence)?;
        gpu.retired = false;
        if !ready {
            // The plan had its turn: the sequence goes on.
            gpu.fence.finished();
            return Err(Refusal::ModelNotReady);
        }
        Ok(())
    }

    fn report(&mut self, report: PlanReport) {
        let now = Instant::now();
        Counts::add(&self.counts.failed, report.failed.len() as u64);
        self.counts.was_busy(report.gpu, nanos(report.latency));
        if let Some(memory) = report.memory {
            self.model_states.measured(report.model, report.gpu, memory);
        }
        let gpu = &mut self.gpus[report.gpu];
        if let (Some(journal), Some((start, end))) = (&mut self.journal, report.ran) {
            // Requests without an input were not in the batch.
            let executed = report.finished.iter().filter(|id| !report.failed.iter().any(|(failed, _)| failed == *id));
            let (start_ns, end_ns) = (journal.nanos(start), journal.nanos(end));
            journal.append(Record::Ran {
                gpu: gpu.id.get(),
                token: report.token.get(),
                sequence: report.sequence,
                start_ns,
                end_ns,
                requests: executed.map(|id| (id.frontend.get(), id.boot.get(), id.sequence)).collect(),
            });
        }
        if !gpu.lost && report.failed.iter().any(|(_, reason)| *reason == FailReason::GpuLost) {
            gpu.lost = true;
            Counts::add(&self.counts.gpus_lost, 1);
            tracing::error!(gpu = %gpu.id, "its device is lost: leads give it no more batches until this backend is restarted");
        }
        gpu.fence.finished();
        let ended = gpu.unfinished.pop_front();
        // The next one begins now if its inputs are there, and not before now in any case.
        if let Some(next) = gpu.unfinished.front_mut() {
            next.start = if report.next_is_ready { now } else { next.start.max(now) };
        }
        if let Some(plan) = ended.as_ref().filter(|_| report.failed.is_empty()) {
            if self.ended.len() == SEAL_RECENT_PLANS_MAX {
                self.ended.pop_front();
            }
            let longer = report.latency.saturating_sub(plan.latency);
            self.ended.push_back(EndedPlan { longer: nanos(longer), predicted: nanos(plan.latency) });
        }
        for id in report.finished {
            if self.recent.len() == SEAL_RECENT_REQUESTS_MAX {
                self.recent.pop_front();
            }
            self.recent.push_back(id);
        }
        let done = Done {
            gpu: gpu.id,
            token: report.token,
            sequence: report.sequence,
            model: report.model,
            start_late: nanos(report.start_late),
            latency: nanos(report.latency),
            free_in: nanos(gpu.free_in(now)),
            failed: report.failed,
        };
        if self.gpus.iter().all(|gpu| gpu.lost) {
            self.lost.send_if_modified(|lost| !std::mem::replace(lost, true));
        }
        if let Some(leader) = ended.map(|plan| plan.connection) {
            self.send(leader, FromBackend::Done(done));
            self.send_delay(leader, now);
        }
    }
}

/// The least time between two messages about changed input delays to a leader. It is also the longest time until the
/// leader learns of a change that showed when one of its plans ended.
pub(crate) const DELAY_SENT_EVERY: Duration = Duration::from_secs(1);

/// How often an unchanged delay is repeated: a leader treats a backend that runs plans without such a report as one
/// that measures nothing.
const DELAY_CONFIRMED_EVERY: Duration = Duration::from_secs(60);
// Some reports may be lost, or late, before a leader forgets.
const _: () = assert!(DELAY_CONFIRMED_EVERY.as_nanos() as u64 * 5 <= PAYLOAD_DELAY_FORGOTTEN_AFTER.get());

/// How a model is hosted that shares one trunk on all GPUs; `None` for any other.
fn hosted(executors: &[Box<dyn ModelExecutor>]) -> Option<Hosted> {
    let members = executors.iter().map(|executor| executor.in_family());
    let mut on_gpus = members.map(|member| member.map(|member| (member.trunk(), member.shares())));
    let first = on_gpus.next()?;
    on_gpus.fold(first, |all, one| {
        let ((trunk, shares), (other, others)) = (all?, one?);
        (trunk == other).then(|| (trunk, shares.larger_of(others)))
    })
}

/// No plan starts or lasts longer than a minute from now; a larger number is nonsense from the wire and is cut.
const START_IN_MAX: u64 = 60_000_000_000;

impl Gpu {
    /// How long until everything accepted is done, if inputs and executions take no longer than planned; the first may
    /// have begun before its planned start.
    fn free_in(&self, now: Instant) -> Duration {
        let mut free_at = now;
        for (index, plan) in self.unfinished.iter().enumerate() {
            // The first may be running since its start; the others begin when it ends.
            let begin = if index == 0 { plan.start } else { free_at.max(plan.start) };
            free_at = free_at.max(begin + plan.latency);
        }
        free_at - now
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Reads the inputs of all requests, from all their frontends at once, and passes on each frontend's when they arrive.
async fn fetch<T: PayloadTransport>(
    transport: Arc<T>,
    unresponsive_frontends: Arc<UnresponsiveFrontends>,
    requests: Vec<PlannedRequest>,
    inputs: blocking::Sender<InputsOfFrontend>,
) {
    let mut by_frontend: HashMap<FrontendBoot, Vec<usize>> = HashMap::new();
    for (index, request) in requests.iter().enumerate() {
        by_frontend.entry((request.id.frontend, request.id.boot)).or_default().push(index);
    }
    let reads = by_frontend.into_iter().map(|(frontend, indices)| {
        let sequences = indices.iter().map(|&i| requests[i].id.sequence).collect();
        let (transport, unresponsive_frontends, inputs) = (&transport, &unresponsive_frontends, inputs.clone());
        async move {
            let payloads = transport.read(frontend.0, frontend.1, sequences).await;
            if payloads.iter().any(Option::is_some) {
                unresponsive_frontends.mark_responsive(frontend);
            }
            // Gone when the plan waits no longer.
            let (at, given) = (Instant::now(), indices.into_iter().zip(payloads).collect());
            let _ = inputs.send(InputsOfFrontend { frontend, inputs: given, at });
        }
    });
    futures::future::join_all(reads).await;
}
