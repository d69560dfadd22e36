//! How traffic splits are set, of models and of pipelines, and what becomes of them when a version goes.

use std::collections::BTreeMap;

use symphony_types::VersionedName;

use crate::effect::Effect;
use crate::limits::TRAFFIC_SPLITS_MAX;
use crate::refusal::Refusal;
use crate::reply::{Outcome, Reply};
use crate::state::ClusterState;
use crate::traffic_split::{Traffic, is_version};

impl ClusterState {
    pub(crate) fn set_traffic(&mut self, model: &str, traffic: &Traffic, effects: &mut Vec<Effect>) -> Outcome {
        let is_pipeline = self.is_pipeline(model);
        if let Some(version) = traffic.versions().find(|&version| !self.has_version(model, version)) {
            let name = VersionedName { name: model, version }.loaded_as();
            return Err(match is_pipeline {
                true => Refusal::UnknownPipeline { name },
                false => Refusal::UnknownModelName { name },
            });
        }
        if is_pipeline && traffic.shadow.is_some() {
            let reason = "a copy of a pipeline's request would ask every stage twice; expected none".to_owned();
            return Err(Refusal::Invalid { field: "traffic.shadow".into(), reason });
        }
        if self.traffic.get(model).map_or(traffic.is_empty(), |known| known == traffic) {
            return Ok(Reply::Done);
        }
        if traffic.is_empty() {
            self.traffic.remove(model);
        } else if self.traffic.len() >= TRAFFIC_SPLITS_MAX && !self.traffic.contains_key(model) {
            return Err(Refusal::Limit { what: "traffic splits".into(), max: TRAFFIC_SPLITS_MAX as u64 });
        } else {
            self.traffic.insert(model.to_owned(), traffic.clone());
        }
        let (name, traffic) = (model.to_owned(), traffic.clone());
        effects.push(match is_pipeline {
            true => Effect::PipelineTrafficSet { pipeline: name, traffic },
            false => Effect::TrafficSet { model: name, traffic },
        });
        Ok(Reply::Done)
    }

    /// Whether that version of a model, or of a pipeline, is loaded.
    pub(crate) fn has_version(&self, name: &str, version: u64) -> bool {
        self.pipelines.contains_key(&VersionedName { name, version }.loaded_as())
            || self.models.values().any(|known| is_version(&known.spec.name, name, version))
    }

    /// A version of a model is gone: what it got goes to the others.
    pub(crate) fn forget_traffic_of(&mut self, loaded_as: &str, effects: &mut Vec<Effect>) {
        let VersionedName { name, version } = VersionedName::parse(loaded_as);
        // Loaded with and without its number.
        if self.has_version(name, version) {
            return;
        }
        if let Some(traffic) = self.traffic_without(name, &[version]) {
            effects.push(Effect::TrafficSet { model: name.to_owned(), traffic });
        }
    }

    /// Takes versions that are gone out of a split; what is left of it, if they had a part.
    pub(crate) fn traffic_without(&mut self, name: &str, gone: &[u64]) -> Option<Traffic> {
        let traffic = self.traffic.get_mut(name)?;
        let before = traffic.clone();
        traffic.weights.retain(|version, _| !gone.contains(version));
        traffic.shadow.take_if(|shadow| gone.contains(&shadow.version));
        let left = traffic.clone();
        if left.is_empty() {
            self.traffic.remove(name);
        }
        (left != before).then_some(left)
    }

    /// The traffic splits by model or pipeline, each of versions that are loaded.
    #[must_use]
    pub const fn traffic(&self) -> &BTreeMap<String, Traffic> {
        &self.traffic
    }
}
