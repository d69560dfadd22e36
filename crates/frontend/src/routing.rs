//! Models by name, as the newest view has them.

use std::collections::BTreeMap;
use std::sync::Arc;

use symphony_protocol::view::{ModelSource, View};
use symphony_types::{ModelId, SubclusterId};

use crate::oip::{ModelInfo, ModelState};

/// Where requests for a model go.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) model: ModelId,
    pub(crate) subcluster: SubclusterId,
    pub(crate) info: Arc<ModelInfo>,
}

/// Routes by model name.
pub(crate) type Routes = BTreeMap<String, Route>;

pub(crate) fn routes(view: &View) -> Routes {
    view.models
        .iter()
        .map(|(&id, model)| {
            let spec = &model.spec;
            let batch_max = spec.profiles.values().map(|p| p.latency.batch_max()).min().unwrap_or(1);
            let failed = model.replicas.values().find_map(|replica| replica.state.clone().err());
            let state = match failed {
                _ if model.is_ready(view) => ModelState::Ready,
                Some(reason) => ModelState::Unavailable(reason),
                None => ModelState::Loading,
            };
            let platform = match spec.source {
                ModelSource::Onnx(_) => "onnxruntime_onnx",
                ModelSource::Emulated => "emulated",
            };
            let info = ModelInfo {
                name: spec.name.clone(),
                signature: spec.signature.clone(),
                transforms: spec.transforms.clone(),
                batch_max,
                platform: platform.to_owned(),
                slo: spec.slo,
                state,
            };
            let route = Route { model: id, subcluster: model.subcluster, info: Arc::new(info) };
            (spec.name.clone(), route)
        })
        .collect()
}
