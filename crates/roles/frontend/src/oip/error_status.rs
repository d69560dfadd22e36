//! The status that clients see of an error: of HTTP, of gRPC, and whether to retry.

use std::time::Duration;

use axum::http::StatusCode;
use symphony_types::Nanos;
use tonic::Code;

use super::limits::RETRY_AFTER;

/// The status that a client sees of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorStatus {
    /// Status of the HTTP response.
    pub http: StatusCode,
    /// gRPC status code.
    pub grpc: Code,
    /// Machine-readable reason.
    pub reason: &'static str,
    /// What the client should do with it.
    pub retry: Retry,
}

/// The cause of a request's failure: alerts count only what the server caused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The request is invalid, or beyond what its sender may ask for.
    Client,
    /// The request could have been served, and was not.
    Server,
}

impl Fault {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Client, Self::Server];

    /// The label in metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

/// Whether the same request may succeed later without a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// It will fail again, or only its sender can tell.
    No,
    /// Yes, after [`RETRY_AFTER`], here or elsewhere.
    Later,
    /// Yes, once there is some of the quota again.
    After(Nanos),
}

impl Retry {
    /// How long the client is to wait, if the same request may succeed later.
    #[must_use]
    pub fn after(self) -> Option<Duration> {
        match self {
            Self::No => None,
            Self::Later => Some(RETRY_AFTER),
            Self::After(wait) => Some(Duration::from(wait).clamp(QUOTA_RETRY_MIN, QUOTA_RETRY_MAX)),
        }
    }

    /// The same in whole seconds, as headers have it, and in milliseconds: no earlier.
    #[must_use]
    pub fn after_s_and_ms(self) -> Option<(u64, u64)> {
        let nanos = self.after()?.as_nanos() as u64;
        Some((nanos.div_ceil(1_000_000_000), nanos.div_ceil(1_000_000)))
    }
}

/// The least and the longest wait for a client that has used up its quota: a share may change within seconds.
const QUOTA_RETRY_MIN: Duration = Duration::from_millis(1);
const QUOTA_RETRY_MAX: Duration = Duration::from_secs(60);
