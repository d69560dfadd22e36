//! The choices that a model's policy is made of (DESIGN section 6).

use rkyv::{Archive, Deserialize, Serialize};
use symphony_types::Nanos;

use crate::shares::{SloShare, TargetShare};

/// Values and their words.
pub(crate) type Written<T, const N: usize> = [(&'static str, T); N];

/// The value of a word.
pub(crate) fn read<T: Copy>(written: &[(&'static str, T)], word: &str) -> Option<T> {
    written.iter().find(|(known, _)| *known == word).map(|&(_, value)| value)
}

/// The word for a value, if a word describes it completely.
pub(crate) fn word<T: PartialEq>(written: &[(&'static str, T)], value: &T) -> Option<&'static str> {
    written.iter().find(|(_, known)| known == value).map(|&(word, _)| word)
}

/// Policies of single models. A name stands for a set of choices, each of which may be overridden.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ModelPolicyName {
    /// Deferred batch scheduling (seed 000, section 4.3).
    Symphony,
    /// At once when GPU time is spare, later the less there is (docs/adr/0008). The default.
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

/// Which requests are given up so that others meet their deadlines.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropRule {
    /// `"window"`, or `{ window = share }`: gives up queue heads that would shrink the batch of the requests behind
    /// them below the staggered target; optimises goodput under overload, at the cost of the requests dropped a little
    /// early (authors' code, see the scheduler's README).
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

/// A batch's key in the ready set; the smallest gets the next GPU. Models with different orders share the ready set.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ReadyOrder {
    /// `"latest"`: by the end of its window: optimises the chance that each batch is met, at the cost of a little batch
    /// size.
    #[default]
    Latest,
    /// `"frontrun"`: by the beginning of its window (`sched_at` in the text of seed 000).
    Frontrun,
    /// `"start"`: by its wanted start (`exec_at` in appendix C of seed 000): optimises first come, first served, at the
    /// cost of half of the goodput where batches want to start when their last request arrives.
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

/// What a model sheds for others under overload (docs/adr/0011).
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ShedChoice {
    /// `"none"`: nothing.
    #[default]
    None,
    /// `"proportional"`: a share that is the same for all models of equal value.
    Proportional,
}

impl ShedChoice {
    pub(crate) const WRITTEN: Written<Self, 2> = [("none", Self::None), ("proportional", Self::Proportional)];
}
