//! Wakes the peer of a pair of rings: by a byte over the socket that handed them over.
//!
//! Not an eventfd: its file is shared, so the peer could make it block, or fill it. Each end of a socket belongs to
//! one process.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use tokio::net::UnixStream;

/// Each direction is woken for bytes and for room, once until it reacts, and possibly once more meanwhile. A peer that
/// sends this many at once is broken.
const WAKE_UPS_AT_ONCE_MAX: usize = 64;

/// The direction of this process that waits.
#[derive(Clone, Copy, Debug)]
pub(super) enum Side {
    Reader,
    Writer,
}

/// Wakes the peer; shared by both directions of this process.
#[derive(Debug)]
pub(super) struct PeerWaker {
    socket: Arc<UnixStream>,
    listeners: Arc<Listeners>,
    /// One waker for both directions, since the socket remembers only one.
    both: Waker,
    /// How often bytes were read from the socket: either direction reads those of both.
    wake_ups: AtomicU64,
    /// The peer must be woken, and the socket was full.
    owed: AtomicBool,
}

#[derive(Debug, Default)]
struct Listeners(Mutex<[Option<Waker>; 2]>);

impl Listeners {
    fn set(&self, side: Side, waker: &Waker) {
        let mut wakers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = &mut wakers[side as usize];
        if !slot.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *slot = Some(waker.clone());
        }
    }

    fn wake_other(&self, side: Side) {
        let other = self.0.lock().unwrap_or_else(PoisonError::into_inner)[1 - side as usize].take();
        other.into_iter().for_each(Waker::wake);
    }
}

impl Wake for Listeners {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let wakers = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        wakers.into_iter().flatten().for_each(Waker::wake);
    }
}

impl PeerWaker {
    pub(super) fn new(socket: Arc<UnixStream>) -> Self {
        let listeners = Arc::<Listeners>::default();
        let both = Waker::from(Arc::clone(&listeners));
        Self { socket, both, listeners, wake_ups: AtomicU64::new(0), owed: AtomicBool::new(false) }
    }

    /// Wakes the peer. Asks the system and not the runtime's readiness, which may be outdated. A socket may refuse a
    /// byte although it is empty, since space is returned late: then the wake-up is [owed](Self::poll_owed).
    pub(super) fn wake(&self) -> io::Result<()> {
        match send(&self.socket, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(_) => Ok(()),
            Err(Errno::AGAIN) => {
                self.owed.store(true, Ordering::Release);
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Sends an owed wake-up as soon as the socket accepts it.
    ///
    /// # Errors
    /// If the peer is gone.
    pub(super) fn poll_owed(&self, cx: &Context<'_>, side: Side) -> Poll<io::Result<()>> {
        if !self.owed.load(Ordering::Acquire) {
            return Poll::Ready(Ok(()));
        }
        self.listeners.set(side, cx.waker());
        loop {
            match self.socket.try_write(&[1]) {
                Ok(_) => {
                    self.owed.store(false, Ordering::Release);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
            if self.socket.poll_write_ready(&mut Context::from_waker(&self.both))?.is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// Waits for a wake-up, possibly a spurious one: the caller then calls
    /// [`RingReceiver::woken`](symphony_shared_memory::RingReceiver::woken) and checks its condition again. `seen` is
    /// this direction's count of wake-ups, 0 at first.
    ///
    /// # Errors
    /// If the peer is gone.
    pub(super) fn poll_woken(&self, cx: &Context<'_>, side: Side, seen: &mut u64) -> Poll<io::Result<()>> {
        self.listeners.set(side, cx.waker());
        // The other direction may have read this one's bytes: before this one was waiting, or it wakes this one.
        let all = self.wake_ups.load(Ordering::Acquire);
        if std::mem::replace(seen, all) != all {
            return Poll::Ready(Ok(()));
        }
        loop {
            if self.socket.poll_read_ready(&mut Context::from_waker(&self.both))?.is_pending() {
                return Poll::Pending;
            }
            let mut wake_ups = [0; WAKE_UPS_AT_ONCE_MAX];
            match self.socket.try_read(&mut wake_ups) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                Ok(WAKE_UPS_AT_ONCE_MAX) => {
                    return Poll::Ready(Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        "the peer sends wake-ups without a reason",
                    )));
                }
                Ok(_) => {
                    // The byte may have been for the other direction.
                    *seen = self.wake_ups.fetch_add(1, Ordering::AcqRel) + 1;
                    self.listeners.wake_other(side);
                    return Poll::Ready(Ok(()));
                }
                // A false readiness.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}
