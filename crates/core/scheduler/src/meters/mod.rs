//! Measurements that decisions plan with: arrival rates, lateness, input delays.

pub(crate) mod data_delays;
pub(crate) mod delays;
pub(crate) mod lateness_meter;
pub(crate) mod rate_meter;
