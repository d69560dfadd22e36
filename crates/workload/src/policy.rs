//! The policy of a scenario: names as they are written, checked, without any idea of how they work.

use std::fmt;

use symphony_types::Nanos;

use crate::text::{DropText, PolicyTable, PolicyText, TriggerText};

/// Policies made of a queue for each model and one ranker of GPUs. The names stand for choices that may be changed one by
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueuePolicyName {
    /// Deferred batch scheduling (seed 000, section 4.3).
    Symphony,
    /// Deferred, but not where waiting cannot pay (docs/adr/0008).
    Auto,
    /// Without waiting.
    Eager,
    /// Triton's dynamic batcher: waits a share of the SLO.
    Timeout,
    /// Clipper: no waiting, lazy drop, batches limited by additive increase and multiplicative decrease.
    Clipper,
}

/// When a batch may start (DESIGN section 6).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TriggerChoice {
    /// `"eager"`.
    Eager,
    /// `"frontrun"`.
    Frontrun,
    /// `"adaptive"`.
    Adaptive,
    /// `"latest"`.
    Latest,
    /// `"beta_lambda"`.
    BetaLambda,
    /// `{ timeout_ms = x }`.
    Timeout(Nanos),
    /// This share of the model's SLO: `share` of policy `timeout`.
    TimeoutShare(f64),
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

/// Which of the batches that wait gets the next GPU (DESIGN section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadyChoice {
    /// `"latest"`: by the end of its window.
    Latest,
    /// `"frontrun"`: by the beginning of its window.
    Frontrun,
    /// `"start"`: by when it wanted to start.
    Start,
    /// `"deadline"`: by its earliest deadline.
    Deadline,
}

/// Which GPU a batch gets (DESIGN section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuOrder {
    /// `"lowest_id"`.
    LowestId,
    /// `"earliest_free"`.
    EarliestFree,
}

/// What models give up for others under overload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShedChoice {
    /// `"none"`.
    None,
    /// `"proportional"`: the same share each, divided by its value.
    Proportional,
}

/// The choices of a policy made of queues and a ranker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueuePolicy {
    /// The name they go by.
    pub name: QueuePolicyName,
    /// When a batch may start.
    pub trigger: TriggerChoice,
    /// What is given up.
    pub drop: DropChoice,
    /// Which of the batches that wait gets the next GPU.
    pub ready_order: ReadyChoice,
    /// Which GPU a batch gets.
    pub gpu_choice: GpuOrder,
    /// What is given up for other models.
    pub shed: ShedChoice,
}

/// A checked policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PolicySpec {
    /// A queue for each model and one ranker.
    Queues(QueuePolicy),
    /// `"clockwork"`.
    Clockwork {
        /// `commit_ms`: a GPU with less work than this ahead gets more.
        commit: Nanos,
        /// `early_ms`: deadlines are taken for this much earlier.
        early: Nanos,
    },
    /// `"nexus"`.
    Nexus {
        /// `frontends`, each with its own round robin.
        frontends: u32,
    },
    /// `"shepherd"`.
    Shepherd {
        /// `preempt_factor`: how many times larger a batch must be to stop one that runs.
        preempt_factor: f64,
    },
}

/// A value that was refused: (key below `policy`, expected, got).
pub(crate) type Refused = (&'static str, &'static str, String);

const NAMES: &str =
    "one of \"symphony\", \"auto\", \"eager\", \"timeout\", \"clipper\", \"clockwork\", \"nexus\", \"shepherd\"";
const TRIGGERS: &str = "one of \"eager\", \"frontrun\", \"adaptive\", \"latest\", \"beta_lambda\", { timeout_ms = x }";
const DROPS: &str = "one of \"window\", { window = share }, \"prune\"";
const READY_ORDERS: &str = "one of \"latest\", \"frontrun\", \"start\", \"deadline\"";
const SHEDS: &str = "one of \"none\", \"proportional\"";
const GPU_CHOICES: &str = "one of \"lowest_id\", \"earliest_free\"";
/// What the window protects of the target batch, unless told otherwise.
const WHOLE_WINDOW: DropChoice = DropChoice::Window { percent: 100 };
/// What `auto` protects.
const AUTO_WINDOW: DropChoice = DropChoice::Window { percent: 75 };
/// The share of the SLO that policy `timeout` waits.
const TIMEOUT_SHARE: f64 = 0.25;
/// Look-ahead and margin of policy `clockwork`.
const CLOCKWORK_MS: f64 = 5.0;
const SHEPHERD_PREEMPT_FACTOR: f64 = 3.0;
/// The most frontends of policy `nexus`: each keeps turns for every model.
const FRONTENDS_MAX: u32 = 1024;

impl PolicySpec {
    /// The policy that the text asks for.
    pub(crate) fn check(text: &PolicyText) -> Result<Self, Refused> {
        match text {
            PolicyText::Name(name) => Self::named(name, "", &PolicyTable::default()),
            PolicyText::Table(table) => Self::named(&table.name, ".name", table),
        }
    }

    fn named(name: &str, key: &'static str, table: &PolicyTable) -> Result<Self, Refused> {
        let queues = match name {
            "symphony" => QueuePolicyName::Symphony,
            "auto" => QueuePolicyName::Auto,
            "eager" => QueuePolicyName::Eager,
            "timeout" => QueuePolicyName::Timeout,
            "clipper" => QueuePolicyName::Clipper,
            "clockwork" => {
                only(table, &[".commit_ms", ".early_ms"], "only commit_ms and early_ms for policy \"clockwork\"")?;
                let commit = span(".commit_ms", table.commit_ms.unwrap_or(CLOCKWORK_MS))?;
                return Ok(Self::Clockwork {
                    commit,
                    early: span(".early_ms", table.early_ms.unwrap_or(CLOCKWORK_MS))?,
                });
            }
            "nexus" => {
                only(table, &[".frontends"], "only frontends for policy \"nexus\"")?;
                let frontends = table.frontends.unwrap_or(1);
                if !(1..=FRONTENDS_MAX).contains(&frontends) {
                    return Err((".frontends", "1 to 1024", frontends.to_string()));
                }
                return Ok(Self::Nexus { frontends });
            }
            "shepherd" => {
                only(table, &[".preempt_factor"], "only preempt_factor for policy \"shepherd\"")?;
                let preempt_factor = table.preempt_factor.unwrap_or(SHEPHERD_PREEMPT_FACTOR);
                if !(1.0..=1e9).contains(&preempt_factor) {
                    return Err((".preempt_factor", "1 to 1e9", preempt_factor.to_string()));
                }
                return Ok(Self::Shepherd { preempt_factor });
            }
            _ => return Err((key, NAMES, format!("\"{name}\""))),
        };
        QueuePolicy::of(queues).chosen(table).map(Self::Queues)
    }

    /// The choices of queues and ranker, if the policy is made of those.
    #[must_use]
    pub const fn queues(&self) -> Option<&QueuePolicy> {
        match self {
            Self::Queues(queues) => Some(queues),
            _ => None,
        }
    }
}

impl QueuePolicy {
    /// What the name stands for.
    const fn of(name: QueuePolicyName) -> Self {
        let (trigger, drop) = match name {
            QueuePolicyName::Symphony => (TriggerChoice::Frontrun, WHOLE_WINDOW),
            QueuePolicyName::Auto => (TriggerChoice::Adaptive, AUTO_WINDOW),
            QueuePolicyName::Eager => (TriggerChoice::Eager, WHOLE_WINDOW),
            QueuePolicyName::Timeout => (TriggerChoice::TimeoutShare(TIMEOUT_SHARE), DropChoice::Prune),
            QueuePolicyName::Clipper => (TriggerChoice::Eager, DropChoice::Prune),
        };
        let shed = match name {
            QueuePolicyName::Auto => ShedChoice::Proportional,
            _ => ShedChoice::None,
        };
        Self { name, trigger, drop, ready_order: ReadyChoice::Latest, gpu_choice: GpuOrder::LowestId, shed }
    }

    /// With the choices of the table in place of those that the name stands for.
    fn chosen(mut self, table: &PolicyTable) -> Result<Self, Refused> {
        let keys = match self.name {
            QueuePolicyName::Timeout => &[".trigger", ".drop", ".ready_order", ".gpu_choice", ".shed", ".share"][..],
            _ => &[".trigger", ".drop", ".ready_order", ".gpu_choice", ".shed"],
        };
        only(table, keys, "only trigger, drop, ready_order, gpu_choice and shed (and share for policy \"timeout\")")?;
        if let Some(trigger) = &table.trigger {
            self.trigger = self.check_trigger(trigger)?;
        }
        if let Some(share) = table.share {
            if table.trigger.is_some() {
                return Err((".share", "either share or trigger", "both".to_owned()));
            }
            if !(0.0..=1.0).contains(&share) {
                return Err((".share", "a share of the SLO, 0 to 1", share.to_string()));
            }
            self.trigger = TriggerChoice::TimeoutShare(share);
        }
        if let Some(drop) = &table.drop {
            self.drop = Self::check_drop(drop)?;
        }
        match table.ready_order.as_deref() {
            None => {}
            Some("latest") => self.ready_order = ReadyChoice::Latest,
            Some("frontrun") => self.ready_order = ReadyChoice::Frontrun,
            Some("start") => self.ready_order = ReadyChoice::Start,
            Some("deadline") => self.ready_order = ReadyChoice::Deadline,
            Some(other) => return Err((".ready_order", READY_ORDERS, format!("\"{other}\""))),
        }
        match table.gpu_choice.as_deref() {
            None => {}
            Some("lowest_id") => self.gpu_choice = GpuOrder::LowestId,
            Some("earliest_free") => self.gpu_choice = GpuOrder::EarliestFree,
            Some(other) => return Err((".gpu_choice", GPU_CHOICES, format!("\"{other}\""))),
        }
        match table.shed.as_deref() {
            None => {}
            Some("none") => self.shed = ShedChoice::None,
            Some("proportional") => self.shed = ShedChoice::Proportional,
            Some(other) => return Err((".shed", SHEDS, format!("\"{other}\""))),
        }
        Ok(self)
    }

    fn check_drop(text: &DropText) -> Result<DropChoice, Refused> {
        match text {
            DropText::Name(name) => match name.as_str() {
                "window" => Ok(WHOLE_WINDOW),
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

    fn check_trigger(&self, text: &TriggerText) -> Result<TriggerChoice, Refused> {
        let choice = match text {
            TriggerText::Name(name) => match name.as_str() {
                "eager" => TriggerChoice::Eager,
                "frontrun" => TriggerChoice::Frontrun,
                "adaptive" => TriggerChoice::Adaptive,
                "latest" => TriggerChoice::Latest,
                "beta_lambda" => TriggerChoice::BetaLambda,
                _ => return Err((".trigger", TRIGGERS, format!("\"{name}\""))),
            },
            TriggerText::Timeout(table) => TriggerChoice::Timeout(span(".trigger.timeout_ms", table.timeout_ms)?),
        };
        let refuse = |expected| {
            let got = "another trigger; use name = \"symphony\" to choose one".to_owned();
            Err((".trigger", expected, got))
        };
        match (self.name, choice) {
            (QueuePolicyName::Symphony | QueuePolicyName::Auto, _)
            | (QueuePolicyName::Eager | QueuePolicyName::Clipper, TriggerChoice::Eager)
            | (QueuePolicyName::Timeout, TriggerChoice::Timeout(_)) => Ok(choice),
            (QueuePolicyName::Eager, _) => refuse("\"eager\" for policy \"eager\""),
            (QueuePolicyName::Clipper, _) => refuse("\"eager\" for policy \"clipper\""),
            (QueuePolicyName::Timeout, _) => refuse("{ timeout_ms = x } for policy \"timeout\""),
        }
    }
}

/// Refuses keys that the policy does not know.
fn only(table: &PolicyTable, known: &[&str], expected: &'static str) -> Result<(), Refused> {
    let given = [
        (".trigger", table.trigger.is_some()),
        (".drop", table.drop.is_some()),
        (".ready_order", table.ready_order.is_some()),
        (".gpu_choice", table.gpu_choice.is_some()),
        (".shed", table.shed.is_some()),
        (".share", table.share.is_some()),
        (".commit_ms", table.commit_ms.is_some()),
        (".early_ms", table.early_ms.is_some()),
        (".frontends", table.frontends.is_some()),
        (".preempt_factor", table.preempt_factor.is_some()),
    ];
    match given.into_iter().find(|(key, given)| *given && !known.contains(key)) {
        Some((key, _)) => Err((key, expected, "a key of another policy".to_owned())),
        None => Ok(()),
    }
}

fn span(key: &'static str, ms: f64) -> Result<Nanos, Refused> {
    if (0.0..=1e9).contains(&ms) {
        return Ok(Nanos::from_millis_f64(ms));
    }
    Err((key, "milliseconds, 0 to 1e9", ms.to_string()))
}

/// The name alone where nothing differs from what the name stands for; otherwise the name and what was chosen.
impl fmt::Display for PolicySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let option = |f: &mut fmt::Formatter<'_>, key: &str, value: f64, default: f64| {
            if value == default { Ok(()) } else { write!(f, " {key}={value}") }
        };
        match self {
            Self::Queues(queues) => queues.fmt(f),
            Self::Clockwork { commit, early } => {
                f.write_str("clockwork")?;
                option(f, "commit_ms", commit.as_millis_f64(), CLOCKWORK_MS)?;
                option(f, "early_ms", early.as_millis_f64(), CLOCKWORK_MS)
            }
            Self::Nexus { frontends } => {
                f.write_str("nexus")?;
                option(f, "frontends", f64::from(*frontends), 1.0)
            }
            Self::Shepherd { preempt_factor } => {
                f.write_str("shepherd")?;
                option(f, "preempt_factor", *preempt_factor, SHEPHERD_PREEMPT_FACTOR)
            }
        }
    }
}

impl fmt::Display for QueuePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.name {
            QueuePolicyName::Symphony => "symphony",
            QueuePolicyName::Auto => "auto",
            QueuePolicyName::Eager => "eager",
            QueuePolicyName::Timeout => "timeout",
            QueuePolicyName::Clipper => "clipper",
        })?;
        let named = Self::of(self.name);
        if self.trigger != named.trigger {
            match self.trigger {
                TriggerChoice::Frontrun => f.write_str(" trigger=frontrun")?,
                TriggerChoice::Eager => f.write_str(" trigger=eager")?,
                TriggerChoice::Adaptive => f.write_str(" trigger=adaptive")?,
                TriggerChoice::Latest => f.write_str(" trigger=latest")?,
                TriggerChoice::BetaLambda => f.write_str(" trigger=beta_lambda")?,
                TriggerChoice::Timeout(wait) => write!(f, " trigger=timeout_ms={}", wait.as_millis_f64())?,
                TriggerChoice::TimeoutShare(share) => write!(f, " share={share}")?,
            }
        }
        if self.drop != named.drop {
            match self.drop {
                WHOLE_WINDOW => f.write_str(" drop=window")?,
                DropChoice::Window { percent } => write!(f, " drop=window={}", f64::from(percent) / 100.0)?,
                DropChoice::Prune => f.write_str(" drop=prune")?,
            }
        }
        f.write_str(match self.ready_order {
            ReadyChoice::Latest => "",
            ReadyChoice::Frontrun => " ready_order=frontrun",
            ReadyChoice::Start => " ready_order=start",
            ReadyChoice::Deadline => " ready_order=deadline",
        })?;
        f.write_str(match self.gpu_choice {
            GpuOrder::LowestId => "",
            GpuOrder::EarliestFree => " gpu_choice=earliest_free",
        })?;
        match self.shed {
            shed if shed == named.shed => Ok(()),
            ShedChoice::None => f.write_str(" shed=none"),
            ShedChoice::Proportional => f.write_str(" shed=proportional"),
        }
    }
}
