//! What a model's policy means to the objects that host it (DESIGN section 6). All choices are selectable per model;
//! all run on the same objects.

use symphony_policy::{
    DropRule, GpuChoice, ModelPolicy, ModelPolicyName, ReadyOrder, ShedChoice, TargetShare, TriggerChoice,
};
use symphony_types::{Nanos, RequestValue};

/// When a batch may start although it could still grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Trigger {
    /// At once: optimises the wait of a request, at the cost of batch size and of the idle time that tells an
    /// autoscaler something (the work-conserving extreme of seed 000, section 4.3).
    Eager,
    /// At D − ℓ(b+k), where requests have k items in the mean: from then on no further arrival could join, so waiting
    /// gains nothing. Optimises batch size and load-proportional use, at the cost of a few percent on profiles with β
    /// near zero (seed 000, section 4.3).
    #[default]
    Frontrun,
    /// When the earliest request has waited this long, or the batch is the largest that leaves the SLO intact after
    /// that wait: optimises for a wait chosen by hand (Triton's dynamic batcher: maximum queue delay and preferred
    /// batch size), at the cost of tuning it for every load.
    Timeout(Nanos),
    /// As early before frontrun as the GPUs can afford, and once another arrival before frontrun has become unlikely:
    /// optimises the wait of a request while there is GPU time to spare and batch size when there is not, at the cost
    /// of some work per arrival (docs/adr/0008).
    Adaptive,
    /// As soon as the batch has β·λ items, else at frontrun, where λ is the rate per GPU that the model keeps busy:
    /// optimises the time per item of one GPU (the text of seed 000, section 4.3), at the cost of the idle time that
    /// tells an autoscaler something.
    BetaLambda,
    /// At D − ℓ(b), the end of the window: optimises batch size to the last, at the cost of every late timer.
    Latest,
}

/// How many items a batch may have, besides what the profile and the earliest deadline allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum BatchLimit {
    /// Any number: optimises batch size.
    #[default]
    None,
    /// Found by additive increase and multiplicative decrease (Clipper): optimises for models without a profile, at the
    /// cost of batches that stay small for a while after every miss.
    Aimd,
}

/// What a model gives up for others when its sub-cluster is overloaded (docs/adr/0011).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Shed {
    /// Nothing: who loses how much is left to the order of those that wait. Optimises that order's good answers, at the
    /// cost of whichever models it puts last.
    #[default]
    None,
    /// The same share of its requests as every other model, divided by what they are worth: optimises fairness between
    /// models, at the cost of those that the order would have spared.
    Proportional(RequestValue),
}

/// How one model is scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// When a batch may start.
    pub trigger: Trigger,
    /// What is given up.
    pub drop: DropRule,
    /// How large a batch may be.
    pub limit: BatchLimit,
    /// What is given up for other models.
    pub shed: Shed,
    /// Where its batches stand among those that wait for a GPU.
    pub ready_order: ReadyOrder,
    /// Which GPU a batch gets.
    pub gpu_choice: GpuChoice,
}

impl Policy {
    /// Deferred batch scheduling.
    pub const SYMPHONY: Self = Self {
        trigger: Trigger::Frontrun,
        drop: DropRule::Window(TargetShare::WHOLE),
        limit: BatchLimit::None,
        shed: Shed::None,
        ready_order: ReadyOrder::Latest,
        gpu_choice: GpuChoice::LowestId,
    };
    /// The default: at once when there is GPU time to spare, deferred when there is not (docs/adr/0008); and under
    /// overload each model loses its part (docs/adr/0011).
    pub const AUTO: Self = Self {
        trigger: Trigger::Adaptive,
        drop: DropRule::Window(TargetShare::THREE_QUARTERS),
        shed: Shed::Proportional(RequestValue::ONE),
        ..Self::SYMPHONY
    };
    /// The strong work-conserving rival: same ranking, same drop rule, no waiting.
    pub const EAGER: Self = Self { trigger: Trigger::Eager, ..Self::SYMPHONY };
    /// Clipper (NSDI 2017): optimises for models that nobody has profiled, at the cost of goodput under load, where the
    /// earliest request dictates small batches.
    pub const CLIPPER: Self =
        Self { trigger: Trigger::Eager, drop: DropRule::Prune, limit: BatchLimit::Aimd, ..Self::SYMPHONY };

    /// Triton's dynamic batcher with this maximum queue delay: optimises a simple configuration, at the cost of a wait
    /// that fits one load and no other. Requests that cannot be met any more are dropped one by one.
    #[must_use]
    pub const fn timeout(wait: Nanos) -> Self {
        Self { trigger: Trigger::Timeout(wait), drop: DropRule::Prune, ..Self::SYMPHONY }
    }

    /// What an operator's policy means for a model with this SLO whose requests are worth this much.
    #[must_use]
    pub fn of(asked: &ModelPolicy, slo: Nanos, value: RequestValue) -> Self {
        let trigger = match asked.trigger {
            TriggerChoice::Eager => Trigger::Eager,
            TriggerChoice::Frontrun => Trigger::Frontrun,
            TriggerChoice::Adaptive => Trigger::Adaptive,
            TriggerChoice::Latest => Trigger::Latest,
            TriggerChoice::BetaLambda => Trigger::BetaLambda,
            TriggerChoice::Timeout(wait) => Trigger::Timeout(wait),
            TriggerChoice::TimeoutShare(share) => Trigger::Timeout(share.of(slo)),
        };
        let limit = match asked.name {
            ModelPolicyName::Clipper => BatchLimit::Aimd,
            _ => BatchLimit::None,
        };
        let shed = match asked.shed {
            ShedChoice::None => Shed::None,
            ShedChoice::Proportional => Shed::Proportional(value),
        };
        Self { trigger, drop: asked.drop, limit, shed, ready_order: asked.ready_order, gpu_choice: asked.gpu_choice }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_operators_write_is_what_runs() {
        let (slo, value) = (Nanos::from_millis(100), RequestValue::from_thousandths(2_500).unwrap());
        let of = |text: &str| Policy::of(&text.parse().unwrap(), slo, value);
        assert_eq!(of("symphony"), Policy::SYMPHONY);
        assert_eq!(of("eager"), Policy::EAGER);
        assert_eq!(of("clipper"), Policy::CLIPPER);
        assert_eq!(of("auto"), Policy { shed: Shed::Proportional(value), ..Policy::AUTO });
        assert_eq!(of("timeout"), Policy::timeout(Nanos::from_millis(25)));
        assert_eq!(of("{ name = 'timeout', share = 0.1 }"), Policy::timeout(Nanos::from_millis(10)));
        assert_eq!(of("{ name = 'timeout', trigger = { timeout_ms = 7 } }"), Policy::timeout(Nanos::from_millis(7)));
        let all = "{ name = 'symphony', trigger = 'latest', drop = { window = 0.5 }, ready_order = 'deadline', \
                   gpu_choice = 'earliest_free', shed = 'proportional' }";
        let chosen = Policy {
            trigger: Trigger::Latest,
            drop: DropRule::Window(TargetShare::from_percent(50).unwrap()),
            limit: BatchLimit::None,
            shed: Shed::Proportional(value),
            ready_order: ReadyOrder::Deadline,
            gpu_choice: GpuChoice::EarliestFree,
        };
        assert_eq!(of(all), chosen);
        for (word, trigger) in [
            ("eager", Trigger::Eager),
            ("frontrun", Trigger::Frontrun),
            ("adaptive", Trigger::Adaptive),
            ("beta_lambda", Trigger::BetaLambda),
        ] {
            assert_eq!(of(&format!("{{ name = 'symphony', trigger = '{word}' }}")).trigger, trigger);
        }
    }
}
