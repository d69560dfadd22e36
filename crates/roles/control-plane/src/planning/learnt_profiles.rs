//! What leads have learnt of profiles, as they report it to the Raft leader. Never in the log: leads say it again every
//! second.

use std::collections::BTreeMap;

use symphony_cluster_state::{ClusterState, PROFILE_KINDS_MAX};
use symphony_controllers::{Learnt, Stretch, StretchError, Words};
use symphony_protocol::control as pb;
use symphony_types::{LatencyProfile, ModelId, PROFILE_BATCH_MAX, SubclusterId};

/// Corrected profiles in one report. With 16 points of ten bytes, a kind's name of 128 and a few more that is two and a
/// half of the four megabytes that a message may have.
pub(crate) const LEARNT_MAX: usize = 8192;

/// Corrections by model and GPU kind. One outlives the lead that made it, since the next one begins with the given
/// profile: it stands until somebody who measured batches as large says otherwise, also that the given profile is
/// right, or the model is gone. At most [`PROFILE_KINDS_MAX`] for each model of the cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LearntProfiles {
    words: BTreeMap<ModelId, BTreeMap<String, Words>>,
}

impl LearntProfiles {
    /// A lead's word on the models that it serves; what concerns others, or kinds without a given profile, changes
    /// nothing.
    pub(crate) fn take(&mut self, state: &ClusterState, load: &pb::SubclusterLoad) {
        for learnt in &load.learnt {
            let id = ModelId::new(learnt.model);
            let served = state.models().get(&id).filter(|model| model.is_served_by(SubclusterId::new(load.subcluster)));
            let given = served.is_some_and(|model| model.spec.profiles.contains_key(&learnt.gpu_kind));
            let (true, Ok(word)) = (given, word(learnt)) else { continue };
            let by_kind = self.words.entry(id).or_default();
            let words = by_kind.entry(learnt.gpu_kind.clone()).or_default();
            words.take(word);
            if words.changes_nothing() {
                by_kind.remove(&learnt.gpu_kind);
            }
            debug_assert!(by_kind.len() <= PROFILE_KINDS_MAX, "only kinds with a given profile are kept");
            if by_kind.is_empty() {
                self.words.remove(&id);
            }
        }
    }

    /// Forgets models that are gone: once for each report, which may be of a thousand leads.
    pub(crate) fn forget_gone(&mut self, state: &ClusterState) {
        self.words.retain(|model, _| state.models().contains_key(model));
    }

    /// The profile as it is measured; the given one where nothing is learnt.
    pub(crate) fn measured(&self, model: ModelId, kind: &str, given: LatencyProfile) -> LatencyProfile {
        match self.words.get(&model).and_then(|by_kind| by_kind.get(kind)) {
            Some(words) => words.over(&given),
            None => given,
        }
    }

    /// How many times as long as given batches of a model take at the most, on any kind of GPU.
    pub(crate) fn largest(&self, model: ModelId) -> f64 {
        let by_kind = self.words.get(&model).into_iter().flatten();
        by_kind.map(|(_, words)| words.largest()).reduce(f64::max).unwrap_or(1.0)
    }

    /// Corrections that are known.
    pub(crate) fn count(&self) -> usize {
        self.words.values().map(BTreeMap::len).sum()
    }

    /// Forgets all: somebody else leads the group.
    pub(crate) fn clear(&mut self) {
        self.words.clear();
    }
}

/// Why a message is no word.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum WordError {
    /// Its points make no stretch.
    #[error(transparent)]
    Stretch(#[from] StretchError),
    /// Nobody can have measured such a batch.
    #[error("largest measured batch size {0}; expected 1 to {PROFILE_BATCH_MAX}")]
    MeasuredMax(u32),
}

/// What a message says.
///
/// # Errors
/// If it is no stretch, or says of no batch size that it was measured.
pub(crate) fn word(learnt: &pb::LearntProfile) -> Result<Learnt, WordError> {
    let points = learnt.points.iter().map(|point| (point.batch, f64::from(point.factor)));
    let stretch = Stretch::from_points(points.collect())?;
    match learnt.measured_max {
        measured_max @ 1..=PROFILE_BATCH_MAX => Ok(Learnt { stretch, measured_max }),
        beyond => Err(WordError::MeasuredMax(beyond)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planning::problem::tests::{cluster, learnt, loaded};

    fn load(subcluster: u32, learnt: Vec<pb::LearntProfile>) -> pb::SubclusterLoad {
        pb::SubclusterLoad { subcluster, token: 1, learnt, ..Default::default() }
    }

    #[test]
    fn what_a_lead_says_of_its_models_stands_until_somebody_says_otherwise_or_the_model_is_gone() {
        let mut state = cluster(&["left", "right"]);
        loaded(&mut state, "a", "left");
        let (model, given) = (ModelId::new(1), LatencyProfile::from_line(1.0, 5.0, 8).unwrap());
        let mut profiles = LearntProfiles::default();
        let of = |profiles: &LearntProfiles| profiles.measured(model, "gpu", given.clone()).latency(1).as_millis_f64();
        profiles.take(&state, &load(1, vec![learnt(1, "gpu", 2.0)]));
        assert_eq!((of(&profiles), profiles.largest(model), profiles.count()), (12.0, 2.0, 1));

        // A new lead has learnt nothing yet; another sub-cluster, another kind and nonsense have nothing to say.
        let nonsense = pb::LearntProfile { points: vec![], ..learnt(1, "gpu", 1.0) };
        let unmeasured = |measured_max| pb::LearntProfile { measured_max, ..learnt(1, "gpu", 1.0) };
        for ignored in [
            load(1, vec![]),
            load(2, vec![learnt(1, "gpu", 3.0)]),
            load(1, vec![learnt(1, "tpu", 3.0), learnt(7, "gpu", 3.0), nonsense, learnt(1, "gpu", f32::NAN)]),
            load(1, vec![unmeasured(0), unmeasured(PROFILE_BATCH_MAX + 1)]),
        ] {
            profiles.take(&state, &ignored);
            assert_eq!((of(&profiles), profiles.count()), (12.0, 1), "{ignored:?}");
        }
        profiles.take(&state, &load(1, vec![learnt(1, "gpu", 1.5)]));
        assert_eq!(of(&profiles), 9.0);
        assert_eq!(profiles.measured(model, "tpu", given.clone()), given);

        profiles.take(&state, &load(2, vec![learnt(1, "gpu", 1.0)]));
        assert_eq!(of(&profiles), 9.0, "nobody takes back what others found");
        profiles.take(&state, &load(1, vec![learnt(1, "gpu", 1.0)]));
        assert_eq!((of(&profiles), profiles.largest(model), profiles.count()), (6.0, 1.0, 0), "the given one is right");
        profiles.take(&state, &load(1, vec![learnt(1, "gpu", 1.5)]));

        profiles.forget_gone(&cluster(&["left", "right"]));
        assert_eq!((profiles.count(), profiles.largest(model)), (0, 1.0));
    }
}
