//! Checks of the `log` and `telemetry` sections.

use std::str::FromStr as _;

use super::{Check, limits};
use crate::{Address, NodeConfig, TelemetryConfig};

impl Check {
    pub(super) fn log(&mut self, config: &NodeConfig) {
        let bytes = config.log.level.len();
        if bytes == 0 || bytes > limits::LOG_LEVEL_BYTES_MAX {
            let max = limits::LOG_LEVEL_BYTES_MAX;
            self.say("log.level", format!("a filter of {bytes} bytes; expected 1 to {max}, such as info"));
        }
    }

    pub(super) fn telemetry(&mut self, telemetry: &TelemetryConfig) {
        let TelemetryConfig { otlp_endpoint, sample_ratio } = telemetry;
        if let Some(collector) = telemetry.collector() {
            let address = collector.strip_prefix("http://").map(|rest| rest.trim_end_matches('/'));
            if !address.is_some_and(|address| Address::from_str(address).is_ok_and(|address| address.port() != 0)) {
                self.say(
                    "telemetry.otlp_endpoint",
                    format!("`{otlp_endpoint}`; expected http://host:port of a collector that speaks OTLP over gRPC"),
                );
            }
        }
        if !(0.0..=1.0).contains(sample_ratio) {
            self.say("telemetry.sample_ratio", format!("{sample_ratio}; expected 0 to 1, such as 0.01"));
        }
    }
}
