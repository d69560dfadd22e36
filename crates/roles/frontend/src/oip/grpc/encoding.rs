//! Whether a call is compressed.

use tonic::codegen::http;

/// How a message is compressed, and how its answer may be.
pub(crate) const ENCODING: &str = "grpc-encoding";

/// Whether the messages of a call may be compressed.
pub(crate) fn is_packed(headers: &http::HeaderMap) -> bool {
    headers.get(ENCODING).is_some_and(|used| used != "identity")
}
