//! Models by name, as the newest view has them.

use std::collections::BTreeMap;
use std::sync::Arc;

use symphony_protocol::view::{ModelSource, Readiness, View};
use symphony_types::{LatencyProfile, ModelId, Nanos, SubclusterId, VersionedName};

use crate::oip::{ModelInfo, ModelState};

/// Where requests for a model go.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) model: ModelId,
    pub(crate) subcluster: SubclusterId,
    pub(crate) info: Arc<ModelInfo>,
    /// By GPU kind, as given: what leads have learnt since is not known here.
    pub(crate) profiles: Arc<[LatencyProfile]>,
}

impl Route {
    /// How long a batch of so many items alone takes on the kind of GPU that is fastest at it, by the given profiles.
    pub(crate) fn alone(&self, items: u32) -> Option<Nanos> {
        self.profiles.iter().map(|profile| profile.latency(items)).min()
    }
}

/// Routes by the names that models have in the cluster.
pub(crate) type Routes = BTreeMap<String, Route>;

pub(crate) fn routes(view: &View) -> Routes {
    view.models
        .iter()
        .map(|(&id, model)| {
            let spec = &model.spec;
            let batch_max = spec.profiles.values().map(|p| p.latency.batch_max()).min().unwrap_or(1);
            let state = match model.readiness(view) {
                Readiness::Ready => ModelState::Ready,
                Readiness::Failed(reason) => ModelState::Unavailable(reason),
                Readiness::NoGpu(why) => ModelState::NoGpu(why),
                Readiness::Loading => ModelState::Loading,
            };
            let platform = match spec.source {
                ModelSource::Onnx(_) => "onnxruntime_onnx",
                ModelSource::Emulated => "emulated",
            };
            let VersionedName { name, version } = VersionedName::parse(&spec.name);
            let info = ModelInfo {
                name: name.to_owned(),
                version,
                loaded_as: spec.name.clone(),
                signature: spec.signature.clone(),
                transforms: spec.transforms.clone(),
                batch_max,
                platform: platform.to_owned(),
                slo: spec.slo,
                state,
            };
            let profiles = spec.profiles.values().map(|profile| profile.latency.clone()).collect();
            let route = Route { model: id, subcluster: model.subcluster, info: Arc::new(info), profiles };
            (spec.name.clone(), route)
        })
        .collect()
}

/// The names in these routes that are versions of a model.
pub(crate) fn versions_of(routes: &Routes, name: &str) -> Vec<String> {
    // They stand together, since they begin with the name and nothing else comes before it.
    let from = VersionedName { name, version: 0 }.loaded_as();
    let stem = &from[..from.len() - 1];
    let together = routes.range(stem.to_owned()..).take_while(|(loaded_as, _)| loaded_as.starts_with(stem));
    let versions = together.filter(|(_, route)| route.info.name == name && route.info.loaded_as != name);
    versions.map(|(loaded_as, _)| loaded_as.clone()).collect()
}
