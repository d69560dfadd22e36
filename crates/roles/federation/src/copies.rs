//! The state of a model's copy in a cluster.

use symphony_cluster_state::ModelSpec;
use symphony_protocol::view::{NoGpu, Readiness, View};
use symphony_types::SubclusterId;

/// A cluster's copy of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Copy {
    /// There is none.
    None,
    /// Its backends are loading it.
    Loading,
    /// No GPU can load or run it.
    NoGpu(NoGpu),
    /// It is served in that sub-cluster.
    Ready(SubclusterId),
    /// No backend could load it.
    Failed(String),
    /// Another model has the same name.
    Foreign,
}

/// The state of the model's copy according to the view.
pub(crate) fn copy_in(view: &View, spec: &ModelSpec) -> Copy {
    let Some((_, model)) = view.model_named(&spec.name) else { return Copy::None };
    // The choice of the sub-cluster is the cluster's, and its operators may change how the copy is served.
    let there = ModelSpec {
        subcluster: spec.subcluster.clone(),
        slo_ns: spec.slo_ns,
        policy: spec.policy,
        value: spec.value,
        ..ModelSpec::from(model.spec.clone())
    };
    if there != *spec {
        return Copy::Foreign;
    }
    match model.readiness(view) {
        Readiness::Ready => Copy::Ready(model.subcluster),
        Readiness::Failed(reason) => Copy::Failed(reason),
        Readiness::NoGpu(why) => Copy::NoGpu(why),
        Readiness::Loading => Copy::Loading,
    }
}
