//! Pipelines in virtual time: the production runs of requests, whose stage requests are ordinary requests of ordinary
//! models.

mod host;
mod in_flight;
mod meter;
mod plans;
#[cfg(test)]
mod planted;
mod tally;

pub(crate) use host::{Pipelines, StageSpan, Told};
pub(crate) use plans::{PipelinePlans, unsplittable};
pub(crate) use tally::PipelineTally;
