//! What a policy may know about the cluster when it is built.

use std::sync::Arc;

use symphony_controllers::LearningSettings;
use symphony_scheduler::{ClassProfiles, ClusterModel, DataDelay, Delays};
use symphony_types::{FamilyProfile, GpuClass, LatencyProfile, Nanos, RequestValue};
use symphony_workload::{AutoRule, ModelSpec, Scenario};

use crate::pipelines::PipelinePlans;

/// One model, as a policy may know it.
#[derive(Clone, Debug)]
pub struct ModelFacts {
    /// ℓ(b) by class of GPU.
    pub profiles: Arc<[LatencyProfile]>,
    /// Of models that share a trunk and a queue: the family by class of GPU. `profiles` are then what it takes at
    /// worst.
    pub family: Option<Arc<[FamilyProfile]>>,
    /// Its SLO; of a model that stages ask, the shortest of their budgets. Requests may have deadlines of their own.
    pub slo: Nanos,
    /// What a request is worth relative to those of other models.
    pub value: RequestValue,
    /// Its true rate in items per second, before any factor over time. Only policies that are given rates may use it
    /// (Nexus is; Symphony measures).
    pub items_per_s: f64,
}

/// The cluster and its load, as a policy may know them.
#[derive(Clone, Debug)]
pub struct PolicyFacts {
    /// Models by slot.
    pub models: Vec<ModelFacts>,
    /// GPUs; their ids are `0..gpus`.
    pub gpus: u32,
    /// Their classes, by id.
    pub gpu_classes: Vec<GpuClass>,
    /// Network delays, exact; the guard is zero, since virtual timers are never late.
    pub delays: Delays,
    /// Whether every batch takes exactly ℓ(b). Otherwise plans may start and end late, and are reported.
    pub exact: bool,
    /// Whether to leave whole GPUs idle.
    pub consolidate: bool,
    /// Rules of `auto` that are switched off.
    pub without: Vec<AutoRule>,
    /// Seed for policies with random choices.
    pub seed: u64,
    /// What to learn from the ends of batches.
    pub learning: LearningSettings,
}

impl PolicyFacts {
    /// For a scenario with this seed and total rate.
    #[must_use]
    pub fn new(scenario: &Scenario, seed: u64, rate_rps: f64) -> Self {
        Self::planned(scenario, seed, rate_rps, &PipelinePlans::new(scenario, rate_rps))
    }

    /// With these plans of the scenario's pipelines.
    pub(crate) fn planned(scenario: &Scenario, seed: u64, rate_rps: f64, plans: &PipelinePlans) -> Self {
        let network = scenario.network;
        let delays = Delays {
            control: network.control,
            data: DataDelay::each_item(network.data_per_item),
            reply: network.reply,
            guard: Nanos::ZERO,
        };
        let model = |(slot, model): (usize, &ModelSpec)| ModelFacts {
            profiles: Arc::clone(&model.profiles),
            family: model.variants.as_ref().map(|variants| Arc::clone(&variants.profiles)),
            slo: plans.slo(slot, model),
            value: model.value,
            items_per_s: rate_rps * model.share * model.items.mean() + plans.stage_rate(slot),
        };
        let models = scenario.models.iter().enumerate().map(model).collect();
        let gpu_classes = scenario.gpu_classes().collect();
        let (gpus, exact, learning) = (scenario.gpu_count(), scenario.is_exact(), scenario.learning.clone());
        let (consolidate, without) = (scenario.consolidate, scenario.without.clone());
        Self { models, gpus, gpu_classes, delays, exact, consolidate, without, seed, learning }
    }

    /// The models as a policy for a cluster gets them, by slot.
    pub(crate) fn cluster_models(&self) -> impl Iterator<Item = Arc<ClusterModel>> {
        self.models.iter().map(|model| {
            let profiles = GpuClass::all().zip(model.profiles.iter().cloned()).collect::<ClassProfiles>();
            let known = ClusterModel::new(profiles, model.slo).with_delays(self.delays);
            Arc::new(known.with_value(model.value).with_rate(model.items_per_s))
        })
    }
}
