//! Builds the policy object that a scenario names.

use symphony_scheduler::rivals::{Clockwork, ClockworkSettings, Nexus, NexusSettings, Shepherd, ShepherdSettings};
use symphony_scheduler::{ClusterFacts, RegistryError};
use symphony_workload::{PolicySpec, Scenario};

use crate::added_policy::AddedPolicy;
use crate::hosted::Hosted;
use crate::policy_facts::PolicyFacts;
use crate::queues_and_ranker::QueuesAndRanker;
use crate::tap::Open;

/// An operation on a policy of any type: the event loop is compiled for each type whose decisions are short, so that
/// none of them needs dynamic dispatch.
pub(crate) trait UsePolicy {
    type Output;
    fn with<P: Hosted>(self, policy: P) -> Self::Output;
}

/// Builds the policy and passes it to `user`.
pub(crate) fn build_policy<U: UsePolicy>(
    scenario: &Scenario,
    facts: &PolicyFacts,
    user: U,
) -> Result<U::Output, RegistryError> {
    let known = ClusterFacts::simulated(facts.seed);
    Ok(match scenario.policy {
        PolicySpec::Queues(ref queues) => user.with(QueuesAndRanker::new(facts, queues, Open)),
        PolicySpec::Clockwork { commit, early } => {
            user.with(Clockwork::new(&known, ClockworkSettings { commit, early }))
        }
        PolicySpec::Nexus { frontends } => user.with(Nexus::new(&known, NexusSettings { frontends, seed: facts.seed })),
        PolicySpec::Shepherd { preempt_factor } => {
            user.with(Shepherd::new(&known, ShepherdSettings { preempt_factor }))
        }
        // Matching costs more than a call that is not inlined.
        PolicySpec::Unmerged(_) | PolicySpec::Registered(_) => {
            user.with(AddedPolicy::new(scenario.policies.build(&scenario.policy, &known)?, known))
        }
    })
}

impl Hosted for Clockwork {}
impl Hosted for Nexus {}
impl Hosted for Shepherd {}
