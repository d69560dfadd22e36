//! The path of a request through the frontend, from its admission to its one outcome.
//!
//! ```text
//! admission ─▶ infer ─▶ attempt in one cluster ─▶ request_guard: the outcome
//!                 ▲          │  ▲
//!                 │          ▼  └── pending_input: only while pictures are decoded
//!                 └─ failover: only in a federation, if that cluster does not serve the model
//!
//! oip_service: the port of the public surface, which calls infer
//! pipelines: a request for a pipeline is admitted once, its stage requests are attempts like any other
//! ```

mod accepted_request;
pub(crate) mod admission;
pub(crate) mod attempt;
mod attempt_end;
pub(crate) mod cluster_selection;
pub(crate) mod failover;
pub(crate) mod infer;
mod input;
mod oip_service;
pub(crate) mod pending_input;
mod pipelines;
pub(crate) mod request_guard;
pub(crate) mod request_table;
mod submission;
#[cfg(test)]
pub(crate) mod tests;
