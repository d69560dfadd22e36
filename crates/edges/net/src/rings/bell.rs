//! What wakes the other end of a pair of rings: a byte over the socket by which they were handed over.
//!
//! Not an eventfd: its file is shared, so the other end could make it block, or fill it. Each end of a socket is its
//! own.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use tokio::net::UnixStream;

/// Each end is rung for bytes and for room, once until it has heard that, and perhaps once more meanwhile. So many at
/// once are no bell.
const RINGS_AT_ONCE_MAX: usize = 64;

/// Which of the two ends of this process listens.
#[derive(Clone, Copy, Debug)]
pub(super) enum Side {
    Reader,
    Writer,
}

/// A bell; both ends of this process listen to it.
#[derive(Debug)]
pub(super) struct Bell {
    socket: Arc<UnixStream>,
    listeners: Arc<Listeners>,
    /// The same for both, since the socket remembers one only.
    both: Waker,
    /// How often rings were taken off the socket: either side takes those of both.
    heard: AtomicU64,
    /// The other end is to be rung, and the socket took nothing.
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

impl Bell {
    pub(super) fn new(socket: Arc<UnixStream>) -> Self {
        let listeners = Arc::<Listeners>::default();
        let both = Waker::from(Arc::clone(&listeners));
        Self { socket, both, listeners, heard: AtomicU64::new(0), owed: AtomicBool::new(false) }
    }

    /// Wakes the other end. The system is asked, and not what the runtime remembers of the socket: that may be older. A
    /// socket that takes nothing may be empty all the same, since what was read of it is given back later: then the
    /// ring is [owed](Self::poll_owed).
    pub(super) fn ring(&self) -> io::Result<()> {
        match send(&self.socket, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(_) => Ok(()),
            Err(Errno::AGAIN) => {
                self.owed.store(true, Ordering::Release);
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Rings if that is owed, as soon as the socket takes it.
    ///
    /// # Errors
    /// If the other end is gone.
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

    /// Waits to be rung, or not: whoever hears it says so
    /// ([`RingReceiver::heard`](symphony_shared_memory::RingReceiver::heard)) and looks again at what it waits for.
    /// `heard` is what this side knows of that, 0 at first.
    ///
    /// # Errors
    /// If the other end is gone.
    pub(super) fn poll_rung(&self, cx: &Context<'_>, side: Side, heard: &mut u64) -> Poll<io::Result<()>> {
        self.listeners.set(side, cx.waker());
        // The other side may have taken this one's rings: before it was known that this one listens, or it wakes it.
        let all = self.heard.load(Ordering::Acquire);
        if std::mem::replace(heard, all) != all {
            return Poll::Ready(Ok(()));
        }
        loop {
            if self.socket.poll_read_ready(&mut Context::from_waker(&self.both))?.is_pending() {
                return Poll::Pending;
            }
            let mut rung = [0; RINGS_AT_ONCE_MAX];
            match self.socket.try_read(&mut rung) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                Ok(RINGS_AT_ONCE_MAX) => {
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "the peer rings for nothing")));
                }
                Ok(_) => {
                    // The byte may have been the other side's.
                    *heard = self.heard.fetch_add(1, Ordering::AcqRel) + 1;
                    self.listeners.wake_other(side);
                    return Poll::Ready(Ok(()));
                }
                // It was not ready after all.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}
