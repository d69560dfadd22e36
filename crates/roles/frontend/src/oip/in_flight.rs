//! The one limit on requests in flight, over gRPC, REST and in the process together.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::InferError;
use crate::access::tenant::TenantPlace;

/// Admits this many requests at a time and refuses the others: waiting belongs into the schedulers' queues, where
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
    _unpacked: Option<Unpacked>,
}

/// Memory for what compressed requests in flight become, of all of them together: a thousandth of it travels, so that
/// nothing else bounds it. A tenant has half of it at most, as it has of the requests in flight.
#[derive(Clone, Debug)]
pub(crate) struct UnpackedLimit {
    pieces: Arc<Semaphore>,
    pieces_max: usize,
    /// The pieces of each tenant that has some.
    of_tenants: Arc<Mutex<BTreeMap<String, usize>>>,
}

/// Some of that memory, until this is dropped.
#[derive(Debug)]
pub(crate) struct Unpacked {
    limit: UnpackedLimit,
    /// The tenant of the request; empty for anonymous callers.
    tenant: String,
    taken: Option<OwnedSemaphorePermit>,
}

impl UnpackedLimit {
    /// What is given at a time.
    pub(crate) const PIECE_BYTES: usize = 64 << 10;

    /// Room for this many requests of this size.
    pub(crate) fn new(requests: usize, request_bytes_max: usize) -> Self {
        let pieces = request_bytes_max.div_ceil(Self::PIECE_BYTES).saturating_mul(requests);
        let pieces_max = pieces.min(Semaphore::MAX_PERMITS);
        Self { pieces: Arc::new(Semaphore::new(pieces_max)), pieces_max, of_tenants: Arc::default() }
    }

    /// Nothing yet, for a request of this tenant; an empty name for anonymous callers.
    pub(crate) fn begin(&self, tenant: &str) -> Unpacked {
        Unpacked { limit: self.clone(), tenant: tenant.to_owned(), taken: None }
    }

    fn of_tenants(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.of_tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Unpacked {
    /// Takes another piece.
    ///
    /// # Errors
    /// If none is left, or none for the tenant.
    pub(crate) fn take(&mut self) -> Result<(), InferError> {
        let bytes = |pieces: usize| pieces.saturating_mul(UnpackedLimit::PIECE_BYTES);
        let piece = Arc::clone(&self.limit.pieces).try_acquire_owned();
        let piece = piece.map_err(|_| InferError::UnpackedFull { bytes_max: bytes(self.limit.pieces_max) })?;
        if !self.tenant.is_empty() {
            let pieces_max = self.limit.pieces_max.div_ceil(2);
            let mut of_tenants = self.limit.of_tenants();
            let own = of_tenants.entry(self.tenant.clone()).or_default();
            if *own >= pieces_max {
                return Err(InferError::TenantUnpacked { tenant: self.tenant.clone(), bytes_max: bytes(pieces_max) });
            }
            *own += 1;
        }
        match &mut self.taken {
            Some(taken) => taken.merge(piece),
            none => *none = Some(piece),
        }
        Ok(())
    }
}

impl Drop for Unpacked {
    fn drop(&mut self) {
        let pieces = self.taken.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        if self.tenant.is_empty() || pieces == 0 {
            return;
        }
        let mut of_tenants = self.limit.of_tenants();
        if let Some(own) = of_tenants.get_mut(&self.tenant) {
            *own = own.saturating_sub(pieces);
            if *own == 0 {
                of_tenants.remove(&self.tenant);
            }
        }
    }
}

impl InFlightLimit {
    /// A limit of this many requests at a time: `frontend.requests_in_flight_max`.
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
        Self { _unpacked: Some(unpacked), ..self }
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
        let (mut first, mut second) = (limit.begin(""), limit.begin(""));
        first.take().unwrap();
        first.take().unwrap();
        let bytes_max = 2 * UnpackedLimit::PIECE_BYTES;
        assert_eq!(second.take(), Err(InferError::UnpackedFull { bytes_max }));
        let request = InFlightLimit::new(1).acquire().unwrap().with_unpacked(first);
        assert!(second.take().is_err());
        drop(request);
        second.take().unwrap();
    }

    #[test]
    fn a_tenant_leaves_the_others_half_of_what_may_be_unpacked() {
        let limit = UnpackedLimit::new(4, UnpackedLimit::PIECE_BYTES);
        let (mut one, mut more, mut other) = (limit.begin("ann"), limit.begin("ann"), limit.begin("bob"));
        one.take().unwrap();
        more.take().unwrap();
        let bytes_max = 2 * UnpackedLimit::PIECE_BYTES;
        assert_eq!(one.take(), Err(InferError::TenantUnpacked { tenant: "ann".into(), bytes_max }));
        other.take().unwrap();
        other.take().unwrap();
        drop(one);
        more.take().unwrap();
        assert!(more.take().is_err());
        drop((more, other));
        assert!(limit.of_tenants().is_empty(), "who has nothing is forgotten");
        assert_eq!(limit.pieces.available_permits(), 4);
    }
}
