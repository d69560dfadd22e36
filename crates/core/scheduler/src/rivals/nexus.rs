//! Nexus: a fixed packing of models onto GPUs, and uncoordinated frontends.

use std::sync::Arc;

use symphony_packing::{Session, batch_oblivious, fit_nodes};
use symphony_types::{GpuClass, GpuId, Nanos, Time};

use super::cluster::{Cluster, GpuAvailability};
use super::deadline_queue::DeadlineQueue;
use super::gpu_book::GpuBook;
use super::round_robin::{Mixer, RoundRobin};
use super::unplaced_requests::UnplacedRequests;
use crate::MinTree;
use crate::actions::Request;
use crate::cluster::facts::ClusterFacts;
use crate::cluster::model::ClusterModel;
use crate::cluster_policy::{ClusterActions, ClusterInput, ClusterPolicy};

/// The highest rate that is packed, in items per second: far above what GPUs serve.
const RATE_MAX: f64 = 1e9;
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
/// From *Nexus: A GPU Cluster Engine for Accelerating DNN-Based Video Analysis* (SOSP 2019): squishy bin packing
/// ([`symphony_packing::squishy_bin_packing`]) of the given rates, multiplied by the largest factor that fits the GPUs.
/// Each frontend sends to the replicas of a model in its own round robin. GPUs go through their models without pausing
/// and drop early: of the next b requests, heads that do not fit into a batch of all b. A GPU that is added or lost
/// causes a new packing, and so does a model that comes, goes or changes. The rates come from the host; where only
/// these change, the next arrival packs. GPUs of different classes are packed one class after the other: each is given
/// the share of a model's rate that it has in what all of them could do for the model. Requests of a model without a
/// replica wait for one.
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
    /// Whether GPUs are allocated as if no batch shared one.
    is_oblivious: bool,
    /// Whether heads are dropped only when they are lost.
    is_lazy: bool,
    must_pack: bool,
    /// Requests of models without a replica.
    unplaced: UnplacedRequests,
    /// When each GPU must decide its next batch. Empty without delays: then the end of a batch triggers the decision.
    ask: MinTree,
    waiting: usize,
    wake_at: Time,
}

impl Nexus {
    /// Without models and GPUs, which come as inputs.
    #[must_use]
    pub fn new(facts: &ClusterFacts, settings: NexusSettings) -> Self {
        Self {
            gpus: GpuBook::new(facts.plans_max),
            nodes: Vec::new(),
            node_of: Vec::new(),
            replicas: Vec::new(),
            turns: Vec::new(),
            frontends: settings.frontends.max(1) as usize,
            mixer: Mixer::new(settings.seed),
            is_oblivious: false,
            is_lazy: false,
            must_pack: true,
            unplaced: UnplacedRequests::default(),
            ask: MinTree::new(0),
            waiting: 0,
            wake_at: Time::NEVER,
            cluster: Cluster::default(),
        }
    }

    /// Without squishy packing, for comparison: GPUs are allocated as if no batch shared one (the Nexus paper, section
    /// 7.2). To be called before the first input.
    #[must_use]
    pub fn batch_oblivious(mut self) -> Self {
        self.is_oblivious = true;
        self
    }

    /// Without early drop, for comparison: the oldest request decides the batch until it is lost (the Nexus paper,
    /// section 4.3). To be called before the first input.
    #[must_use]
    pub fn dropping_lazily(mut self) -> Self {
        self.is_lazy = true;
        self
    }

    /// Packs the models onto the present GPUs and reassigns the waiting requests.
    fn pack(&mut self, now: Time, out: &mut ClusterActions) {
        self.must_pack = false;
        let mut unplaced = self.unplaced.take();
        for place in self.nodes.iter_mut().flat_map(|node| &mut node.places) {
            unplaced
                .extend(std::iter::from_fn(|| place.queue.pop_front()).map(|waiting| (place.model, waiting.request)));
        }
        self.waiting = 0;
        let gpus: Vec<_> = (0..self.gpus.len()).filter(|&gpu| self.gpus.is_up(gpu)).collect();
        let node = |&gpu: &usize| Node { gpu, places: Vec::new(), next: 0, lead: Nanos::ZERO };
        self.nodes = gpus.iter().map(node).collect();
        self.node_of = vec![None; self.gpus.len()];
        for (index, &gpu) in gpus.iter().enumerate() {
            self.node_of[gpu] = Some(index);
        }
        let models = self.cluster.slots();
        self.replicas = vec![Vec::new(); models];
        let mut weights = vec![Vec::new(); models];
        let classes = self.gpus.classes();
        for class in GpuClass::all().filter(|&class| classes.has(class)) {
            let of_class = |&node: &usize| self.gpus.availability(gpus[node]).class == class;
            let nodes: Vec<_> = (0..gpus.len()).filter(of_class).collect();
            // If there are more nodes than GPUs, which happens only with many models of tiny rates, they share GPUs.
            for (index, (model, batch, rate)) in self.packed(class, nodes.len()) {
                self.settle(model, nodes[index % nodes.len()], batch);
                weights[model].push(rate);
            }
        }
        for (model, weights) in weights.iter_mut().enumerate() {
            // The model's expected rate is zero, but requests may come nevertheless.
            let able = |&node: &usize| {
                let class = self.gpus.availability(gpus[node]).class;
                self.cluster.get(model).is_some_and(|known| known.batch_max(class) > 0)
            };
            if weights.is_empty() {
                let able: Vec<_> = (0..gpus.len()).filter(able).collect();
                if !able.is_empty() {
                    self.settle(model, able[model % able.len()], 1);
                    weights.push(1.0);
                }
            }
        }
        self.turns = (0..self.frontends).map(|_| self.frontend(&weights)).collect();
        for (model, request) in unplaced {
            self.arrive(now, model, request, out);
        }
    }

    /// The packing of the GPUs of a class: node, model, batch and rate of each session.
    fn packed(&self, class: GpuClass, gpus: usize) -> Vec<(usize, (usize, u32, f64))> {
        let (mut models, mut sessions) = (Vec::new(), Vec::new());
        for model in 0..self.cluster.slots() {
            let Some(known) = self.cluster.get(model) else { continue };
            let Some(profile) = known.profiles.get(class) else { continue };
            models.push(model);
            let slo = known.slo - known.delays.reply - known.delays.lead(1);
            sessions.push(Session { profile, slo, rate_per_second: self.rate_on(known, class) });
        }
        let packing = match () {
            () if sessions.is_empty() => Vec::new(),
            () if self.is_oblivious => batch_oblivious(&sessions, gpus),
            () => fit_nodes(&sessions, gpus),
        };
        let sessions =
            packing.iter().enumerate().flat_map(|(node, packed)| packed.sessions.iter().map(move |s| (node, s)));
        sessions.map(|(node, s)| (node, (models[s.session], s.batch, s.rate_per_second))).collect()
    }

    /// The part of a model's rate for the GPUs of a class.
    fn rate_on(&self, known: &ClusterModel, class: GpuClass) -> f64 {
        let rate = if known.rate_per_second.is_finite() { known.rate_per_second.clamp(0.0, RATE_MAX) } else { 0.0 };
        let capacity = |class: GpuClass| {
            let (batch, gpus) = (known.batch_max(class), f64::from(self.gpus.of_class(class)));
            if batch == 0 { 0.0 } else { gpus * f64::from(batch) / known.latency(class, batch).as_secs_f64() }
        };
        let all: f64 = GpuClass::all().map(capacity).sum();
        if all > 0.0 { rate * (capacity(class) / all) } else { 0.0 }
    }

    /// A model has come, changed or gone.
    fn set_model(&mut self, now: Time, model: u32, known: Option<Arc<ClusterModel>>, out: &mut ClusterActions) {
        let former = self.cluster.get(model as usize).cloned();
        let Some(slot) = self.cluster.set(model, known) else { return };
        self.unplaced.model_changed(&self.cluster, slot);
        let known = self.cluster.get(slot);
        let both = former.as_ref().zip(known);
        let runs_alike = both.is_some_and(|(a, b)| a.profiles == b.profiles && a.slo == b.slo);
        let packed_alike = runs_alike && both.is_some_and(|(a, b)| a.rate_per_second == b.rate_per_second);
        for place in self.nodes.iter_mut().flat_map(|node| &mut node.places).filter(|place| place.model == slot) {
            match known {
                Some(known) => place.queue.rekey(|request| known.must_end_by(request)),
                None => self.waiting -= place.queue.clear(),
            }
        }
        if !packed_alike {
            // Before the first packing there is nothing to pack again. Rates of many models change at once: one packing
            // serves them all.
            if self.nodes.is_empty() || runs_alike {
                self.must_pack = true;
            } else {
                self.pack(now, out);
            }
        }
    }

    fn cancel(&mut self, model: u32, request: &Request) {
        let slot = model as usize;
        let must_end_by = self.cluster.waiting(slot, *request).must_end_by;
        for &(node, place) in self.replicas.get(slot).map_or(&[][..], Vec::as_slice) {
            if self.nodes[node].places[place].queue.remove(request, must_end_by) {
                self.waiting -= 1;
                return;
            }
        }
        self.unplaced.cancel(&self.cluster, slot, request);
    }

    fn settle(&mut self, model: usize, node: usize, batch: u32) {
        let places = &mut self.nodes[node].places;
        self.replicas[model].push((node, places.len()));
        places.push(NodeModel { model, batch, queue: DeadlineQueue::default() });
        let lead = self.cluster.get(model).map_or(Nanos::ZERO, |known| known.delays.lead(batch));
        self.nodes[node].lead = self.nodes[node].lead.max(lead);
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
        let turn = self.turns[frontend].get_mut(model).map_or(0, RoundRobin::next_replica);
        let Some(&(node, place)) = self.replicas.get(model).and_then(|replicas| replicas.get(turn)) else {
            return self.unplaced.admit(&self.cluster, model as u32, request, out);
        };
        if self.cluster.enqueue(model as u32, request, Some(&mut self.nodes[node].places[place].queue), out) {
            self.waiting += 1;
        }
        let gpu = self.nodes[node].gpu;
        if self.gpus.plans(gpu) == 0 {
            self.run_next(now, gpu, out);
        }
    }

    /// A plan of the GPU has ended or was refused.
    fn ended(&mut self, now: Time, gpu: GpuId, out: &mut ClusterActions) {
        let slot = gpu.get() as usize;
        if self.gpus.plans(slot) == 0 {
            self.ask.set(slot, MinTree::EMPTY);
            self.run_next(now, slot, out);
        }
    }

    /// Runs the batch of the next model with requests.
    fn run_next(&mut self, now: Time, gpu: usize, out: &mut ClusterActions) {
        let Some(index) = self.node_of.get(gpu).copied().flatten() else { return };
        let availability = self.gpus.availability(gpu);
        let places = self.nodes[index].places.len();
        for step in 0..places {
            let at = (self.nodes[index].next + step) % places;
            let place = &mut self.nodes[index].places[at];
            let before = place.queue.len();
            let requests = if self.is_lazy {
                drop_lazily(&self.cluster, now, availability, place, out)
            } else {
                drop_early(&self.cluster, now, availability, place, out)
            };
            self.waiting -= before - place.queue.len();
            if requests == 0 {
                continue;
            }
            let (model, queue) = (place.model, &mut place.queue);
            let plan = self.cluster.dispatch(now, model, availability, (0, requests), queue, out);
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
            let is_fed = self.gpus.plans(gpu) == 1 && self.gpus.has_room(gpu);
            if is_fed && self.gpus.availability(gpu).free_at >= now {
                self.run_next(now, gpu, out);
            }
        }
    }
}

/// Drops heads that do not fit into a batch of the window (the Nexus paper, section 6.3), and returns the requests of
/// the batch.
fn drop_early(
    cluster: &Cluster,
    now: Time,
    gpu: GpuAvailability,
    place: &mut NodeModel,
    out: &mut ClusterActions,
) -> usize {
    while let Some(head) = place.queue.head() {
        // A request larger than the window is its own window.
        let window = place.batch.max(head.request.items);
        let (requests, items) = place.queue.take(0, window);
        if head.must_end_by >= cluster.finish(place.model, now, gpu, items.max(head.request.items)) {
            return requests;
        }
        if let Some(head) = place.queue.pop_front() {
            cluster.give_up(now, place.model, &head, out);
        }
    }
    0
}

/// Drops heads that are lost, and returns the requests of the largest batch within the window that the next one allows.
fn drop_lazily(
    cluster: &Cluster,
    now: Time,
    gpu: GpuAvailability,
    place: &mut NodeModel,
    out: &mut ClusterActions,
) -> usize {
    while let Some(head) = place.queue.head() {
        let window = u64::from(place.batch.max(head.request.items));
        let items = cluster.batch_within(place.model, now, gpu, window, head.must_end_by);
        if items >= head.request.items {
            return place.queue.take(0, items).0;
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
            ClusterInput::Cancel { model, request } => self.cancel(model, &request),
            ClusterInput::GpuUp { gpu, class, free_at } => {
                if self.gpus.up(gpu, class, free_at) {
                    self.cluster.set_classes(self.gpus.classes());
                    self.ask.grow(self.gpus.len());
                    self.ask.set(gpu.get() as usize, MinTree::EMPTY);
                    self.must_pack = true;
                    if self.unplaced.len() > 0 {
                        self.pack(now, out);
                    }
                }
            }
            ClusterInput::GpuDown(gpu) => {
                self.gpus.down(gpu);
                self.cluster.set_classes(self.gpus.classes());
                if (gpu.get() as usize) < self.gpus.len() {
                    self.ask.set(gpu.get() as usize, MinTree::EMPTY);
                }
                // At once: the requests that waited there need another replica.
                self.pack(now, out);
            }
            ClusterInput::Done { gpu, .. } if self.gpus.is_up(gpu.get() as usize) => {
                self.gpus.done(now, gpu);
                self.ended(now, gpu, out);
            }
            ClusterInput::Refused { gpu, start, .. } if self.gpus.is_up(gpu.get() as usize) => {
                self.gpus.refused(now, gpu, start);
                self.ended(now, gpu, out);
            }
            ClusterInput::Done { .. } | ClusterInput::Refused { .. } => {}
            ClusterInput::Model { model, known } => self.set_model(now, model, Some(known), out),
            ClusterInput::ModelGone(model) => self.set_model(now, model, None, out),
            ClusterInput::Wake => self.wake_at = Time::NEVER,
        }
        self.feed_those_who_ask(now, out);
        let lost_at = self.unplaced.drop_lost(&self.cluster, now, out);
        let wake_at = lost_at.min(Time::from_nanos(self.ask.min_key()));
        if wake_at != self.wake_at {
            self.wake_at = wake_at;
            out.wake_at(wake_at);
        }
    }

    fn waiting(&self) -> usize {
        self.waiting + self.unplaced.len()
    }
}
