//! All policies: those of single models, and those that decide for a whole cluster.

use std::fmt;
use std::str::FromStr;

use symphony_types::Nanos;
use toml::Value;

use crate::choices::{ModelPolicyName, parse_word};
use crate::error::{PolicyError, Refused};
use crate::keys::{only, refuse, span, write};
use crate::model_policy::ModelPolicy;
use crate::options::{PolicyOptions, RegisteredPolicy};
use crate::research::SimulatedPolicy;
use crate::text::{PolicyTable, PolicyText};
use crate::unmerged_policy::UnmergedPolicy;

/// A validated policy.
#[derive(Clone, Debug, PartialEq)]
pub enum PolicySpec {
    /// A queue for each model and one ranker.
    Queues(SimulatedPolicy),
    /// Clockwork (Gujarati et al., 2020): one scheduler plans each GPU some time ahead.
    Clockwork {
        /// `commit_ms`: the look-ahead; a GPU with less work than this gets more.
        commit: Nanos,
        /// `early_ms`: the margin by which deadlines are moved forward.
        early: Nanos,
    },
    /// Nexus (Shen et al., 2019): models are packed on GPUs, and frontends send to these in turn.
    Nexus {
        /// `frontends`, each with its own round robin.
        frontends: u32,
    },
    /// Shepherd (Zhang et al., 2023): a larger batch may preempt a running one.
    Shepherd {
        /// `preempt_factor`: how many times larger a batch must be to preempt a running one.
        preempt_factor: f64,
    },
    /// A policy that never merges requests into batches.
    Unmerged(UnmergedPolicy),
    /// A policy that the program adds.
    Registered(RegisteredPolicy),
}

/// The names of the policies for whole clusters that every program has.
pub const CLUSTER_POLICY_NAMES: [&str; 7] = ["clockwork", "nexus", "shepherd", "kairos", "ribbon", "drs", "clkwrk"];

/// The names that every program knows, those of policies for single models first; none of them can be added.
pub const POLICY_NAMES: [&str; ModelPolicyName::WORDS.len() + CLUSTER_POLICY_NAMES.len()] = {
    let (of_models, of_clusters) = (ModelPolicyName::WORDS, CLUSTER_POLICY_NAMES);
    let mut names = [""; ModelPolicyName::WORDS.len() + CLUSTER_POLICY_NAMES.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = if at < of_models.len() { of_models[at].0 } else { of_clusters[at - of_models.len()] };
        at += 1;
    }
    names
};

/// Look-ahead and margin of policy `clockwork`: half of the published look-ahead and the whole of the published margin,
/// which together reproduce what the Symphony paper measured in its Table 4.
const CLOCKWORK_MS: f64 = 5.0;
/// λ of the Shepherd paper: the least ratio of batch sizes at which a batch preempts.
const SHEPHERD_PREEMPT_FACTOR: f64 = 3.0;
/// The most frontends of policy `nexus`: each has round-robin state for every model.
const FRONTENDS_MAX: u32 = 1024;

impl PolicyText {
    const fn name(&self) -> (&'static str, &String) {
        match self {
            Self::Name(name) => ("", name),
            Self::Table(table) => (".name", &table.name),
        }
    }

    /// The policy in the text, where the program adds policies of these names.
    ///
    /// # Errors
    /// If it names no policy, or contains invalid options for it. Options of an added policy are checked when it is
    /// built.
    pub fn parse_among(&self, added: &[&str]) -> Result<PolicySpec, Refused> {
        let (below, name) = self.name();
        let named = PolicyTable::default();
        let table = match self {
            Self::Name(_) => &named,
            Self::Table(table) => table,
        };
        if let Some(name) = parse_word(&ModelPolicyName::WORDS, name) {
            return SimulatedPolicy::chosen(name, table).map(PolicySpec::Queues);
        }
        match name.as_str() {
            "clockwork" => {
                only(table, &[".commit_ms", ".early_ms"], "only commit_ms and early_ms for policy \"clockwork\"")?;
                let commit = span(".commit_ms", table.commit_ms.unwrap_or(CLOCKWORK_MS))?;
                let early = span(".early_ms", table.early_ms.unwrap_or(CLOCKWORK_MS))?;
                Ok(PolicySpec::Clockwork { commit, early })
            }
            "nexus" => {
                only(table, &[".frontends"], "only frontends for policy \"nexus\"")?;
                let frontends = table.frontends.unwrap_or(1);
                if !(1..=FRONTENDS_MAX).contains(&frontends) {
                    return refuse(".frontends", "1 to 1024", frontends.to_string());
                }
                Ok(PolicySpec::Nexus { frontends })
            }
            "shepherd" => {
                only(table, &[".preempt_factor"], "only preempt_factor for policy \"shepherd\"")?;
                let preempt_factor = table.preempt_factor.unwrap_or(SHEPHERD_PREEMPT_FACTOR);
                if !(1.0..=1e9).contains(&preempt_factor) {
                    return refuse(".preempt_factor", "1 to 1e9", preempt_factor.to_string());
                }
                Ok(PolicySpec::Shepherd { preempt_factor })
            }
            name @ ("kairos" | "ribbon" | "drs" | "clkwrk") => {
                UnmergedPolicy::chosen(table, name).map(PolicySpec::Unmerged)
            }
            name if added.contains(&name) => {
                Ok(PolicySpec::Registered(RegisteredPolicy { name: name.to_owned(), options: table.options()? }))
            }
            _ => refuse(below, one_of(POLICY_NAMES.iter().chain(added).copied()), format!("\"{name}\"")),
        }
    }

    /// As [`parse_among`](Self::parse_among), where the program adds none.
    ///
    /// # Errors
    /// As there.
    pub fn parse(&self) -> Result<PolicySpec, Refused> {
        self.parse_among(&[])
    }

    /// The model policy in the text, as a cluster requires.
    ///
    /// # Errors
    /// As [`parse`](Self::parse), and if the policy decides for a whole cluster or has choices for experiments.
    pub fn parse_model(&self) -> Result<ModelPolicy, Refused> {
        let (below, name) = self.name();
        if let Some(name) = parse_word(&ModelPolicyName::WORDS, name) {
            return match self {
                Self::Name(_) => Ok(ModelPolicy::of(name)),
                Self::Table(table) => ModelPolicy::chosen(name, table),
            };
        }
        let why = if CLUSTER_POLICY_NAMES.contains(&name.as_str()) {
            ", which decides for all models of a sub-cluster at once: `symphony subcluster policy` sets it"
        } else {
            ""
        };
        let known = ModelPolicyName::WORDS.map(|(known, _)| known);
        refuse(below, one_of(known.into_iter()), format!("\"{name}\"{why}"))
    }
}

fn one_of<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let quoted: Vec<_> = names.map(|name| format!("\"{name}\"")).collect();
    format!("one of {}", quoted.join(", "))
}

impl PolicyTable {
    /// All keys besides the name, for a policy that only the program knows.
    fn options(&self) -> Result<PolicyOptions, Refused> {
        let number = |key, value: Option<f64>| Some((key, Value::Float(value?)));
        // Read back from the canonical text as what they are: a count is no number with a point.
        let count = |key, value: Option<u32>| Some((key, Value::Integer(value?.into())));
        let word = |key, value: &Option<String>| Some((key, Value::String(value.clone()?)));
        // Keys that other policies have as well.
        let shared = [
            word("ready_order", &self.ready_order),
            word("gpu_choice", &self.gpu_choice),
            word("shed", &self.shed),
            number("share", self.share),
            number("commit_ms", self.commit_ms),
            number("early_ms", self.early_ms),
            count("frontends", self.frontends),
            number("preempt_factor", self.preempt_factor),
            count("threshold", self.threshold),
            self.learn.map(|learn| ("learn", Value::Boolean(learn))),
        ];
        const PLAIN: &str = "a number, a text on one line, true or false, under a key of a–z, 0–9, - and _";
        if self.trigger.is_some() || self.drop.is_some() {
            let key = if self.trigger.is_some() { ".trigger" } else { ".drop" };
            return refuse(
                key,
                "other keys: trigger and drop belong to policies of single models",
                key[1..].to_owned(),
            );
        }
        let mut options = PolicyOptions::default();
        let own = self.unknown.iter().map(|(key, value)| (key.as_str(), value.clone()));
        for (key, value) in shared.into_iter().flatten().chain(own) {
            options.set(key, value).or_else(|got| refuse(format!(".{key}"), PLAIN, got))?;
        }
        Ok(options)
    }
}

impl PolicySpec {
    /// The policy in a text, where the program adds policies of these names.
    ///
    /// # Errors
    /// If it is neither a name nor a readable table, names no policy, or contains invalid options for it.
    pub fn parse_among(text: &str, added: &[&str]) -> Result<Self, PolicyError> {
        text.parse::<PolicyText>()?.parse_among(added).map_err(PolicyError::Value)
    }

    /// Whether it may merge requests into batches, as far as is known: an added policy may.
    #[must_use]
    pub const fn merges(&self) -> bool {
        !matches!(self, Self::Unmerged(_))
    }

    /// [`merges`](Self::merges) of the policy in a text. One that is not known here may be added by a program, and
    /// counts as merging.
    #[must_use]
    pub fn text_merges(text: &str) -> bool {
        Self::parse_among(text, &[]).map_or(true, |policy| policy.merges())
    }

    /// The choices for queues and ranker, if the policy uses these.
    #[must_use]
    pub const fn queues(&self) -> Option<&SimulatedPolicy> {
        match self {
            Self::Queues(queues) => Some(queues),
            _ => None,
        }
    }
}

/// Without policies that a program adds: see [`PolicySpec::parse_among`].
impl FromStr for PolicySpec {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        PolicyText::from_str(text)?.parse().map_err(PolicyError::Value)
    }
}

/// The canonical text: the name alone if all options are its defaults, otherwise a table.
impl fmt::Display for PolicySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut options = Vec::new();
        let mut option = |key: &str, value: f64, default: f64| {
            if value != default {
                options.push(format!("{key} = {value}"));
            }
        };
        let name = match self {
            Self::Queues(queues) => return queues.fmt(f),
            Self::Unmerged(policy) => return policy.fmt(f),
            Self::Registered(registered) => return registered.fmt(f),
            Self::Clockwork { commit, early } => {
                option("commit_ms", commit.as_millis_f64(), CLOCKWORK_MS);
                option("early_ms", early.as_millis_f64(), CLOCKWORK_MS);
                "clockwork"
            }
            Self::Nexus { frontends } => {
                option("frontends", f64::from(*frontends), 1.0);
                "nexus"
            }
            Self::Shepherd { preempt_factor } => {
                option("preempt_factor", *preempt_factor, SHEPHERD_PREEMPT_FACTOR);
                "shepherd"
            }
        };
        write(f, name, &options)
    }
}
