//! A request for a pipeline: admitted once, run stage by stage, given one outcome.
//!
//! ```text
//! pipeline_admission ─▶ host ── Ask ──▶ stage_request ─▶ attempt, as every request's
//!                        │  ▲              ▲    │
//!                        ▼  └──── StageEnd ┼────┘
//!                   checked_run: P1 to P3  └─ item: which rows of which results are its input
//! ```
//!
//! Every item of the request is a run by itself; the request ends with the first one that is lost. Dropping the host
//! withdraws all stage requests: they are futures that it holds.

mod answer;
mod checked_run;
mod host;
mod item;
mod pipeline_admission;
mod stage_request;
mod tensors;
#[cfg(test)]
mod tests;
