//! Which GPUs a sub-cluster should have for its budget: what is measured and configured, as a problem for the planner.

use std::collections::BTreeMap;

use symphony_cluster_state::ClusterState;
use symphony_fleet::{
    FleetPlan, FleetPlanner, FleetProblem, Kind, LatencyTable, Merging, Mix, ServedModel, measured_problem,
};
use symphony_policy::PolicySpec;
use symphony_protocol::control as pb;
use symphony_types::{ITEM_BOUNDS, LatencyProfile, Nanos, SubclusterId};

/// What the GPUs of each sub-cluster may cost.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetSettings {
    /// All of them together, per hour.
    pub budget_per_hour: f64,
    /// What one GPU of each kind costs per hour. A kind without a price is not rented.
    pub price_per_hour: BTreeMap<String, f64>,
}

/// The fleet that was chosen, or why none was.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FleetAdvice {
    /// What it may cost.
    pub(crate) budget_per_hour: f64,
    /// The price of each kind, in the order of the advice.
    pub(crate) prices: Vec<Option<f64>>,
    /// None before enough was measured.
    pub(crate) plan: Option<FleetPlan>,
    /// Why the last choice was none.
    pub(crate) refused: Option<String>,
}

impl FleetSettings {
    /// Kinds that may be rented for a sub-cluster: they have a price, and each of its models has a profile for them,
    /// since every GPU serves all.
    pub(crate) fn rentable<'a>(&self, state: &'a ClusterState, subcluster: SubclusterId) -> Vec<&'a str> {
        let Some(first) = state.models_of(subcluster).next() else { return Vec::new() };
        let kinds = first.spec.profiles.keys().filter(|kind| self.price_per_hour.contains_key(*kind));
        let by_all = |kind: &&String| state.models_of(subcluster).all(|m| m.spec.profiles.contains_key(*kind));
        kinds.filter(by_all).map(String::as_str).collect()
    }

    /// The problem of answering the mix with GPUs of these kinds, at most this many of each.
    pub(crate) fn pose(
        &self,
        state: &ClusterState,
        subcluster: SubclusterId,
        (kinds, gpus_max): (&[String], u32),
        mix: &Mix,
    ) -> Result<FleetProblem, String> {
        let priced = kinds.iter().map(|name| match self.price_per_hour.get(name) {
            Some(&price_per_hour) => Ok(Kind { name: name.clone(), price_per_hour, count_max: gpus_max }),
            None => {
                Err(format!("scheduler.autoscaling.prices: expected one for kind `{name}`, which serves; got none"))
            }
        });
        let priced = priced.collect::<Result<Vec<_>, _>>()?;
        let mut models = Vec::new();
        for (id, model) in state.models().iter().filter(|(_, model)| model.subcluster == subcluster) {
            let name = model.spec.name.clone();
            let latencies = kinds.iter().map(|kind| {
                let profile = model.spec.profiles.get(kind).and_then(|profile| {
                    let table: Vec<_> = profile.latency_ns.iter().map(|&ns| Nanos::new(ns)).collect();
                    LatencyProfile::from_table(&table).ok()
                });
                let profile =
                    profile.ok_or_else(|| format!("model `{name}`: expected a profile for kind `{kind}`, got none"));
                profile.map(|profile| LatencyTable::from_profile(&profile))
            });
            let latencies = latencies.collect::<Result<Vec<_>, _>>()?;
            models.push(ServedModel { model: id.get(), name, slo: Nanos::new(model.spec.slo_ns), latencies });
        }
        measured_problem(self.budget_per_hour, priced, models, mix)
    }

    /// The published advice about the choice for these kinds.
    pub(crate) fn advice(&self, kinds: &[String], planner: &FleetPlanner) -> FleetAdvice {
        FleetAdvice {
            budget_per_hour: self.budget_per_hour,
            prices: kinds.iter().map(|kind| self.price_per_hour.get(kind).copied()).collect(),
            plan: planner.plan().cloned(),
            refused: planner.refused().map(str::to_owned),
        }
    }
}

/// Whether requests of the sub-cluster share batches.
pub(crate) fn merging(state: &ClusterState, subcluster: SubclusterId) -> Merging {
    let policy = state.policies().get(&subcluster).filter(|policy| policy.failed.is_none());
    Merging::of(policy.is_none_or(|policy| PolicySpec::text_merges(&policy.text)))
}

/// Requests by model and size since a lead began, as it reports them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestSizes(BTreeMap<u32, Vec<u64>>);

impl RequestSizes {
    pub(crate) fn of(load: &pb::SubclusterLoad) -> Self {
        let counted = |counts: &[u64]| counts.iter().copied().take(ITEM_BOUNDS.len()).collect();
        Self(load.models.iter().map(|model| (model.model, counted(&model.request_items))).collect())
    }

    /// The requests that came since this report of the same lead.
    pub(crate) fn since(&self, before: &Self) -> Mix {
        let mut mix = Mix::default();
        for (model, counts) in &self.0 {
            let known = before.0.get(model).map_or(&[][..], Vec::as_slice);
            for (bucket, (&count, &bound)) in counts.iter().zip(&ITEM_BOUNDS).enumerate() {
                let came = count.saturating_sub(known.get(bucket).copied().unwrap_or(0));
                mix.count(*model, bound as u32, came);
            }
        }
        mix
    }
}

#[cfg(test)]
mod tests {
    use symphony_cluster_state::Action;
    use symphony_types::Level;

    use super::*;
    use crate::planning::problem::tests::{cluster, cluster_from, loaded, operate};

    const POOL: SubclusterId = SubclusterId::new(1);

    fn settings(kinds: &[&str]) -> FleetSettings {
        let price_per_hour = kinds.iter().map(|kind| ((*kind).to_owned(), 1.5)).collect();
        FleetSettings { budget_per_hour: 6.0, price_per_hour }
    }

    #[test]
    fn requests_are_those_since_the_last_report() {
        let report = |models: &[(u32, &[u64])]| {
            let model = |&(model, items): &(u32, &[u64])| pb::ModelLoad {
                model,
                request_items: items.to_vec(),
                ..Default::default()
            };
            let models = models.iter().map(model).collect();
            RequestSizes::of(&pb::SubclusterLoad { models, ..Default::default() })
        };
        let (before, now) =
            (report(&[(1, &[5][..]), (2, &[1])]), report(&[(1, &[7, 0, 0, 0, 0, 0, 3][..]), (3, &[0, 4])]));
        let mut expected = Mix::default();
        for (model, items, requests) in [(1, 1, 2), (1, 8, 3), (3, 2, 4)] {
            expected.count(model, items, requests);
        }
        assert_eq!(now.since(&before), expected);
        assert_eq!(report(&[(1, &[0; 99][..])]).since(&before).total(), 0, "more buckets than there are");
    }

    #[test]
    fn requests_run_alone_under_kairos() {
        let mut state = ClusterState::default();
        state.found_at(Level::NEWEST);
        let mut state = cluster_from(state, &["pool"]);
        assert_eq!(merging(&state, POOL), Merging::Together, "each model has its own policy");
        operate(&mut state, Action::SetPolicy { subcluster: "pool".into(), policy: "kairos".into() });
        assert_eq!(merging(&state, POOL), Merging::Alone);
        operate(&mut state, Action::SetPolicy { subcluster: "pool".into(), policy: "nexus".into() });
        assert_eq!(merging(&state, POOL), Merging::Together);
    }

    #[test]
    fn what_may_be_rented_has_a_price_and_a_profile_of_each_model() {
        let mut state = cluster(&["pool"]);
        assert_eq!(settings(&["gpu"]).rentable(&state, POOL), Vec::<&str>::new(), "there is nothing to serve");
        loaded(&mut state, "m", "pool");
        assert_eq!(settings(&["gpu", "cpu"]).rentable(&state, POOL), ["gpu"]);
        assert_eq!(settings(&["cpu"]).rentable(&state, POOL), Vec::<&str>::new());
    }

    #[test]
    fn the_problem_is_of_the_models_and_what_is_missing_is_named() {
        let mut state = cluster(&["pool"]);
        loaded(&mut state, "m", "pool");
        loaded(&mut state, "idle", "pool");
        let mut mix = Mix::default();
        mix.count(1, 2, 10);
        let (gpu, cpu) = (["gpu".to_owned()], ["cpu".to_owned()]);
        let problem = settings(&["gpu"]).pose(&state, POOL, (&gpu[..], 7), &mix).unwrap();
        assert_eq!((&problem.models[0].name[..], problem.models[0].share), ("m", 1.0));
        assert_eq!((&problem.models[1].name[..], problem.models[1].share), ("idle", 0.0));
        assert_eq!((problem.models.len(), problem.kinds[0].count_max), (2, 7));
        assert_eq!(problem.models[0].latencies[0].latency_ms(1), 6.0);
        let refused = settings(&["gpu"]).pose(&state, POOL, (&cpu[..], 7), &mix).unwrap_err();
        assert!(refused.contains("scheduler.autoscaling.prices") && refused.contains("`cpu`"), "{refused}");
        let refused = settings(&["cpu"]).pose(&state, POOL, (&cpu[..], 7), &mix).unwrap_err();
        assert!(refused.contains("profile for kind `cpu`"), "{refused}");
    }
}
