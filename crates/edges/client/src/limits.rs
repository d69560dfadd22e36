//! The limits and defaults of a client.

use std::time::Duration;

/// Frontends of one client: each is probed once a second.
pub const FRONTENDS_MAX: usize = 64;
/// Connections to one frontend. A frontend serves 1024 requests at once on each.
pub const CONNECTIONS_MAX: usize = 256;
/// Requests in flight without [`in_flight_max`](crate::ClientBuilder::in_flight_max): as many as one connection
/// carries.
pub const IN_FLIGHT_MAX: usize = 1024;
/// Frontends that are asked for one request, one after the other.
pub const ATTEMPTS_MAX: usize = 3;
/// The largest answer that is read, in bytes.
pub const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Metadata that goes with every call, in entries.
pub const METADATA_MAX: usize = 16;
/// How long one connection may take to come up.
pub const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// How often a frontend is asked whether it takes requests.
pub const PROBE_EVERY: Duration = Duration::from_secs(1);
/// How long that may take; a frontend that is slower takes none.
pub const PROBE_WITHIN: Duration = Duration::from_secs(1);
/// How long a question about a server or a model may take at one frontend.
pub const QUESTION_WITHIN: Duration = Duration::from_secs(5);
/// How long a request without a time of its own is waited for.
pub const TIMEOUT: Duration = Duration::from_secs(60);
/// The longest that any request is waited for.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// How long after its deadline a request waits for the frontend's answer: frontends wait for a result for 0.1 s
/// after the deadline (`frontend.answer_grace_ms`).
pub const ANSWER_GRACE: Duration = Duration::from_secs(1);
/// How long a request waits for a frontend while all are away.
pub const WAIT_FOR_FRONTEND: Duration = Duration::from_secs(1);
