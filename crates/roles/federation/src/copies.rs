//! What a cluster has of a model.

use symphony_cluster_state::ModelSpec;
use symphony_protocol::view::View;
use symphony_types::SubclusterId;

/// A model in a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Copy {
    /// It has none.
    None,
    /// Its backends load it.
    Loading,
    /// It is served there, in that sub-cluster.
    Ready(SubclusterId),
    /// No backend could load it.
    Failed(String),
    /// Another model has its name.
    Foreign,
}

/// What the view says of the model.
pub(crate) fn copy_in(view: &View, spec: &ModelSpec) -> Copy {
    let Some((_, model)) = view.model_named(&spec.name) else { return Copy::None };
    // The sub-cluster is the cluster's own business.
    let there = ModelSpec { subcluster: spec.subcluster.clone(), ..ModelSpec::from(model.spec.clone()) };
    if there != *spec {
        return Copy::Foreign;
    }
    if model.is_ready(view) {
        return Copy::Ready(model.subcluster);
    }
    let failed = model.replicas.values().find_map(|replica| replica.state.clone().err());
    failed.map_or(Copy::Loading, Copy::Failed)
}
