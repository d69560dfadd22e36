//! Why there is no plan, in words for the person who has to change something.

use std::fmt;

/// There is no plan.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Unsolved {
    /// The problem makes no sense; the words say what was expected.
    #[error("{0}")]
    Bad(String),
    /// No plan keeps all limits, or none was found that does.
    #[error("{}", said(.0))]
    Infeasible(Vec<Reason>),
}

/// One reason why there is no plan.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// A model can be in no part, even alone.
    NoPart {
        /// The model.
        model: String,
        /// What is in the way, each with the parts where it is.
        because: Vec<String>,
    },
    /// Models that can only be in these parts ask for more than these have together.
    TooMuch {
        /// What it is that they ask for.
        limit: Limit,
        /// The only parts where they can be.
        parts: Vec<String>,
        /// What they ask for together.
        needed: f64,
        /// What the parts have together.
        max: f64,
        /// How many models they are.
        models: usize,
        /// Those that ask for most, largest first, with what they ask for.
        largest: Vec<(String, f64)>,
    },
    /// The plan in force breaks a limit, and mending it costs more than C_max leaves.
    Disruption {
        /// What C_max leaves.
        left: f64,
        /// With this a plan was found.
        would_do: f64,
        /// Models that cannot stay where they are, whatever else moves, with what moving them costs.
        forced: Vec<(String, f64)>,
    },
    /// Nothing proves that there is no plan, but the search found none: what breaks in the nearest one.
    NotFound {
        /// The part that breaks a limit by most.
        part: String,
        /// Which limit.
        limit: Limit,
        /// What its models ask for.
        needed: f64,
        /// What it has.
        max: f64,
        /// Those that ask for most, largest first.
        largest: Vec<(String, f64)>,
    },
}

/// A limit of parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Limit {
    /// R_max, requests per second (equation 5).
    Rate,
    /// S_max on GPUs of this kind, bytes: static memory and the largest dynamic memory (equation 6).
    Memory(String),
}

impl Limit {
    /// An amount of what this limits, in its unit.
    #[must_use]
    pub fn amount(&self, amount: f64) -> String {
        match self {
            Self::Rate => format!("{amount:.1} r/s"),
            Self::Memory(_) => megabytes(amount),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rate => f.write_str("rate"),
            Self::Memory(kind) => write!(f, "memory on {kind}"),
        }
    }
}

/// Bytes as megabytes of 2^20 bytes.
pub(crate) fn megabytes(bytes: f64) -> String {
    format!("{:.1} MB", bytes / f64::from(1 << 20))
}

/// Names in a row; of many only the first few.
pub(crate) fn list(names: &[String]) -> String {
    const SHOWN: usize = 4;
    let more = names.len().saturating_sub(SHOWN);
    let shown = names[..names.len() - more].join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}

fn said(reasons: &[Reason]) -> String {
    let each: Vec<_> = reasons.iter().map(ToString::to_string).collect();
    format!("no plan keeps all limits: {}", each.join("; "))
}

fn largest_of(limit: &Limit, largest: &[(String, f64)]) -> String {
    let each: Vec<_> = largest.iter().map(|(name, amount)| format!("{name} ({})", limit.amount(*amount))).collect();
    each.join(", ")
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPart { model, because } => write!(f, "model {model} can be nowhere: {}", because.join(", ")),
            Self::TooMuch { limit, parts, needed, max, models, largest } => write!(
                f,
                "{limit}: {models} models that can only be in {} ask for {}, which is {} more than the {} there; largest: {}",
                list(parts),
                limit.amount(*needed),
                limit.amount(needed - max),
                limit.amount(*max),
                largest_of(limit, largest)
            ),
            Self::Disruption { left, would_do, forced } => {
                write!(
                    f,
                    "disruption: the plan in force breaks a limit, and moves for a cost of {left} do not mend it; \
                     disruption_max would have to be larger by {:.3}, with which a plan is found",
                    would_do - left
                )?;
                if !forced.is_empty() {
                    let each: Vec<_> = forced.iter().map(|(name, cost)| format!("{name} (cost {cost})")).collect();
                    write!(f, "; cannot stay where they are: {}", list(&each))?;
                }
                Ok(())
            }
            Self::NotFound { part, limit, needed, max, largest } => write!(
                f,
                "{limit}: the search found no division that fits; in the nearest one {part} asks for {}, which is {} more than \
                 its {}; largest there: {}. A larger budget may find one, if there is one",
                limit.amount(*needed),
                limit.amount(needed - max),
                limit.amount(*max),
                largest_of(limit, largest)
            ),
        }
    }
}
