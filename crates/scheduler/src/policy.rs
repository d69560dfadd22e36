//! The choices a policy is made of (DESIGN section 6). All are selectable per model; all run on the same objects.

use symphony_types::{Nanos, RequestValue};

/// When a batch may start although it could still grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Trigger {
    /// At once: optimises the wait of a request, at the cost of batch size and of the idle time that tells an
    /// autoscaler something (the work-conserving extreme of seed 000, section 4.3).
    Eager,
    /// At D − ℓ(b+1): from then on no further arrival could join, so waiting gains nothing. Optimises batch size and
    /// load-proportional use, at the cost of a few percent on profiles with β near zero (seed 000, section 4.3).
    #[default]
    Frontrun,
    /// When the earliest request has waited this long, or the batch is the largest that leaves the SLO intact after that wait:
    /// optimises for a wait chosen by hand (Triton's dynamic batcher: maximum queue delay and preferred batch size), at the
    /// cost of tuning it for every load.
    Timeout(Nanos),
    /// As `Frontrun`, but earlier where waiting cannot pay: once another arrival before frontrun has become unlikely, when
    /// the GPUs could not serve all candidates at the times they want, or when bursts come close to filling the GPUs.
    /// Optimises goodput over all loads, at the cost of some work per arrival (docs/adr/0008).
    Adaptive,
    /// As soon as the batch has β·λ items, else at frontrun, where λ is the rate per GPU that the model keeps busy: optimises
    /// the time per item of one GPU (the text of seed 000, section 4.3), at the cost of the idle time that tells an autoscaler
    /// something.
    BetaLambda,
    /// At D − ℓ(b), the end of the window: optimises batch size to the last, at the cost of every late timer.
    Latest,
}

/// Which requests are given up so that others make it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropRule {
    /// Gives up queue heads that would force a batch under the staggered target on the requests behind them; optimises
    /// goodput under overload, at the cost of the requests dropped a little early (authors' code, see the README).
    Window(TargetShare),
    /// Gives up a request only when it cannot be met even alone (as Clipper); optimises the single request, at the
    /// cost of 5–10 % of goodput.
    Prune,
}

impl Default for DropRule {
    fn default() -> Self {
        Self::Window(TargetShare::WHOLE)
    }
}

/// The part of the target batch that the window drop protects, in percent. A target of few items is rounded up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetShare(u32);

impl TargetShare {
    /// All of it, as the authors' code does.
    pub const WHOLE: Self = Self(100);
    /// Three quarters: gives up less when fluctuations pass by themselves, and hardly anything of the batch size.
    pub const THREE_QUARTERS: Self = Self(75);

    /// `percent` of the target batch; `None` unless it is 1 to 100.
    #[must_use]
    pub const fn from_percent(percent: u32) -> Option<Self> {
        if percent >= 1 && percent <= 100 { Some(Self(percent)) } else { None }
    }

    /// In percent of the target batch.
    #[must_use]
    pub const fn percent(self) -> u32 {
        self.0
    }

    /// The batch to protect; at least 1.
    pub(crate) const fn of(self, target: u32) -> u32 {
        (target as u64 * self.0 as u64).div_ceil(100) as u32
    }
}

/// How many items a batch may have, besides what the profile and the earliest deadline allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum BatchLimit {
    /// Any number: optimises batch size.
    #[default]
    None,
    /// Found by additive increase and multiplicative decrease (Clipper): optimises for models without a profile, at the cost
    /// of batches that stay small for a while after every miss.
    Aimd,
}

/// What a model gives up for others when its sub-cluster is overloaded (docs/adr/0011).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Shed {
    /// Nothing: who loses how much is left to the order of those that wait. Optimises that order's good answers, at the cost
    /// of whichever models it puts last.
    #[default]
    None,
    /// The same share of its requests as every other model, divided by what they are worth: optimises fairness between models,
    /// at the cost of those that the order would have spared.
    Proportional(RequestValue),
}

/// Which of the batches that wait gets the next GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ReadyOrder {
    /// The one whose window ends first: optimises that each is met, at the cost of a little batch size.
    #[default]
    Latest,
    /// The one whose window begins first (`sched_at` in the text of seed 000).
    Frontrun,
    /// The one that wanted to start first (`exec_at` in appendix C of seed 000): optimises first come, first served, at the cost
    /// of half of the goodput where batches want to start when their last request arrives.
    Start,
    /// The one with the earliest deadline: optimises fairness between requests, at the cost of long batches that are too late
    /// when their deadline comes first.
    Deadline,
}

/// Which of several usable GPUs a batch gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum GpuChoice {
    /// The lowest id among those free by the start: idle GPUs are whole GPUs that an autoscaler can name.
    #[default]
    LowestId,
    /// The one that has been (or will be) free the longest: spreads load evenly.
    EarliestFree,
}

/// How one model is scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Policy {
    /// When a batch may start.
    pub trigger: Trigger,
    /// What is given up.
    pub drop: DropRule,
    /// How large a batch may be.
    pub limit: BatchLimit,
    /// What is given up for other models.
    pub shed: Shed,
}

impl Policy {
    /// Deferred batch scheduling: the default.
    pub const SYMPHONY: Self = Self {
        trigger: Trigger::Frontrun,
        drop: DropRule::Window(TargetShare::WHOLE),
        limit: BatchLimit::None,
        shed: Shed::None,
    };
    /// Deferred, but not where waiting cannot pay: never far from the best of the others (docs/adr/0008); and under overload each
    /// model loses its part (docs/adr/0011).
    pub const AUTO: Self = Self {
        trigger: Trigger::Adaptive,
        drop: DropRule::Window(TargetShare::THREE_QUARTERS),
        limit: BatchLimit::None,
        shed: Shed::Proportional(RequestValue::ONE),
    };
    /// The strong work-conserving rival: same ranking, same drop rule, no waiting.
    pub const EAGER: Self = Self { trigger: Trigger::Eager, ..Self::SYMPHONY };
    /// Clipper (NSDI 2017): optimises for models that nobody has profiled, at the cost of goodput under load, where the earliest
    /// request dictates small batches.
    pub const CLIPPER: Self =
        Self { trigger: Trigger::Eager, drop: DropRule::Prune, limit: BatchLimit::Aimd, shed: Shed::None };
    /// The share of the SLO that [`Policy::timeout`] waits unless told otherwise.
    pub const TIMEOUT_SHARE: f64 = 0.25;

    /// Triton's dynamic batcher with this maximum queue delay: optimises a simple configuration, at the cost of a wait that fits
    /// one load and no other. Requests that cannot be met any more are dropped one by one.
    #[must_use]
    pub const fn timeout(wait: Nanos) -> Self {
        Self { trigger: Trigger::Timeout(wait), drop: DropRule::Prune, limit: BatchLimit::None, shed: Shed::None }
    }

    /// The same with a share of the SLO as the delay.
    #[must_use]
    pub fn timeout_share(slo: Nanos, share: f64) -> Self {
        Self::timeout(Nanos::from_secs_f64(slo.as_secs_f64() * share))
    }

    /// The same for a model whose requests are worth this much; it makes a difference to those that shed.
    #[must_use]
    pub const fn worth(mut self, value: RequestValue) -> Self {
        if let Shed::Proportional(_) = self.shed {
            self.shed = Shed::Proportional(value);
        }
        self
    }

    /// The policy that an operator names when a model is loaded: `symphony` (or nothing), `auto`, `eager`,
    /// `timeout` or `clipper`.
    #[must_use]
    pub fn named(name: &str, slo: Nanos) -> Option<Self> {
        match name {
            "" | "symphony" => Some(Self::SYMPHONY),
            "auto" => Some(Self::AUTO),
            "eager" => Some(Self::EAGER),
            "timeout" => Some(Self::timeout_share(slo, Self::TIMEOUT_SHARE)),
            "clipper" => Some(Self::CLIPPER),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_for_policies_and_nothing_else_does() {
        let slo = Nanos::from_millis(100);
        assert_eq!(Policy::named("", slo), Some(Policy::default()));
        assert_eq!(Policy::named("symphony", slo), Some(Policy::SYMPHONY));
        assert_eq!(Policy::named("timeout", slo), Some(Policy::timeout(Nanos::from_millis(25))));
        assert_eq!(Policy::named("clipper", slo).map(|policy| policy.limit), Some(BatchLimit::Aimd));
        // Those that decide for a cluster are not for one model.
        assert_eq!(["nexus", "clockwork", "shepherd", "Eager"].map(|name| Policy::named(name, slo)), [None; 4]);
    }
}
