//! From the names of a scenario to the objects of the scheduler.

use symphony_scheduler::{DropRule, GpuChoice, Policy, TargetShare, Trigger};
use symphony_workload::{DropChoice, GpuOrder, PolicySpec, TriggerChoice};

/// What a scenario's policy means to the scheduler: the policy of each model, and the ranker's choice of GPU.
#[must_use]
pub fn scheduler_policy(spec: &PolicySpec) -> (Policy, GpuChoice) {
    let trigger = match spec.trigger {
        TriggerChoice::Eager => Trigger::Eager,
        TriggerChoice::Frontrun => Trigger::Frontrun,
        TriggerChoice::Adaptive => Trigger::Adaptive,
        TriggerChoice::Latest => Trigger::Latest,
        TriggerChoice::Timeout(wait) => Trigger::Timeout(wait),
    };
    let drop = match spec.drop {
        DropChoice::Window { percent } => {
            DropRule::Window(TargetShare::from_percent(percent).unwrap_or(TargetShare::WHOLE))
        }
        DropChoice::Prune => DropRule::Prune,
    };
    let choice = match spec.gpu_choice {
        GpuOrder::LowestId => GpuChoice::LowestId,
        GpuOrder::EarliestFree => GpuChoice::EarliestFree,
    };
    (Policy { trigger, drop, ..Policy::SYMPHONY }, choice)
}
