//! The input of a request.

use bytes::Bytes;

use super::request_table::Payload;
use crate::pictures::decoders::Decoding;

/// A request's input.
#[derive(Debug)]
pub(super) enum Input {
    Ready(Bytes),
    /// Its pictures are decoded, or wait for a thread.
    Pending(Decoding),
}

impl Input {
    pub(super) const fn is_pending(&self) -> bool {
        matches!(self, Self::Pending(_))
    }

    /// Whether leaders are not to hear of the request yet.
    pub(super) const fn is_withheld(&self) -> bool {
        matches!(self, Self::Pending(decoding) if decoding.is_waiting())
    }

    /// As the request table holds it.
    pub(super) fn payload(&self) -> Payload {
        match self {
            Self::Ready(payload) => Payload::Here(payload.clone()),
            Self::Pending(_) => Payload::Pending(Vec::new()),
        }
    }

    pub(super) const fn ready(&self) -> Option<&Bytes> {
        match self {
            Self::Ready(payload) => Some(payload),
            Self::Pending(_) => None,
        }
    }
}
