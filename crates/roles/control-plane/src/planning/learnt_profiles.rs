//! Profile corrections, as leads report them to the Raft leader. Not in the log: leads repeat them every second.

use std::collections::BTreeMap;

use symphony_cluster_state::{ClusterState, PROFILE_KINDS_MAX};
use symphony_controllers::{Learnt, LearntReports, Stretch, StretchError};
use symphony_protocol::control as pb;
use symphony_types::{LatencyProfile, ModelId, PROFILE_BATCH_MAX, SubclusterId};

/// Corrected profiles in one report. With 16 points of ten bytes, a kind's name of 128 bytes and a few more, they take
/// 2.5 of the 4 MB that a message may have.
pub(crate) const LEARNT_MAX: usize = 8192;

/// Corrections by model and GPU kind. A correction outlives its lead, because the next lead begins with the given
/// profile. It stands until the model is gone, or until a lead that measured batches as large reports another value
/// (possibly that the given profile is right). At most [`PROFILE_KINDS_MAX`] for each model of the cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LearntProfiles {
    reports: BTreeMap<ModelId, BTreeMap<String, LearntReports>>,
}

impl LearntProfiles {
    /// Takes a lead's report on the models that it serves; entries for other models, or for kinds without a given
    /// profile, are ignored.
    pub(crate) fn take(&mut self, state: &ClusterState, load: &pb::SubclusterLoad) {
        for learnt in &load.learnt {
            let id = ModelId::new(learnt.model);
            let served = state.models().get(&id).filter(|model| model.is_served_by(SubclusterId::new(load.subcluster)));
            let given = served.is_some_and(|model| model.spec.profiles.contains_key(&learnt.gpu_kind));
            let (true, Ok(decoded)) = (given, decode_learnt(learnt)) else { continue };
            let by_kind = self.reports.entry(id).or_default();
            let reports = by_kind.entry(learnt.gpu_kind.clone()).or_default();
            reports.take(decoded);
            if reports.changes_nothing() {
                by_kind.remove(&learnt.gpu_kind);
            }
            debug_assert!(by_kind.len() <= PROFILE_KINDS_MAX, "only kinds with a given profile are kept");
            if by_kind.is_empty() {
                self.reports.remove(&id);
            }
        }
    }

    /// Forgets models that are gone: once per report, which may cover a thousand leads.
    pub(crate) fn forget_gone(&mut self, state: &ClusterState) {
        self.reports.retain(|model, _| state.models().contains_key(model));
    }

    /// The measured profile; the given one where there is no correction.
    pub(crate) fn measured(&self, model: ModelId, kind: &str, given: LatencyProfile) -> LatencyProfile {
        match self.reports.get(&model).and_then(|by_kind| by_kind.get(kind)) {
            Some(reports) => reports.over(&given),
            None => given,
        }
    }

    /// The largest ratio of measured to given latency of a model, over all kinds of GPU.
    pub(crate) fn largest(&self, model: ModelId) -> f64 {
        let by_kind = self.reports.get(&model).into_iter().flatten();
        by_kind.map(|(_, reports)| reports.largest()).reduce(f64::max).unwrap_or(1.0)
    }

    /// The number of corrections.
    pub(crate) fn count(&self) -> usize {
        self.reports.values().map(BTreeMap::len).sum()
    }

    /// Forgets all: another replica leads the group.
    pub(crate) fn clear(&mut self) {
        self.reports.clear();
    }
}

/// Why a reported correction is invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum LearntError {
    /// Its points do not form a valid curve.
    #[error(transparent)]
    Stretch(#[from] StretchError),
    /// The batch size cannot have been measured.
    #[error("largest measured batch size {0}; expected 1 to {PROFILE_BATCH_MAX}")]
    MeasuredMax(u32),
}

/// Decodes a reported correction.
///
/// # Errors
/// If its points are invalid, or its largest measured batch size is.
pub(crate) fn decode_learnt(learnt: &pb::LearntProfile) -> Result<Learnt, LearntError> {
    let points = learnt.points.iter().map(|point| (point.batch, f64::from(point.factor)));
    let stretch = Stretch::from_points(points.collect())?;
    match learnt.measured_max {
        measured_max @ 1..=PROFILE_BATCH_MAX => Ok(Learnt { stretch, measured_max }),
        beyond => Err(LearntError::MeasuredMax(beyond)),
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

        // A new lead has learnt nothing yet; other sub-clusters, other kinds and invalid reports are ignored.
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
