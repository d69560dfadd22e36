//! What is measured and planned with: rates, lateness, delays of inputs.

pub(crate) mod data_delays;
pub(crate) mod delays;
pub(crate) mod lateness_meter;
pub(crate) mod rate_meter;
