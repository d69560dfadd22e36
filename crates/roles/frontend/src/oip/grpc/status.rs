//! Errors as gRPC sees them: a code, a message, and trailers for machines.

use symphony_protocol::parameters::{PUSHBACK_TRAILER, REASON_TRAILER};
use symphony_telemetry::TRACEPARENT;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};

use crate::oip::parameters::REQUEST_ID_HEADER;
use crate::oip::{AccessError, ErrorStatus, InferError, Receipt, RepositoryError};

/// [`PUSHBACK_TRAILER`] for people and proxies, in seconds.
const RETRY_AFTER_TRAILER: &str = "retry-after";

pub(crate) fn of_infer(error: &InferError) -> Status {
    status(error.error_status(), error.to_string())
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
    status(error.error_status(), error.to_string())
}

pub(crate) fn of_access(error: &AccessError) -> Status {
    status(error.error_status(), error.to_string())
}

/// Why a message was refused by the codec, and so before anything of ours ran: what is ours has a reason. Sizes it
/// refuses with OUT_OF_RANGE, or, where a message became so large as it was unpacked, with RESOURCE_EXHAUSTED; an
/// encoding that it does not know with UNIMPLEMENTED; malformed bytes with INTERNAL, which is the code for a server's
/// fault.
///
/// None for refusals that are not the codec's: that the client has gone, or that there is no such call, which has no
/// message.
pub(crate) fn unread(refused: &Status, too_large: &InferError) -> Option<InferError> {
    if refused.metadata().contains_key(REASON_TRAILER) || refused.message().is_empty() {
        return None;
    }
    match refused.code() {
        Code::OutOfRange | Code::ResourceExhausted => Some(too_large.clone()),
        Code::Unimplemented => {
            let words = "grpc-encoding names one that is not served here; expected gzip, deflate or identity";
            Some(InferError::Unsupported(words.into()))
        }
        Code::Internal => {
            Some(InferError::InvalidRequest(format!("the message cannot be read: {}", refused.message())))
        }
        _ => None,
    }
}

fn status(error: ErrorStatus, message: String) -> Status {
    let mut status = Status::new(error.grpc, message);
    let trailers = status.metadata_mut();
    trailers.insert(REASON_TRAILER, MetadataValue::from_static(error.reason));
    if let Some((s, ms)) = error.retry.after_s_and_ms() {
        trailers.insert(PUSHBACK_TRAILER, MetadataValue::from(ms));
        trailers.insert(RETRY_AFTER_TRAILER, MetadataValue::from(s));
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_codec_refuses_is_the_clients_doing_and_has_a_reason() {
        let too_large = InferError::TooLarge { bytes_max: 1 };
        let of = |refused: Status| unread(&refused, &too_large);
        assert_eq!(of(Status::out_of_range("long")), Some(too_large.clone()));
        assert_eq!(of(Status::resource_exhausted("long")), Some(too_large.clone()));
        assert_eq!(of(Status::unimplemented("zstd")), of(Status::unimplemented("br")));
        assert!(matches!(of(Status::unimplemented("zstd")), Some(InferError::Unsupported(_))));
        assert!(matches!(of(Status::internal("corrupt")), Some(InferError::InvalidRequest(_))));
        for other in [Status::unimplemented(""), Status::cancelled("gone"), of_infer(&too_large)] {
            assert_eq!(of(other), None);
        }
    }
}
