//! From the names of a scenario to the objects of the scheduler.

use symphony_scheduler::{DropRule, GpuChoice, Policy, ReadyOrder, Shed, TargetShare, Trigger};
use symphony_types::{Nanos, RequestValue};
use symphony_workload::{DropChoice, GpuOrder, QueuePolicy, QueuePolicyName, ReadyChoice, ShedChoice, TriggerChoice};

/// What a policy of queues and a ranker means to the queue of a model with this SLO and value.
#[must_use]
pub fn queue_policy(spec: &QueuePolicy, slo: Nanos, value: RequestValue) -> Policy {
    let trigger = match spec.trigger {
        TriggerChoice::Eager => Trigger::Eager,
        TriggerChoice::Frontrun => Trigger::Frontrun,
        TriggerChoice::Adaptive => Trigger::Adaptive,
        TriggerChoice::Latest => Trigger::Latest,
        TriggerChoice::BetaLambda => Trigger::BetaLambda,
        TriggerChoice::Timeout(wait) => Trigger::Timeout(wait),
        TriggerChoice::TimeoutShare(share) => Policy::timeout_share(slo, share).trigger,
    };
    let drop = match spec.drop {
        DropChoice::Window { percent } => {
            DropRule::Window(TargetShare::from_percent(percent).unwrap_or(TargetShare::WHOLE))
        }
        DropChoice::Prune => DropRule::Prune,
    };
    let limit = match spec.name {
        QueuePolicyName::Clipper => Policy::CLIPPER.limit,
        _ => Policy::SYMPHONY.limit,
    };
    let shed = match spec.shed {
        ShedChoice::None => Shed::None,
        ShedChoice::Proportional => Shed::Proportional(value),
    };
    Policy { trigger, drop, limit, shed }
}

/// And what it means to the ranker.
#[must_use]
pub fn ranker_policy(spec: &QueuePolicy) -> (GpuChoice, ReadyOrder) {
    let choice = match spec.gpu_choice {
        GpuOrder::LowestId => GpuChoice::LowestId,
        GpuOrder::EarliestFree => GpuChoice::EarliestFree,
    };
    let order = match spec.ready_order {
        ReadyChoice::Latest => ReadyOrder::Latest,
        ReadyChoice::Frontrun => ReadyOrder::Frontrun,
        ReadyChoice::Start => ReadyOrder::Start,
        ReadyChoice::Deadline => ReadyOrder::Deadline,
    };
    (choice, order)
}

#[cfg(test)]
mod tests {
    use symphony_workload::{PolicySpec, Scenario};

    use super::*;

    #[test]
    fn a_name_means_the_same_in_scenarios_and_in_the_cluster() {
        let slo = Nanos::from_millis(100);
        for name in ["symphony", "auto", "eager", "timeout", "clipper"] {
            let text = format!(
                "name = 'same'
                policy = '{name}'
                gpu = [{{ kind = 'x', count = 1 }}]
                model = [{{ name = 'm', alpha_ms = 1, beta_ms = 5, slo_ms = 100 }}]
                workload = {{ rate_rps = 1, arrival = 'poisson' }}"
            );
            let scenario = Scenario::parse("same.toml", &text, &[], &|_| Err("no files".to_owned())).unwrap();
            let PolicySpec::Queues(spec) = scenario.policy else { panic!("{name} has no queues") };
            assert_eq!(Some(queue_policy(&spec, slo, RequestValue::ONE)), Policy::named(name, slo), "{name}");
        }
    }
}
