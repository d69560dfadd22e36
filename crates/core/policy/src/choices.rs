//! The choices that a model's policy is made of.

use rkyv::{Archive, Deserialize, Serialize};
use symphony_types::Nanos;

use crate::shares::{SloShare, TargetShare};

/// Values and their words.
pub(crate) type WordTable<T, const N: usize> = [(&'static str, T); N];

/// The value of a word.
pub(crate) fn parse_word<T: Copy>(words: &[(&'static str, T)], word: &str) -> Option<T> {
    words.iter().find(|(known, _)| *known == word).map(|&(_, value)| value)
}

/// The word for a value, if a word describes it completely.
pub(crate) fn word_of<T: PartialEq>(words: &[(&'static str, T)], value: &T) -> Option<&'static str> {
    words.iter().find(|(_, known)| known == value).map(|&(word, _)| word)
}

/// Policies of single models. A name stands for a set of choices, each of which may be overridden.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ModelPolicyName {
    /// Deferred batch scheduling (the Symphony paper, section 4.3).
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
    pub(crate) const WORDS: WordTable<Self, 5> = [
        ("symphony", Self::Symphony),
        ("auto", Self::Auto),
        ("eager", Self::Eager),
        ("timeout", Self::Timeout),
        ("clipper", Self::Clipper),
    ];

    /// As it is written.
    #[must_use]
    pub fn label(self) -> &'static str {
        word_of(&Self::WORDS, &self).unwrap_or_default()
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
    /// `{ timeout_ms = x }`: when the earliest request has waited this long.
    Timeout(Nanos),
    /// When the earliest request has waited this share of the model's SLO: `share` of policy `timeout`.
    TimeoutShare(SloShare),
}

impl TriggerChoice {
    pub(crate) const WORDS: WordTable<Self, 3> =
        [("eager", Self::Eager), ("frontrun", Self::Frontrun), ("adaptive", Self::Adaptive)];
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
    pub(crate) const WORDS: WordTable<Self, 2> = [("window", Self::Window(TargetShare::WHOLE)), ("prune", Self::Prune)];
}

impl Default for DropRule {
    fn default() -> Self {
        Self::Window(TargetShare::WHOLE)
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
    pub(crate) const WORDS: WordTable<Self, 2> = [("none", Self::None), ("proportional", Self::Proportional)];
}

/// Appended to a value that only a scenario may have.
pub(crate) const SIMULATED: &str = ", a choice for experiments: it runs in `symphony sim` only";

/// A trigger that clusters refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResearchTrigger {
    /// `"latest"`: at the end of the window.
    Latest,
    /// `"beta_lambda"`: once the batch has β·λ items, else at frontrun.
    BetaLambda,
}

impl ResearchTrigger {
    pub(crate) const WORDS: WordTable<Self, 2> = [("latest", Self::Latest), ("beta_lambda", Self::BetaLambda)];
}
