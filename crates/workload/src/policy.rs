//! The policy of a scenario: names as they are written, checked, without any idea of how they work.

use std::fmt;

use symphony_types::Nanos;

use crate::text::{DropText, PolicyText, TriggerText};

/// The policy families that a scenario may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyName {
    /// Deferred batch scheduling; trigger and drop rule selectable (seed 000, section 4.3).
    Symphony,
    /// The same without waiting.
    Eager,
    /// Deferred, but not where waiting cannot pay (docs/adr/0008).
    Auto,
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
    /// `"adaptive"`.
    Adaptive,
    /// `{ timeout_ms = x }`.
    Timeout(Nanos),
}

/// What is given up (DESIGN section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropChoice {
    /// `"window"`, or `{ window = share }`: the part of the target batch that it protects, in percent.
    Window {
        /// 1 to 100.
        percent: u32,
    },
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

/// What `auto` protects of the target batch, in percent.
const AUTO_WINDOW_PERCENT: u32 = 75;

const NAMES: &str = "one of \"symphony\", \"auto\", \"eager\"";
const TRIGGERS: &str = "one of \"eager\", \"frontrun\", \"adaptive\", \"latest\", { timeout_ms = x }";
const DROPS: &str = "one of \"window\", { window = share }, \"prune\"";
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
            drop: DropChoice::Window { percent: 100 },
            gpu_choice: GpuOrder::LowestId,
        };
        match name.as_str() {
            "symphony" => {}
            "auto" => {
                (spec.name, spec.trigger) = (PolicyName::Auto, TriggerChoice::Adaptive);
                spec.drop = DropChoice::Window { percent: AUTO_WINDOW_PERCENT };
            }
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
        if let Some(drop) = &table.drop {
            spec.drop = Self::check_drop(drop)?;
        }
        match table.gpu_choice.as_deref() {
            None => {}
            Some("lowest_id") => spec.gpu_choice = GpuOrder::LowestId,
            Some("earliest_free") => spec.gpu_choice = GpuOrder::EarliestFree,
            Some(other) => return Err((".gpu_choice", GPU_CHOICES, format!("\"{other}\""))),
        }
        Ok(spec)
    }

    fn check_drop(text: &DropText) -> Result<DropChoice, Refused> {
        match text {
            DropText::Name(name) => match name.as_str() {
                "window" => Ok(DropChoice::Window { percent: 100 }),
                "prune" => Ok(DropChoice::Prune),
                _ => Err((".drop", DROPS, format!("\"{name}\""))),
            },
            DropText::Window(table) => {
                let share = table.window;
                if !(0.01..=1.0).contains(&share) {
                    return Err((".drop.window", "a share of the target batch, 0.01 to 1", share.to_string()));
                }
                Ok(DropChoice::Window { percent: (share * 100.0).round() as u32 })
            }
        }
    }

    fn check_trigger(text: &TriggerText) -> Result<TriggerChoice, Refused> {
        match text {
            TriggerText::Name(name) => match name.as_str() {
                "eager" => Ok(TriggerChoice::Eager),
                "frontrun" => Ok(TriggerChoice::Frontrun),
                "latest" => Ok(TriggerChoice::Latest),
                "adaptive" => Ok(TriggerChoice::Adaptive),
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
            PolicyName::Auto => "auto",
        })?;
        match self.trigger {
            TriggerChoice::Frontrun => {}
            TriggerChoice::Eager if self.name == PolicyName::Eager => {}
            TriggerChoice::Eager => f.write_str(" trigger=eager")?,
            TriggerChoice::Adaptive if self.name == PolicyName::Auto => {}
            TriggerChoice::Adaptive => f.write_str(" trigger=adaptive")?,
            TriggerChoice::Latest => f.write_str(" trigger=latest")?,
            TriggerChoice::Timeout(wait) => write!(f, " trigger=timeout_ms={}", wait.as_millis_f64())?,
        }
        match self.drop {
            DropChoice::Window { percent: AUTO_WINDOW_PERCENT } if self.name == PolicyName::Auto => {}
            DropChoice::Window { percent: 100 } if self.name != PolicyName::Auto => {}
            DropChoice::Window { percent } => write!(f, " drop=window={}", f64::from(percent) / 100.0)?,
            DropChoice::Prune => f.write_str(" drop=prune")?,
        }
        match self.gpu_choice {
            GpuOrder::LowestId => Ok(()),
            GpuOrder::EarliestFree => f.write_str(" gpu_choice=earliest_free"),
        }
    }
}
