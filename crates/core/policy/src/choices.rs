//! The choices that a model's policy is made of (DESIGN section 6).

use rkyv::{Archive, Deserialize, Serialize};
use symphony_types::Nanos;

use crate::shares::{SloShare, TargetShare};

/// Values and the words for them.
pub(crate) type Written<T, const N: usize> = [(&'static str, T); N];

/// The value of a word.
pub(crate) fn read<T: Copy>(written: &[(&'static str, T)], word: &str) -> Option<T> {
    written.iter().find(|(known, _)| *known == word).map(|&(_, value)| value)
}

/// The word for a value, if one says all of it.
pub(crate) fn word<T: PartialEq>(written: &[(&'static str, T)], value: &T) -> Option<&'static str> {
    written.iter().find(|(_, known)| known == value).map(|&(word, _)| word)
}

/// Policies of single models. The names stand for choices that may be changed one by one.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ModelPolicyName {
    /// Deferred batch scheduling (seed 000, section 4.3).
    Symphony,
    /// At once when there is GPU time to spare, later the less there is (docs/adr/0008). What every text that names no
    /// policy means.
    #[default]
    Auto,
    /// Without waiting.
    Eager,
    /// Triton's dynamic batcher: waits a share of the SLO.
    Timeout,
    /// Clipper: no waiting, lazy drop, batches limited by additive increase and multiplicative decrease.
    Clipper,
}

impl ModelPolicyName {
    pub(crate) const WRITTEN: Written<Self, 5> = [
        ("symphony", Self::Symphony),
        ("auto", Self::Auto),
        ("eager", Self::Eager),
        ("timeout", Self::Timeout),
        ("clipper", Self::Clipper),
    ];

    /// As it is written.
    #[must_use]
    pub fn label(self) -> &'static str {
        word(&Self::WRITTEN, &self).unwrap_or_default()
    }
}

/// When a batch may start.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum TriggerChoice {
    /// `"eager"`: at once.
    Eager,
    /// `"frontrun"`: when no further arrival could join.
    Frontrun,
    /// `"adaptive"`: at frontrun, or earlier where waiting cannot pay.
    Adaptive,
    /// `"latest"`: at the end of the window.
    Latest,
    /// `"beta_lambda"`: once the batch has β·λ items, else at frontrun.
    BetaLambda,
    /// `{ timeout_ms = x }`: when the earliest request has waited this long.
    Timeout(Nanos),
    /// The same with a share of the model's SLO: `share` of policy `timeout`.
    TimeoutShare(SloShare),
}

impl TriggerChoice {
    pub(crate) const WRITTEN: Written<Self, 5> = [
        ("eager", Self::Eager),
        ("frontrun", Self::Frontrun),
        ("adaptive", Self::Adaptive),
        ("latest", Self::Latest),
        ("beta_lambda", Self::BetaLambda),
    ];
}

/// Which requests are given up so that others make it.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropRule {
    /// `"window"`, or `{ window = share }`: gives up queue heads that would force a batch under the staggered target on
    /// the requests behind them; optimises goodput under overload, at the cost of the requests dropped a little early
    /// (authors' code, see the scheduler's README).
    Window(TargetShare),
    /// `"prune"`: gives up a request only when it cannot be met even alone (as Clipper); optimises the single request,
    /// at the cost of 5–10 % of goodput.
    Prune,
}

impl DropRule {
    pub(crate) const WRITTEN: Written<Self, 2> = [("window", Self::Window(TargetShare::WHOLE)), ("prune", Self::Prune)];
}

impl Default for DropRule {
    fn default() -> Self {
        Self::Window(TargetShare::WHOLE)
    }
}

/// Where a batch stands among those that wait for a GPU; the earliest gets the next one. Models of other orders stand
/// in the same line.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ReadyOrder {
    /// `"latest"`: by the end of its window: optimises that each is met, at the cost of a little batch size.
    #[default]
    Latest,
    /// `"frontrun"`: by the beginning of its window (`sched_at` in the text of seed 000).
    Frontrun,
    /// `"start"`: by when it wanted to start (`exec_at` in appendix C of seed 000): optimises first come, first served,
    /// at the cost of half of the goodput where batches want to start when their last request arrives.
    Start,
    /// `"deadline"`: by its earliest deadline: optimises fairness between requests, at the cost of long batches that
    /// are too late when their deadline comes first.
    Deadline,
}

impl ReadyOrder {
    pub(crate) const WRITTEN: Written<Self, 4> =
        [("latest", Self::Latest), ("frontrun", Self::Frontrun), ("start", Self::Start), ("deadline", Self::Deadline)];
}

/// Which of several usable GPUs a batch gets.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum GpuChoice {
    /// `"lowest_id"`: the lowest id among those free by the start: idle GPUs are whole GPUs that an autoscaler can
    /// name.
    #[default]
    LowestId,
    /// `"earliest_free"`: the one that has been (or will be) free the longest: spreads load evenly.
    EarliestFree,
}

impl GpuChoice {
    pub(crate) const WRITTEN: Written<Self, 2> = [("lowest_id", Self::LowestId), ("earliest_free", Self::EarliestFree)];

    /// As it is written.
    #[must_use]
    pub fn label(self) -> &'static str {
        word(&Self::WRITTEN, &self).unwrap_or_default()
    }
}

/// What a model gives up for others under overload (docs/adr/0011).
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ShedChoice {
    /// `"none"`: nothing.
    #[default]
    None,
    /// `"proportional"`: the same share as every other model, divided by what its requests are worth.
    Proportional,
}

impl ShedChoice {
    pub(crate) const WRITTEN: Written<Self, 2> = [("none", Self::None), ("proportional", Self::Proportional)];
}
