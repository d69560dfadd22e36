//! Errors as gRPC sees them: a code, a message, and trailers for machines.

use symphony_protocol::parameters::{PUSHBACK_TRAILER, REASON_TRAILER};
use symphony_telemetry::TRACEPARENT;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};

use crate::oip::parameters::REQUEST_ID_HEADER;
use crate::oip::{AccessError, Face, InferError, Receipt, RepositoryError};

/// [`PUSHBACK_TRAILER`] for people and proxies, in seconds.
const RETRY_AFTER_TRAILER: &str = "retry-after";

pub(crate) fn of_infer(error: &InferError) -> Status {
    status(error.face(), error.to_string())
}

/// The status for a request that may have been accepted: then its name goes with it.
pub(crate) fn of_named(error: &InferError, receipt: &Receipt) -> Status {
    let mut status = of_infer(error);
    name(status.metadata_mut(), receipt);
    status
}

/// Says what `symphony explain` knows a request as, if it was accepted, and its trace, if it is traced.
pub(crate) fn name(metadata: &mut MetadataMap, receipt: &Receipt) {
    if let Some(value) = receipt.id().and_then(|id| id.to_string().parse().ok()) {
        metadata.insert(REQUEST_ID_HEADER, value);
    }
    if let Some(value) = receipt.trace().and_then(|trace| trace.to_string().parse().ok()) {
        metadata.insert(TRACEPARENT, value);
    }
}

pub(crate) fn of_repository(error: &RepositoryError) -> Status {
    status(error.face(), error.to_string())
}

pub(crate) fn of_access(error: &AccessError) -> Status {
    status(error.face(), error.to_string())
}

/// Whether a message was refused for its size, by the codec and so before anything of ours ran: with OUT_OF_RANGE,
/// which nothing of ours uses, or, where it became so large as it was unpacked, with RESOURCE_EXHAUSTED, which has a
/// reason where it is ours.
pub(crate) fn is_too_large(refused: &Status) -> bool {
    match refused.code() {
        Code::OutOfRange => true,
        Code::ResourceExhausted => !refused.metadata().contains_key(REASON_TRAILER),
        _ => false,
    }
}

fn status(face: Face, message: String) -> Status {
    let mut status = Status::new(face.grpc, message);
    let trailers = status.metadata_mut();
    trailers.insert(REASON_TRAILER, MetadataValue::from_static(face.reason));
    if let Some((s, ms)) = face.retry.after_s_and_ms() {
        trailers.insert(PUSHBACK_TRAILER, MetadataValue::from(ms));
        trailers.insert(RETRY_AFTER_TRAILER, MetadataValue::from(s));
    }
    status
}
