//! Names of the parameters and trailers beside the tensors of the Open Inference Protocol, for servers and clients.

use std::time::Duration;

/// Of a request: time that it may take, in microseconds.
pub const TIMEOUT: &str = "timeout";
/// Of a request: its own time may exceed the model's SLO.
pub const EXCEED_SLO: &str = "symphony_exceed_slo";
/// Of a request: the answer is wanted after its deadline too.
pub const ACCEPT_LATE: &str = "symphony_accept_late";
/// Of a requested output: its likeliest classes instead of its elements.
pub const CLASSIFICATION: &str = "classification";
/// Of an answer that came after its deadline.
pub const LATE: &str = "symphony_late";
/// Of an answer: items of the batch it ran in.
pub const BATCH: &str = "symphony_batch";
/// Of an answer: execution time of that batch in microseconds.
pub const EXECUTION: &str = "symphony_execution_us";
/// Of an answer: what `symphony explain` knows the request as.
pub const REQUEST_ID: &str = "symphony_request_id";

/// Of a model's configuration: its latency objective in milliseconds.
pub const SLO_MS: &str = "slo_ms";

/// The time that [`SLO_MS`] says; none if it is no time.
#[must_use]
pub fn slo(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(text.parse::<f64>().ok()? / 1e3).ok()
}

/// [`REQUEST_ID`] as a header or trailer, on answers and errors of accepted requests.
pub const REQUEST_ID_HEADER: &str = "symphony-request-id";
/// Trailer with the machine-readable reason of an error; an answer without it is not from a frontend.
pub const REASON_TRAILER: &str = "symphony-reason";
/// Trailer of a refusal: after how many milliseconds the same request may succeed. gRPC clients with a retry policy
/// obey it.
pub const PUSHBACK_TRAILER: &str = "grpc-retry-pushback-ms";
