//! Builds the policy object that a scenario names.

use std::borrow::Cow;

use symphony_scheduler::rivals::{
    Clockwork, ClockworkSettings, Cluster, ClusterModel, Nexus, NexusSettings, Shepherd, ShepherdSettings,
};
use symphony_types::GpuClass;
use symphony_workload::{PolicySpec, Scenario};

use crate::hosted::Hosted;
use crate::policy_facts::PolicyFacts;
use crate::queues_and_ranker::QueuesAndRanker;
use crate::tap::Open;

/// An operation on a policy of any type: the event loop is compiled for each type, so that no decision needs dynamic
/// dispatch.
pub(crate) trait UsePolicy {
    type Output;
    fn with<P: Hosted>(self, policy: P) -> Self::Output;
}

/// Builds the policy and passes it to `user`. A new policy needs an arm here, an `impl Hosted` (which may be empty),
/// and its name in `symphony_workload`.
pub(crate) fn build_policy<U: UsePolicy>(spec: &PolicySpec, facts: &PolicyFacts, user: U) -> U::Output {
    match *spec {
        PolicySpec::Queues(ref queues) => user.with(QueuesAndRanker::new(facts, queues, Open)),
        PolicySpec::Clockwork { commit, early } => {
            user.with(Clockwork::new(cluster(facts), ClockworkSettings { commit, early }))
        }
        PolicySpec::Nexus { frontends } => {
            user.with(Nexus::new(cluster(facts), NexusSettings { frontends, seed: facts.seed }))
        }
        PolicySpec::Shepherd { preempt_factor } => {
            user.with(Shepherd::new(cluster(facts), ShepherdSettings { preempt_factor }))
        }
    }
}

impl Hosted for Clockwork {}
impl Hosted for Nexus {}
impl Hosted for Shepherd {}

/// The scenario as a cluster-wide policy knows it: without GPU kinds, with the profiles of the slowest.
pub(crate) fn as_known(scenario: &Scenario) -> Cow<'_, Scenario> {
    if matches!(scenario.policy, PolicySpec::Queues(_)) || scenario.class_count() == 1 {
        return Cow::Borrowed(scenario);
    }
    Cow::Owned(scenario.with_slowest_profiles())
}

/// For a scenario [`as_known`] to the policy, with one GPU class.
fn cluster(facts: &PolicyFacts) -> Cluster {
    let model = |model: &crate::ModelFacts| ClusterModel {
        profile: model.profiles[GpuClass::FIRST.index()].clone(),
        slo: model.slo,
        rate_per_second: model.items_per_s,
    };
    Cluster { models: facts.models.iter().map(model).collect(), delays: facts.delays }
}
