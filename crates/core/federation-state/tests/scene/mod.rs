//! Commands that tests give.
#![allow(dead_code, reason = "every test uses some of it")]

use std::collections::BTreeMap;

use symphony_federation_state::{
    Action, Cause, Command, FederationState, KindCapacity, Operation, Outcome, WantedMove,
};
use symphony_replicated::{KindProfile, ModelSource, ModelSpec};
use symphony_types::{DataType, OperationId, RequestValue, Signature, TensorSpec};

/// A state that commands are applied to, each at the next index.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scene {
    pub(crate) state: FederationState,
}

impl Scene {
    pub(crate) fn apply(&mut self, command: &Command) -> Outcome {
        self.state.apply(self.state.applied_index() + 1, command)
    }

    #[track_caller]
    pub(crate) fn done(&mut self, command: &Command) -> u64 {
        self.apply(command).unwrap_or_else(|refusal| panic!("{command:?}: {refusal}"));
        self.state.applied_index()
    }

    /// Clusters a, b and c, and model m at home in a.
    pub(crate) fn with_a_model() -> Self {
        let mut scene = Self::default();
        for name in ["a", "b", "c"] {
            scene.done(&see(name));
        }
        scene.done(&load(1, "m"));
        scene.goes("m", "a");
        scene
    }

    /// Moves a model there, to the end.
    #[track_caller]
    pub(crate) fn goes(&mut self, model: &str, to: &str) {
        let since = self.begins(model, to, Cause::Operator);
        self.done(&Command::Loaded { model: model.into(), since });
    }

    #[track_caller]
    pub(crate) fn begins(&mut self, model: &str, to: &str, cause: Cause) -> u64 {
        let wanted = self.wanted(model, to);
        self.done(&Command::BeginMoves { moves: vec![wanted], cause })
    }

    pub(crate) fn wanted(&self, model: &str, to: &str) -> WantedMove {
        let known = self.state.models().get(model);
        WantedMove {
            model: model.into(),
            loaded_at: known.map_or(0, |model| model.loaded_at),
            from: known.and_then(|model| model.home.as_ref()).map(|home| home.cluster.clone()),
            to: to.into(),
            subcluster: "s".into(),
        }
    }

    pub(crate) fn home(&self, model: &str) -> Option<&str> {
        self.state.models().get(model)?.home.as_ref().map(|home| home.cluster.as_str())
    }

    pub(crate) fn leftovers(&self, model: &str) -> Vec<(String, u64)> {
        let model = self.state.models().get(model);
        model.into_iter().flat_map(|model| model.leftovers.clone()).collect()
    }

    /// Since when the cluster answers, or does not.
    pub(crate) fn since(&self, cluster: &str) -> u64 {
        self.state.clusters().get(cluster).map_or(0, |cluster| cluster.since)
    }

    pub(crate) fn lose(&mut self, cluster: &str) -> Outcome {
        let since = self.since(cluster);
        self.apply(&Command::ClusterLost { name: cluster.into(), since })
    }

    pub(crate) fn back(&mut self, cluster: &str) -> Outcome {
        let since = self.since(cluster);
        self.apply(&Command::ClusterBack { name: cluster.into(), since })
    }
}

pub(crate) fn see(name: &str) -> Command {
    let kinds = BTreeMap::from([("gpu".to_owned(), KindCapacity { gpus: 4, memory_bytes: 1 << 30 })]);
    Command::SeeCluster { name: name.into(), control: vec![format!("{name}:7001")], kinds }
}

pub(crate) fn spec(name: &str) -> ModelSpec {
    let tensor = TensorSpec { name: "x".into(), data_type: DataType::Fp32, item_shape: vec![4] };
    let profile = KindProfile { latency_ns: vec![1_000, 1_500], static_memory_bytes: 10, dynamic_memory_bytes: 5 };
    ModelSpec {
        name: name.into(),
        subcluster: String::new(),
        slo_ns: 1_000_000,
        source: ModelSource::Emulated,
        signature: Signature { inputs: vec![tensor.clone()], outputs: vec![tensor] },
        transforms: Default::default(),
        profiles: [("gpu".to_owned(), profile)].into(),
        // By name: the committed files of format.rs hold it.
        policy: "symphony".parse().unwrap(),
        value: RequestValue::ONE,
    }
}

pub(crate) fn operate(id: u128, action: Action) -> Command {
    let (id, actor) = (OperationId::new(id), "operator/ann".to_owned());
    Command::Operate(Operation { id, actor, at_unix_ms: 1_700_000_000_000, action })
}

pub(crate) fn load(id: u128, name: &str) -> Command {
    operate(id, Action::LoadModel { spec: spec(name), wanted_mrps: 2_500, cluster: String::new() })
}

pub(crate) fn unload(id: u128, name: &str) -> Command {
    operate(id, Action::UnloadModel { name: name.into() })
}
