//! Scenarios, and the requests that come of them.

mod arrivals;
mod never_panics;
mod pipelines;
mod recorded;
mod requests;
mod scenario_text;
mod variants;
