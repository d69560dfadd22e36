//! A frontend's inputs in memory that backends of its host read.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use symphony_config::PayloadsConfig;
use symphony_protocol::data::{SharingOffer, SharingSecret};
use symphony_shared_memory::{POOL_BYTES_MAX, POOL_BYTES_MIN, Placed, Pool, PoolError, PoolView};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, oneshot};
use tokio_util::sync::CancellationToken;

use super::SharingError;
use crate::rdma::{RdmaFrontend, RdmaReader};
use symphony_net::HANDOVER_TIMEOUT;
use symphony_net::descriptor_exchange::{self, SECRET_BYTES};

/// Concurrent exchanges of descriptors; further callers wait.
const HANDOVERS_MAX: usize = 64;
/// Pause after a failed accept, most likely for lack of file descriptors.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(10);
/// Pool entries per request in flight: requests of different age then rarely need the same entry.
const ENTRIES_PER_REQUEST: usize = 2;

/// Inputs in shared memory. They are only put there while a backend reads them.
#[derive(Debug)]
pub struct SharedInputs {
    pool: Arc<Pool>,
    /// Name of the socket.
    name: String,
    /// Backends that were made an offer and have not come yet.
    offered: Mutex<HashMap<[u8; SECRET_BYTES], oneshot::Sender<SharingBackend>>>,
    /// The pool for RDMA reads; then there is no socket.
    rdma: Option<RdmaFrontend>,
    readers: AtomicUsize,
    required: bool,
}

/// One backend that shares: its memory for results, and that it reads inputs.
#[derive(Debug)]
pub(crate) struct SharingBackend {
    pub(crate) results: PoolView,
    _reads: Reading,
}

/// Counts a reader while this value exists.
#[derive(Debug)]
pub(crate) struct Reading(Arc<SharedInputs>);

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.readers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A pending offer; forgotten when this is dropped.
#[derive(Debug)]
pub(crate) struct PendingOffer {
    inputs: Arc<SharedInputs>,
    secret: [u8; SECRET_BYTES],
    comes: oneshot::Receiver<SharingBackend>,
    sharing_backend: Option<SharingBackend>,
}

/// Whether this system has memory that can be shared and sealed.
///
/// # Errors
/// If it has none.
pub fn can_share() -> Result<(), SharingError> {
    Pool::create(POOL_BYTES_MIN, 1)?;
    Ok(())
}

/// Whether inputs can be read by RDMA here.
///
/// # Errors
/// If this program was built without RDMA, there is no device, or its memory cannot be locked.
pub fn can_use_rdma(config: &PayloadsConfig) -> Result<(), SharingError> {
    RdmaReader::open(config.rdma_device(), config.pool_bytes()).map(drop)
}

impl SharedInputs {
    /// Memory of `bytes` bytes for the inputs of at most `in_flight_max` requests at a time, shared until `ended`. Must
    /// be called inside a tokio runtime. With `required`, backends that do not share are refused.
    ///
    /// # Errors
    /// If the system has no such memory, or no socket for it.
    pub fn start(
        bytes: u64,
        in_flight_max: usize,
        required: bool,
        ended: CancellationToken,
    ) -> Result<Arc<Self>, SharingError> {
        let pool = pool_for(bytes, in_flight_max)?;
        let name = descriptor_exchange::fresh_name();
        let listener = descriptor_exchange::listen(&name)?;
        let (offered, readers) = (Mutex::default(), AtomicUsize::new(0));
        let inputs = Arc::new(Self { pool, name, offered, rdma: None, readers, required });
        let accepting = accept(Arc::clone(&inputs), listener);
        tokio::spawn(async move { ended.run_until_cancelled(accepting).await });
        Ok(inputs)
    }

    /// As [`start`](Self::start), for backends that read by RDMA, through that device or the first one with an active
    /// port. All of the memory is locked. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// If there is no such device, the memory cannot be locked, or this program was built without RDMA.
    pub fn over_rdma(
        bytes: u64,
        in_flight_max: usize,
        required: bool,
        device: Option<&str>,
    ) -> Result<Arc<Self>, SharingError> {
        let pool = pool_for(bytes, in_flight_max)?;
        let rdma = Some(RdmaFrontend::open(device, &pool)?);
        let (name, offered, readers) = Default::default();
        Ok(Arc::new(Self { pool, name, offered, rdma, readers, required }))
    }

    /// The pool for RDMA reads.
    pub(crate) const fn rdma(&self) -> Option<&RdmaFrontend> {
        self.rdma.as_ref()
    }

    /// Counts a reader from now on.
    pub(crate) fn read(self: &Arc<Self>) -> Reading {
        self.readers.fetch_add(1, Ordering::Relaxed);
        Reading(Arc::clone(self))
    }

    /// Puts an input there until the returned value is dropped. None if no backend would read it there, or there is no
    /// room.
    #[must_use = "dropped, the input is gone again"]
    pub fn put(&self, sequence: u64, input: &[u8]) -> Option<Placed> {
        if self.readers() == 0 { None } else { self.pool.put(sequence, input) }
    }

    /// Backends that read inputs here.
    #[must_use]
    pub fn readers(&self) -> usize {
        self.readers.load(Ordering::Relaxed)
    }

    /// Bytes in use.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.pool.used_bytes()
    }

    /// Inputs that found no room, and travel by TCP.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.pool.refused()
    }

    /// Whether backends that do not share are refused.
    pub(crate) const fn required(&self) -> bool {
        self.required
    }

    /// An offer for one backend.
    pub(crate) fn offer(self: &Arc<Self>) -> (SharingOffer, PendingOffer) {
        let secret: [u8; SECRET_BYTES] = rand::random();
        let (come, comes) = oneshot::channel();
        self.lock().insert(secret, come);
        let offer = SharingOffer { name: self.name.clone(), secret: SharingSecret(secret) };
        (offer, PendingOffer { inputs: Arc::clone(self), secret, comes, sharing_backend: None })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<[u8; SECRET_BYTES], oneshot::Sender<SharingBackend>>> {
        self.offered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn hand_over(self: &Arc<Self>, stream: &UnixStream) -> Result<(), String> {
        let (secret, results) = descriptor_exchange::asked(stream).await.map_err(|error| error.to_string())?;
        let come = self.lock().remove(&secret).ok_or("a secret that is not good, or not any more")?;
        let results = PoolView::open(results, POOL_BYTES_MAX).map_err(|error| error.to_string())?;
        let sharing_backend = SharingBackend { results, _reads: self.read() };
        // Before the backend learns of it, so that the memory is known when its first message arrives.
        come.send(sharing_backend).map_err(|_| "the data link has ended")?;
        descriptor_exchange::grant(stream, self.pool.descriptor()).await.map_err(|error| error.to_string())
    }
}

/// A pool of this many bytes for this many requests at a time.
fn pool_for(bytes: u64, in_flight_max: usize) -> Result<Arc<Pool>, PoolError> {
    let entries = in_flight_max.saturating_mul(ENTRIES_PER_REQUEST).max(1);
    let entries = entries.checked_next_power_of_two().unwrap_or(usize::MAX);
    // A small pool is not filled with entries.
    let entries_max = usize::try_from(bytes >> 8).unwrap_or(usize::MAX).clamp(1, symphony_shared_memory::ENTRIES_MAX);
    Pool::create(bytes, entries.min(1 << entries_max.ilog2()))
}

async fn accept(inputs: Arc<SharedInputs>, listener: UnixListener) {
    let handovers = Arc::new(Semaphore::new(HANDOVERS_MAX));
    while let Ok(permit) = Arc::clone(&handovers).acquire_owned().await {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "connection for shared memory not accepted");
                tokio::time::sleep(ACCEPT_AGAIN_AFTER).await;
                continue;
            }
        };
        let inputs = Arc::clone(&inputs);
        tokio::spawn(async move {
            match tokio::time::timeout(HANDOVER_TIMEOUT, inputs.hand_over(&stream)).await {
                Ok(Ok(())) => {}
                // Any user of the host may call, and as often as it likes. A backend that is refused says so itself.
                Ok(Err(reason)) => tracing::debug!(%reason, "shared memory not handed over"),
                Err(_) => tracing::debug!("shared memory not handed over: the caller is too slow"),
            }
            drop(permit);
        });
    }
}

impl PendingOffer {
    /// The backend, if it has come.
    pub(crate) fn sharing_backend(&mut self) -> Option<&SharingBackend> {
        if self.sharing_backend.is_none() {
            self.sharing_backend = self.comes.try_recv().ok();
        }
        self.sharing_backend.as_ref()
    }
}

impl Drop for PendingOffer {
    fn drop(&mut self) {
        self.inputs.lock().remove(&self.secret);
    }
}
