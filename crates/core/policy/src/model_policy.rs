//! The validated policy of one model: choices by name, independent of their implementation.

use std::fmt;
use std::str::FromStr;

use rkyv::{Archive, Deserialize, Serialize};

use crate::choices::{
    DropRule, ModelPolicyName, ResearchTrigger, SIMULATED, ShedChoice, TriggerChoice, parse_word, word_of,
};
use crate::error::{PolicyError, Refused};
use crate::keys::{SPAN_MAX, SPANS, chosen_word, only, refuse, span, write};
use crate::shares::{SloShare, TargetShare};
use crate::text::{DropText, PolicyTable, PolicyText, TriggerText};

const TRIGGERS: &str = "one of \"eager\", \"frontrun\", \"adaptive\", { timeout_ms = x }";
const DROPS: &str = "one of \"window\", { window = share }, \"prune\"";
const SHEDS: &str = "one of \"none\", \"proportional\"";
const KEYS: &str = "only trigger, drop and shed (and share for policy \"timeout\")";
const TARGET_SHARES: &str = "a share of the target batch, 0.01 to 1";
const SLO_SHARES: &str = "a share of the SLO, 0 to 1";

/// How one model is scheduled. Its text is what operators write; see [`PolicyText`].
#[derive(Archive, Serialize, Deserialize, serde::Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(try_from = "PolicyText")]
pub struct ModelPolicy {
    /// The name that operators write; it stands for choices where none is given.
    pub name: ModelPolicyName,
    /// When a batch may start.
    pub trigger: TriggerChoice,
    /// Which requests are given up when not all can be answered in time.
    pub drop: DropRule,
    /// What is shed for other models.
    pub shed: ShedChoice,
}

impl Default for ModelPolicy {
    fn default() -> Self {
        Self::of(ModelPolicyName::default())
    }
}

impl ModelPolicy {
    /// The choices behind a name.
    #[must_use]
    pub const fn of(name: ModelPolicyName) -> Self {
        const WHOLE: DropRule = DropRule::Window(TargetShare::WHOLE);
        let (trigger, drop) = match name {
            ModelPolicyName::Symphony => (TriggerChoice::Frontrun, WHOLE),
            ModelPolicyName::Auto => (TriggerChoice::Adaptive, DropRule::Window(TargetShare::THREE_QUARTERS)),
            ModelPolicyName::Eager => (TriggerChoice::Eager, WHOLE),
            ModelPolicyName::Timeout => (TriggerChoice::TimeoutShare(SloShare::QUARTER), DropRule::Prune),
            ModelPolicyName::Clipper => (TriggerChoice::Eager, DropRule::Prune),
        };
        let shed = match name {
            ModelPolicyName::Auto => ShedChoice::Proportional,
            _ => ShedChoice::None,
        };
        Self { name, trigger, drop, shed }
    }

    /// Whether the value of requests matters to this policy.
    #[must_use]
    pub fn looks_at_values(&self) -> bool {
        self.shed == ShedChoice::Proportional
    }

    /// Validates a policy that was not parsed from text: it must be expressible as text.
    ///
    /// Replicas call this for commands that they apply, so the result depends on the values alone: the formatting and
    /// parsing of numbers may differ between versions.
    ///
    /// # Errors
    /// As parsing its text.
    pub fn check(&self) -> Result<(), PolicyError> {
        self.check_trigger(self.trigger).and_then(|()| check_drop(self.drop)).map_err(PolicyError::Value)
    }

    /// Whether name and trigger match, and the trigger's number is within its limits.
    fn check_trigger(&self, trigger: TriggerChoice) -> Result<(), Refused> {
        match (self.name, trigger) {
            (ModelPolicyName::Timeout, TriggerChoice::TimeoutShare(share)) if share.is_within() => Ok(()),
            (ModelPolicyName::Timeout, TriggerChoice::TimeoutShare(share)) => {
                refuse(".share", SLO_SHARES, format!("{} millionths", share.millionths()))
            }
            (_, TriggerChoice::TimeoutShare(_)) => refuse(".share", KEYS, "a key of another policy".to_owned()),
            (
                ModelPolicyName::Symphony | ModelPolicyName::Auto | ModelPolicyName::Timeout,
                TriggerChoice::Timeout(wait),
            ) if wait > SPAN_MAX => refuse(".trigger.timeout_ms", SPANS, format!("{} ns", wait.get())),
            (ModelPolicyName::Symphony | ModelPolicyName::Auto, _)
            | (ModelPolicyName::Eager | ModelPolicyName::Clipper, TriggerChoice::Eager)
            | (ModelPolicyName::Timeout, TriggerChoice::Timeout(_)) => Ok(()),
            (ModelPolicyName::Eager | ModelPolicyName::Clipper | ModelPolicyName::Timeout, _) => {
                self.takes_any_trigger()
            }
        }
    }

    /// Refuses if the name fixes the trigger.
    pub(crate) fn takes_any_trigger(&self) -> Result<(), Refused> {
        let expected = match self.name {
            ModelPolicyName::Symphony | ModelPolicyName::Auto => return Ok(()),
            ModelPolicyName::Eager => "\"eager\" for policy \"eager\"",
            ModelPolicyName::Clipper => "\"eager\" for policy \"clipper\"",
            ModelPolicyName::Timeout => "{ timeout_ms = x } for policy \"timeout\"",
        };
        refuse(".trigger", expected, "another trigger; use name = \"symphony\" to choose one".to_owned())
    }

    /// The name's choices, with those of the table in place of its defaults, as a cluster accepts them.
    pub(crate) fn chosen(name: ModelPolicyName, table: &PolicyTable) -> Result<Self, Refused> {
        let research = [(".ready_order", &table.ready_order), (".gpu_choice", &table.gpu_choice)];
        if let Some((key, Some(got))) = research.into_iter().find(|(_, got)| got.is_some()) {
            return refuse(key, KEYS, format!("\"{got}\"{SIMULATED}"));
        }
        let keys = match name {
            ModelPolicyName::Timeout => &[".trigger", ".drop", ".shed", ".share"][..],
            _ => &[".trigger", ".drop", ".shed"],
        };
        only(table, keys, KEYS)?;
        Self::of(name).with_options(table, table.trigger.as_ref(), TRIGGERS)
    }

    /// With the options that both clusters and scenarios have; `triggers` are those that this place accepts.
    pub(crate) fn with_options(
        mut self,
        table: &PolicyTable,
        trigger: Option<&TriggerText>,
        triggers: &'static str,
    ) -> Result<Self, Refused> {
        if let Some(trigger) = trigger {
            self.trigger = self.chosen_trigger(trigger, triggers)?;
        }
        if let Some(share) = table.share {
            if table.trigger.is_some() {
                return refuse(".share", "either share or trigger", "both".to_owned());
            }
            let Some(share) = SloShare::from_share(share) else {
                return refuse(".share", SLO_SHARES, share.to_string());
            };
            self.trigger = TriggerChoice::TimeoutShare(share);
        }
        if let Some(drop) = &table.drop {
            self.drop = chosen_drop(drop)?;
        }
        if let Some(word) = &table.shed {
            self.shed = chosen_word(".shed", SHEDS, &ShedChoice::WORDS, word)?;
        }
        Ok(self)
    }

    fn chosen_trigger(&self, text: &TriggerText, expected: &'static str) -> Result<TriggerChoice, Refused> {
        let choice = match text {
            TriggerText::Name(name) if parse_word(&ResearchTrigger::WORDS, name).is_some() => {
                self.takes_any_trigger()?;
                return refuse(".trigger", expected, format!("\"{name}\"{SIMULATED}"));
            }
            TriggerText::Name(name) => chosen_word(".trigger", expected, &TriggerChoice::WORDS, name)?,
            TriggerText::Timeout(table) => TriggerChoice::Timeout(span(".trigger.timeout_ms", table.timeout_ms)?),
        };
        self.check_trigger(choice).map(|()| choice)
    }

    /// Trigger, drop rule and shedding as text, if they are not the name's.
    pub(crate) fn option_texts(&self) -> [Option<String>; 3] {
        let named = Self::of(self.name);
        let quoted = |key: &str, word: Option<&str>| format!("{key} = \"{}\"", word.unwrap_or_default());
        let trigger = (self.trigger != named.trigger).then(|| match self.trigger {
            TriggerChoice::Timeout(wait) => format!("trigger = {{ timeout_ms = {} }}", wait.as_millis_f64()),
            TriggerChoice::TimeoutShare(share) => format!("share = {}", share.share()),
            named => quoted("trigger", word_of(&TriggerChoice::WORDS, &named)),
        });
        let drop = (self.drop != named.drop).then(|| match (word_of(&DropRule::WORDS, &self.drop), self.drop) {
            (None, DropRule::Window(share)) => format!("drop = {{ window = {} }}", share.share()),
            (word, _) => quoted("drop", word),
        });
        let shed = (self.shed != named.shed).then(|| quoted("shed", word_of(&ShedChoice::WORDS, &self.shed)));
        [trigger, drop, shed]
    }
}

fn chosen_drop(text: &DropText) -> Result<DropRule, Refused> {
    match text {
        DropText::Name(name) => chosen_word(".drop", DROPS, &DropRule::WORDS, name),
        DropText::Window(table) => match TargetShare::from_share(table.window) {
            Some(share) => Ok(DropRule::Window(share)),
            None => refuse(".drop.window", TARGET_SHARES, table.window.to_string()),
        },
    }
}

fn check_drop(drop: DropRule) -> Result<(), Refused> {
    match drop {
        DropRule::Window(share) if TargetShare::from_percent(share.percent()).is_none() => {
            refuse(".drop.window", TARGET_SHARES, format!("{} %", share.percent()))
        }
        DropRule::Window(_) | DropRule::Prune => Ok(()),
    }
}

impl FromStr for ModelPolicy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        PolicyText::from_str(text)?.try_into()
    }
}

/// Cluster-wide policies are rejected.
impl TryFrom<PolicyText> for ModelPolicy {
    type Error = PolicyError;

    fn try_from(text: PolicyText) -> Result<Self, PolicyError> {
        text.parse_model().map_err(PolicyError::Value)
    }
}

/// The canonical text: the name alone if all choices are its defaults, otherwise a table.
impl fmt::Display for ModelPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let option_texts: Vec<_> = self.option_texts().into_iter().flatten().collect();
        write(f, self.name.label(), &option_texts)
    }
}

#[cfg(test)]
#[path = "model_policy_tests.rs"]
mod tests;
