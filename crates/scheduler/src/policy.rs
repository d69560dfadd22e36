//! The choices a policy is made of (DESIGN section 6). All are selectable per model; all run on the same objects.

use symphony_types::Nanos;

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
    /// When the earliest request has waited this long, or the batch is full: optimises for a wait chosen by hand and
    /// knows no deadline (Triton's dynamic batcher), at the cost of tuning it for every load.
    Timeout(Nanos),
    /// As `Frontrun`, but earlier where waiting cannot pay: once another arrival before frontrun has become unlikely, when
    /// the GPUs could not serve all candidates at the times they want, or when bursts come close to filling the GPUs.
    /// Optimises goodput over all loads, at the cost of some work per arrival (docs/adr/0008).
    Adaptive,
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

    /// The batch to protect; at least 1.
    pub(crate) const fn of(self, target: u32) -> u32 {
        (target as u64 * self.0 as u64).div_ceil(100) as u32
    }
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
}

impl Policy {
    /// Deferred batch scheduling: the default.
    pub const SYMPHONY: Self = Self { trigger: Trigger::Frontrun, drop: DropRule::Window(TargetShare::WHOLE) };
    /// Deferred, but not where waiting cannot pay: never far from the best of the others (docs/adr/0008).
    pub const AUTO: Self = Self { trigger: Trigger::Adaptive, drop: DropRule::Window(TargetShare::THREE_QUARTERS) };
    /// The strong work-conserving rival: same ranking, same drop rule, no waiting.
    pub const EAGER: Self = Self { trigger: Trigger::Eager, drop: DropRule::Window(TargetShare::WHOLE) };
}
