//! `[telemetry]`: traces, by the OpenTelemetry protocol.

/// Traces of requests.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TelemetryConfig {
    /// The collector, as `http://host:port`, spoken to over gRPC; empty: nothing is traced.
    pub otlp_endpoint: String,
    /// The share of the requests without a trace of their own that are traced; one whose client traces it always is.
    pub sample_ratio: f64,
}

impl TelemetryConfig {
    /// The collector, if requests are to be traced.
    #[must_use]
    pub fn collector(&self) -> Option<&str> {
        (!self.otlp_endpoint.is_empty()).then_some(self.otlp_endpoint.as_str())
    }
}
