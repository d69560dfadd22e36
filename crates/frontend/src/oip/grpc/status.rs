//! Errors as gRPC sees them: a code, a message, and trailers for machines.

use tonic::Status;
use tonic::metadata::MetadataValue;

use crate::oip::limits::RETRY_AFTER;
use crate::oip::{Face, InferError, RepositoryError, Retry};

/// Trailer with the machine-readable reason.
const REASON_TRAILER: &str = "symphony-reason";
/// Trailer that gRPC clients with a retry policy obey.
const PUSHBACK_TRAILER: &str = "grpc-retry-pushback-ms";
/// The same for people and proxies, in seconds.
const RETRY_AFTER_TRAILER: &str = "retry-after";

pub(crate) fn of_infer(error: &InferError) -> Status {
    status(error.face(), error.to_string())
}

pub(crate) fn of_repository(error: &RepositoryError) -> Status {
    status(error.face(), error.to_string())
}

fn status(face: Face, message: String) -> Status {
    let mut status = Status::new(face.grpc, message);
    let trailers = status.metadata_mut();
    trailers.insert(REASON_TRAILER, MetadataValue::from_static(face.reason));
    if face.retry == Retry::Later {
        trailers.insert(PUSHBACK_TRAILER, MetadataValue::from(RETRY_AFTER.as_millis() as u64));
        trailers.insert(RETRY_AFTER_TRAILER, MetadataValue::from(RETRY_AFTER.as_secs()));
    }
    status
}
