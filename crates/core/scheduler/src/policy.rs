//! The choices that make up a model's policy. All are selectable per model and run on the same
//! objects.

use symphony_policy::{
    DropRule, GpuChoice, ModelPolicy, ModelPolicyName, ReadyOrder, ResearchTrigger, ShedChoice, SimulatedPolicy,
    TriggerChoice,
};
use symphony_types::{Nanos, RequestValue};

/// When a batch that could still grow may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Trigger {
    /// At once: optimises the wait of a request, at the cost of batch size and of the idle time that tells an
    /// autoscaler something (the work-conserving extreme of the Symphony paper, section 4.3).
    Eager,
    /// At D − ℓ(b+k), where k is the mean number of items per request: from then on no further arrival could join, so
    /// waiting gains nothing. Optimises batch size and load-proportional use, at the cost of a few percent on profiles
    /// with β near zero (the Symphony paper, section 4.3).
    #[default]
    Frontrun,
    /// When the earliest request has waited this long, or when the batch is the largest that meets the SLO after that
    /// wait: optimises for a hand-tuned wait (Triton's dynamic batcher: maximum queue delay and preferred batch size),
    /// at the cost of tuning it for every load.
    Timeout(Nanos),
    /// As early before frontrun as the GPUs can afford, or once another arrival before frontrun has become unlikely:
    /// optimises latency while GPU time is spare and batch size otherwise, at the cost of some work per arrival
    /// (docs/adr/0008).
    Adaptive,
    /// When the batch has β·λ items, at the latest at frontrun, where λ is the model's rate per GPU that it keeps busy:
    /// optimises the time per item on one GPU (the text of the Symphony paper, section 4.3), at the cost of the idle
    /// time that an autoscaler measures.
    BetaLambda,
    /// At D − ℓ(b), the end of the window: optimises batch size, at the cost of a miss for every late timer.
    Latest,
}

/// The limit on batch size, besides those of the profile and the earliest deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum BatchLimit {
    /// None: optimises batch size.
    #[default]
    None,
    /// Additive increase, multiplicative decrease (Clipper): optimises for models without a profile, at the cost of
    /// batches that stay small for a while after every miss.
    Aimd,
}

/// What a model sheds when its sub-cluster is overloaded (docs/adr/0011).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Shed {
    /// Nothing: the order of the ready set decides which models lose how much. Optimises the number of good answers in
    /// that order, at the cost of the models that it puts last.
    #[default]
    None,
    /// A share of its requests that is the same for all models of equal value: optimises fairness between models, at
    /// the cost of those that the order would have spared.
    Proportional(RequestValue),
}

/// How one model is scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// When a batch may start.
    pub trigger: Trigger,
    /// Which requests are given up when not all can be answered in time.
    pub drop: DropRule,
    /// The limit on batch size.
    pub limit: BatchLimit,
    /// What the model sheds for other models.
    pub shed: Shed,
    /// The order of its batches in the ready set.
    pub ready_order: ReadyOrder,
    /// Which GPU a batch gets.
    pub gpu_choice: GpuChoice,
}

impl Policy {
    /// Deferred batch scheduling.
    pub const SYMPHONY: Self = Self::named(ModelPolicyName::Symphony);
    /// The default: batches start at once when GPU time is spare and are deferred otherwise (docs/adr/0008); under
    /// overload each model sheds its share (docs/adr/0011).
    pub const AUTO: Self = Self::named(ModelPolicyName::Auto);
    /// The strong work-conserving rival: same ranking, same drop rule, no deferral.
    pub const EAGER: Self = Self::named(ModelPolicyName::Eager);
    /// Clipper (NSDI 2017): optimises for models without a profile, at the cost of goodput under load, where the
    /// earliest request dictates small batches.
    pub const CLIPPER: Self = Self::named(ModelPolicyName::Clipper);

    /// Triton's dynamic batcher with this maximum queue delay: optimises for a simple configuration, at the cost of a
    /// wait that fits only one load. Requests that can no longer be met are dropped one by one.
    #[must_use]
    pub const fn timeout(wait: Nanos) -> Self {
        Self { trigger: Trigger::Timeout(wait), ..Self::named(ModelPolicyName::Timeout) }
    }

    /// What the name stands for, for a model of value 1.
    const fn named(name: ModelPolicyName) -> Self {
        Self::built(&ModelPolicy::of(name), Nanos::ZERO, RequestValue::ONE)
    }

    /// The policy that the operator's choice gives a model with this SLO and value.
    #[must_use]
    pub fn of(policy: &ModelPolicy, slo: Nanos, value: RequestValue) -> Self {
        let wait = if let TriggerChoice::TimeoutShare(share) = policy.trigger { share.of(slo) } else { Nanos::ZERO };
        Self::built(policy, wait, value)
    }

    /// The policy for a model of a scenario, which also has choices for experiments.
    #[must_use]
    pub fn simulated(policy: &SimulatedPolicy, slo: Nanos, value: RequestValue) -> Self {
        let accepted = Self::of(&policy.model, slo, value);
        let trigger = match policy.research.trigger {
            None => accepted.trigger,
            Some(ResearchTrigger::Latest) => Trigger::Latest,
            Some(ResearchTrigger::BetaLambda) => Trigger::BetaLambda,
        };
        let (ready_order, gpu_choice) = (policy.research.ready_order, policy.research.gpu_choice);
        Self { trigger, ready_order, gpu_choice, ..accepted }
    }

    /// `share_of_slo` is the wait of a trigger that is given as a share.
    const fn built(policy: &ModelPolicy, share_of_slo: Nanos, value: RequestValue) -> Self {
        let trigger = match policy.trigger {
            TriggerChoice::Eager => Trigger::Eager,
            TriggerChoice::Frontrun => Trigger::Frontrun,
            TriggerChoice::Adaptive => Trigger::Adaptive,
            TriggerChoice::Timeout(wait) => Trigger::Timeout(wait),
            TriggerChoice::TimeoutShare(_) => Trigger::Timeout(share_of_slo),
        };
        let limit = match policy.name {
            ModelPolicyName::Clipper => BatchLimit::Aimd,
            _ => BatchLimit::None,
        };
        let shed = match policy.shed {
            ShedChoice::None => Shed::None,
            ShedChoice::Proportional => Shed::Proportional(value),
        };
        let (ready_order, gpu_choice) = (ReadyOrder::Latest, GpuChoice::LowestId);
        Self { trigger, drop: policy.drop, limit, shed, ready_order, gpu_choice }
    }
}

#[cfg(test)]
mod tests {
    use symphony_policy::{PolicySpec, TargetShare};

    use super::*;

    #[test]
    fn what_operators_write_is_what_runs() {
        let (slo, value) = (Nanos::from_millis(100), RequestValue::from_thousandths(2_500).unwrap());
        let of = |text: &str| Policy::of(&text.parse().unwrap(), slo, value);
        let prune = DropRule::Prune;
        let symphony = Policy {
            trigger: Trigger::Frontrun,
            drop: DropRule::Window(TargetShare::WHOLE),
            limit: BatchLimit::None,
            shed: Shed::None,
            ready_order: ReadyOrder::Latest,
            gpu_choice: GpuChoice::LowestId,
        };
        let (drop, shed) = (DropRule::Window(TargetShare::THREE_QUARTERS), Shed::Proportional(value));
        assert_eq!(of("symphony"), symphony);
        assert_eq!(of("auto"), Policy { trigger: Trigger::Adaptive, drop, shed, ..symphony });
        assert_eq!(of("eager"), Policy { trigger: Trigger::Eager, ..symphony });
        let clipper = Policy { trigger: Trigger::Eager, drop: prune, limit: BatchLimit::Aimd, ..symphony };
        assert_eq!(of("clipper"), clipper);
        let timeout = |ms| Policy { trigger: Trigger::Timeout(Nanos::from_millis(ms)), drop: prune, ..symphony };
        assert_eq!(of("timeout"), timeout(25));
        assert_eq!(of("{ name = 'timeout', share = 0.1 }"), timeout(10));
        assert_eq!(of("{ name = 'timeout', trigger = { timeout_ms = 7 } }"), timeout(7));
        assert_eq!(Policy::timeout(Nanos::from_millis(7)), timeout(7));
        let (adaptive, shed) = (Trigger::Adaptive, Shed::Proportional(value));
        let chosen = "{ name = 'symphony', trigger = 'adaptive', drop = 'prune', shed = 'proportional' }";
        assert_eq!(of(chosen), Policy { trigger: adaptive, drop: prune, shed, ..symphony });
    }

    #[test]
    fn scenarios_have_choices_for_experiments_beside_those_of_operators() {
        let (slo, value) = (Nanos::from_millis(100), RequestValue::from_thousandths(2_500).unwrap());
        let of = |text: &str| Policy::simulated(text.parse::<PolicySpec>().unwrap().queues().unwrap(), slo, value);
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
        assert_eq!(of("timeout"), Policy::timeout(Nanos::from_millis(25)));
        for (word, trigger) in [
            ("eager", Trigger::Eager),
            ("frontrun", Trigger::Frontrun),
            ("adaptive", Trigger::Adaptive),
            ("latest", Trigger::Latest),
            ("beta_lambda", Trigger::BetaLambda),
        ] {
            assert_eq!(of(&format!("{{ name = 'symphony', trigger = '{word}' }}")).trigger, trigger);
        }
    }
}
