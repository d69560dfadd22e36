//! A backend with one GPU: the production fence, and plans that take their time.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use symphony_backend::GpuFence;
use symphony_net::{Expected, Incoming, Port, Role};
use symphony_protocol::execute::{Done, Execute, FromBackend, SealedGpu, ToBackend};
use symphony_protocol::view::View;
use symphony_transport::{LinkSender, link_over};
use symphony_types::{BackendId, BootId, GpuId, Nanos, NodeId, RequestId, Token};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::Obeyed;
use crate::cluster::{Cluster, EXEC_PORT};
use crate::plant::Plant;

/// Plans that may wait.
const QUEUED_MAX: u32 = 4;
/// Recently finished requests in the answer to a seal.
const FINISHED_MAX: usize = 1_000;

/// What the registration gave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registered {
    pub(crate) backend: BackendId,
    pub(crate) boot: BootId,
    pub(crate) gpu: GpuId,
    pub(crate) token: Token,
}

/// A plan that was taken.
struct Taken {
    plan: Execute,
    /// When it was planned to start.
    start: Instant,
    /// When its inputs are there, at which it starts if the plan before it has ended.
    inputs_at: Instant,
    reports: LinkSender<FromBackend>,
}

/// A plan that has not ended.
struct Running {
    requests: Vec<RequestId>,
    inputs_at: Instant,
    latency: Duration,
}

struct Gpu {
    me: Registered,
    fence: GpuFence,
    promised: Token,
    running: VecDeque<Running>,
    finished: VecDeque<RequestId>,
}

/// Serves leaders until its host ends.
pub(crate) async fn run(
    cluster: Cluster,
    name: &'static str,
    me: Registered,
    views: watch::Receiver<Arc<View>>,
) -> turmoil::Result {
    let fence = GpuFence::new(me.boot, me.token, QUEUED_MAX);
    let gpu = Gpu { me, fence, promised: me.token, running: VecDeque::new(), finished: VecDeque::new() };
    let gpu = Rc::new(RefCell::new(gpu));
    let (plans, queue) = mpsc::unbounded_channel();
    tokio::task::spawn_local(execute(cluster.clone(), name, Rc::clone(&gpu), queue, views));
    let listener = cluster.links.listen(name, EXEC_PORT).await?;
    let mut incoming =
        Incoming::new(listener, cluster.links.net(name), Port::new("backend.exec", &[Role::Scheduler], 256));
    let mut connection = 0;
    while let Some(leader) = incoming.next().await {
        connection += 1;
        let (sender, mut receiver) = link_over::<FromBackend, ToBackend>(leader);
        let (cluster, gpu, plans) = (cluster.clone(), Rc::clone(&gpu), plans.clone());
        tokio::task::spawn_local(async move {
            let mut leader = None;
            while let Ok(frame) = receiver.receive().await {
                let answer = match frame.message {
                    ToBackend::Hello { node, boot } => {
                        leader = Some((node, boot));
                        Some(FromBackend::Welcome { backend: me.backend, boot: me.boot })
                    }
                    ToBackend::Seal { gpus, .. } => Some(gpu.borrow_mut().seal(&cluster, connection, &gpus)),
                    ToBackend::Execute(plan) => {
                        let Some(leader) = leader else { return };
                        gpu.borrow_mut().take(&cluster, connection, leader, plan, &sender, &plans)
                    }
                    ToBackend::Retired { .. } => None,
                };
                if answer.is_some_and(|answer| sender.send(answer).is_err()) {
                    return;
                }
            }
        });
    }
    Ok(())
}

impl Gpu {
    fn seal(&mut self, cluster: &Cluster, by: u64, requested: &[(GpuId, Token)]) -> FromBackend {
        let (boot, gpu) = (self.me.boot, self.me.gpu);
        let token = requested.iter().find(|(id, _)| *id == gpu).map(|(_, token)| *token).unwrap_or_default();
        if cluster.plants.has(Plant::StaleTokens) && token < self.promised {
            self.fence = GpuFence::new(boot, token, QUEUED_MAX);
        }
        self.promised = self.fence.seal(by, token);
        cluster.obeyed.borrow_mut().push(Obeyed { gpu, token: self.promised, leader: None });
        let in_flight = self.running.iter().flat_map(|run| &run.requests).copied().collect();
        let sealed = SealedGpu { gpu, promised: self.promised, free_in: self.free_in(), in_flight };
        let finished = self.finished.iter().copied().collect();
        FromBackend::Sealed { boot, gpus: vec![sealed], finished, plans: Vec::new() }
    }

    fn take(
        &mut self,
        cluster: &Cluster,
        by: u64,
        leader: (NodeId, BootId),
        plan: Execute,
        sender: &LinkSender<FromBackend>,
        plans: &mpsc::UnboundedSender<Taken>,
    ) -> Option<FromBackend> {
        let Execute { gpu, token, sequence, model, backend_boot, .. } = plan;
        match self.fence.accept(by, token, backend_boot, sequence) {
            Ok(()) => {
                cluster.obeyed.borrow_mut().push(Obeyed { gpu, token, leader: Some(leader) });
                let start = Instant::now() + Duration::from_nanos(plan.start_in);
                // The inputs of every other plan are there at once, and it does not wait for its start.
                let inputs_at = if sequence.is_multiple_of(2) { Instant::now() } else { start };
                let requests = plan.requests.iter().map(|request| request.id).collect();
                self.running.push_back(Running { requests, inputs_at, latency: Duration::from_nanos(plan.latency) });
                let _ = plans.send(Taken { plan, start, inputs_at, reports: sender.clone() });
                None
            }
            Err(refusal) => Some(FromBackend::Refused { gpu, sequence, token, model, refusal }),
        }
    }

    /// When it has ended all plans that it has, at the latest: one may have begun already.
    fn free_in(&self) -> u64 {
        let now = Instant::now();
        let free_at = self.running.iter().fold(now, |free_at, run| free_at.max(run.inputs_at) + run.latency);
        Nanos::from(free_at - now).get()
    }
}

/// Runs plans one after the other and sends results to the frontends.
async fn execute(
    cluster: Cluster,
    name: &'static str,
    gpu: Rc<RefCell<Gpu>>,
    mut queue: mpsc::UnboundedReceiver<Taken>,
    views: watch::Receiver<Arc<View>>,
) {
    let mut owners = BTreeMap::new();
    while let Some(Taken { plan, start, inputs_at, reports }) = queue.recv().await {
        let begins = inputs_at.max(Instant::now());
        sleep_until(begins + Duration::from_nanos(plan.latency)).await;
        let (finished, free_in) = {
            let mut gpu = gpu.borrow_mut();
            gpu.fence.finished();
            let finished = gpu.running.pop_front().map(|run| run.requests).unwrap_or_default();
            gpu.finished.extend(&finished);
            while gpu.finished.len() > FINISHED_MAX {
                gpu.finished.pop_front();
            }
            (finished, gpu.free_in())
        };
        for request in finished {
            let owner = views.borrow().frontends.get(&request.frontend).cloned();
            let Some(owner) = owner.filter(|owner| owner.boot == request.boot) else { continue };
            let results = owners.entry((request.frontend, request.boot)).or_insert_with(|| {
                let (results, queue) = mpsc::unbounded_channel();
                let net = cluster.links.net(name);
                tokio::spawn(tell(net, owner.data_addr, queue));
                results
            });
            let _ = results.send((request.boot, request.sequence));
        }
        let Execute { gpu, token, sequence, model, latency, .. } = plan;
        let start_late = Nanos::from(begins.saturating_duration_since(start)).get();
        let done = Done { gpu, token, sequence, model, start_late, latency, free_in, failed: Vec::new() };
        let _ = reports.send(FromBackend::Done(done));
    }
}

/// Sends results to a frontend, each on the first connection that takes it.
async fn tell(net: symphony_net::Net, addr: String, mut results: mpsc::UnboundedReceiver<(BootId, u64)>) {
    let mut line = None;
    while let Some((boot, sequence)) = results.recv().await {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&boot.get().to_le_bytes());
        bytes[8..].copy_from_slice(&sequence.to_le_bytes());
        for _ in 0..3 {
            if line.is_none() {
                line = net.dial(&addr, &Expected::from(Role::Frontend)).await.ok();
            }
            let Some(stream) = &mut line else { continue };
            match stream.write_all(&bytes).await {
                Ok(()) => break,
                Err(_) => line = None,
            }
        }
    }
}
