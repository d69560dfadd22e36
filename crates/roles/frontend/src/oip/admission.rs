//! The bound on requests that are read, checked or waited for at once.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::InferError;

/// Lets so many requests in at once and refuses the others: waiting belongs into the schedulers' queues, where
/// deadlines are known.
#[derive(Clone, Debug)]
pub(crate) struct Admission {
    in_flight: Arc<Semaphore>,
    in_flight_max: usize,
}

impl Admission {
    pub(crate) fn new(in_flight_max: usize) -> Self {
        // More than the semaphore can count is no limit at all.
        let permits = in_flight_max.min(Semaphore::MAX_PERMITS);
        Self { in_flight: Arc::new(Semaphore::new(permits)), in_flight_max }
    }

    /// The request counts until the permit is dropped.
    pub(crate) fn admit(&self) -> Result<OwnedSemaphorePermit, InferError> {
        let permit = Arc::clone(&self.in_flight).try_acquire_owned();
        permit.map_err(|_| InferError::Busy { in_flight_max: self.in_flight_max })
    }
}
