//! Choices for experiments: scenarios have them; clusters refuse them, and no replicated state contains them.

use std::fmt;

use crate::choices::{ModelPolicyName, ResearchTrigger, WordTable, parse_word, word_of};
use crate::error::Refused;
use crate::keys::{chosen_word, only, write};
use crate::model_policy::ModelPolicy;
use crate::text::{PolicyTable, TriggerText};

const TRIGGERS: &str = "one of \"eager\", \"frontrun\", \"adaptive\", \"latest\", \"beta_lambda\", { timeout_ms = x }";
const READY_ORDERS: &str = "one of \"latest\", \"frontrun\", \"start\", \"deadline\"";
const GPU_CHOICES: &str = "one of \"lowest_id\", \"earliest_free\"";
const KEYS: &str = "only trigger, drop, ready_order, gpu_choice and shed (and share for policy \"timeout\")";

/// A batch's key in the ready set; the smallest gets the next GPU. Models with different orders share the ready set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ReadyOrder {
    /// `"latest"`: by the end of its window: optimises the chance that each batch is met, at the cost of a little batch
    /// size.
    #[default]
    Latest,
    /// `"frontrun"`: by the beginning of its window (`sched_at` in the text of the Symphony paper).
    Frontrun,
    /// `"start"`: by its wanted start (`exec_at` in appendix C of the Symphony paper): optimises first come, first
    /// served, at the cost of half of the goodput where batches want to start when their last request arrives.
    Start,
    /// `"deadline"`: by its earliest deadline: optimises fairness between requests, at the cost of long batches that
    /// are too late when their deadline comes first.
    Deadline,
}

impl ReadyOrder {
    pub(crate) const WORDS: WordTable<Self, 4> =
        [("latest", Self::Latest), ("frontrun", Self::Frontrun), ("start", Self::Start), ("deadline", Self::Deadline)];
}

/// Which of several usable GPUs a batch gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum GpuChoice {
    /// `"lowest_id"`: the lowest id among those free by the start: idle GPUs are whole GPUs that an autoscaler can
    /// name.
    #[default]
    LowestId,
    /// `"earliest_free"`: the one that has been (or will be) free the longest: spreads load evenly.
    EarliestFree,
}

impl GpuChoice {
    pub(crate) const WORDS: WordTable<Self, 2> = [("lowest_id", Self::LowestId), ("earliest_free", Self::EarliestFree)];

    /// As it is written.
    #[must_use]
    pub fn label(self) -> &'static str {
        word_of(&Self::WORDS, &self).unwrap_or_default()
    }
}

/// Choices for experiments; the default is what clusters do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResearchChoices {
    /// When a batch may start, in place of the model policy's trigger.
    pub trigger: Option<ResearchTrigger>,
    /// The order of the model's batches in the ready set.
    pub ready_order: ReadyOrder,
    /// How a GPU is chosen.
    pub gpu_choice: GpuChoice,
}

/// A model's policy in a scenario: what a cluster accepts, and choices for experiments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimulatedPolicy {
    /// What a cluster accepts.
    pub model: ModelPolicy,
    /// What it does not.
    pub research: ResearchChoices,
}

impl From<ModelPolicy> for SimulatedPolicy {
    fn from(model: ModelPolicy) -> Self {
        Self { model, research: ResearchChoices::default() }
    }
}

impl SimulatedPolicy {
    /// The name's choices, with those of the table in place of its defaults.
    pub(crate) fn chosen(name: ModelPolicyName, table: &PolicyTable) -> Result<Self, Refused> {
        let keys = match name {
            ModelPolicyName::Timeout => &[".trigger", ".drop", ".ready_order", ".gpu_choice", ".shed", ".share"][..],
            _ => &[".trigger", ".drop", ".ready_order", ".gpu_choice", ".shed"],
        };
        only(table, keys, KEYS)?;
        let (named, mut research) = (ModelPolicy::of(name), ResearchChoices::default());
        if let Some(TriggerText::Name(word)) = &table.trigger {
            research.trigger = parse_word(&ResearchTrigger::WORDS, word);
        }
        let model = if research.trigger.is_some() {
            named.takes_any_trigger()?;
            named.with_options(table, None, TRIGGERS)?
        } else {
            named.with_options(table, table.trigger.as_ref(), TRIGGERS)?
        };
        if let Some(word) = &table.ready_order {
            research.ready_order = chosen_word(".ready_order", READY_ORDERS, &ReadyOrder::WORDS, word)?;
        }
        if let Some(word) = &table.gpu_choice {
            research.gpu_choice = chosen_word(".gpu_choice", GPU_CHOICES, &GpuChoice::WORDS, word)?;
        }
        Ok(Self { model, research })
    }
}

/// The canonical text: the name alone if all choices are its defaults, otherwise a table.
impl fmt::Display for SimulatedPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [trigger, drop, shed] = self.model.option_texts();
        let ResearchChoices { trigger: instead, ready_order, gpu_choice } = self.research;
        let quoted = |key: &str, word: Option<&str>| format!("{key} = \"{}\"", word.unwrap_or_default());
        let trigger = instead.map(|instead| quoted("trigger", word_of(&ResearchTrigger::WORDS, &instead))).or(trigger);
        let ready_order = (ready_order != ReadyOrder::default())
            .then(|| quoted("ready_order", word_of(&ReadyOrder::WORDS, &ready_order)));
        let gpu_choice = (gpu_choice != GpuChoice::default()).then(|| quoted("gpu_choice", Some(gpu_choice.label())));
        let options: Vec<_> = [trigger, drop, ready_order, gpu_choice, shed].into_iter().flatten().collect();
        write(f, self.model.name.label(), &options)
    }
}
