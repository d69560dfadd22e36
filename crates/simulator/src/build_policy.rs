//! Where the policy that a scenario names becomes the object that the world hosts.

use symphony_workload::{PolicyName, PolicySpec};

use crate::hosted::Hosted;
use crate::policy::scheduler_policy;
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
    match spec.name {
        PolicyName::Symphony | PolicyName::Auto | PolicyName::Eager => {
            let (policy, gpu_choice) = scheduler_policy(spec);
            user.with(QueuesAndRanker::new(facts, policy, gpu_choice, Open))
        }
    }
}
