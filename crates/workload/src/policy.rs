//! The policy of a scenario: names as they are written, checked, without any idea of how they work.

use std::fmt;

use symphony_types::Nanos;

use crate::text::{PolicyText, TriggerText};

/// The policy families that a scenario may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyName {
    /// Deferred batch scheduling; trigger and drop rule selectable (seed 000, section 4.3).
    Symphony,
    /// The same without waiting.
    Eager,
}

/// When a batch may start (DESIGN section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TriggerChoice {
    /// `"eager"`.
    Eager,
    /// `"frontrun"`.
    Frontrun,
    /// `"latest"`.
    Latest,
    /// `{ timeout_ms = x }`.
    Timeout(Nanos),
}

/// What is given up (DESIGN section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropChoice {
    /// `"window"`.
    Window,
    /// `"prune"`.
    Prune,
}

/// Which GPU a batch gets (DESIGN section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuOrder {
    /// `"lowest_id"`.
    LowestId,
    /// `"earliest_free"`.
    EarliestFree,
}

/// A checked policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicySpec {
    /// The family.
    pub name: PolicyName,
    /// When a batch may start.
    pub trigger: TriggerChoice,
    /// What is given up.
    pub drop: DropChoice,
    /// Which GPU a batch gets.
    pub gpu_choice: GpuOrder,
}

/// A value that was refused: (key below `policy`, expected, got).
pub(crate) type Refused = (&'static str, &'static str, String);

const NAMES: &str = "one of \"symphony\", \"eager\"";
const TRIGGERS: &str = "one of \"eager\", \"frontrun\", \"latest\", { timeout_ms = x }";
const DROPS: &str = "one of \"window\", \"prune\"";
const GPU_CHOICES: &str = "one of \"lowest_id\", \"earliest_free\"";

impl PolicySpec {
    /// The policy that the text asks for.
    pub(crate) fn check(text: &PolicyText) -> Result<Self, Refused> {
        let (name, key) = match text {
            PolicyText::Name(name) => (name, ""),
            PolicyText::Table(table) => (&table.name, ".name"),
        };
        let mut spec = Self {
            name: PolicyName::Symphony,
            trigger: TriggerChoice::Frontrun,
            drop: DropChoice::Window,
            gpu_choice: GpuOrder::LowestId,
        };
        match name.as_str() {
            "symphony" => {}
            "eager" => (spec.name, spec.trigger) = (PolicyName::Eager, TriggerChoice::Eager),
            _ => return Err((key, NAMES, format!("\"{name}\""))),
        }
        let PolicyText::Table(table) = text else { return Ok(spec) };
        if let Some(trigger) = &table.trigger {
            let choice = Self::check_trigger(trigger)?;
            if spec.name == PolicyName::Eager && choice != TriggerChoice::Eager {
                let got = "another trigger; use name = \"symphony\" to choose one".to_owned();
                return Err((".trigger", "\"eager\" for policy \"eager\"", got));
            }
            spec.trigger = choice;
        }
        match table.drop.as_deref() {
            None => {}
            Some("window") => spec.drop = DropChoice::Window,
            Some("prune") => spec.drop = DropChoice::Prune,
            Some(other) => return Err((".drop", DROPS, format!("\"{other}\""))),
        }
        match table.gpu_choice.as_deref() {
            None => {}
            Some("lowest_id") => spec.gpu_choice = GpuOrder::LowestId,
            Some("earliest_free") => spec.gpu_choice = GpuOrder::EarliestFree,
            Some(other) => return Err((".gpu_choice", GPU_CHOICES, format!("\"{other}\""))),
        }
        Ok(spec)
    }

    fn check_trigger(text: &TriggerText) -> Result<TriggerChoice, Refused> {
        match text {
            TriggerText::Name(name) => match name.as_str() {
                "eager" => Ok(TriggerChoice::Eager),
                "frontrun" => Ok(TriggerChoice::Frontrun),
                "latest" => Ok(TriggerChoice::Latest),
                _ => Err((".trigger", TRIGGERS, format!("\"{name}\""))),
            },
            TriggerText::Timeout(table) => {
                let ms = table.timeout_ms;
                if !(ms.is_finite() && (0.0..=1e9).contains(&ms)) {
                    return Err((".trigger.timeout_ms", "milliseconds, 0 to 1e9", ms.to_string()));
                }
                Ok(TriggerChoice::Timeout(Nanos::from_millis_f64(ms)))
            }
        }
    }
}

/// The name alone where nothing differs from what the name stands for; otherwise the name and what was chosen.
impl fmt::Display for PolicySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.name {
            PolicyName::Symphony => "symphony",
            PolicyName::Eager => "eager",
        })?;
        match self.trigger {
            TriggerChoice::Frontrun => {}
            TriggerChoice::Eager if self.name == PolicyName::Eager => {}
            TriggerChoice::Eager => f.write_str(" trigger=eager")?,
            TriggerChoice::Latest => f.write_str(" trigger=latest")?,
            TriggerChoice::Timeout(wait) => write!(f, " trigger=timeout_ms={}", wait.as_millis_f64())?,
        }
        match self.drop {
            DropChoice::Window => {}
            DropChoice::Prune => f.write_str(" drop=prune")?,
        }
        match self.gpu_choice {
            GpuOrder::LowestId => Ok(()),
            GpuOrder::EarliestFree => f.write_str(" gpu_choice=earliest_free"),
        }
    }
}
