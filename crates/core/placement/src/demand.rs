//! What has to be placed.

use symphony_assignment::SIDE_MAX;
use symphony_packing::{NODES_MAX, SESSIONS_MAX, Session, nodes_at_most};

/// The most GPUs: an assignment has no more columns.
pub const GPUS_MAX: usize = SIDE_MAX;

/// Sessions and GPUs of an epoch.
#[derive(Clone, Copy, Debug)]
pub struct Demand<'a> {
    pub(crate) sessions: &'a [Session<'a>],
    pub(crate) models: &'a [usize],
    pub(crate) gpus: usize,
    pub(crate) seed: u64,
}

/// Why a demand is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refused {
    /// There are too many sessions, or not one model for each.
    #[error("{sessions} sessions with {models} models: expected one model for each of at most {SESSIONS_MAX}")]
    Sessions {
        /// Number of sessions.
        sessions: usize,
        /// Number of models.
        models: usize,
    },
    /// There are too many GPUs.
    #[error("{0} GPUs: expected at most {GPUS_MAX}")]
    Gpus(usize),
    /// The rates need too many GPUs.
    #[error("the rates need up to {0:.0} GPUs: expected at most {NODES_MAX}; are they in items per second?")]
    Nodes(f64),
}

impl<'a> Demand<'a> {
    /// Sessions, the model of each (two sessions of a model share its copy on a GPU), the number of GPUs, and a seed
    /// for placements that draw.
    ///
    /// # Errors
    /// Something is more than the limits, or sessions and models differ in number.
    pub fn new(sessions: &'a [Session<'a>], models: &'a [usize], gpus: usize, seed: u64) -> Result<Self, Refused> {
        if sessions.len() != models.len() || sessions.len() > SESSIONS_MAX {
            return Err(Refused::Sessions { sessions: sessions.len(), models: models.len() });
        }
        if gpus > GPUS_MAX {
            return Err(Refused::Gpus(gpus));
        }
        let nodes = nodes_at_most(sessions);
        if nodes > NODES_MAX as f64 {
            return Err(Refused::Nodes(nodes));
        }
        Ok(Self { sessions, models, gpus, seed })
    }
}
