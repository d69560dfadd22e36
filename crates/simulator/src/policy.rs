//! From the names of a scenario to the objects of the scheduler.

use symphony_scheduler::{DropRule, GpuChoice, Policy, ReadyOrder, TargetShare, Trigger};
use symphony_types::Nanos;
use symphony_workload::{DropChoice, GpuOrder, QueuePolicy, QueuePolicyName, ReadyChoice, TriggerChoice};

/// What a policy of queues and a ranker means to the queue of a model with this SLO.
#[must_use]
pub fn queue_policy(spec: &QueuePolicy, slo: Nanos) -> Policy {
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
    Policy { trigger, drop, limit }
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
