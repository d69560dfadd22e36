//! What a backend shares with one frontend of its host.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use symphony_net::{HANDOVER_TIMEOUT, descriptor_exchange};
use symphony_protocol::data::SharingOffer;
use symphony_shared_memory::{POOL_BYTES_MAX, Placed, Pool, PoolView, Unreadable};
use tokio::sync::watch;

use super::SHARED_PAYLOAD_BYTES_MAX;

/// Large results that may wait in shared memory for one frontend to take them.
const RESULTS_MAX: usize = 1024;

/// The frontend's memory with inputs, and the backend's with results for it.
#[derive(Debug)]
pub(crate) struct SharedPair {
    inputs: PoolView,
    results: Arc<Pool>,
    lent: Mutex<HashMap<u64, Placed>>,
    /// The number of lent results.
    waiting: watch::Sender<usize>,
}

impl SharedPair {
    /// Takes up the offer.
    pub(crate) async fn join(offer: &SharingOffer, results_bytes: u64) -> Result<Self, String> {
        let results = Pool::create(results_bytes, RESULTS_MAX).map_err(|error| error.to_string())?;
        let exchange = descriptor_exchange::ask(&offer.name, &offer.secret.0, results.descriptor());
        let (inputs, _) = tokio::time::timeout(HANDOVER_TIMEOUT, exchange)
            .await
            .map_err(|_| format!("no shared memory within {} ms", HANDOVER_TIMEOUT.as_millis()))?
            .map_err(|error| format!("no shared memory: {error}"))?;
        let inputs = PoolView::open(inputs, POOL_BYTES_MAX).map_err(|error| error.to_string())?;
        Ok(Self { inputs, results, lent: Mutex::default(), waiting: watch::Sender::new(0) })
    }

    /// A request's input.
    pub(crate) fn input(&self, sequence: u64) -> Result<Bytes, Unreadable> {
        self.inputs.read(sequence, SHARED_PAYLOAD_BYTES_MAX)
    }

    /// Puts a result where its frontend finds it, until the frontend acknowledges it. False if there is no room.
    pub(crate) fn lend(&self, sequence: u64, result: &[u8]) -> bool {
        let placed = self.results.put(sequence, result);
        let lent = placed.is_some();
        let mut all = self.lock();
        all.extend(placed.map(|placed| (sequence, placed)));
        self.waiting.send_replace(all.len());
        lent
    }

    /// The frontend has taken or refused these.
    pub(crate) fn taken(&self, sequences: &[u64]) {
        let mut all = self.lock();
        for sequence in sequences {
            all.remove(sequence);
        }
        self.waiting.send_replace(all.len());
    }

    /// Resolves once no result is lent any more.
    pub(crate) async fn all_taken(&self) {
        let _ = self.waiting.subscribe().wait_for(|waiting| *waiting == 0).await;
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Placed>> {
        self.lent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
