//! The one limit on requests in flight, over gRPC, REST and in the process together.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::InferError;
use crate::access::tenant::TenantPlace;

/// Admits so many requests at a time and refuses the others: waiting belongs into the schedulers' queues, where
/// deadlines are known.
///
/// A request is in flight from before its body is read until its answer is made, so the limit also bounds what is read
/// and checked. A gRPC stream counts as one while it is open, for the message that it may be reading, and so does each
/// of its requests.
#[derive(Clone, Debug)]
pub struct InFlightLimit {
    permits: Arc<Semaphore>,
    requests_max: usize,
}

/// One request in flight, until this is dropped.
#[derive(Debug)]
pub struct InFlightPermit {
    _permit: OwnedSemaphorePermit,
    _tenant: Option<TenantPlace>,
    _unpacked: Option<OwnedSemaphorePermit>,
}

/// Memory for what compressed requests in flight become, of all of them together: a thousandth of it travels, so that
/// nothing else bounds it.
#[derive(Clone, Debug)]
pub(crate) struct UnpackedLimit {
    pieces: Arc<Semaphore>,
    bytes_max: usize,
}

/// Some of that memory, until this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Unpacked {
    taken: Option<OwnedSemaphorePermit>,
}

impl UnpackedLimit {
    /// What is given at a time.
    pub(crate) const PIECE_BYTES: usize = 64 << 10;

    /// For so many requests of this size.
    pub(crate) fn new(requests: usize, request_bytes_max: usize) -> Self {
        let pieces = request_bytes_max.div_ceil(Self::PIECE_BYTES).saturating_mul(requests);
        let pieces = pieces.min(Semaphore::MAX_PERMITS);
        let bytes_max = pieces.saturating_mul(Self::PIECE_BYTES);
        Self { pieces: Arc::new(Semaphore::new(pieces)), bytes_max }
    }

    /// Gives another piece.
    ///
    /// # Errors
    /// If none is left.
    pub(crate) fn take(&self, unpacked: &mut Unpacked) -> Result<(), InferError> {
        let piece = Arc::clone(&self.pieces).try_acquire_owned();
        let piece = piece.map_err(|_| InferError::UnpackedFull { bytes_max: self.bytes_max })?;
        match &mut unpacked.taken {
            Some(taken) => taken.merge(piece),
            none => *none = Some(piece),
        }
        Ok(())
    }
}

impl InFlightLimit {
    /// For so many requests at a time: `frontend.requests_in_flight_max`.
    #[must_use]
    pub fn new(requests_max: usize) -> Self {
        // More than the semaphore can count is no limit at all.
        let permits = requests_max.min(Semaphore::MAX_PERMITS);
        Self { permits: Arc::new(Semaphore::new(permits)), requests_max }
    }

    /// A permit for one request.
    ///
    /// # Errors
    /// If as many as may are in flight.
    pub fn acquire(&self) -> Result<InFlightPermit, InferError> {
        let permit = Arc::clone(&self.permits).try_acquire_owned();
        permit
            .map(|permit| InFlightPermit { _permit: permit, _tenant: None, _unpacked: None })
            .map_err(|_| InferError::Busy { in_flight_max: self.requests_max })
    }
}

impl InFlightLimit {
    /// Whether as many more may come as are in flight.
    pub(crate) fn is_half_free(&self) -> bool {
        self.permits.available_permits() >= self.requests_max.div_ceil(2)
    }
}

impl InFlightPermit {
    /// Keeps the tenant's place, too.
    #[must_use]
    pub(crate) fn with(self, tenant: Option<TenantPlace>) -> Self {
        Self { _tenant: tenant, ..self }
    }

    /// Keeps the memory for what its body became, too.
    #[must_use]
    pub(crate) fn with_unpacked(self, unpacked: Unpacked) -> Self {
        Self { _unpacked: unpacked.taken, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_are_admitted_and_another_one_when_one_has_ended() {
        let limit = InFlightLimit::new(2);
        let shared = limit.clone();
        let (_first, second) = (limit.acquire().unwrap(), shared.acquire().unwrap());
        assert_eq!(limit.acquire().unwrap_err(), InferError::Busy { in_flight_max: 2 });
        assert!(!limit.is_half_free());
        drop(second);
        assert!(limit.is_half_free());
        assert!(limit.acquire().is_ok());
    }

    #[test]
    fn what_is_unpacked_counts_until_its_request_has_ended() {
        let limit = UnpackedLimit::new(2, UnpackedLimit::PIECE_BYTES);
        let (mut first, mut second) = (Unpacked::default(), Unpacked::default());
        limit.take(&mut first).unwrap();
        limit.take(&mut first).unwrap();
        let bytes_max = 2 * UnpackedLimit::PIECE_BYTES;
        assert_eq!(limit.take(&mut second), Err(InferError::UnpackedFull { bytes_max }));
        let request = InFlightLimit::new(1).acquire().unwrap().with_unpacked(first);
        assert!(limit.take(&mut second).is_err());
        drop(request);
        limit.take(&mut second).unwrap();
    }
}
