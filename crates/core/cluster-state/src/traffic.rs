//! How traffic splits are set, and what becomes of them when a version goes.

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
        let has = |version: u64| self.models.values().any(|known| is_version(&known.spec.name, model, version));
        if let Some(version) = traffic.versions().find(|&version| !has(version)) {
            return Err(Refusal::UnknownModelName { name: VersionedName { name: model, version }.loaded_as() });
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
        effects.push(Effect::TrafficSet { model: model.to_owned(), traffic: traffic.clone() });
        Ok(Reply::Done)
    }

    /// A version is gone: what it got goes to the others.
    pub(crate) fn forget_traffic_of(&mut self, loaded_as: &str, effects: &mut Vec<Effect>) {
        let VersionedName { name, version } = VersionedName::parse(loaded_as);
        // Loaded with and without its number.
        if self.models.values().any(|known| is_version(&known.spec.name, name, version)) {
            return;
        }
        let Some(traffic) = self.traffic.get_mut(name) else { return };
        let had_weight = traffic.weights.remove(&version).is_some();
        let was_shadow = traffic.shadow.take_if(|shadow| shadow.version == version).is_some();
        if had_weight || was_shadow {
            effects.push(Effect::TrafficSet { model: name.to_owned(), traffic: traffic.clone() });
        }
        if traffic.is_empty() {
            self.traffic.remove(name);
        }
    }

    /// The traffic splits by model, each of versions that are loaded.
    #[must_use]
    pub const fn traffic(&self) -> &BTreeMap<String, Traffic> {
        &self.traffic
    }
}
