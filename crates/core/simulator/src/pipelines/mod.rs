//! Pipelines in virtual time: the production runs of requests, whose stage requests are ordinary requests of ordinary
//! models.

mod host;
mod in_flight;
mod meter;
#[cfg(test)]
mod planted;
mod stage_budgets;
mod tally;

pub(crate) use host::{HostEvent, Pipelines, StageSpan};
pub(crate) use stage_budgets::{PipelinePlans, unsplittable};
pub(crate) use tally::PipelineTally;
