//! Rings in shared memory: a faster path between two connected processes of one host.
//!
//! The process that accepted the connection offers the name of a socket, which exists on its host only, and a one-time
//! secret. The memory is exchanged over this socket (`hand_over`), which then serves as the
//! [waker](peer_waker::PeerWaker): a byte wakes a sleeping peer, and its end shows that the peer is gone. Messages over
//! the connection are the caller's business.

mod halves;
mod peer_waker;

pub use halves::{RingReader, RingWriter};

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use symphony_shared_memory::{RingMemory, RingReceiver, RingSender};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::AbortHandle;

use crate::descriptor_exchange::{self, SECRET_BYTES};
use halves::{RingPair, ring_streams};

/// Bytes of one ring: a millisecond of frames at a hundred megabytes per second. Frames that do not fit wait in the
/// writer's queue, as with a socket.
pub const RING_BYTES: usize = 128 << 10;

/// The most pairs of rings of one process, so that the rings it writes take at most 128 MiB. Further connections stay
/// on TCP.
pub const RINGS_MAX: usize = 1024;

/// Limit for the exchange of memory: both processes are on one host.
pub const HANDOVER_TIMEOUT: Duration = Duration::from_millis(250);

/// The most concurrent exchanges; further callers wait.
const HANDOVERS_MAX: usize = 64;
/// Pause after a failed accept, which is probably due to a lack of file descriptors.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(10);

/// Both directions of a pair of rings.
pub type RingStreams = (RingReader, RingWriter);

/// The location of another process's rings, and the secret for them.
#[derive(Clone, PartialEq, Eq)]
pub struct RingOffer {
    /// Name of a socket that exists on one host only.
    pub name: String,
    /// Good for one use.
    pub secret: [u8; SECRET_BYTES],
}

impl std::fmt::Debug for RingOffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RingOffer").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The rings of one process. A handle; the socket is closed with the last one.
#[derive(Clone, Debug)]
pub struct Rings(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: String,
    /// How long a reader polls an empty ring before it sleeps.
    spin: Duration,
    /// Open offers.
    offered: Mutex<HashMap<[u8; SECRET_BYTES], oneshot::Sender<RingStreams>>>,
    places: Arc<Semaphore>,
    wake_ups: Arc<AtomicU64>,
    accepting: AbortHandle,
}

type Ends = (RingSender, RingReceiver);

/// An offer; withdrawn when dropped.
#[derive(Debug)]
pub struct PendingRings {
    inner: Arc<Inner>,
    secret: [u8; SECRET_BYTES],
    comes: oneshot::Receiver<RingStreams>,
}

impl Rings {
    /// Rings for one process. A reader polls an empty ring for `spin` before it sleeps. Must be called inside a tokio
    /// runtime.
    ///
    /// # Errors
    /// If the system lacks shareable, sealed memory or such a socket.
    pub fn start(spin: Duration) -> io::Result<Self> {
        RingMemory::create(RING_BYTES)?;
        let name = descriptor_exchange::fresh_name();
        let listener = descriptor_exchange::listen(&name)?;
        Ok(Self(Arc::new_cyclic(|inner: &Weak<Inner>| {
            let accepting = tokio::spawn(accept(inner.clone(), listener)).abort_handle();
            let (offered, places) = (Mutex::default(), Arc::new(Semaphore::new(RINGS_MAX)));
            Inner { name, spin, offered, places, wake_ups: Arc::default(), accepting }
        })))
    }

    /// An offer for one process.
    #[must_use]
    pub fn offer(&self) -> (RingOffer, PendingRings) {
        let secret: [u8; SECRET_BYTES] = rand::random();
        let (come, comes) = oneshot::channel();
        self.0.lock().insert(secret, come);
        (RingOffer { name: self.0.name.clone(), secret }, PendingRings { inner: Arc::clone(&self.0), secret, comes })
    }

    /// Accepts an offer.
    ///
    /// # Errors
    /// Why there are no rings between the two processes.
    pub async fn join(&self, offer: &RingOffer) -> Result<RingStreams, String> {
        let place = self.0.place()?;
        let mine = RingMemory::create(RING_BYTES).map_err(|error| format!("no shared memory: {error}"))?;
        let exchange = descriptor_exchange::ask(&offer.name, &offer.secret, mine.descriptor());
        let (theirs, socket) = tokio::time::timeout(HANDOVER_TIMEOUT, exchange)
            .await
            .map_err(|_| format!("no shared memory within {} ms", HANDOVER_TIMEOUT.as_millis()))?
            .map_err(|error| format!("no shared memory: {error}"))?;
        let ends = mine.join(theirs).map_err(|error| error.to_string())?;
        Ok(self.0.streams(ends, Arc::new(socket), place))
    }

    /// How often this process woke sleeping peers.
    #[must_use]
    pub fn wake_ups(&self) -> u64 {
        self.0.wake_ups.load(Ordering::Relaxed)
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, HashMap<[u8; SECRET_BYTES], oneshot::Sender<RingStreams>>> {
        self.offered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self) -> Result<OwnedSemaphorePermit, String> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        place.map_err(|_| format!("this process has {RINGS_MAX} pairs of rings already"))
    }

    fn streams(&self, ends: Ends, socket: Arc<UnixStream>, place: OwnedSemaphorePermit) -> RingStreams {
        ring_streams(ends, Arc::new(RingPair::new(socket, Arc::clone(&self.wake_ups), place)), self.spin)
    }

    async fn hand_over(&self, socket: UnixStream) -> Result<(), String> {
        let (secret, theirs) = descriptor_exchange::asked(&socket).await.map_err(|error| error.to_string())?;
        let come = self.lock().remove(&secret).ok_or("a secret that is not good, or not any more")?;
        let place = self.place()?;
        let mine = RingMemory::create(RING_BYTES).map_err(|error| error.to_string())?;
        let granted = mine.descriptor().try_clone_to_owned().map_err(|error| error.to_string())?;
        let ends = mine.join(theirs).map_err(|error| error.to_string())?;
        let socket = Arc::new(socket);
        let streams = self.streams(ends, Arc::clone(&socket), place);
        // Before the answer, so that whatever the peer sends afterwards finds its rings here.
        come.send(streams).map_err(|_| "its connection has ended")?;
        descriptor_exchange::grant(&socket, std::os::fd::AsFd::as_fd(&granted)).await.map_err(|error| error.to_string())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(inner: Weak<Inner>, listener: UnixListener) {
    let handovers = Arc::new(Semaphore::new(HANDOVERS_MAX));
    while let Ok(permit) = Arc::clone(&handovers).acquire_owned().await {
        let socket = match listener.accept().await {
            Ok((socket, _)) => socket,
            Err(error) => {
                tracing::warn!(%error, "connection for shared memory not accepted");
                tokio::time::sleep(ACCEPT_AGAIN_AFTER).await;
                continue;
            }
        };
        let Some(inner) = inner.upgrade() else { return };
        tokio::spawn(async move {
            match tokio::time::timeout(HANDOVER_TIMEOUT, inner.hand_over(socket)).await {
                Ok(Ok(())) => {}
                // Any user of the host may call, as often as it likes; so a refusal is not a warning.
                Ok(Err(reason)) => tracing::debug!(%reason, "no rings handed over"),
                Err(_) => tracing::debug!("no rings handed over: the caller is too slow"),
            }
            drop(permit);
        });
    }
}

impl PendingRings {
    /// The rings, if the peer has accepted the offer.
    pub fn streams(&mut self) -> Option<RingStreams> {
        self.comes.try_recv().ok()
    }
}

impl Drop for PendingRings {
    fn drop(&mut self) {
        self.inner.lock().remove(&self.secret);
    }
}

#[cfg(test)]
mod tests;
