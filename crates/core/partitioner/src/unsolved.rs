//! Why there is no plan, in words for the person who can change the problem.

use std::fmt;

/// There is no plan.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Unsolved {
    /// The problem is invalid; the text says what was expected.
    #[error("{0}")]
    Bad(String),
    /// No plan keeps all limits, or none was found.
    #[error("{}", list_reasons(.0))]
    Infeasible(Vec<Reason>),
}

/// One reason why there is no plan.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// A model fits into no part, even alone.
    NoPart {
        /// Name of the model.
        model: String,
        /// The obstacles, each with its parts.
        because: Vec<String>,
    },
    /// Models that are confined to these parts need more than these have together.
    TooMuch {
        /// The scarce resource.
        limit: Limit,
        /// The only possible parts.
        parts: Vec<String>,
        /// The total need.
        needed: f64,
        /// The total capacity.
        max: f64,
        /// The number of models.
        models: usize,
        /// The models with the largest need, largest first, with their needs.
        largest: Vec<(String, f64)>,
    },
    /// The plan in force violates a limit, and a repair costs more than C_max leaves.
    Disruption {
        /// The rest of C_max.
        left: f64,
        /// A cost with which a plan was found.
        would_do: f64,
        /// Models that have to move in any case, with the costs of their moves.
        forced: Vec<(String, f64)>,
    },
    /// There is no proof of infeasibility, but the search found no plan: the violation in the nearest one.
    NotFound {
        /// The part with the largest violation.
        part: String,
        /// The violated limit.
        limit: Limit,
        /// The need of its models.
        needed: f64,
        /// Its capacity.
        max: f64,
        /// The models with the largest need, largest first.
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

/// A list of names, cut after the first few.
pub(crate) fn list(names: &[String]) -> String {
    const SHOWN: usize = 4;
    let more = names.len().saturating_sub(SHOWN);
    let shown = names[..names.len() - more].join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}

fn list_reasons(reasons: &[Reason]) -> String {
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
