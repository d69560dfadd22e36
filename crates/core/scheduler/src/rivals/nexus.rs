//! Nexus: a fixed packing of models onto GPUs, and uncoordinated frontends.

use symphony_packing::{Session, fit_nodes};
use symphony_types::{DropReason, Nanos, Time};

use super::cluster::Cluster;
use super::deadline_queue::DeadlineQueue;
use super::gpu_book::GpuBook;
use super::round_robin::{Mixer, RoundRobin};
use crate::MinTree;
use crate::actions::Request;
use crate::cluster_policy::{ClusterAction, ClusterActions, ClusterInput, ClusterPolicy};

/// The most round-robin turns that a frontend may have taken before the run starts.
const PHASES: usize = 64;

/// Parameters of the deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NexusSettings {
    /// Number of frontends; each request arrives at a random one.
    pub frontends: u32,
    /// Seed of that choice and of the frontends' initial turns.
    pub seed: u64,
}

impl Default for NexusSettings {
    fn default() -> Self {
        Self { frontends: 1, seed: 0 }
    }
}

/// A model's place on a node.
#[derive(Clone, Debug)]
struct NodeModel {
    model: usize,
    batch: u32,
    queue: DeadlineQueue,
}

/// A GPU and the models that take turns on it.
#[derive(Clone, Debug)]
struct Node {
    gpu: usize,
    places: Vec<NodeModel>,
    /// The session whose turn is next.
    next: usize,
    /// How long before its GPU becomes free the node must decide.
    lead: Nanos,
}

/// Optimises the number of GPUs for steady, known rates, at the cost of bursts, which meet a fixed share of the GPUs,
/// and of batches that uncoordinated frontends limit to half of the SLO.
///
/// From *Nexus: A GPU Cluster Engine for Accelerating DNN-Based Video Analysis* (SOSP 2019): squishy bin
/// packing ([`symphony_packing::squishy_bin_packing`]) of the given rates, multiplied by the largest factor that fits the
/// GPUs. Each frontend sends to the replicas of a model in its own round robin. GPUs go through their
/// models without pausing and drop early: of the next b requests, heads that do not fit into a batch of all b. A GPU
/// that is added or lost causes a new packing. The rates are the true ones, so nothing is lost by estimation; epochs
/// never change them.
#[derive(Clone, Debug)]
pub struct Nexus {
    cluster: Cluster,
    gpus: GpuBook,
    nodes: Vec<Node>,
    /// The node of each GPU.
    node_of: Vec<Option<usize>>,
    /// Node and place of each replica, by model.
    replicas: Vec<Vec<(usize, usize)>>,
    /// Round-robin state, by frontend and model.
    turns: Vec<Vec<RoundRobin>>,
    frontends: usize,
    mixer: Mixer,
    must_pack: bool,
    /// When each GPU must decide its next batch. Empty without delays: then the end of a batch triggers the decision.
    ask: MinTree,
    waiting: usize,
    wake_at: Time,
}

impl Nexus {
    /// For these models; GPUs are added later.
    #[must_use]
    pub fn new(cluster: Cluster, settings: NexusSettings) -> Self {
        Self {
            gpus: GpuBook::new(),
            nodes: Vec::new(),
            node_of: Vec::new(),
            replicas: Vec::new(),
            turns: Vec::new(),
            frontends: settings.frontends.max(1) as usize,
            mixer: Mixer::new(settings.seed),
            must_pack: true,
            ask: MinTree::new(0),
            waiting: 0,
            wake_at: Time::NEVER,
            cluster,
        }
    }

    /// Packs the models onto the present GPUs and reassigns the waiting requests.
    fn pack(&mut self, now: Time, out: &mut ClusterActions) {
        self.must_pack = false;
        let mut homeless = Vec::new();
        for place in self.nodes.iter_mut().flat_map(|node| &mut node.places) {
            homeless
                .extend(std::iter::from_fn(|| place.queue.pop_front()).map(|waiting| (place.model, waiting.request)));
        }
        self.waiting = 0;
        let gpus: Vec<_> = (0..self.gpus.len()).filter(|&gpu| self.gpus.is_up(gpu)).collect();
        let delays = self.cluster.delays;
        let sessions: Vec<_> = self
            .cluster
            .models
            .iter()
            .map(|model| Session {
                profile: &model.profile,
                slo: model.slo - delays.reply - delays.lead(1),
                rate_per_second: model.rate_per_second,
            })
            .collect();
        let packing = if gpus.is_empty() { Vec::new() } else { fit_nodes(&sessions, gpus.len()) };
        let node = |&gpu: &usize| Node { gpu, places: Vec::new(), next: 0, lead: Nanos::ZERO };
        self.nodes = gpus.iter().map(node).collect();
        self.node_of = vec![None; self.gpus.len()];
        for (index, &gpu) in gpus.iter().enumerate() {
            self.node_of[gpu] = Some(index);
        }
        self.replicas = vec![Vec::new(); sessions.len()];
        let mut weights = vec![Vec::new(); sessions.len()];
        // If there are more nodes than GPUs, which happens only with many models of tiny rates, they share GPUs.
        for (index, packed) in packing.iter().enumerate() {
            for session in &packed.sessions {
                let node = index % gpus.len();
                self.settle(session.session, node, session.batch);
                weights[session.session].push(session.rate_per_second);
            }
        }
        for (model, weights) in weights.iter_mut().enumerate() {
            // The model's expected rate is zero, but requests may come nevertheless.
            if weights.is_empty() && !gpus.is_empty() {
                self.settle(model, model % gpus.len(), 1);
                weights.push(1.0);
            }
        }
        self.turns = (0..self.frontends).map(|_| self.frontend(&weights)).collect();
        for (model, request) in homeless {
            self.arrive(now, model, request, out);
        }
    }

    fn settle(&mut self, model: usize, node: usize, batch: u32) {
        let places = &mut self.nodes[node].places;
        self.replicas[model].push((node, places.len()));
        places.push(NodeModel { model, batch, queue: DeadlineQueue::default() });
        self.nodes[node].lead = self.nodes[node].lead.max(self.cluster.delays.lead(batch));
    }

    fn frontend(&mut self, weights: &[Vec<f64>]) -> Vec<RoundRobin> {
        let mut turns: Vec<_> = weights.iter().map(|weights| RoundRobin::new(weights.clone())).collect();
        for turn in &mut turns {
            for _ in 0..self.mixer.below(PHASES) {
                turn.next_replica();
            }
        }
        turns
    }

    fn arrive(&mut self, now: Time, model: usize, request: Request, out: &mut ClusterActions) {
        let frontend = self.mixer.below(self.frontends);
        let turn = self.turns[frontend][model].next_replica();
        let Some(&(node, place)) = self.replicas[model].get(turn) else {
            let (model, reason) = (model as u32, DropReason::SloUnreachable);
            out.list.push(ClusterAction::Drop { model, request, reason, cause: None });
            return;
        };
        if self.cluster.enqueue(model, request, &mut self.nodes[node].places[place].queue, out) {
            self.waiting += 1;
        }
        let gpu = self.nodes[node].gpu;
        if self.gpus.plans(gpu) == 0 {
            self.run_next(now, gpu, out);
        }
    }

    /// Runs the batch of the next model with requests.
    fn run_next(&mut self, now: Time, gpu: usize, out: &mut ClusterActions) {
        let Some(index) = self.node_of.get(gpu).copied().flatten() else { return };
        let vacancy = self.gpus.vacancy(gpu);
        let places = self.nodes[index].places.len();
        for step in 0..places {
            let at = (self.nodes[index].next + step) % places;
            let place = &mut self.nodes[index].places[at];
            let before = place.queue.len();
            let requests = drop_early(&self.cluster, now, vacancy.free_at, place, out);
            self.waiting -= before - place.queue.len();
            if requests == 0 {
                continue;
            }
            let (model, queue) = (place.model, &mut place.queue);
            let plan = self.cluster.dispatch(now, model, vacancy, requests, queue, out);
            self.waiting -= requests;
            self.gpus.planned(&plan);
            self.nodes[index].next = at + 1;
            let lead = self.nodes[index].lead;
            self.ask.set(gpu, if lead == Nanos::ZERO { MinTree::EMPTY } else { (plan.end - lead).as_nanos() });
            return;
        }
    }

    fn feed_those_who_ask(&mut self, now: Time, out: &mut ClusterActions) {
        while let Some((gpu, at)) = self.ask.min()
            && at <= now.as_nanos()
        {
            self.ask.set(gpu, MinTree::EMPTY);
            // At most two plans per GPU, and none behind a late one.
            if self.gpus.plans(gpu) == 1 && self.gpus.vacancy(gpu).free_at >= now {
                self.run_next(now, gpu, out);
            }
        }
    }
}

/// Drops heads that do not fit into a batch of the window (the Nexus paper, section 6.3), and returns the requests of
/// the batch.
fn drop_early(cluster: &Cluster, now: Time, gpu_free: Time, place: &mut NodeModel, out: &mut ClusterActions) -> usize {
    while let Some(head) = place.queue.head() {
        // A request larger than the window is a window by itself.
        let window = place.batch.max(head.request.items);
        let (requests, items) = place.queue.take(0, window);
        if head.must_end_by >= cluster.finish(place.model, now, gpu_free, items.max(head.request.items)) {
            return requests;
        }
        if let Some(head) = place.queue.pop_front() {
            cluster.give_up(now, place.model, &head, out);
        }
    }
    0
}

impl ClusterPolicy for Nexus {
    fn step(&mut self, now: Time, input: ClusterInput, out: &mut ClusterActions) {
        match input {
            ClusterInput::Arrive { model, request } | ClusterInput::Return { model, request } => {
                if self.must_pack {
                    self.pack(now, out);
                }
                self.arrive(now, model as usize, request, out);
            }
            ClusterInput::GpuUp { gpu, free_at } => {
                self.gpus.up(gpu, free_at);
                self.ask.grow(self.gpus.len());
                self.must_pack = true;
            }
            ClusterInput::GpuDown(gpu) => {
                self.gpus.down(gpu);
                if (gpu.get() as usize) < self.gpus.len() {
                    self.ask.set(gpu.get() as usize, MinTree::EMPTY);
                }
                // At once: the requests that waited there need another replica.
                self.pack(now, out);
            }
            ClusterInput::Done { gpu, .. } if self.gpus.is_up(gpu.get() as usize) => {
                let slot = gpu.get() as usize;
                self.gpus.done(now, gpu);
                if self.gpus.plans(slot) == 0 {
                    self.ask.set(slot, MinTree::EMPTY);
                    self.run_next(now, slot, out);
                }
            }
            ClusterInput::Done { .. } => {}
            ClusterInput::Wake => self.wake_at = Time::NEVER,
        }
        self.feed_those_who_ask(now, out);
        let wake_at = Time::from_nanos(self.ask.min_key());
        if wake_at != self.wake_at {
            self.wake_at = wake_at;
            out.list.push(ClusterAction::WakeAt(wake_at));
        }
    }

    fn waiting(&self) -> usize {
        self.waiting
    }
}
