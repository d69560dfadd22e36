//! A federation for tests: its state, and the clusters as its leader sees them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use symphony_federation_state::{Action, Cause, Command, FederationState, HomeMove, Operation};
use symphony_protocol::control as pb;
use symphony_protocol::view::{
    BackendView, GpuView, HolderView, KindProfile, ModelSource, ModelSpec, ModelView, NodeView, PipelineView,
    SubclusterView, View,
};
use symphony_types::{
    BackendId, BootId, GpuId, LatencyProfile, ModelId, Nanos, NodeId, OperationId, RequestValue, Signature,
    SubclusterId, Token,
};

use crate::cluster_poller::Poll;
use crate::copies::{Copy, copy_in};

const SUBCLUSTER: SubclusterId = SubclusterId::new(1);
const BACKEND: BackendId = BackendId::new(1);
/// Memory of a GPU, and of a model.
const GPU_BYTES: u64 = 1 << 30;
const MODEL_BYTES: u64 = 1 << 20;

/// Clusters of one sub-cluster `s` with two GPUs each.
pub(crate) struct Scene {
    pub(crate) state: FederationState,
    pub(crate) polls: BTreeMap<String, Poll>,
    /// Replicas that hold entries of the leader's log.
    pub(crate) holders: BTreeSet<u64>,
    operations: u128,
}

impl Scene {
    pub(crate) fn new(clusters: &[&str]) -> Self {
        let (state, polls, holders) = (FederationState::default(), BTreeMap::new(), BTreeSet::new());
        let mut scene = Self { state, polls, holders, operations: 0 };
        for name in clusters {
            let gpu = |id| GpuView {
                id: GpuId::new(id),
                kind: "gpu".into(),
                memory_bytes: GPU_BYTES,
                binding: Token::default(),
            };
            let backend = BackendView {
                name: "backend".into(),
                boot: BootId::new(7),
                up: true,
                subcluster: SUBCLUSTER,
                gpus: vec![gpu(1), gpu(2)],
                ..BackendView::default()
            };
            let subcluster = SubclusterView { name: "s".into(), ..SubclusterView::default() };
            let view = View {
                cluster: (*name).into(),
                nodes: [(NodeId::new(1), NodeView::default())].into(),
                subclusters: [(SUBCLUSTER, subcluster)].into(),
                backends: [(BACKEND, backend)].into(),
                ..View::default()
            };
            scene.polls.insert((*name).into(), Poll { view: Some(Arc::new(view)), ago: Duration::ZERO });
            let two = symphony_federation_state::KindCapacity { gpus: 2, memory_bytes: 2 * GPU_BYTES };
            let (kinds, control) = (BTreeMap::from([("gpu".to_owned(), two)]), vec![format!("{name}:7001")]);
            scene.done(&Command::SeeCluster { name: (*name).into(), control, kinds });
        }
        scene
    }

    #[track_caller]
    pub(crate) fn done(&mut self, command: &Command) -> u64 {
        let index = self.state.applied_index() + 1;
        self.state.apply(index, command).unwrap_or_else(|refusal| panic!("{command:?}: {refusal}"));
        index
    }

    fn spec(name: &str, value: f64) -> ModelSpec {
        let latency = LatencyProfile::from_line(1.0, 5.0, 32).unwrap();
        let profile = KindProfile { latency, static_memory_bytes: MODEL_BYTES, dynamic_memory_bytes: MODEL_BYTES };
        ModelSpec {
            name: name.into(),
            subcluster: String::new(),
            slo: Nanos::from_millis(100),
            source: ModelSource::Emulated,
            signature: Signature { inputs: vec![], outputs: vec![] },
            transforms: Default::default(),
            profiles: [("gpu".to_owned(), profile)].into(),
            policy: Default::default(),
            value: RequestValue::from_number(value).unwrap(),
        }
    }

    fn loads(&mut self, spec: ModelSpec, wanted_rps: u64, cluster: &str) {
        self.operations += 1;
        let (id, wanted_mrps) = (OperationId::new(self.operations), wanted_rps * 1000);
        let spec = pb::ModelSpec::from(&spec).try_into().unwrap();
        let action = Action::LoadModel { spec, wanted_mrps, cluster: cluster.into() };
        self.done(&Command::Operate(Operation { id, actor: "operator/ann".into(), at_unix_ms: 0, action }));
    }

    pub(crate) fn load(&mut self, model: &str, wanted_rps: u64) {
        self.loads(Self::spec(model, 1.0), wanted_rps, "");
    }

    pub(crate) fn load_worth(&mut self, model: &str, wanted_rps: u64, value: f64) {
        self.loads(Self::spec(model, value), wanted_rps, "");
    }

    /// Loads a model that takes most of a GPU.
    pub(crate) fn load_large(&mut self, model: &str) {
        let mut spec = Self::spec(model, 1.0);
        spec.profiles.values_mut().for_each(|profile| profile.static_memory_bytes = GPU_BYTES - 4 * MODEL_BYTES);
        self.loads(spec, 1, "");
    }

    /// Loads a model of this size in bytes.
    pub(crate) fn load_sized(&mut self, model: &str, bytes: u64) {
        let mut spec = Self::spec(model, 1.0);
        spec.profiles.values_mut().for_each(|profile| profile.static_memory_bytes = bytes);
        self.loads(spec, 0, "");
    }

    pub(crate) fn load_in(&mut self, model: &str, cluster: &str) {
        self.loads(Self::spec(model, 1.0), 0, cluster);
    }

    #[track_caller]
    pub(crate) fn begin(&mut self, model: &str, to: &str, cause: Cause) -> u64 {
        let known = &self.state.models()[model];
        let wanted = HomeMove {
            model: model.into(),
            loaded_at: known.loaded_at,
            from: known.home.as_ref().map(|home| home.cluster.clone()),
            to: to.into(),
            subcluster: "s".into(),
        };
        self.done(&Command::BeginMoves { moves: vec![wanted], cause })
    }

    /// The model has arrived at its destination, and its old copy is gone.
    pub(crate) fn arrive(&mut self, model: &str, to: &str) {
        let moving = self.state.models()[model].moving.clone().unwrap();
        self.copy(model, to, Some(Ok(())));
        self.done(&Command::Loaded { model: model.into(), since: moving.since });
        for (cluster, since) in self.state.models()[model].leftovers.clone() {
            self.forget(model, &cluster);
            self.done(&Command::CopyGone { model: model.into(), cluster, since });
        }
    }

    /// Moves the model there from wherever it is, and completes the move.
    pub(crate) fn settle(&mut self, model: &str, to: &str) {
        if let Some(home) = self.state.models()[model].home.clone() {
            let (model, cluster, since) = (model.to_owned(), home.cluster, home.since);
            self.done(&Command::CopyGone { model, cluster, since });
        }
        self.begin(model, to, Cause::Place);
        self.arrive(model, to);
    }

    fn change(&mut self, cluster: &str, change: impl FnOnce(&mut View)) {
        let poll = self.polls.get_mut(cluster).unwrap();
        let mut view = View::clone(poll.view.as_ref().unwrap());
        change(&mut view);
        poll.view = Some(Arc::new(view));
    }

    fn put(&mut self, cluster: &str, spec: ModelSpec, state: Option<Result<(), String>>) {
        self.change(cluster, |view| {
            let next = view.models.keys().next_back().map_or(1, |last| last.get() + 1);
            let id = view.model_named(&spec.name).map_or(ModelId::new(next), |(id, _)| id);
            let holder = |state| (BACKEND, HolderView { boot: BootId::new(7), state });
            let holders = state.map(holder).into_iter().collect();
            view.models.insert(id, ModelView { spec, subcluster: SUBCLUSTER, moving: None, holders, trunk: None });
        });
    }

    /// The cluster has a copy in this state: loading, loaded, or failed.
    pub(crate) fn copy(&mut self, model: &str, cluster: &str, state: Option<Result<(), String>>) {
        let spec = ModelSpec::try_from(pb::ModelSpec::from(&self.state.models()[model].spec)).unwrap();
        self.put(cluster, ModelSpec { subcluster: "s".into(), ..spec }, state);
    }

    /// The cluster begins to load the requested copy.
    pub(crate) fn load_copy(&mut self, cluster: &str, spec: &symphony_cluster_state::ModelSpec) {
        self.put(cluster, ModelSpec::try_from(pb::ModelSpec::from(spec)).unwrap(), None);
    }

    /// The cluster has loaded its copy, if it has one.
    pub(crate) fn becomes_ready(&mut self, model: &str, cluster: &str) {
        self.change(cluster, |view| {
            let copy = view.models.values_mut().find(|known| known.spec.name == model);
            let ready = HolderView { boot: BootId::new(7), state: Ok(()) };
            copy.into_iter().for_each(|copy| drop(copy.holders.insert(BACKEND, ready.clone())));
        });
    }

    /// Whether the cluster serves the model.
    pub(crate) fn is_ready(&self, model: &str, cluster: &str) -> bool {
        let (view, known) = (self.polls[cluster].view.as_ref(), self.state.models().get(model));
        view.zip(known).is_some_and(|(view, known)| matches!(copy_in(view, &known.spec), Copy::Ready(_)))
    }

    /// Loads into the cluster a pipeline whose one stage asks the model.
    pub(crate) fn load_pipeline(&mut self, model: &str, cluster: &str) {
        let stage = pb::PipelineStage { name: model.into(), model: model.into(), ..Default::default() };
        let spec = pb::PipelineSpec { name: "p".into(), version: 1, stages: vec![stage], ..Default::default() };
        let named: (String, PipelineView) = pb::Pipeline { spec: Some(spec), ..Default::default() }.try_into().unwrap();
        self.change(cluster, |view| view.pipelines.extend([named]));
    }

    /// The cluster has no pipeline any more.
    pub(crate) fn unload_pipeline(&mut self, cluster: &str) {
        self.change(cluster, |view| view.pipelines.clear());
    }

    /// Whether the cluster would unload the model: it has it, and no pipeline needs it.
    pub(crate) fn would_unload(&self, model: &str, cluster: &str) -> bool {
        let view = self.polls[cluster].view.as_ref();
        view.is_some_and(|view| view.model_named(model).is_some() && !view.pipelines_need(model))
    }

    /// Asks to unload a model; refused if it is being unloaded already.
    pub(crate) fn unload(&mut self, model: &str) {
        self.operations += 1;
        let (id, action) = (OperationId::new(self.operations), Action::UnloadModel { name: model.into() });
        let unload = Command::Operate(Operation { id, actor: "operator/ann".into(), at_unix_ms: 0, action });
        drop(self.state.apply(self.state.applied_index() + 1, &unload));
    }

    /// The cluster has another model of the same name.
    pub(crate) fn stranger(&mut self, model: &str, cluster: &str) {
        self.put(
            cluster,
            ModelSpec { source: ModelSource::Onnx("another.onnx".into()), ..Self::spec(model, 1.0) },
            Some(Ok(())),
        );
    }

    /// The cluster's own operators have loaded a model that leaves no room.
    pub(crate) fn fill(&mut self, cluster: &str) {
        self.fill_but(cluster, 2 * MODEL_BYTES);
    }

    /// As [`fill`](Self::fill), but leaves this many bytes beside what its batches take.
    pub(crate) fn fill_but(&mut self, cluster: &str, free_bytes: u64) {
        let mut spec = Self::spec("own", 1.0);
        spec.profiles.values_mut().for_each(|profile| profile.static_memory_bytes = GPU_BYTES - free_bytes);
        self.put(cluster, spec, Some(Ok(())));
    }

    /// All backends of the cluster are up, or down.
    pub(crate) fn backends_up(&mut self, cluster: &str, up: bool) {
        self.change(cluster, |view| view.backends.values_mut().for_each(|backend| backend.up = up));
    }

    /// The cluster's GPUs have this much memory.
    pub(crate) fn shrink(&mut self, cluster: &str, memory_bytes: u64) {
        self.change(cluster, |view| {
            let gpus = view.backends.values_mut().flat_map(|backend| &mut backend.gpus);
            gpus.for_each(|gpu| gpu.memory_bytes = memory_bytes);
        });
    }

    /// One of the cluster's GPUs is replaced by one of another kind, for which no model has a profile.
    pub(crate) fn new_kind(&mut self, cluster: &str) {
        self.change(cluster, |view| {
            let gpu = view.backends.values_mut().find_map(|backend| backend.gpus.first_mut());
            gpu.unwrap().kind = "new".into();
        });
    }

    pub(crate) fn forget(&mut self, model: &str, cluster: &str) {
        self.change(cluster, |view| view.models.retain(|_, known| known.spec.name != model));
    }

    /// Sets how long ago the cluster last answered.
    pub(crate) fn silent(&mut self, cluster: &str, ago: Duration) {
        self.polls.get_mut(cluster).unwrap().ago = ago;
    }

    pub(crate) fn lose(&mut self, cluster: &str) {
        let since = self.state.clusters()[cluster].since;
        self.done(&Command::ClusterLost { name: cluster.into(), since });
    }

    /// The views of the reachable clusters.
    pub(crate) fn views(&self) -> BTreeMap<String, Arc<View>> {
        let answers = self.polls.iter().filter(|(name, _)| self.state.is_reachable(name));
        answers.filter_map(|(name, poll)| Some((name.clone(), poll.view.clone()?))).collect()
    }
}
