//! Models by name, as the newest view has them.

use std::collections::BTreeMap;
use std::sync::Arc;

use symphony_policy::PolicySpec;
use symphony_protocol::view::{BackendView, ModelSource, ModelView, Readiness, View};
use symphony_types::{LatencyProfile, ModelId, Nanos, SubclusterId, VersionedName};

use crate::oip::{ModelInfo, ModelState};

/// Profiles may be off by this factor from what batches really take: leads learn that, and nothing is refused for it
/// here.
pub(crate) const PROFILE_OFF_MAX: u64 = 4;

/// Where requests for a model go.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) model: ModelId,
    pub(crate) subcluster: SubclusterId,
    pub(crate) info: Arc<ModelInfo>,
    /// By GPU kind, as given: what leads have learnt since is not known here.
    pub(crate) profiles: Arc<[LatencyProfile]>,
    /// What an item costs its tenant.
    pub(crate) gpu_time_per_item: Nanos,
}

impl Route {
    /// How long a batch of this many items alone takes on the kind of GPU that is fastest at it, by the given profiles.
    pub(crate) fn alone(&self, items: u32) -> Option<Nanos> {
        self.profiles.iter().map(|profile| profile.latency(items)).min()
    }

    /// The GPU time that this many items take in a batch of the size that the model is made for.
    pub(crate) fn gpu_time(&self, items: u32) -> Nanos {
        self.gpu_time_per_item.saturating_mul(items.into())
    }
}

/// ℓ(b)/b of the largest batch that an SLO has room for twice, once to run and once to gather: on the kind of GPU where
/// that is least. By the given profile: quotas must not move with what leads learn.
fn gpu_time_per_item(profiles: &[LatencyProfile], slo: Nanos) -> Nanos {
    let of = |profile: &LatencyProfile| {
        let (mut low, mut high) = (1, profile.batch_max() + 1);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if profile.latency(middle).saturating_mul(2) <= slo { low = middle } else { high = middle }
        }
        Nanos::new(profile.latency(low).get() / u64::from(low))
    };
    profiles.iter().map(of).min().unwrap_or(Nanos::ZERO)
}

/// Routes by the names that models have in the cluster.
pub(crate) type Routes = BTreeMap<String, Route>;

pub(crate) fn routes(view: &View) -> Routes {
    view.models
        .iter()
        .map(|(&id, model)| {
            let spec = &model.spec;
            let batch_max = largest_request(view, model);
            let state = match model.readiness(view) {
                Readiness::Ready => ModelState::Ready,
                Readiness::Failed(reason) => ModelState::Unavailable(reason),
                Readiness::NoGpu(why) => ModelState::NoGpu(why),
                Readiness::Loading => ModelState::Loading,
            };
            let platform = match spec.source {
                ModelSource::Onnx(_) | ModelSource::OnnxUnshared(_) => "onnxruntime_onnx",
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
                sheds: spec.policy.looks_at_values(),
                state,
                pipeline: None,
            };
            let profiles: Arc<[_]> = spec.profiles.values().map(|profile| profile.latency.clone()).collect();
            let gpu_time_per_item = gpu_time_per_item(&profiles, spec.slo);
            let (subcluster, info) = (model.subcluster, Arc::new(info));
            let route = Route { model: id, subcluster, info, profiles, gpu_time_per_item };
            (spec.name.clone(), route)
        })
        .collect()
}

/// The most items of a request: what any kind of GPU takes in a batch. Under a policy that gives each request to the
/// GPU that suits it, and merges none, what one of the kinds takes that are there; of all kinds while none is.
fn largest_request(view: &View, model: &ModelView) -> u32 {
    let all = || model.spec.profiles.iter().map(|(kind, profile)| (kind.as_str(), profile.latency.batch_max()));
    let policy = view.subclusters.get(&model.subcluster).and_then(|subcluster| subcluster.policy.as_ref());
    let policy = policy.filter(|policy| policy.failed.is_none());
    if policy.is_none_or(|policy| PolicySpec::text_merges(&policy.text)) {
        return all().map(|(_, most)| most).min().unwrap_or(1);
    }
    let working =
        |backend: &&BackendView| backend.up && backend.duty.takes_work() && backend.subcluster == model.subcluster;
    let is_there = |kind: &str| {
        let gpus = view.backends.values().filter(working).flat_map(|backend| &backend.gpus);
        gpus.clone().any(|gpu| gpu.kind == kind)
    };
    let there = all().filter(|(kind, _)| is_there(kind)).map(|(_, most)| most).max();
    there.or_else(|| all().map(|(_, most)| most).max()).unwrap_or(1)
}

/// The names among these that are versions of a model, or of a pipeline.
pub(crate) fn versions_of<T>(by_name: &BTreeMap<String, T>, name: &str) -> Vec<String> {
    // They stand together, since they begin with the name and nothing else comes before it.
    let from = VersionedName { name, version: 0 }.loaded_as();
    let stem = &from[..from.len() - 1];
    let names = by_name.range(stem.to_owned()..).map(|(loaded_as, _)| loaded_as);
    let together = names.take_while(|loaded_as| loaded_as.starts_with(stem));
    together.filter(|loaded_as| VersionedName::parse(loaded_as).name == name).cloned().collect()
}

#[cfg(test)]
mod tests {
    use symphony_protocol::view::{GpuView, KindProfile, PolicyView};
    use symphony_types::{Duty, GpuId, Token};

    use super::*;
    use crate::requests::tests::view;

    #[test]
    fn a_request_is_as_large_as_all_kinds_take_and_where_none_are_merged_as_one_that_is_there() {
        let kind = |most| KindProfile {
            latency: LatencyProfile::from_line(1.0, 5.0, most).unwrap(),
            static_memory_bytes: 1,
            dynamic_memory_bytes: 1,
        };
        let mut view = view(true, Duty::Serving);
        let profiles = [("large", 128), ("small", 64), ("tiny", 8)].map(|(name, most)| (name.to_owned(), kind(most)));
        view.models.values_mut().next().unwrap().spec.profiles = profiles.into();
        let most = |view: &View| routes(view)["m"].info.batch_max;
        let gpu =
            |kind: &str| GpuView { id: GpuId::new(0), kind: kind.into(), memory_bytes: 0, binding: Token::default() };
        view.backends.values_mut().next().unwrap().gpus = vec![gpu("tiny"), gpu("small")];
        assert_eq!(most(&view), 8, "it may come to any of them");
        let decides = |view: &mut View, text: &str, failed: Option<&str>| {
            let policy = PolicyView { text: text.into(), failed: failed.map(str::to_owned) };
            view.subclusters.values_mut().next().unwrap().policy = Some(policy);
        };
        decides(&mut view, "nexus", None);
        assert_eq!(most(&view), 8);
        decides(&mut view, "{ name = \"kairos\", learn = true }", None);
        assert_eq!(most(&view), 64);
        decides(&mut view, "kairos", Some("panicked on n1"));
        assert_eq!(most(&view), 8);
        decides(&mut view, "kairos", None);
        view.backends.values_mut().next().unwrap().up = false;
        assert_eq!(most(&view), 128, "nothing is there yet");
    }

    #[test]
    fn an_item_costs_what_it_takes_in_the_largest_batch_with_room_to_gather_on_the_cheapest_kind() {
        // ℓ(b) = b + 5 ms, up to 64.
        let slow = LatencyProfile::from_line(1.0, 5.0, 64).unwrap();
        let fast = LatencyProfile::from_line(0.5, 5.0, 64).unwrap();
        let of = |profiles: &[LatencyProfile], slo_ms| gpu_time_per_item(profiles, Nanos::from_millis(slo_ms));
        assert_eq!(of(std::slice::from_ref(&slow), 30), Nanos::from_millis_f64(1.5), "batches of ten");
        assert_eq!(of(std::slice::from_ref(&slow), 1), Nanos::from_millis(6), "no batch fits: one item");
        assert_eq!(of(&[slow, fast], 30), Nanos::from_millis_f64(0.75), "twenty");
        assert_eq!(of(&[], 30), Nanos::ZERO);
    }
}
