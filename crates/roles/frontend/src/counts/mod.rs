//! What is counted of requests, and the metrics that show it.

pub(crate) mod collectors;
pub(crate) mod hop;
pub(crate) mod ledger;
pub(crate) mod pipeline_counters;
pub(crate) mod pipeline_reports;
pub(crate) mod rates;
pub(crate) mod statistics;
pub(crate) mod triton_names;
