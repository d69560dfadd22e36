//! Where the policy that a scenario names becomes the object that the world hosts.

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

/// Something that is done with a policy, whatever its type: the event loop is compiled for each, so that no decision
/// goes through a table of functions.
pub(crate) trait UsePolicy {
    type Output;
    fn with<P: Hosted>(self, policy: P) -> Self::Output;
}

/// Makes the policy, and hands it to `user`. A new policy gets its arm here, an `impl Hosted` (empty will do), and its
/// name in `symphony_workload`.
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

/// The scenario as its policy knows it: those for a whole cluster know of no GPU kinds, and the slowest counts.
pub(crate) fn as_known(scenario: &Scenario) -> Cow<'_, Scenario> {
    if matches!(scenario.policy, PolicySpec::Queues(_)) || scenario.class_count() == 1 {
        return Cow::Borrowed(scenario);
    }
    Cow::Owned(scenario.with_slowest_profiles())
}

/// Of a scenario [`as_known`]: there is one class of GPUs.
fn cluster(facts: &PolicyFacts) -> Cluster {
    let model = |model: &crate::ModelFacts| ClusterModel {
        profile: model.profiles[GpuClass::FIRST.index()].clone(),
        slo: model.slo,
        rate_per_second: model.items_per_s,
    };
    Cluster { models: facts.models.iter().map(model).collect(), delays: facts.delays }
}
